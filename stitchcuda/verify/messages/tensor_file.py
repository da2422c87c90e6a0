"""Writes tensors to safetensors files, and reads such files safely even if a hostile process wrote them.

A file holds a span of bytes for each piece of memory, and as metadata the dtype, shape, strides and position of each tensor.
Tensors that overlap in memory share a span, so that they overlap again in the process that reads them. A reader maps no memory
(the writer could truncate the file under it), checks every number before it uses it, follows no link and never blocks. It does
not look at values. Where to look next: `verify/messages/wire.py` (the messages that name the files).
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
from pathlib import Path
from typing import Any

import torch

from stitchcuda.verify.messages import json_text
from stitchcuda.verify.messages.shared_tensors import extent, group_by_memory, strided_extent

_HEADER_LIMIT = 16 * 2**20
_TENSORS_LIMIT = 65_536
_DIMENSIONS_LIMIT = 64
_ELEMENTS_LIMIT = 2**48                    # of one tensor; with stride 0 they may take little memory
_ALIGNMENT = 64                            # of the spans' lengths in the file, in bytes
_PART = 2**24                              # bytes copied at a time
_UNIT = 16                                 # a span begins at a multiple of the widest element's size, as torch's storages do

_TYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
        torch.complex128, torch.complex64, torch.complex32,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
    )
}  # fmt: skip


class WireError(Exception):
    """A value that cannot be sent, or a malformed file or message."""


def write_tensors(path: Path, tensors: list[torch.Tensor]) -> None:
    """Writes the memory of each tensor, in order. Raises `WireError` for a dtype that cannot be sent."""
    bare = [_bare(tensor) for tensor in tensors]
    spans, places = _spans(bare)
    layout = []
    for tensor, (piece, offset) in zip(bare, places, strict=True):
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in _TYPES:
            raise WireError(f"a tensor of dtype {name}")
        layout.append({
            "dtype": name, "shape": list(tensor.shape), "strides": list(tensor.stride()), "span": piece, "offset": offset,
        })  # fmt: skip
    header: dict[str, Any] = {"__metadata__": {"layout": json_text.dump(layout).decode()}}
    position = 0
    for number, span in enumerate(spans):
        length = _padded(span.numel())
        header[f"{number:05d}"] = {"dtype": "U8", "shape": [length], "data_offsets": [position, position + length]}
        position += length
    text = json_text.dump(header)
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for span in spans:
            file.write(_memory(span))
            file.write(bytes(_padded(span.numel()) - span.numel()))


def read_tensors(path: Path, *, device: str = "cpu", limit_bytes: int | None = None) -> list[torch.Tensor]:
    """Reads what `write_tensors` wrote, as private copies with the recorded strides. Raises `WireError` for a malformed file.

    `limit_bytes`: given for a file of an untrusted process. The file must have a single name and belong to this user, and may
    not be larger than this.
    """
    fd = _opened(path)
    try:
        size = _checked_size(fd, limit_bytes)
        header, start = _header(fd, size)
        spans = [_span(fd, start + begin, end - begin) for begin, end in _offsets(header, size - start)]
        layout = json.loads(header["__metadata__"]["layout"])
        if not isinstance(layout, list) or len(layout) > _TENSORS_LIMIT:
            raise WireError("unreadable tensors: the layout is no list")
        for entry in layout:
            _check(entry, spans)
        moved = [span.to(device) for span in spans]
        return [_restored(moved, entry) for entry in layout]
    except torch.OutOfMemoryError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OSError, RecursionError, OverflowError) as error:
        raise WireError(f"unreadable tensors: {' '.join(str(error).split())[:200]}") from error
    finally:
        os.close(fd)


def take_file(path: Path, to: Path, limit_bytes: int) -> Path:
    """Copies the file of an untrusted process, whatever it holds, to the new file `to`, where that process cannot change it.
    Returns `to`. Raises `WireError` if it is no file of this user with a single name and at most `limit_bytes`."""
    fd = _opened(path)
    try:
        size, done = _checked_size(fd, limit_bytes), 0
        with open(to, "xb") as copy:
            while done < size and (part := os.pread(fd, min(_PART, size - done), done)):
                copy.write(part)
                done += len(part)
    finally:
        os.close(fd)
    return to


def _opened(path: Path) -> int:
    try:
        # O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise WireError(f"unreadable tensors: {error.strerror}") from error


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor with the same values, without gradient, subclass, or lazy conjugation and negation."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def _spans(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[tuple[int, int]]]:
    """Returns (the bytes of each piece of memory, on the CPU; (piece, byte offset in it) of each tensor)."""
    spans: list[torch.Tensor] = []
    places = [(0, 0)] * len(tensors)
    for group in group_by_memory(tensors):
        members = [tensors[number] for number in group]
        if members[0].numel() == 0:
            continue                       # a tensor without elements has no memory, and is alone in its group
        begins = [int(tensor.storage_offset()) * tensor.itemsize for tensor in members]
        low = min(begins) - min(begins) % _UNIT
        high = max(begin + extent(tensor) * tensor.itemsize for begin, tensor in zip(begins, members, strict=True))
        for number, begin in zip(group, begins, strict=True):
            places[number] = (len(spans), begin - low)
        spans.append(_bytes(members[0], low, high))
    return spans, places


def _bytes(tensor: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """Bytes of the memory under a tensor, copied to the CPU."""
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, begin, (end - begin,), (1,))
    return flat.to("cpu", copy=True)


def _memory(span: torch.Tensor) -> memoryview:
    """A writable view of a CPU tensor's bytes; it does not keep the tensor alive."""
    length = span.numel()
    return memoryview((ctypes.c_char * length).from_address(span.data_ptr())).cast("B") if length else memoryview(b"")


def _checked_size(fd: int, limit_bytes: int | None) -> int:
    """The size in bytes of an open file, after checks of its kind, owner and size. Raises `WireError`."""
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        raise WireError("unreadable tensors: not a regular file")
    if limit_bytes is not None:
        if facts.st_nlink != 1 or facts.st_uid != os.geteuid():
            raise WireError("unreadable tensors: the file has another name or another owner")
        if facts.st_size > limit_bytes:
            raise WireError(f"{facts.st_size} bytes of tensors where at most {limit_bytes} were expected")
    return facts.st_size


def _header(fd: int, size: int) -> tuple[dict[str, Any], int]:
    """Reads the header; returns it and the file offset at which the spans begin."""
    length = int.from_bytes(_exactly(fd, 0, 8), "little")
    if length > min(_HEADER_LIMIT, size - 8):
        raise WireError(f"unreadable tensors: a header of {length} bytes in a file of {size}")
    header = json.loads(_exactly(fd, 8, length))
    if not isinstance(header, dict):
        raise WireError("unreadable tensors: the header is no object")
    return header, 8 + length


def _offsets(header: dict[str, Any], size: int) -> list[tuple[int, int]]:
    """The (begin, end) of each span. Raises `WireError` unless together they are all that follows the header."""
    offsets = []
    position = 0
    for number in range(len(header) - 1):
        entry = header[f"{number:05d}"]
        begin, end = entry["data_offsets"]
        if entry["dtype"] != "U8" or not _whole(begin, end) or begin != position or end < begin or end > size:
            raise WireError("unreadable tensors: the spans do not follow each other")
        offsets.append((begin, end))
        position = end
    if position != size:
        raise WireError(f"unreadable tensors: spans of {position} bytes in {size}")
    return offsets


def _span(fd: int, start: int, length: int) -> torch.Tensor:
    """Reads a span into a new tensor of bytes."""
    span = torch.empty(length, dtype=torch.uint8)
    view, done = _memory(span), 0
    while done < length:
        count = os.preadv(fd, [view[done : done + 2**30]], start + done)
        if count == 0:
            raise WireError("unreadable tensors: the file was cut short")
        done += count
    return span


def _exactly(fd: int, start: int, length: int) -> bytes:
    found = os.pread(fd, length, start)
    if len(found) != length:
        raise WireError("unreadable tensors: the file was cut short")
    return found


def _check(entry: Any, spans: list[torch.Tensor]) -> None:
    """Raises `WireError` unless the tensor lies inside its span."""
    shape, strides, span, offset, dtype = (entry[key] for key in ("shape", "strides", "span", "offset", "dtype"))
    if not isinstance(shape, list) or not isinstance(strides, list) or len(shape) != len(strides):
        raise WireError("unreadable tensors: shape and strides do not fit")
    if len(shape) > _DIMENSIONS_LIMIT or not _whole(*shape, *strides, span, offset):
        raise WireError("unreadable tensors: impossible shape or strides")
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise WireError(f"unreadable tensors: dtype {dtype!r:.40}")
    count = 1
    for size in shape:
        count *= size
        if count > _ELEMENTS_LIMIT or size > _ELEMENTS_LIMIT:
            raise WireError("unreadable tensors: too many elements")
    width = _TYPES[dtype].itemsize
    if any(stride > _ELEMENTS_LIMIT for stride in strides) or offset % width:
        raise WireError("unreadable tensors: impossible shape or strides")
    if count and (span >= len(spans) or offset + strided_extent(shape, strides) * width > spans[span].numel()):
        raise WireError("unreadable tensors: a tensor lies outside its memory")


def _restored(spans: list[torch.Tensor], entry: dict[str, Any]) -> torch.Tensor:
    dtype = _TYPES[entry["dtype"]]
    if 0 in entry["shape"]:
        device = spans[0].device if spans else "cpu"
        return torch.empty(0, dtype=dtype, device=device).as_strided(entry["shape"], entry["strides"])
    span, offset = spans[entry["span"]], entry["offset"]
    if dtype is torch.bool:                # a byte other than 0 and 1 would be neither true nor false
        span[offset : offset + strided_extent(entry["shape"], entry["strides"])].clamp_(max=1)
    usable: torch.Tensor = span[: span.numel() - span.numel() % dtype.itemsize]
    return usable.view(dtype).as_strided(entry["shape"], entry["strides"], offset // dtype.itemsize)



def _padded(length: int) -> int:
    return length + -length % _ALIGNMENT


def _whole(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)
