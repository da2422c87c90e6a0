"""Turns single kernels of the loaded program off and counts their launches, in the program worker.

On the simulator its runtime does both. On a GPU the libraries were built with a switch for each kernel in device memory; they
are found among all that the process has mapped, so that the program's own loading need not be trusted. The judge does not rely
on what is reported here: it compares tensors, and only cross-checks the counts.
Where to look next: `tools/build/masks.py` (how the switches get into a library), `verify/ablation/ablation.py` (why kernels are
left out).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterator
from functools import cache

import torch

from stitchcuda.simulator import loaded_runtime
from stitchcuda.state import Target
from stitchcuda.tools.build.masks import ENTRIES


class SimulatedSwitches:
    """Switches in the simulator's runtime. It knows kernels by name only, so an unknown one is no error there."""

    def __init__(self) -> None:
        self._skipped: frozenset[str] = frozenset()

    def skip(self, kernels: Collection[str]) -> None:
        """From now on these kernels ("library:kernel") return at once, and all others run. Raises `RuntimeError` if no library
        is loaded."""
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
        """Returns the launches of each kernel since the last call, skipped ones included, and starts to count anew."""
        library = loaded_runtime.library()
        if library is None:
            return {}
        names = [library.stitchsim_kernel_name(number).decode() for number in range(library.stitchsim_kernels())]
        return {name: int(library.stitchsim_take_launches(number)) for number, name in enumerate(names)}


class _Entry(ctypes.Structure):
    """The struct `StitchcudaMask` of tools/build/masks.py: the kernels of one library, in a linked list."""


_Entry._fields_ = (
    ("next", ctypes.POINTER(_Entry)),
    ("prefix", ctypes.c_char_p),
    ("names", ctypes.c_char_p),
    ("count", ctypes.c_int),
    ("set", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)),
    ("take", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong))),
)


class MaskedSwitches:
    """Switches in libraries built for a GPU. A kernel in a header may be compiled into several files: their switches are set
    together, and their launches are added. The methods do what those of `SimulatedSwitches` do."""

    def skip(self, kernels: Collection[str]) -> None:
        """Raises `RuntimeError` for a kernel that is not loaded, or where CUDA reports an error."""
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
        for path in loaded_runtime.mapped_libraries():
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
    """Returns the switches of this process."""
    return SimulatedSwitches() if target == "sim" else MaskedSwitches()
