"""Turns single kernels of the loaded program off and counts their launches. Only in the program worker.

On the simulator the runtime does both for every launch; on a GPU the libraries were built by `tools/build/masks.py` and carry
their switches in device memory. What it says is the worker's word: the judge compares tensors, and counts are only
cross-checked. Libraries are found among those that the process has mapped, so that nothing of the program's own loading has to
be trusted. Where to look next: `verify/ablation/ablation.py` (the judge's side).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterator
from functools import cache
from typing import Protocol

import torch

from stitchcuda.simulator import loaded_runtime
from stitchcuda.state import Target
from stitchcuda.tools.build.masks import ENTRIES


class Switches(Protocol):
    """The kernels of one process, by name: "library:kernel"."""

    def skip(self, kernels: Collection[str]) -> None:
        """From now on these kernels return at once and all others run."""

    def take_launches(self) -> dict[str, int]:
        """Launches by kernel since the last time, skipped ones included."""


class SimulatedSwitches:
    """The simulator's runtime."""

    def __init__(self) -> None:
        self._skipped: frozenset[str] = frozenset()

    def skip(self, kernels: Collection[str]) -> None:
        library = loaded_runtime.library()
        if library is None:
            if kernels:
                raise RuntimeError("no kernel library is loaded: nothing can be skipped")
            return
        for name in self._skipped - frozenset(kernels):
            library.stitchsim_skip(name.encode(), 0)
        for name in kernels:
            library.stitchsim_skip(name.encode(), 1)
        self._skipped = frozenset(kernels)

    def take_launches(self) -> dict[str, int]:
        library = loaded_runtime.library()
        if library is None:
            return {}
        names = [library.stitchsim_kernel_name(number).decode() for number in range(library.stitchsim_kernels())]
        return {name: int(library.stitchsim_take_launches(number)) for number, name in enumerate(names)}


class _Entry(ctypes.Structure):
    """`StitchcudaMask` of tools/build/masks.py."""


_Entry._fields_ = (
    ("next", ctypes.POINTER(_Entry)),
    ("prefix", ctypes.c_char_p),
    ("names", ctypes.c_char_p),
    ("count", ctypes.c_int),
    ("set", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)),
    ("take", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong))),
)


class MaskedSwitches:
    """The masked libraries of a process with a GPU. One kernel of a header may live in several files: they turn together."""

    def skip(self, kernels: Collection[str]) -> None:
        left = set(kernels)
        for entry, names in self._entries():
            on = bytes(name in kernels for name in names)
            left -= set(names)
            if (error := entry.set(on)) != 0:
                raise RuntimeError(f"CUDA error {error} while switching kernels")
        if left:
            raise RuntimeError(f"no loaded library has a switch for {', '.join(sorted(left))}")

    def take_launches(self) -> dict[str, int]:
        taken: dict[str, int] = {}
        for entry, names in self._entries():
            counts = (ctypes.c_ulonglong * len(names))()
            if (error := entry.take(counts)) != 0:
                raise RuntimeError(f"CUDA error {error} while counting launches")
            for name, count in zip(names, counts, strict=True):
                taken[name] = taken.get(name, 0) + int(count)
        return taken

    def _entries(self) -> Iterator[tuple[_Entry, list[str]]]:
        torch.cuda.synchronize()
        seen: set[int] = set()
        for path in loaded_runtime.mapped():
            try:
                library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
                head = ctypes.POINTER(_Entry).in_dll(library, ENTRIES)
            except (OSError, ValueError):      # not a library, or one without switches
                continue
            while head:
                entry, at = head.contents, ctypes.addressof(head.contents)
                if at not in seen:
                    seen.add(at)
                    prefix = entry.prefix.decode()
                    yield entry, [f"{prefix}:{name}" for name in entry.names.decode().split("\n")]
                head = entry.next


@cache
def switches(target: Target) -> SimulatedSwitches | MaskedSwitches:
    """The switches of this process."""
    return SimulatedSwitches() if target == "sim" else MaskedSwitches()
