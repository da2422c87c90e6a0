"""How processes talk: JSON lines over a socket or pipes, tensors as safetensors files in a scratch folder.

Values are encoded by `encode` into JSON plus a list of tensors, never pickled, so the judge can read what an untrusted
worker wrote. A message is bounded in length and depth, and its strings can be printed, whoever sent it. What sends, signs and
reads is bound when this is imported, before any program is: one that replaces functions of Python later changes no answer.
Where to look next: `verify/messages/tensor_file.py` (the tensors' files), `verify/processes/forkserver.py` (who opens
channels), `verify/judge/judge.py`.
"""

from __future__ import annotations

import builtins
import dataclasses
import socket
from _socket import socket as _Socket
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from select import select
from time import monotonic
from typing import Any, TypeVar

import torch

from stitchcuda.verify.messages import json_text
from stitchcuda.verify.messages.tensor_file import WireError, read_tensors, write_tensors

__all__ = [
    "Channel", "ChannelClosed", "ChannelTimeout", "WireError",
    "decode", "encode", "named_tensors", "read_tensors", "write_tensors",
]  # fmt: skip

_LINE_LIMIT = 64 * 2**20                   # a reply longer than this is a fault of the worker
_SIGNATURE = 32                            # hexadecimal digits behind each message
_DEPTH_LIMIT = 64                          # of nested lists and objects
_KEY_LIMIT = 200                           # characters of a key in a result
_NAMES_LIMIT = 4 * 2**20                   # characters of the paths to all parts of a result

_Sent = TypeVar("_Sent")

globals()["__builtins__"] = dict(vars(builtins))  # for the functions below, whatever becomes of those that all use
_dumped, _loaded, _first = json_text.dump, json_text.load, json_text.load_first
_set_timeout, _send_all, _received = _Socket.settimeout, _Socket.sendall, _Socket.recv  # `socket.socket` can be given others


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelTimeout(Exception):
    """No reply within the time limit, or nobody who reads."""


class ForgedMessage(WireError):
    """A message that the other side did not send, or not in this place."""


class Channel:
    """JSON messages, one per line, over a connected socket. One owner per side; not for threads.

    With `keys` (for what is sent, for what is received) each message is numbered and signed: whoever gets hold of the
    descriptor can end the talk, but neither change a message nor put in one.
    """

    def __init__(self, sock: socket.socket, keys: tuple[bytes, bytes] | None = None) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._signs = [blake2b(key=key, digest_size=_SIGNATURE // 2) for key in keys or ()]  # keys cannot be read from it
        self._numbers = [0, 0]             # of messages sent and received

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any], seconds: float | None = None) -> None:
        """Raises `ChannelClosed`, or `ChannelTimeout` when the other side does not read within the time."""
        try:
            _set_timeout(self._sock, seconds)
            line = _dumped(message)
            _send_all(self._sock, line + self._signature(0, line) + b"\n")
            _set_timeout(self._sock, None)
        except TimeoutError:
            raise ChannelTimeout from None
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def sender(self) -> Callable[[Mapping[str, Any]], None]:
        """`send` without a limit, for a process that runs generated code: no global, no builtin and no attribute of this object
        is looked up, so that nothing that Python code replaces later changes or sees what is signed."""
        sock, numbers, signs = self._sock, self._numbers, tuple(self._signs)
        dumped, send_all, closed, failed = json_text.writer(), _send_all, ChannelClosed, OSError

        def send(message: Mapping[str, Any]) -> None:
            line = said = dumped(message)
            if signs:
                numbers[0] += 1
                signature = signs[0].copy()
                signature.update(b"%d " % numbers[0] + line)
                said = line + signature.hexdigest().encode()
            try:
                send_all(sock, said + b"\n")
            except failed as error:
                raise closed from error

        return send

    def receiver(self) -> Callable[[], Any]:
        """`receive` in the same way, from a judge, who is trusted: what is asked is nobody else's to read either."""
        sock, buffer, numbers, signs = self._sock, self._buffer, self._numbers, tuple(self._signs)
        read, received, same, width, wrong = json_text.reader(), _received, compare_digest, _SIGNATURE, ForgedMessage
        closed, failed = ChannelClosed, OSError

        def receive() -> Any:
            searched = 0
            while (end := buffer.find(b"\n", searched)) < 0:
                searched = buffer.__len__()
                try:
                    chunk = received(sock, 1 << 16)
                except failed as error:
                    raise closed from error
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
            return read(line)

        return receive

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message. Raises `ChannelClosed`, `ChannelTimeout` or `WireError` (not a JSON object, or too long)."""
        deadline = None if seconds is None else monotonic() + seconds
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LINE_LIMIT:
                raise WireError("a message without end")
            wait = None if deadline is None else deadline - monotonic()
            if wait is not None and (wait <= 0 or not select([self._sock], [], [], wait)[0]):
                raise ChannelTimeout
            try:
                chunk = _received(self._sock, 1 << 16)
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not chunk:
                raise ChannelClosed("end of stream")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        said = line[:-_SIGNATURE] if self._signs else line
        genuine = compare_digest(line[len(said) :], self._signature(1, said))
        try:
            message = _loaded(said) if genuine else _first(line.decode())[0]
        except (ValueError, RecursionError) as error:
            raise WireError(f"not JSON: {line[:80]!r}") from error
        if not genuine:
            raise ForgedMessage("a message that its sender did not sign")
        if not isinstance(message, dict):
            raise WireError("not a JSON object")
        checked: dict[str, Any] = _printable(message, _DEPTH_LIMIT)
        return checked

    def _signature(self, direction: int, line: bytes) -> bytes:
        if not self._signs:
            return b""
        self._numbers[direction] += 1
        signature = self._signs[direction].copy()
        signature.update(b"%d " % self._numbers[direction] + line)
        return signature.hexdigest().encode()

    def close(self) -> None:
        self._sock.close()


def encode(value: Any, tensors: list[torch.Tensor]) -> Any:
    """`value` as JSON; its tensors are appended to `tensors` and referred to by position. Raises `WireError`."""
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
    """The inverse of `encode`, for what the judge sent; named tuples come back as such, dataclasses as dicts."""
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


def named_tensors(structure: Any, tensors: Sequence[_Sent], name: str = "output") -> dict[str, _Sent]:
    """The tensors of an encoded result, or what stands for them, by path as `truth.name_outputs` names them.

    The sender is not trusted.

    Raises `WireError` for anything that is no tensor and no nested tuple, list or dict of tensors, and for names without end.
    """
    named: dict[str, _Sent] = {}
    left = _NAMES_LIMIT
    for path, part in _parts(structure, name):
        left -= len(path)                  # a key stands in the path of everything below it
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
    """Every part of an encoded result by its path, a whole before its parts."""
    if structure is not None and not isinstance(structure, dict):
        raise WireError(f"{name} is {structure!r:.60}, not a tensor")
    yield name, structure
    if structure is None or "tensor" in structure:
        return
    parts: list[tuple[Any, Any]]
    nested = structure.get("tuple", structure.get("list"))
    if isinstance(nested, list):
        parts = list(enumerate(nested))
    elif isinstance(structure.get("dict"), list):
        parts = [(pair[0], pair[1]) for pair in structure["dict"] if isinstance(pair, list) and len(pair) == 2]
    else:
        raise WireError(f"{name} is a {next(iter(structure), 'value')!s:.40}, not a tensor")
    for key, part in parts:
        if len(said := str(key)) > _KEY_LIMIT:
            raise WireError(f"a key in {name} has {len(said)} characters where {_KEY_LIMIT} are the most")
        yield from _parts(part, f"{name}.{said}")


def _printable(value: Any, depth: int) -> Any:
    """`value` with lone surrogates replaced: no file and no terminal takes them. Raises `WireError` where it is too deep."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise WireError("a message nested too deeply")
    if isinstance(value, list):
        return [_printable(item, depth - 1) for item in value]
    return {_printable(key, depth - 1): _printable(item, depth - 1) for key, item in value.items()}
