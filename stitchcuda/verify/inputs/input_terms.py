"""What the secret inputs of one program may not vary freely, and the facts about the reference's state that this rests on.

Records only. Where to look next: `verify/ablation/state_mismatch.py` (who sets the terms),
`verify/inputs/secret_inputs.py` (who keeps to them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from stitchcuda.verify.inputs.secret_inputs import Groups


@dataclass(frozen=True)
class ReferenceTensor:
    """One name of the reference's state_dict."""

    name: str
    shape: tuple[int, ...]
    parameter: bool
    constant: bool                         # one value all over, as constructed
    tied: str                              # the first name of the same memory; its own where there is no other
    floating: bool = True                  # numbers with a fraction

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class InputTerms:
    """What a program's exam may not vary freely. Each stage is tried once, in order."""

    kept: frozenset[str] = frozenset()     # as constructed
    alike: Groups = ()                     # of one shape each, with one secret value
    stage: int = 0                         # 1: some is kept; 2: what went by shape was wrong
    needed: int = 0                        # how many numbers of its own the program has to hold instead


def read_reference_tensors(facts: Iterable[Mapping[str, Any]]) -> tuple[ReferenceTensor, ...]:
    """What the reference worker said."""
    return tuple(ReferenceTensor(**{**fact, "shape": tuple(fact["shape"])}) for fact in facts)
