"""Caches input sets and the reference's outputs in memory, so that each set is read from its blocks once.

The most recently used sets stay, up to a share of the device's memory in all; a set larger than that is read each time. Only
the reference worker uses it.
Where to look next: `verify/reference/comparisons.py` (who uses it), `verify/compare/reference_error.py` (what is computed
once).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from stitchcuda.verify.compare.bound import Measure, measure_error
from stitchcuda.verify.compare.reference_error import Float64Output
from stitchcuda.verify.messages import gpu_memory

_HOST_SHARE, _GPU_SHARE = 16, 5            # of all memory there is one part in so many
_MOST_ON_HOST = 2 * 2**30                  # bytes

@dataclass
class ExpectedOutput:
    """One input set: inputs, the reference's outputs in their own dtype and in float64. The tensors are never changed."""

    inputs: list[torch.Tensor]
    expected: list[torch.Tensor]
    truths: list[Float64Output]

    def measure_errors(self) -> list[Measure]:
        """Measures the reference's own error in each output."""
        return [measure_error(own, true) for own, true in zip(self.expected, self.truths, strict=True)]

    @property
    def size(self) -> int:
        """Bytes in memory, with the magnitudes that `Float64Output` computes."""
        plain = sum(tensor.nbytes for tensor in (*self.inputs, *self.expected))
        return plain + 2 * sum(max(true.exact.nbytes, 8 * true.exact.numel()) for true in self.truths)


class ExpectedOutputs:
    """A least-recently-used cache of input sets, by the key of the block with the reference's outputs."""

    def __init__(self, device: str = "cpu", most_bytes: int | None = None) -> None:
        self._device, self._most_bytes = device, most_bytes
        self._sets: dict[str, ExpectedOutput] = {}  # the most recently used one last

    def get(self, key: str, read: Callable[[], ExpectedOutput]) -> ExpectedOutput:
        """The set of this key. `read` reads it where it is not in memory."""
        found = self._sets.pop(key, None) or read()
        self.put(key, found)
        return found

    def put(self, key: str, found: ExpectedOutput) -> None:
        """Keeps a set that was just computed."""
        self._sets[key] = found
        while sum(output.size for output in self._sets.values()) > self._most():
            del self._sets[next(iter(self._sets))]

    def _most(self) -> int:
        if self._most_bytes is None:
            host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            on_gpu = self._device == "cuda"
            self._most_bytes = (
                gpu_memory.free_and_total()[1] // _GPU_SHARE if on_gpu
                else min(_MOST_ON_HOST, host // _HOST_SHARE)
            )
        return self._most_bytes
