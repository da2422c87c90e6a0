"""Caches input sets and the reference's outputs in memory, so that each set is read from its files once.

The most recently used sets stay, up to `_MOST_BYTES` in all; a set larger than that is read each time. Only the judge's
process uses it.
Where to look next: `verify/inputs/secret_inputs.py` (who uses it), `verify/compare/reference_error.py` (what is computed once).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from stitchcuda.verify.compare.bound import Measure, measure_error
from stitchcuda.verify.compare.reference_error import Float64Output

_MOST_BYTES = min(2 * 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 16)  # 1/16 of the machine's memory
_Files = Callable[[], tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]]


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


@dataclass
class ExpectedOutputs:
    """A least-recently-used cache of input sets, by the file of the reference's outputs. May be used by several threads."""

    most_bytes: int = _MOST_BYTES
    _sets: dict[Path, ExpectedOutput] = field(default_factory=dict)     # the most recently used one last
    _lock: threading.Lock = field(default_factory=threading.Lock)       # a thread measures sets while others are drawn

    def get(self, path: Path, read: _Files) -> ExpectedOutput:
        """The set whose outputs lie in `path`. `read` reads (inputs, outputs in their own dtype, outputs in float64)."""
        with self._lock:
            found = self._sets.pop(path, None)
            if found is None:
                inputs, expected, exact = read()
                found = ExpectedOutput(inputs, expected, [Float64Output(output) for output in exact])
            self._sets[path] = found
            while sum(output.size for output in self._sets.values()) > self.most_bytes:
                del self._sets[next(iter(self._sets))]
        return found
