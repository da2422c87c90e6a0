"""Finds out which values outside of the range of get_inputs() the reference stands, by calling it.

Rows of zeros, and others, hold ties. Where torch does not document which of equal values an operator names, and the reference
uses that, they are not tried; where rounding may decide what the reference returns for them neither (`RoundingNoise`). Noise of
a few last bits says little where it is much on inputs as given already, as of the sine of large angles: it is finer there.
It draws no input set.
Where to look next: `verify/inputs/input_ranges.py` (what is tried), `verify/reference/reference_worker.py` (who asks).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stitchcuda.verify.compare import bound
from stitchcuda.verify.inputs.input_ranges import InputRanges, RangeTests, find_ranges
from stitchcuda.verify.inputs.other_parameters import widest
from stitchcuda.verify.inputs.variants import relative_error, summarise, why_worse
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.reference.operator_uses import OperatorUses
from stitchcuda.verify.reference.rounding_noise import RoundingNoise

_FEW = 1 / 8                               # of an output's elements
_SECONDS = 0.3                             # for noise that is drawn several times
_SMOOTH = 1e-3                             # in norm
_FAR_WITHIN = 1 / 4                        # of what programs may be wrong by: usual noise is less, or it is fine
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
    fine = not stands_rounding(
        lambda: rerun(arguments), expected, exact, lambda name, own: widest([errors[name], own], _FAR_WITHIN), generator
    )
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
            lambda: rerun(arguments), *found, allow_beside(errors), generator, apart=ties, fine=fine
        )

    draws = itertools.chain([arguments], iter(draw, None))  # whose outputs are not alike, those of another draw may be
    ranges = find_ranges(lambda: next(draws), RangeTests(
        stands, is_sturdy, lambda arguments: is_sturdy(arguments, constant=True),
        None if leaves_open else is_sturdy if ties else stands,
        picks=ties or seen.compares, looked_at=frozenset(seen.looked_at),
        compared={number: tuple(values.values()) for number, values in seen.compared.items() if isinstance(number, int)},
    ), generator, seen.uses())  # fmt: skip
    of_state = {name: tuple(values.values()) for name, values in seen.compared.items() if isinstance(name, str)}
    return replace(ranges, ties=ties, open_ties=leaves_open, compared_state=of_state, fine_noise=fine)


def stands_rounding(
    rerun: Callable[[], Outputs], expected: Outputs, exact: Outputs, allow: Allow, generator: torch.Generator, *,
    apart: bool = False, fine: bool = False,
) -> bool:  # fmt: skip
    """Whether rounding decides no number that the reference returns, and few of the integers (`find_open`)."""
    found = find_open(rerun, expected, exact, allow, generator, apart=apart, fine=fine, most=2)
    return found is not None and not any(bool(mask.all()) or bound.eps(expected[name].dtype) for name, mask in found.items())


def find_open(
    rerun: Callable[[], Outputs], expected: Outputs, exact: Outputs, allow: Allow, generator: torch.Generator, *,
    centred: bool = True, spare_exact: bool = False, apart: bool = False, fine: bool = False, most: int = 6,
) -> Outputs | None:  # fmt: skip
    """The elements that rounding decides: whose values are not within bounds of float64 where the reference's operators round
    otherwise. A mask for each output with any; of one with many it is true everywhere. None where that is so for all.

    Of integers and booleans these are also elements that float64 has otherwise. Rows of the last axis are taken whole.
    `rerun`: the reference's outputs for the arguments, once more. `centred`: whether it may have operators that centre values
    inside. `spare_exact`: what they do not round stays exact. `apart`, `fine`, `most`: of the noise, and how often it is drawn.
    """
    masks = {}
    for name, own in expected.items():
        other = bound.Bound(max_relative=2 * bound.eps(own.dtype) ** 0.5, norm_relative=1.0)
        picked = apart or bound.eps(own.dtype) == 0.0  # else it is sums that differ by so much
        none = torch.zeros_like(own, dtype=torch.bool)
        masks[name] = bound.find_off(own, exact[name], exact[name], other) if picked else none
    until, number = time.monotonic() + _SECONDS, 0
    least = 2 if apart or is_any_zero(exact) else 1  # one noise may undo what the reference rounds, its opposite does not
    while number < least or (number < most and (_any(masks) or apart)):
        if number >= 2 and time.monotonic() > until:
            break
        try:
            with RoundingNoise(generator, spare_exact=spare_exact, apart=apart, fine=fine, number=number) as noise:
                noisy = rerun()
        except Exception as error:         # as where a rounded value is an index
            if is_out_of_memory(error):
                raise
            return None
        number += 1
        if not (centred or not noise.centres) or noisy.keys() != expected.keys():
            return None
        for name, own in expected.items():
            if noisy[name].shape != own.shape:
                return None
            own = torch.where(masks[name], exact[name].to(own.dtype), own)
            made = torch.where(masks[name], own, noisy[name].to(own.device))
            allowed = allow(name, bound.measure_error(own, exact[name]))
            if bound.judge(name, made, own, exact[name], allowed).ok:
                continue
            masks[name] |= bound.find_off(made, own, exact[name], allowed)
            if not bound.judge(name, torch.where(masks[name], own, made), own, exact[name], allowed).ok:
                masks[name].fill_(True)
    for mask in masks.values():
        if int(mask.sum()) > _FEW * mask.numel():
            mask.fill_(True)
    judged = [mask for name, mask in masks.items() if name.startswith("output") and mask.numel()]
    if judged and all(bool(mask.all()) for mask in judged):
        return None
    return {name: mask for name, mask in masks.items() if bool(mask.any())}


def find_smooth(
    rerun: Callable[[], Outputs], exact: Outputs, generator: torch.Generator, *, centred: bool = True, fine: bool = False
) -> Outputs | None:
    """The outputs where the reference's operators round otherwise, if these are numbers that hardly follow from it, as the sine
    of large angles: a program may have errors as large. None where they do. Parameters as of `find_open`."""
    try:
        with RoundingNoise(generator, fine=fine) as noise:
            noisy = rerun()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None
    alike = noisy.keys() == exact.keys() and all(noisy[name].shape == true.shape for name, true in exact.items())
    if not alike or not all(bound.eps(made.dtype) for made in noisy.values()) or not (centred or not noise.centres):
        return None
    return noisy if not is_any_zero(exact) and relative_error(noisy, exact) < _SMOOTH else None


def is_any_zero(exact: Outputs) -> bool:
    """Whether there is an output whose right value is zero everywhere: what differs from it is rounding."""
    return any(true.numel() and not bool(true.any()) for true in exact.values())


def _any(masks: Outputs) -> bool:
    return any(bool(mask.any()) for mask in masks.values())


def allow_beside(usual: Mapping[str, bound.Measure]) -> Allow:
    """The bounds of programs on a set beside that of inputs as given. `usual`: the reference's own errors on these."""
    return lambda name, own: bound.pool_measures([usual[name], own])


def _measure(expected: Outputs, exact: Outputs) -> dict[str, bound.Measure]:
    return {name: bound.measure_error(own, exact[name]) for name, own in expected.items()}
