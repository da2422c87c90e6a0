"""Records which parameters may not get free secret values for one program, and describes the reference's state_dict.

A program that lacks some of the reference's parameters, or names them otherwise, is judged once more under such terms. Nothing
is decided here. Where to look next: `verify/ablation/state_mismatch.py` (who sets the terms), `verify/inputs/secret_inputs.py`
(whose parameters keep to them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from stitchcuda.verify.inputs.secret_inputs import Groups


@dataclass(frozen=True)
class ReferenceTensor:
    """One entry of the reference's state_dict."""

    name: str
    shape: tuple[int, ...]
    parameter: bool                        # else it is a buffer
    constant: bool                         # all elements are equal, as constructed
    tied: str                              # the first name for the same memory; its own name if it is not tied
    floating: bool = True                  # a floating-point dtype

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class InputTerms:
    """Which parameters of the secret inputs may not vary freely for a program. Each stage is tried once, in order."""

    kept: frozenset[str] = frozenset()     # parameters that stay as constructed
    alike: Groups = ()                     # parameters of one group have one shape and get equal secret values
    stage: int = 0                         # 1: some are kept; 2: matching names by shape was wrong
    needed: int = 0                        # how many numbers of its own the program must hold in place of what it lacks


def read_reference_tensors(facts: Iterable[Mapping[str, Any]]) -> tuple[ReferenceTensor, ...]:
    """Reads the records that the reference worker sent as JSON."""
    return tuple(ReferenceTensor(**{**fact, "shape": tuple(fact["shape"])}) for fact in facts)
