"""Finds out which values outside of the range of get_inputs() the reference stands, by calling it.

Rows of zeros hold ties, which sorting and the like may break in any way: with such operators, or integers among the outputs,
they are not tried. It draws no input set. Where to look next: `verify/inputs/input_ranges.py` (what is tried),
`verify/reference/reference_worker.py` (who asks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stitchcuda.verify.inputs.input_ranges import InputRanges, find_ranges
from stitchcuda.verify.inputs.variants import summarise, why_worse
from stitchcuda.verify.reference.operator_uses import OperatorUses

_FEWER = 0.02                              # at least this share of the outputs that were not zero, as a product of ReLUs has

Outputs = dict[str, Tensor]


def search_ranges(
    judge: Callable[[Any], Outputs | str], draw: Callable[[], Any], generator: torch.Generator
) -> InputRanges:
    """Returns the ranges. `judge`: the reference's outputs for arguments, or why programs cannot be judged by them. `draw`: new
    arguments, as get_inputs() gives them."""
    arguments = draw()
    with OperatorUses(arguments) as seen:
        outputs = judge(arguments)
    if isinstance(outputs, str):
        return InputRanges(notes=(f"limited: only values like those of get_inputs() were tried: for others of it, {outputs}",))
    usual = summarise(outputs)
    whole = any(name.startswith("output") and not value.is_floating_point() for name, value in outputs.items())
    del outputs

    def stands(arguments: Any) -> bool:
        found = judge(arguments)
        return not isinstance(found, str) and not why_worse(summarise(found), usual, fewer=_FEWER)

    found = find_ranges(draw, stands, generator, seen.uses())
    return replace(found, zeros=frozenset(), ties=True) if seen.breaks_ties or whole else found
