"""What programs' answers are compared with, in memory: each input set is read and measured once, not once for each answer.

Within a bound on memory: the sets that were looked at last are kept, and one that is larger than the bound is read each time.
Only the judge's process has it. Where to look next: `verify/inputs/secret_inputs.py` (whose it is),
`verify/compare/reference_error.py` (what is measured).
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

_MOST_BYTES = min(2 * 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 16)  # of all sets together
_Files = Callable[[], tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]]


@dataclass
class ExpectedOutput:
    """One input set: inputs, the reference's own answers, and float64's. Nobody changes these tensors."""

    inputs: list[torch.Tensor]
    expected: list[torch.Tensor]
    truths: list[Float64Output]

    def measure_errors(self) -> list[Measure]:
        """The reference's own errors."""
        return [measure_error(own, true) for own, true in zip(self.expected, self.truths, strict=True)]

    @property
    def size(self) -> int:
        """Bytes, with the magnitudes that a truth keeps."""
        plain = sum(tensor.nbytes for tensor in (*self.inputs, *self.expected))
        return plain + 2 * sum(max(true.exact.nbytes, 8 * true.exact.numel()) for true in self.truths)


@dataclass
class ExpectedOutputs:
    """Those of one exam, by the file of the reference's answers."""

    most_bytes: int = _MOST_BYTES
    _kept: dict[Path, ExpectedOutput] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)  # sets are measured while others are drawn

    def get(self, path: Path, read: _Files) -> ExpectedOutput:
        """The key of the set whose answers lie in `path`; `read` gives inputs, answers in their own dtype and in float64."""
        with self._turn:
            key = self._kept.pop(path, None)
            if key is None:
                inputs, expected, exact = read()
                key = ExpectedOutput(inputs, expected, [Float64Output(output) for output in exact])
            self._kept[path] = key         # the last one in the row was looked at last
            while sum(output.size for output in self._kept.values()) > self.most_bytes:
                del self._kept[next(iter(self._kept))]
        return key
