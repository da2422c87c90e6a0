"""Copies a tensor's bytes by the driver's or the C library's own function, so that no operator of torch runs.

What a program returned is copied so before anything else happens in its process: code that it left behind (another thread, a
hook, a destructor) finds neither the copies nor a moment before them. Used only in program workers.
Where to look next: `verify/program/program_calls.py` (who copies), `verify/timing/timed_calls.py` (the same for timed calls).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from stitchcuda.simulator import loaded_runtime
from stitchcuda.verify.messages.shared_tensors import extent, group_by_memory
from stitchcuda.verify.timing.stopwatch import Clock

_move = ctypes.memmove                     # bound before a program is imported
_UNIT = 16                                 # a copy begins at a multiple of the widest element's size, as torch's storages do


@dataclass(frozen=True)
class NativeCopy:
    """A tensor's copy: the bytes `store`, on the device where the tensor is, and where it lies in them. Copies of tensors that
    overlap in memory have one store."""

    store: torch.Tensor | bytearray
    offset: int                            # bytes
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: torch.device

    def tensor(self) -> torch.Tensor:
        """Returns a tensor in this memory."""
        if not len(self.store):
            return torch.empty(0, dtype=self.dtype, device=self.device).as_strided(self.shape, self.strides)
        flat = torch.frombuffer(self.store, dtype=torch.uint8) if isinstance(self.store, bytearray) else self.store
        usable = flat[: len(flat) - len(flat) % self.dtype.itemsize].view(self.dtype)
        return usable.as_strided(self.shape, self.strides, self.offset // self.dtype.itemsize)


def count_on_gpu(copies: list[NativeCopy]) -> int:
    """How many copies of memory on the GPU were made for them."""
    return len({id(copy.store) for copy in copies if isinstance(copy.store, torch.Tensor)})


def copy_natively(tensors: list[torch.Tensor], clock: Clock | None) -> list[NativeCopy]:
    """Copies plain tensors. The device must be idle. `clock`: has the driver's function; None where there is no GPU."""
    plain = [tensor.resolve_conj().resolve_neg() for tensor in tensors]
    copies: dict[int, NativeCopy] = {}
    sources: list[tuple[torch.Tensor | bytearray, int]] = []  # (new memory, address of what is copied into it)
    for group in group_by_memory(plain):
        begins = [int(plain[number].storage_offset()) * plain[number].itemsize for number in group]
        low = min(begins) - min(begins) % _UNIT
        size = max(begin + extent(plain[number]) * plain[number].itemsize for begin, number in zip(begins, group, strict=True))
        size = size - low if plain[group[0]].numel() else 0
        # Where there is no clock the device is simulated, and what a tensor says of its device means nothing.
        device = plain[group[0]].device if clock is not None else torch.device("cpu")
        on_gpu = device.type == "cuda" and size > 0
        store = torch.empty(size, dtype=torch.uint8, device=device) if on_gpu else bytearray(size)
        sources.append((store, plain[group[0]].untyped_storage().data_ptr() + low))
        for begin, number in zip(begins, group, strict=True):
            layout = plain[number].dtype, tuple(plain[number].shape), plain[number].stride(), device
            copies[number] = NativeCopy(store, begin - low, *layout)
    if clock is not None:
        torch.cuda.synchronize()           # new memory may be filled with poison
    loaded_runtime.allow_host_access()
    try:
        for store, address in sources:
            if isinstance(store, torch.Tensor):
                assert clock is not None
                clock.copy(store, address, len(store))
            elif store:
                _move((ctypes.c_char * len(store)).from_buffer(store), address, len(store))
    finally:
        loaded_runtime.end_host_access()
    return [copies[number] for number in range(len(tensors))]
