"""Copies a tensor's bytes by the driver's or the C library's own function, so that no operator of torch runs.

What a program returned is copied so before anything else happens in its process: code that it left behind (another thread, a
hook, a destructor) finds neither the copies nor a moment before them. Used only in program workers.
Where to look next: `verify/program/program_worker.py` (who copies), `verify/timing/timed_calls.py` (the same for timed calls).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from stitchcuda.simulator import loaded_runtime
from stitchcuda.verify.messages.shared_tensors import extent
from stitchcuda.verify.timing.stopwatch import Clock

_move = ctypes.memmove                     # bound before a program is imported


@dataclass(frozen=True)
class NativeCopy:
    """The bytes from a tensor's first to its last element, on the device where it is, and how it lies in them."""

    store: torch.Tensor | bytearray
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: torch.device

    @property
    def on_gpu(self) -> bool:
        """Whether it took a copy on the GPU."""
        return isinstance(self.store, torch.Tensor) and len(self.store) > 0

    def tensor(self) -> torch.Tensor:
        """Returns a tensor in this memory."""
        if not len(self.store):
            return torch.empty(0, dtype=self.dtype, device=self.device).as_strided(self.shape, self.strides)
        flat = torch.frombuffer(self.store, dtype=torch.uint8) if isinstance(self.store, bytearray) else self.store
        blank = torch.empty(0, dtype=self.dtype, device=flat.device)
        return blank.set_(flat.untyped_storage(), 0, self.shape, self.strides)


def copy_natively(tensors: list[torch.Tensor], clock: Clock | None) -> list[NativeCopy]:
    """Copies plain tensors. The device must be idle. `clock`: has the driver's function; None where there is no GPU."""
    copies = []
    plain = [tensor.resolve_conj().resolve_neg() for tensor in tensors]
    for tensor in plain:
        size = extent(tensor) * tensor.element_size()
        device = tensor.device if clock is not None else torch.device("cpu")  # a simulated device's name says nothing
        on_gpu = device.type == "cuda" and size > 0
        store = torch.empty(size, dtype=torch.uint8, device=device) if on_gpu else bytearray(size)
        copies.append(NativeCopy(store, tensor.dtype, tuple(tensor.shape), tensor.stride(), device))
    if clock is not None:
        torch.cuda.synchronize()           # new memory may be filled with poison
    loaded_runtime.allow_host_access()
    try:
        for tensor, copy in zip(plain, copies, strict=True):
            if isinstance(copy.store, torch.Tensor):
                assert clock is not None
                clock.copy(copy.store, tensor.data_ptr(), len(copy.store))
            elif copy.store:
                _move((ctypes.c_char * len(copy.store)).from_buffer(copy.store), tensor.data_ptr(), len(copy.store))
    finally:
        loaded_runtime.end_host_access()
    return copies
