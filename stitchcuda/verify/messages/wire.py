"""Sends and receives the messages between judge and workers, as signed JSON lines over a socket, and encodes values in them.

`encode` turns a value into JSON plus a list of tensors, which travel as a `TensorBlock`: its descriptor goes with the message.
The judge takes no descriptor from a program's worker. Nothing is pickled, so the judge can read what an untrusted worker wrote.
A received message is bounded in length and depth, and its strings are printable. The functions that send, sign and read are
bound at import, before any program: one that replaces functions later changes no answer.
Where to look next: `verify/messages/tensor_block.py` (the tensors), `verify/processes/forkserver.py` (who opens channels),
`verify/processes/worker.py` (who asks).
"""

from __future__ import annotations

import array
import builtins
import dataclasses
import os
import socket
from _socket import socket as _Socket
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex
from select import select
from time import monotonic
from typing import Any, TypeVar

import torch

from stitchcuda.state import Record
from stitchcuda.verify.messages import json_text
from stitchcuda.verify.messages.tensor_block import TensorBlock, WireError

__all__ = ["Channel", "ChannelClosed", "ChannelTimeout", "WireError", "decode", "encode", "named_tensors", "take_blocks"]

_LINE_LIMIT = 64 * 2**20                   # bytes of a message
_SIGNATURE = 32                            # hexadecimal digits at the end of each message
_DEPTH_LIMIT = 64                          # of nested lists and objects
# A message of a trusted process may repeat what a program's worker said, in ASCII and with a block around it.
_TRUSTED_LINE_LIMIT, _TRUSTED_DEPTH_LIMIT = 8 * _LINE_LIMIT, _DEPTH_LIMIT + 8
_KEY_LIMIT = 200                           # characters of a key in a result
_BLOCKS_LIMIT = 250                        # descriptors that go with a message; the system takes 253
_BLOCK_KEYS = {"block", "key", "size", "device", "layout", "mark"}
_NAMES_LIMIT = 4 * 2**20                   # characters of the paths to all parts of a result

_Sent = TypeVar("_Sent")

globals()["__builtins__"] = dict(vars(builtins))  # the functions below use this copy, whatever a program replaces later
_dump, _load, _load_first = json_text.dump, json_text.load, json_text.load_first
# Those of `socket.socket` can be replaced.
_set_timeout, _send_all, _recv, _recv_with = _Socket.settimeout, _Socket.sendall, _Socket.recv, _Socket.recvmsg
_CONTROL, _CLOEXEC = socket.CMSG_SPACE(4 * _BLOCKS_LIMIT), socket.MSG_CMSG_CLOEXEC


class ChannelClosed(Exception):
    """The other process closed its end or ended."""


class ChannelTimeout(Exception):
    """No message came, or none could be sent, within the time limit."""


class ForgedMessage(WireError):
    """A message without the signature of the other side, or not in the order in which it was sent."""


class Channel:
    """JSON messages, one per line, over a connected socket. Not to be used by several threads at once.

    A message may hold `TensorBlock`s. With `keys` (one for sent and one for received messages) each message is numbered and
    signed: code that gets hold of the socket can close the connection, but cannot change or insert a message. `takes`: whether
    the other side is trusted: its descriptors are received too, and its messages may be longer. Else the system closes those
    that it sends.
    """

    def __init__(self, sock: socket.socket, keys: tuple[bytes, bytes] | None = None, *, takes: bool = False) -> None:
        self._sock = sock
        self._takes = takes
        self._descriptors: list[int] = []  # received, of a message that is not complete
        self._buffer = bytearray()
        self._signs = [blake2b(key=key, digest_size=_SIGNATURE // 2) for key in keys or ()]  # hides the keys
        self._numbers = [0, 0]             # of messages sent and received

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any], seconds: float | None = None) -> None:
        """Sends a message. Raises `ChannelClosed`, or `ChannelTimeout` if the other side does not read within the time."""
        try:
            _set_timeout(self._sock, seconds)
            blocks: list[TensorBlock] = []
            mark = token_hex(8)            # what a program said is passed on in messages: it must not look like a block
            plain = _place_blocks(message, blocks, mark)
            line = _dump(plain | {"descriptors": len(blocks), "mark": mark} if blocks else plain)
            data = line + self._signature(0, line) + b"\n"
            if blocks:
                rights = array.array("i", [block.descriptor for block in blocks])
                data = data[self._sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]) :]
            _send_all(self._sock, data)
            _set_timeout(self._sock, None)
        except TimeoutError:
            raise ChannelTimeout from None
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def sender(self) -> Callable[[Mapping[str, Any]], None]:
        """Returns a `send` without a time limit, for processes that run generated code. It looks up no global, no builtin and
        no attribute of this object, so that code that replaces them later neither changes nor sees what is signed."""
        sock, numbers, signs = self._sock, self._numbers, tuple(self._signs)
        dump, send_all, closed, failed = json_text.writer(), _send_all, ChannelClosed, OSError

        def send(message: Mapping[str, Any]) -> None:
            line = signed = dump(message)
            if signs:
                numbers[0] += 1
                signature = signs[0].copy()
                signature.update(b"%d " % numbers[0] + line)
                signed = line + signature.hexdigest().encode()
            try:
                send_all(sock, signed + b"\n")
            except failed as error:
                raise closed from error

        return send

    def receiver(self) -> Callable[[], Any]:
        """Returns a `receive` of the same kind, for messages of the judge, which are trusted and not checked. The descriptors
        that come with a message are its `descriptors`; `take_blocks` makes blocks of them."""
        sock, buffer, numbers, signs = self._sock, self._buffer, self._numbers, tuple(self._signs)
        read, recv, same, width, wrong = json_text.reader(), _recv_with, compare_digest, _SIGNATURE, ForgedMessage
        closed, failed, descriptors, control, cloexec = ChannelClosed, OSError, self._descriptors, _CONTROL, _CLOEXEC
        integer = int.from_bytes

        def receive() -> Any:
            searched = 0
            while (end := buffer.find(b"\n", searched)) < 0:
                searched = buffer.__len__()
                try:
                    chunk, beside, _, _ = recv(sock, 1 << 16, control, cloexec)
                except failed as error:
                    raise closed from error
                for _, _, data in beside:
                    while data:
                        descriptors.append(integer(data[:4], "little"))
                        data = data[4:]
                if not chunk:
                    raise closed
                buffer.extend(chunk)
            line = buffer[:end]
            del buffer[: end + 1]
            if signs:
                numbers[1] += 1
                signature, given = signs[1].copy(), line[-width:]
                del line[-width:]
                signature.update(b"%d " % numbers[1] + line)
                if not same(given, signature.hexdigest().encode()):
                    raise wrong
            message = read(line)
            if "descriptors" in message:
                count = message["descriptors"]
                message["descriptors"] = descriptors[:count]
                del descriptors[:count]
            return message

        return receive

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Waits for the next message. Raises `ChannelClosed`, `ChannelTimeout`, `ForgedMessage`, or `WireError` if it is no
        JSON object, too long or nested too deeply."""
        deadline = None if seconds is None else monotonic() + seconds
        most, depth = (_TRUSTED_LINE_LIMIT, _TRUSTED_DEPTH_LIMIT) if self._takes else (_LINE_LIMIT, _DEPTH_LIMIT)
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most:
                raise WireError("a message without end")
            wait = None if deadline is None else deadline - monotonic()
            if wait is not None and (wait <= 0 or not select([self._sock], [], [], wait)[0]):
                raise ChannelTimeout
            try:
                chunk = self._receive_part() if self._takes else _recv(self._sock, 1 << 16)
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not chunk:
                raise ChannelClosed("end of stream")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        text = line[:-_SIGNATURE] if self._signs else line
        genuine = compare_digest(line[len(text) :], self._signature(1, text))
        try:
            message = _load(text) if genuine else _load_first(line.decode())[0]
        except (ValueError, RecursionError) as error:
            raise WireError(f"not JSON: {line[:80]!r}") from error
        if not genuine:
            raise ForgedMessage("a message that its sender did not sign")
        if not isinstance(message, dict):
            raise WireError("not a JSON object")
        checked: dict[str, Any] = _printable(message, depth)
        if self._takes and "descriptors" in checked:
            count = checked["descriptors"]
            checked["descriptors"], self._descriptors[:count] = self._descriptors[:count], []
            checked = take_blocks(checked)
        return checked

    def _receive_part(self) -> bytes:
        part, beside, _, _ = _recv_with(self._sock, 1 << 16, _CONTROL, _CLOEXEC)
        for _, _, data in beside:
            self._descriptors.extend(array.array("i", data))
        return part

    def _signature(self, direction: int, line: bytes) -> bytes:
        if not self._signs:
            return b""
        self._numbers[direction] += 1
        signature = self._signs[direction].copy()
        signature.update(b"%d " % self._numbers[direction] + line)
        return signature.hexdigest().encode()

    def close(self) -> None:
        self._sock.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def take_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """Returns a message of a trusted process with a `TensorBlock` for each one that its sender put in. The descriptors that
    came with it, in its field `descriptors`, are theirs from now on."""
    if "descriptors" not in message:
        return message
    mark, taken = message.pop("mark"), dict(enumerate(message.pop("descriptors")))

    def replace(value: Any) -> Any:
        if isinstance(value, list):
            return [replace(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == _BLOCK_KEYS and value["mark"] == mark:
            descriptor = taken.pop(value["block"])
            return TensorBlock(descriptor, value["size"], value["device"], value["layout"], value["key"])
        return {key: replace(item) for key, item in value.items()}

    found: dict[str, Any] = replace(message)
    for unused in taken.values():
        os.close(unused)
    return found


def _place_blocks(value: Any, blocks: list[TensorBlock], mark: str) -> Any:
    """Returns a message as JSON: each record as an object of its fields, and for each block, which is appended to `blocks`, an
    object with the secret `mark`."""
    if isinstance(value, TensorBlock):
        blocks.append(value)
        return {**value.facts(len(blocks) - 1), "mark": mark}
    if isinstance(value, Record):
        return value.model_dump(mode="json")
    if hasattr(value, "__dataclass_fields__"):
        value = vars(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _place_blocks(item, blocks, mark) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_place_blocks(item, blocks, mark) for item in value]
    return value


def encode(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns `value` as JSON. Its tensors are appended to `tensors`, and {"tensor": position} stands for each.

    Dataclasses become dicts. Raises `WireError` for a value of any other type than those below.
    """
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise WireError(f"a tensor with layout {value.layout}; only strided tensors are supported")
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}      # inf and nan are not JSON
    if isinstance(value, torch.Size):
        return {"tuple": [int(size) for size in value]}
    if isinstance(value, tuple):
        items = [encode(item, tensors) for item in value]
        if hasattr(value, "_fields"):
            return {"tuple": items, "type": type(value).__name__, "fields": list(value._fields)}
        return {"tuple": items}
    if isinstance(value, list):
        return {"list": [encode(item, tensors) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[encode(key, tensors), encode(item, tensors)] for key, item in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"dict": [[key, encode(item, tensors)] for key, item in fields.items()], "type": type(value).__name__}
    if isinstance(value, torch.dtype | torch.device):
        return {"dtype" if isinstance(value, torch.dtype) else "device": str(value).removeprefix("torch.")}
    raise WireError(f"a value of type {type(value).__module__}.{type(value).__qualname__}")


def decode(value: Any, tensors: list[torch.Tensor], device: str = "cpu") -> Any:
    """The inverse of `encode`, for messages of the judge. Named tuples come back as such, dataclasses as dicts, and every
    device but "meta" as `device`."""
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "float" in value:
        return float.fromhex(value["float"])
    if "tuple" in value:
        items = tuple(decode(item, tensors, device) for item in value["tuple"])
        return namedtuple(value["type"], value["fields"], rename=True)(*items) if value.get("fields") else items
    if "list" in value:
        return [decode(item, tensors, device) for item in value["list"]]
    if "dict" in value:
        return {decode(key, tensors, device): decode(item, tensors, device) for key, item in value["dict"]}
    if "dtype" in value:
        return getattr(torch, value["dtype"])
    if "device" in value:
        return torch.device(device if value["device"] != "meta" else "meta")
    raise WireError(f"an unknown value {value!r:.80}")


def named_tensors(structure: Any, tensors: Sequence[_Sent]) -> dict[str, _Sent]:
    """Maps the path of each tensor in an encoded result ("output.0.mask") to that item of `tensors`, which may be positions.

    The sender is not trusted. Raises `WireError` for anything but tensors, None and nested tuples, lists and dicts of them, and
    for keys or paths that are too long.
    """
    named: dict[str, _Sent] = {}
    left = _NAMES_LIMIT
    for path, part in _parts(structure, "output"):
        left -= len(path)                  # a key is repeated in the paths of everything below it
        if left < 0:
            raise WireError(f"the names of its parts are longer than {_NAMES_LIMIT} characters in all")
        if part is None or "tensor" not in part:
            continue
        position = part["tensor"]
        if type(position) is not int or not 0 <= position < len(tensors):
            raise WireError(f"{path} is a tensor that was not sent")
        named[path] = tensors[position]
    return named


def _parts(structure: Any, name: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yields every part of an encoded result with its path, each container before its parts."""
    if structure is not None and not isinstance(structure, dict):
        raise WireError(f"{name} is {structure!r:.60}, not a tensor")
    yield name, structure
    if structure is None or "tensor" in structure:
        return
    kind, parts = container(structure)
    if not kind:
        raise WireError(f"{name} is a {next(iter(structure), 'value')!s:.40}, not a tensor")
    for key, part in parts:
        if len(text := str(key)) > _KEY_LIMIT:
            raise WireError(f"a key in {name} has {len(text)} characters where {_KEY_LIMIT} are the most")
        yield from _parts(part, f"{name}.{text}")


def container(structure: dict[str, Any]) -> tuple[str, list[tuple[Any, Any]]]:
    """Returns ("tuple", "list", "dict" or "dataclass"; its parts by key) of an encoded container, ("", []) of anything else.
    The sender is not trusted."""
    nested = structure.get("tuple", structure.get("list"))
    if isinstance(nested, list):
        return "tuple" if "tuple" in structure else "list", list(enumerate(nested))
    if isinstance(pairs := structure.get("dict"), list):
        kind = "dataclass" if "type" in structure else "dict"
        return kind, [(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    return "", []


def _printable(value: Any, depth: int) -> Any:
    """Replaces lone surrogates in strings, which no file can hold. Raises `WireError` if `value` is nested too deeply."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise WireError("a message nested too deeply")
    if isinstance(value, list):
        return [_printable(item, depth - 1) for item in value]
    return {_printable(key, depth - 1): _printable(item, depth - 1) for key, item in value.items()}
