"""Puts the tensors of a message into a block of memory of their own, whose file descriptor goes to the other process.

A block is a piece of the GPU's memory, or of the host's (a memfd, whose size nobody can change), that holds nothing else.
Tensors that overlap in memory share a span of bytes, so that they overlap again in the process that reads them; each span
begins at a multiple of `_ALIGNMENT`, and the layout in the message says where each tensor lies. Only trusted processes make
blocks: a program's worker gets one to read and others, of fixed sizes, to write its answer to. A reader copies a block before
it looks, checks every number of a layout before it uses it, and compares the bytes with the digest that the layout of an answer
has: other code of that process may have written to the block since. Values are not looked at.
Where to look next: `verify/messages/wire.py` (the messages), `verify/messages/device_memory.py` (memory of the GPU).
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import mmap
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from stitchcuda.verify.messages.device_memory import bytes_of, device_memory
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.shared_tensors import extent, group_by_memory, strided_extent
from stitchcuda.verify.messages.staged_copy import copy_bytes

_TENSORS_LIMIT = 65_536
_DIMENSIONS_LIMIT = 64
_ELEMENTS_LIMIT = 2**48                    # of one tensor; with stride 0 they may take little memory
_ALIGNMENT = 256                           # of the spans in a block, in bytes
_UNIT = 16                                 # a span begins at a multiple of the widest element's size, as torch's storages do
_PART = 2**30                              # bytes copied at a time
_DIGESTED = 2**26                          # bytes of the GPU's memory in a step of a digest
_LOW = 2**32 - 1                           # the bits that a shift by 32 of an unsigned number would leave
_MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # odd: multiplying by one loses nothing
_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

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
    """A value that cannot be sent, or a malformed block or message."""


class TensorBlock:
    """A block. The descriptor is this object's own.

    `layout`: a `BlockLayout` as messages have it, which nobody has checked yet; None for a block that is to be written. `size`:
    bytes. `device`: "cuda" or "cpu", where its memory is. `key`: the same in each process that has it.
    """

    def __init__(self, descriptor: int, size: int, device: str, layout: Any = None, key: str = "") -> None:
        self.descriptor, self.size, self.device, self.layout = descriptor, size, device, layout
        self.key = key or secrets.token_hex(8)

    def with_layout(self, layout: Any) -> TensorBlock:
        """Returns the same memory with the layout that a worker says it wrote, which is not checked yet."""
        return TensorBlock(fcntl.fcntl(self.descriptor, fcntl.F_DUPFD_CLOEXEC, 0), self.size, self.device, layout, self.key)

    def facts(self, position: int) -> dict[str, Any]:
        """What a message says of it. `position`: of its descriptor among those that go with the message."""
        return {"block": position, "key": self.key, "size": self.size, "device": self.device, "layout": self.layout}

    def close(self, close: Callable[[int], None] = os.close) -> None:
        """Closes the descriptor. What was copied out of the block stays."""
        if self.descriptor >= 0:
            close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class TensorPlace:
    """One tensor in a block. `host`: it was on the host when it was written."""

    dtype: str
    shape: list[int]
    strides: list[int]                     # in elements
    span: int                              # position of its span
    offset: int                            # bytes from the begin of the span
    host: bool = False

    def check(self, spans: list[int]) -> None:
        """Raises `WireError` unless the tensor lies inside its span, whatever types the fields have."""
        if not isinstance(self.shape, list) or not isinstance(self.strides, list) or len(self.shape) != len(self.strides):
            raise WireError("unreadable tensors: shape and strides do not fit")
        if len(self.shape) > _DIMENSIONS_LIMIT or not _whole(*self.shape, *self.strides, self.span, self.offset):
            raise WireError("unreadable tensors: impossible shape or strides")
        if not isinstance(self.dtype, str) or self.dtype not in _TYPES:
            raise WireError(f"unreadable tensors: dtype {self.dtype!r:.40}")
        count = 1
        for size in self.shape:
            count *= size
            if count > _ELEMENTS_LIMIT or size > _ELEMENTS_LIMIT:
                raise WireError("unreadable tensors: too many elements")
        width = _TYPES[self.dtype].itemsize
        if any(stride > _ELEMENTS_LIMIT for stride in self.strides) or self.offset % width:
            raise WireError("unreadable tensors: impossible shape or strides")
        end = self.offset + strided_extent(self.shape, self.strides) * width
        if count and (self.span >= len(spans) or end > spans[self.span]):
            raise WireError("unreadable tensors: a tensor lies outside its memory")

    def restored(self, spans: list[torch.Tensor], *, as_written: bool = False) -> torch.Tensor:
        """Returns the tensor, as a view of its span's bytes. `as_written`: these stay as they are, also those of booleans."""
        dtype = _TYPES[self.dtype]
        if 0 in self.shape:
            device = spans[0].device if spans and self.host is not True else "cpu"
            return torch.empty(0, dtype=dtype, device=device).as_strided(self.shape, self.strides)
        span, offset = spans[self.span], self.offset
        if dtype is torch.bool and not as_written:  # a byte other than 0 and 1 would be neither true nor false
            span[offset : offset + strided_extent(self.shape, self.strides)].clamp_(max=1)
        usable = span[: span.numel() - span.numel() % dtype.itemsize].view(dtype)
        begin = int(usable.storage_offset()) + offset // dtype.itemsize  # a shared span begins inside a block's storage
        return usable.as_strided(self.shape, self.strides, begin)


@dataclass(frozen=True)
class BlockLayout:
    """Where the tensors of a block lie. In messages, and in `TensorBlock.layout`, it is `plain()`.

    `spans`: the bytes of each. `digest`: of all bytes, if a program's worker wrote them.
    """

    spans: list[int]
    tensors: list[TensorPlace]
    digest: str = ""

    def plain(self) -> dict[str, Any]:
        return {"spans": self.spans, "tensors": [vars(place) for place in self.tensors], "digest": self.digest}

    @staticmethod
    def read(plain: Any, size: int) -> BlockLayout:
        """Makes a layout of what a message says of a block of `size` bytes. Raises `WireError`, or TypeError for fields that
        are missing or unknown."""
        claim = BlockLayout(**plain)
        if not isinstance(claim.spans, list) or not isinstance(claim.tensors, list):
            raise WireError("unreadable tensors: the layout is no list")
        if len(claim.tensors) > _TENSORS_LIMIT:
            raise WireError(f"unreadable tensors: {len(claim.tensors)} of them where {_TENSORS_LIMIT} are the most")
        if len(claim.spans) > _TENSORS_LIMIT or not _whole(*claim.spans) or claim.size() > size:
            raise WireError("unreadable tensors: the spans lie outside their memory")
        layout = BlockLayout(claim.spans, [TensorPlace(**place) for place in claim.tensors], claim.digest)  # type: ignore[arg-type]
        for place in layout.tensors:
            place.check(layout.spans)
        return layout

    def size(self) -> int:
        """Bytes of all spans together, each with the gap after it."""
        return sum(map(_padded, self.spans))


def with_layouts(blocks: Mapping[str, TensorBlock], answer: object) -> dict[str, TensorBlock]:
    """Returns the blocks that a worker was given to write to, each with the layout that its answer has under the same name."""
    return {what: block.with_layout(getattr(answer, what)) for what, block in blocks.items()}


def new_block(size: int, device: str) -> TensorBlock:
    """Returns a block to be written to, of `size` bytes, all zero: memory may have held a secret before. Raises
    `torch.OutOfMemoryError`, or `OSError` on the host."""
    if device == "cuda":
        block = TensorBlock(device_memory().create(size), size, device)
        wipe(block)
        return block
    block = TensorBlock(os.memfd_create("tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), size, device)
    os.ftruncate(block.descriptor, size)
    fcntl.fcntl(block.descriptor, fcntl.F_ADD_SEALS, _FIXED_SIZE)
    return block


def pack(tensors: list[torch.Tensor], device: str) -> TensorBlock:
    """Returns a new block with copies of the tensors. On the host nobody can write to it any more; on the GPU everybody can who
    is given it. Raises `WireError` for a dtype that cannot be sent."""
    spans, layout = _lay_out(tensors)
    block = new_block(layout.size(), device)
    block.layout = layout.plain()
    _write(block, spans)
    if device == "cpu":
        fcntl.fcntl(block.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    return block


def describe(tensors: list[torch.Tensor]) -> TensorBlock:
    """Returns a block with the layout and size that `pack` would give it, and without memory: its bytes are all zero."""
    _, layout = _lay_out(tensors)
    block = new_block(layout.size(), "cpu")
    block.layout = layout.plain()
    return block


def fill(block: TensorBlock, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """Writes the tensors to a block that this process was given; returns their layout. Where they do not fit with the strides
    that they have, dense copies are written. Raises `WireError` if these do not fit either."""
    spans, layout = _lay_out(tensors)
    if layout.size() > block.size:
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if total <= block.size:
            spans, layout = _lay_out([tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors])
            total = layout.size()
        if total > block.size:
            raise WireError(f"{total} bytes of tensors where at most {block.size} were expected")
    _write(block, spans)
    return layout.plain() | {"digest": _digest(spans, block.key, _on_host(layout))}


def unpack(
    block: TensorBlock, device: str, *, answer: bool = False, shared: bool = False, digest_on: str = ""
) -> list[torch.Tensor]:
    """Returns private copies, on `device`, of the tensors in a block; those that were on the host when they were packed stay
    there. `answer`: the block was written by `fill`, in a process that is not trusted: the bytes of booleans may be any.
    `digest_on`: the device that computes an answer's digest, by default the one where the copies are.
    `shared`: where `device` is the block's own, no copies are made; on the GPU such tensors cannot be written to, and the block
    must be one that no program was given.
    Raises `WireError` for a layout that cannot be, and for an answer that was changed since."""
    try:
        layout = BlockLayout.read(block.layout, block.size)
        on_host = _on_host(layout)
        if shared and block.device == device and (device == "cpu" or not on_host):
            views = _views(block, layout.spans)
            return [place.restored(views, as_written=True) for place in layout.tensors]
        spans = _read(block, layout.spans, device)
        spans = [span.cpu() if number in on_host else span for number, span in enumerate(spans)]
        if answer and layout.digest != _digest(spans, block.key, on_host, digest_on):
            raise WireError("they were changed after it had returned them")
        return [place.restored(spans, as_written=answer) for place in layout.tensors]
    except (TypeError, ValueError, RuntimeError, OSError, OverflowError) as error:
        if is_out_of_memory(error):        # nothing is wrong with the block
            raise
        raise WireError(f"unreadable tensors: {' '.join(str(error).split())[:200]}") from error


def wipe(block: TensorBlock) -> None:
    """Overwrites a block of the GPU's memory with zeros. On the host the system does that with freed memory."""
    if block.device == "cuda":
        memory = device_memory().map(block.descriptor, device_memory().rounded(block.size), write=True)
        bytes_of(memory).zero_()
        torch.cuda.synchronize()


def snapshot(block: TensorBlock) -> TensorBlock:
    """Returns a copy of a block of the host's memory: what its writer does to it later does not matter."""
    copy = new_block(block.size, "cpu")
    copy.layout, copy.key, done = block.layout, block.key, 0
    while part := os.pread(block.descriptor, _PART, done):
        done += os.pwrite(copy.descriptor, part, done)
    return copy


def save(block: TensorBlock, path: Path) -> None:
    """Writes the bytes of a block to a file, for a process that is given no descriptors; `open_saved` reads it."""
    with open(path, "wb") as file:
        for whole in _read(block, [block.size] if block.size else [], "cpu"):
            file.write(_memory(whole))


def open_saved(path: Path, layout: Any) -> TensorBlock:
    """Opens what `save` wrote, with its layout."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return TensorBlock(descriptor, os.fstat(descriptor).st_size, "cpu", layout)


def _lay_out(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], BlockLayout]:
    """Returns (the bytes of each span, on the device where they are; the layout)."""
    bare = [_bare(tensor) for tensor in tensors]
    spans, offsets = _spans(bare)
    places = []
    for tensor, (span, offset) in zip(bare, offsets, strict=True):
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in _TYPES:
            raise WireError(f"a tensor of dtype {name}")
        on_host = tensor.device.type == "cpu"
        places.append(TensorPlace(name, list(tensor.shape), list(tensor.stride()), span, offset, on_host))
    return spans, BlockLayout([span.numel() for span in spans], places)


def _write(block: TensorBlock, spans: list[torch.Tensor]) -> None:
    position = 0
    if block.device == "cuda":
        target = bytes_of(device_memory().map(block.descriptor, block.size, write=True)) if spans else torch.empty(0)
        for span in spans:
            copy_bytes(target[position : position + span.numel()], span)
            position += _padded(span.numel())
        torch.cuda.synchronize()
        return
    if not spans:
        return
    with mmap.mmap(block.descriptor, block.size) as mapped:
        target = torch.frombuffer(mapped, dtype=torch.uint8)
        for span in spans:
            copy_bytes(target[position : position + span.numel()], span)
            position += _padded(span.numel())


def _views(block: TensorBlock, lengths: list[int]) -> list[torch.Tensor]:
    """The spans of a block in the block's own memory. What is written to those of the host's memory stays with this process."""
    if block.size == 0 or not lengths:     # which cannot be mapped
        return [torch.empty(0, dtype=torch.uint8, device=block.device) for _ in lengths]
    if block.device == "cuda":
        source = bytes_of(device_memory().map(block.descriptor, block.size, write=False))
    elif os.fstat(block.descriptor).st_size < block.size:
        raise WireError("unreadable tensors: the block is shorter than its layout")
    else:
        source = torch.frombuffer(mmap.mmap(block.descriptor, block.size, mmap.MAP_PRIVATE), dtype=torch.uint8)
    begins = itertools.accumulate(map(_padded, lengths), initial=0)
    return [source[begin : begin + length] for begin, length in zip(begins, lengths, strict=False)]


def _read(block: TensorBlock, lengths: list[int], device: str) -> list[torch.Tensor]:
    """Copies the spans into new memory on `device`."""
    copies = []
    for span in _views(block, lengths):
        copies.append(torch.empty_like(span, device=device))
        copy_bytes(copies[-1], span)
    if block.device == "cuda":
        torch.cuda.synchronize()
    return copies


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor with the same values, without gradient, subclass, or lazy conjugation and negation."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def _spans(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[tuple[int, int]]]:
    """Returns (the bytes of each piece of memory; (piece, byte offset in it) of each tensor)."""
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
        # A view made through DLPack has a storage of its own, which may be shorter.
        widest = max(members, key=lambda tensor: tensor.untyped_storage().nbytes())
        spans.append(_bytes(widest, low, high))
    return spans, places


def _bytes(tensor: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """Bytes of the memory under a tensor. Raises `WireError` if it has less than its shape and strides need: `set_` would get
    more, with anything in it."""
    storage = tensor.untyped_storage()
    if end - begin and storage.nbytes() < end:
        raise WireError("a tensor whose memory was given back")
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, begin, (end - begin,), (1,))


def digest(tensor: torch.Tensor, key: str) -> str:
    """A digest of a tensor's dtype, shape and bits, whatever its strides. Tensors with other bits have another one."""
    flat = _bare(tensor).contiguous().reshape(-1)
    bits = _digest([flat.view(torch.uint8)] if flat.numel() else [], key, frozenset() if flat.is_cuda else frozenset([0]))
    return f"{tensor.dtype} {tuple(tensor.shape)} {bits}"


def _on_host(layout: BlockLayout) -> frozenset[int]:
    """The numbers of the spans that were on the host when they were written."""
    return frozenset(place.span for place in layout.tensors if place.host is True and 0 not in place.shape)


def _digest(spans: list[torch.Tensor], key: str, on_host: frozenset[int], device: str = "") -> str:
    """A digest of bytes, wherever they are now: BLAKE2 of the spans `on_host`, and of the others a sum of mixed words, each
    with its place and with `key`, which a GPU computes at the speed of its memory. `device`: where that sum is computed, by
    default where the bytes are."""
    hashed = blake2b(key=key.encode(), digest_size=16)
    place = int.from_bytes(blake2b(key.encode(), digest_size=7).digest())
    total: torch.Tensor | None = None
    for number, span in enumerate(spans):
        if number in on_host:
            hashed.update(b"%d " % span.numel())
            hashed.update(_memory(here := span.cpu()))  # alive while its memory is read
            del here
            continue
        for begin in range(0, span.numel(), _DIGESTED):
            part = span[begin : begin + _DIGESTED].to(device or span.device)
            words = torch.zeros(-(-part.numel() // 8), dtype=torch.int64, device=part.device)
            words.view(torch.uint8)[: part.numel()].copy_(part)
            mixed = torch.arange(place, place + words.numel(), device=part.device).mul_(_MIX[0]).bitwise_xor_(words)
            for factor in _MIX[1:]:
                mixed.mul_(factor).bitwise_xor_((mixed >> 32).bitwise_and_(_LOW))
            total = mixed.sum() if total is None else total.add_(mixed.sum().to(total.device))
            place += words.numel() + 1
    return f"{0 if total is None else int(total)} {hashed.hexdigest()}"


def _memory(span: torch.Tensor) -> memoryview:
    """A writable view of a CPU tensor's bytes; it does not keep the tensor alive."""
    length = span.numel()
    return memoryview((ctypes.c_char * length).from_address(span.data_ptr())).cast("B") if length else memoryview(b"")


def _padded(length: int) -> int:
    return length + -length % _ALIGNMENT


def _whole(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)
