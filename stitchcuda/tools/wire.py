"""How processes talk: JSON lines over a socket or pipes, tensors as safetensors files in a scratch folder.

Values are encoded by `encode` into JSON plus a list of tensors, never pickled, so the judge can read what an untrusted
worker wrote. A tensor travels as the bytes of its memory span with its shape and strides, so that a transposed, sliced or
expanded tensor arrives with the layout it had. Where to look next: `nursery.py` (who opens channels), `judge.py`.
"""

from __future__ import annotations

import dataclasses
import json
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

_LINE_LIMIT = 64 * 2**20                   # a reply longer than this is a fault of the worker


class WireError(Exception):
    """A value that cannot travel, or a file or message that is not what was agreed."""


class Closed(Exception):
    """The other side is gone."""


class Expired(Exception):
    """No reply within the time limit."""


class Channel:
    """JSON messages, one per line, over a connected socket. One owner per side; not for threads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        try:
            self._sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message. Raises `Closed`, `Expired` or `WireError` (not a JSON object, or too long)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LINE_LIMIT:
                raise WireError("a message without end")
            wait = None if deadline is None else deadline - time.monotonic()
            if wait is not None and (wait <= 0 or not select.select([self._sock], [], [], wait)[0]):
                raise Expired
            try:
                chunk = self._sock.recv(1 << 16)
            except OSError as error:
                raise Closed(str(error)) from error
            if not chunk:
                raise Closed("end of stream")
            self._buffer += chunk
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        try:
            message = json.loads(line)
        except ValueError as error:
            raise WireError(f"not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise WireError("not a JSON object")
        return message

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
        return {"tuple": items, "type": type(value).__name__} if hasattr(value, "_fields") else {"tuple": items}
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
    """The inverse of `encode`; named tuples come back as plain tuples, dataclasses as dicts."""
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "float" in value:
        return float.fromhex(value["float"])
    if "tuple" in value:
        return tuple(decode(item, tensors, device) for item in value["tuple"])
    if "list" in value:
        return [decode(item, tensors, device) for item in value["list"]]
    if "dict" in value:
        return {decode(key, tensors, device): decode(item, tensors, device) for key, item in value["dict"]}
    if "dtype" in value:
        return getattr(torch, value["dtype"])
    if "device" in value:
        return torch.device(device if value["device"] != "meta" else "meta")
    raise WireError(f"an unknown value {value!r:.80}")


def write_tensors(path: Path, tensors: list[torch.Tensor]) -> None:
    """Write the memory span of each tensor, in order, with dtype, shape and strides (elements) as metadata."""
    spans: dict[str, torch.Tensor] = {}
    layout = []
    for index, tensor in enumerate(tensors):
        bare = tensor.detach().resolve_conj().resolve_neg()
        if type(bare) is not torch.Tensor:
            bare = bare.as_subclass(torch.Tensor)
        span = 0 if bare.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(bare.shape, bare.stride(), strict=True))
        flat = bare.as_strided((span,), (1,)) if span else bare.new_empty((0,))
        spans[f"{index:05d}"] = flat.to("cpu", copy=True).contiguous().view(torch.uint8)
        layout.append({
            "dtype": str(bare.dtype).removeprefix("torch."),
            "shape": list(bare.shape),
            "strides": list(bare.stride()),
        })
    save_file(spans or {"none": torch.zeros(1, dtype=torch.uint8)}, path, metadata={"layout": json.dumps(layout)})


def read_tensors(path: Path, *, device: str = "cpu", limit_bytes: int | None = None) -> list[torch.Tensor]:
    """Read what `write_tensors` wrote: copies with the recorded layout. Raises `WireError` when the file lies."""
    if limit_bytes is not None and path.stat().st_size > limit_bytes:
        raise WireError(f"{path.stat().st_size} bytes of tensors where at most {limit_bytes} were expected")
    try:
        with safe_open(path, framework="pt") as file:
            layout = json.loads((file.metadata() or {})["layout"])
            return [_restore(file.get_tensor(f"{i:05d}"), entry, device) for i, entry in enumerate(layout)]
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OSError) as error:
        raise WireError(f"unreadable tensors: {error}") from error
    except Exception as error:             # safetensors raises its own class, which has no public base
        raise WireError(f"unreadable tensors: {error}") from error


def _restore(span: torch.Tensor, entry: dict[str, Any], device: str) -> torch.Tensor:
    dtype = getattr(torch, entry["dtype"])
    flat = span.clone().view(dtype) if span.numel() else torch.empty(0, dtype=dtype)
    return flat.to(device).as_strided(entry["shape"], entry["strides"])
