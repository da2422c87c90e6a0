"""Draws other secret parameters: of other magnitudes, and of kinds that are far from the constructor's.

A program that is right only for parameters near the constructor's is wrong. Each draw is kept only where the reference stands
it; what was not tried is noted. The sets that are called with them repeat the first set's seed.
Where to look next: `verify/inputs/far_state.py` (the kinds), `verify/inputs/secret_inputs.py` (the usual parameters and all
input sets), `verify/judge/correctness.py` (who calls programs with them).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from stitchcuda.errors import BadInput
from stitchcuda.verify.compare.bound import Bound, Measure, pool_measures
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs.far_state import KINDS
from stitchcuda.verify.inputs.reference_requests import Ask
from stitchcuda.verify.inputs.reseeding import WIDEST
from stitchcuda.verify.inputs.secret_inputs import KEPT_BUFFERS, LITTLE, Clock, ReferenceLost, SecretInputs, draw_set
from stitchcuda.verify.inputs.variants import GIVEN, SMALL

_MOST_S = 15.0                             # seconds for all kinds of parameters, of calls below `LITTLE`
_CONDITIONED, _LEAST_ERROR = 8.0, 2.0**-22  # with these the reference's own error may be so many times larger, or than this
_random = secrets.SystemRandom()


def redraw_all(ask: Ask, secret_inputs: SecretInputs, clock: Clock = time.monotonic) -> list[SecretInputs]:
    """Parameters of other magnitudes, then such that are far from the constructor's: those that the reference stands."""
    first = redraw_parameters(ask, secret_inputs)
    others = [first] if first else []
    redraw_far(ask, secret_inputs, others, clock)
    return others


def redraw_parameters(ask: Ask, secret_inputs: SecretInputs) -> SecretInputs | None:
    """Draws parameters of other magnitudes, as far as the reference stands them, and answers the first set's seed with them;
    None if parameters cannot be varied."""
    if not secret_inputs.renewed:
        return None
    first, terms = secret_inputs.sets[0], (tuple(sorted(secret_inputs.kept)), secret_inputs.alike, secret_inputs.amplified)
    wide = requests.Renew(secrets.randbits(31), *terms, wide_for=first.seed, usual=secret_inputs.usual)
    try:
        made = ask(wide)
        notes: tuple[str, ...] = ()
    except ReferenceLost as error:         # on a GPU an index out of range ends the whole process
        made = ask(requests.Renew(secrets.randbits(31), *terms))
        notes = (f"limited: parameters only near the constructor's values: with others, {error}",)
    if not made.varied:
        return None
    other = replace(secret_inputs, state=made.state, notes=[*made.notes, *notes], sets=[])
    other.sets.append(draw_set(ask, other, seed=first.seed, variants=[GIVEN]))
    return other


def wide_bounds(secret_inputs: SecretInputs, other: SecretInputs) -> dict[str, Bound]:
    """The error bounds with the parameters of `other`: `WIDEST` times what the reference's errors on all these sets allow, as
    intermediate values, and so their rounding, may be larger by so much. Small elements and slices have no limits of their
    own: a row of zeros can make a slice constant, which a norm then divides by nearly nothing."""
    given = [*secret_inputs.sets, *other.sets]
    sets = [input_set for input_set in given if input_set.names == other.sets[0].names]
    other.bounds_of(sets)
    by_output = zip(sets[0].names, zip(*(input_set.measures for input_set in sets), strict=True), strict=True)
    return {name: widest(measures) for name, measures in by_output}


def widest(measures: Sequence[Measure], times: float = WIDEST) -> Bound:
    """So many times what the reference's errors allow, for the output as a whole."""
    usual = pool_measures(measures)
    return Bound(max_relative=times * usual.max_relative, norm_relative=times * usual.norm_relative)


def redraw_far(
    ask: Ask, secret_inputs: SecretInputs, others: list[SecretInputs], clock: Clock = time.monotonic
) -> None:
    """Appends parameters of each kind that is far from the constructor's, in random order, for as long as that takes little
    time: of a large reference one kind takes the place of the other magnitudes in half of all checks."""
    first, until = secret_inputs.sets[0], clock() + _MOST_S
    terms = (tuple(sorted(secret_inputs.kept)), secret_inputs.alike, secret_inputs.amplified)
    usual = _CONDITIONED * max(secret_inputs.usual, _LEAST_ERROR)
    large = secret_inputs.bytes_of_a_call() > LITTLE
    for kind in _random.sample(list(KINDS), 1 if large else len(KINDS)):
        if not (_random.random() < 1 / 2 if large else clock() < until):
            return
        try:
            made = ask(requests.Renew(secrets.randbits(31), *terms, wide_for=first.seed, usual=usual, far=kind))
            other = replace(secret_inputs, state=made.state, notes=[], sets=[], kind=kind)
            if made.varied and kind == "loaded":
                for drawn in (secret_inputs, *others):
                    drawn.notes = [note for note in drawn.notes if not note.startswith(KEPT_BUFFERS)]
                secret_inputs.notes += made.notes
            for variants in ([GIVEN], [*SMALL, GIVEN]) if made.varied and not large else ([GIVEN],) if made.varied else ():
                other.sets.append(draw_set(ask, other, seed=first.seed, variants=variants))
        except BadInput as error:          # such as an index out of range, which ends the whole process on a GPU
            if isinstance(error, ReferenceLost) and error.late:
                raise
            secret_inputs.remark(f"limited: parameters of one kind ({KINDS[kind].what}) were not tried: {error}")
            return
        if other.sets and large:
            others[:] = [other]
        elif other.sets:
            others.append(other)
