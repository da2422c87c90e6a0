"""Finds out which values outside of the range of get_inputs() the reference stands, by calling it.

Rows of zeros, and others, hold ties. Where torch does not document which of equal values an operator names, and the reference
uses that, they are not tried; where rounding may decide what the reference returns for them neither (`RoundingNoise`). It draws
no input set. Where to look next: `verify/inputs/input_ranges.py` (what is tried), `verify/reference/reference_worker.py` (who
asks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stitchcuda.verify.compare import bound
from stitchcuda.verify.inputs.input_ranges import InputRanges, RangeTests, find_ranges
from stitchcuda.verify.inputs.variants import summarise, why_worse
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.reference.operator_uses import OperatorUses
from stitchcuda.verify.reference.rounding_noise import RoundingNoise

_FEWER = 0.02                              # at least this share of the outputs that were not zero, as a product of ReLUs has

Outputs = dict[str, Tensor]
Allow = Callable[[str, bound.Measure], bound.Bound]
"""The bound of an output, by its name and the reference's own error there."""
Judge = Callable[..., tuple[Outputs, Outputs] | str]
"""The reference's outputs for arguments, and those in float64, or why programs cannot be judged by them. With `constant=True`
they may be constant."""


def search_ranges(
    judge: Judge, rerun: Callable[[Any], Outputs], draw: Callable[[], Any], generator: torch.Generator,
    state: Mapping[str, Tensor],
) -> InputRanges:  # fmt: skip
    """Returns the ranges. `rerun`: the reference's outputs for arguments, once more. `draw`: new arguments, as get_inputs()
    gives them. `state`: the reference's parameters and buffers, by name."""
    arguments = draw()
    found = judge(arguments)
    if isinstance(found, str):
        note = f"limited: only values like those of get_inputs() were tried: a further draw of it cannot be judged ({found})"
        return InputRanges(notes=(note,))
    expected, exact = found
    usual, errors = summarise(expected), _measure(expected, exact)
    whole = any(name.startswith("output") and not value.is_floating_point() for name, value in expected.items())
    del found, expected, exact
    with OperatorUses(arguments, state) as seen:
        leaves_open = seen.leaves_ties_open(rerun(arguments))
    ties = seen.breaks_ties or whole

    def stands(arguments: Any) -> bool:
        found = judge(arguments)
        return not isinstance(found, str) and not why_worse(summarise(found[0]), usual, fewer=_FEWER)

    def is_sturdy(arguments: Any, *, constant: bool = False) -> bool:
        found = judge(arguments, constant=constant)
        if isinstance(found, str) or (not constant and why_worse(summarise(found[0]), usual, fewer=_FEWER)):
            return False
        return found[0].keys() == errors.keys() and stands_rounding(
            lambda: rerun(arguments), *found, allow_beside(errors), generator
        )

    ranges = find_ranges(draw, RangeTests(
        stands, is_sturdy, lambda arguments: is_sturdy(arguments, constant=True),
        None if leaves_open else is_sturdy if ties else stands,
        picks=ties or seen.compares, looked_at=frozenset(seen.looked_at),
        compared={number: tuple(values.values()) for number, values in seen.compared.items() if isinstance(number, int)},
    ), generator, seen.uses())  # fmt: skip
    of_state = {name: tuple(values.values()) for name, values in seen.compared.items() if isinstance(name, str)}
    return replace(ranges, ties=ties, open_ties=leaves_open, compared_state=of_state)


def stands_rounding(
    rerun: Callable[[], Outputs], expected: Outputs, exact: Outputs, allow: Allow, generator: torch.Generator, *,
    centred: bool = True, spare_exact: bool = False,
) -> bool:  # fmt: skip
    """Whether the reference's outputs stay within bounds of float64 where its operators round otherwise. `rerun`: its outputs
    for the arguments, once more. `centred`: whether it may have operators that centre values inside. `spare_exact`: what they
    do not round stays exact."""
    try:
        with RoundingNoise(generator, spare_exact=spare_exact) as noise:
            noisy = rerun()
    except Exception as error:             # as where a rounded value is an index
        if is_out_of_memory(error):
            raise
        return False
    return (centred or not noise.centres) and noisy.keys() == expected.keys() and all(
        bound.judge(
            name, noisy[name].to(own.device), own, exact[name], allow(name, bound.measure_error(own, exact[name]))
        ).ok
        for name, own in expected.items()
    )


def allow_beside(usual: Mapping[str, bound.Measure]) -> Allow:
    """The bounds of programs on a set beside that of inputs as given. `usual`: the reference's own errors on these."""
    return lambda name, own: bound.pool_measures([usual[name], own])


def _measure(expected: Outputs, exact: Outputs) -> dict[str, bound.Measure]:
    return {name: bound.measure_error(own, exact[name]) for name, own in expected.items()}
