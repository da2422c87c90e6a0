"""Decides what follows when a program does not hold all of the reference's state under the same names. The judge's side.

State that a program lacks stays as constructed in the reference, so ones and zeros could be left out unnoticed. A program may
therefore lack constants that matter to the outputs only if it holds as many numbers of its own that matter, in another form.
Constants that a program took by shape alone are never left as constructed: those of one shape get one secret value, so that it
does not matter which is which. Each decision to judge again is an `OtherTerms` with the new `InputTerms`.
Where to look next: `verify/program/state_loading.py` (how a program takes over state), `verify/inputs/secret_inputs.py`
(terms).
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs.reference_requests import (
    Ask,
    FindChangedState,
    FindWrong,
    Groups,
    MixState,
    ReferenceTensor,
    Renew,
)
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs, draw_set, shorten_list
from stitchcuda.verify.inputs.variants import GIVEN
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Start

T = TypeVar("T")
_NONE = "the program has no parameter for {}, whose value matters: hold it, or take it over in a load hook"
_MOST_DOUBTED = 8                          # tensors that are tried once more in a new worker


class OtherTerms(Exception):
    """The program has to be judged again, on `terms`."""

    def __init__(self, terms: InputTerms) -> None:
        super().__init__(terms)
        self.terms = terms


def judge_on_terms(judge: Callable[[InputTerms], T], terms: InputTerms | None = None) -> tuple[T, InputTerms]:
    """Calls `judge` until it raises no `OtherTerms`, each time on the terms of the last. Returns (its result, these terms)."""
    terms = terms or InputTerms()
    while True:
        try:
            return judge(terms), terms
        except OtherTerms as other:
            terms = other.terms


def explain_missing_state(
    ask: Ask, secret_inputs: SecretInputs, state: Sequence[ReferenceTensor], failure: WorkerFailed, terms: InputTerms
) -> WorkerFailed:
    """Returns why a program that could not be loaded is refused. Raises `OtherTerms` if it may lack what it lacks."""
    if failure.kind != "state" or terms.stage:
        return failure
    mattering = _mattering_tensors(ask, secret_inputs, state, failure.missing)
    needed = sum(tensor.numel for tensor in mattering)
    if needed > failure.held:
        return WorkerFailed("error", _NONE.format(shorten_list([tensor.name for tensor in mattering])))
    raise OtherTerms(InputTerms(kept=failure.missing & {tensor.name for tensor in state}, stage=1, needed=needed))


def find_unread_state(
    start: Start, ask: Ask, secret_inputs: SecretInputs, state: Sequence[ReferenceTensor], terms: InputTerms
) -> WorkerFailed | None:
    """Returns why a correct program is refused that lacks state which matters, or None if it holds as many numbers of its own.

    Each of its own tensors is changed in turn; the tensor counts if the outputs are then wrong. `start`: loads the program
    into a new worker.
    """
    try:
        if not terms.needed or _needed_numbers(start, secret_inputs, terms.needed) >= terms.needed:
            return _unread_alike(start, ask, secret_inputs, state, terms.alike) if terms.alike else None
    except WorkerFailed as failure:
        return failure
    kept = shorten_list([tensor.name for tensor in state if tensor.name in terms.kept and tensor.tied == tensor.name])
    why = f"of {kept} the program leaves something out that matters: too little of what it holds instead changes its outputs"
    return WorkerFailed("error", why)


def _needed_numbers(start: Start, secret_inputs: SecretInputs, needed: int) -> int:
    """Returns how many numbers the program holds without which it is wrong; stops at `needed`. Raises `WorkerFailed`."""
    found, doubted = 0, []
    with start() as loaded:
        if not _is_right(loaded, secret_inputs):          # then a change that makes it wrong shows nothing
            return 0
        spare = loaded.trial.spare
        for number in sorted(range(len(spare)), key=lambda number: -spare[number]):
            if found < needed and _needs(loaded, number, secret_inputs):
                found += spare[number]
            else:
                doubted.append(number)
    for number in doubted[:_MOST_DOUBTED]:  # it may have copied what it holds in its first call
        if found < needed:
            with start() as loaded:
                if number < len(loaded.trial.spare) and _needs(loaded, number, secret_inputs):
                    found += loaded.trial.spare[number]
    return found


def _unread_alike(
    start: Start, ask: Ask, secret_inputs: SecretInputs, state: Sequence[ReferenceTensor], alike: Groups
) -> WorkerFailed | None:
    """Returns why a program that took equal constants by shape is refused, or None if as many of each group matter to it as to
    the reference."""
    with start() as loaded:
        names, first = loaded.trial.alike, len(loaded.trial.spare)
        sure = _is_right(loaded, secret_inputs)
        idle = [at for at in range(len(names)) if not (sure and _needs(loaded, first + at, secret_inputs))]
    if sure:                               # it may have copied what it holds in its first call: a sample is tried anew
        doubted, idle = secrets.SystemRandom().sample(idle, min(len(idle), _MOST_DOUBTED)), []
        for at in doubted:
            with start() as loaded:
                idle += [] if _needs(loaded, first + at, secret_inputs) else [at]
    for group in alike:
        held = sum(name in group and at not in idle for at, name in enumerate(names))
        if held < len(group) and held < len(matter := _mattering_tensors(ask, secret_inputs, state, group)):
            names_read = shorten_list([tensor.name for tensor in matter])
            return WorkerFailed("error", f"of {names_read}, taken by shape, the program reads only {held}")
    return None


def _is_right(loaded: LoadedProgram, secret_inputs: SecretInputs) -> bool:
    bounds = secret_inputs.bounds(len(secret_inputs.sets))
    return all(loaded.trial.is_correct(given, bounds) for given in secret_inputs.sets if not given.lenient)


def _needs(loaded: LoadedProgram, number: int, secret_inputs: SecretInputs) -> bool:
    """Whether changing its tensor `number` makes the program wrong on any input set: a clamp matters only to large values."""
    bounds = secret_inputs.bounds(len(secret_inputs.sets))
    return any(loaded.trial.needs_tensor(number, given, bounds) for given in secret_inputs.sets if not given.lenient)


def regroup_guessed(state: Sequence[ReferenceTensor], terms: InputTerms, guessed: Iterable[str], *, more: bool = False) -> None:
    """Raises `OtherTerms` if a wrong program may be wrong only because it took the tensors `guessed` by shape. `more`: the
    program also holds other tensors, so that even a single one may be mistaken."""
    taken = [tensor for tensor in state if tensor.name in set(guessed) and tensor.name not in terms.kept]
    free = {tensor.name for tensor in taken if not tensor.constant}
    groups: dict[Any, list[str]] = defaultdict(list)
    for tensor in taken:
        if tensor.constant:
            groups[tensor.parameter, tensor.floating, tuple(size for size in tensor.shape if size != 1)].append(tensor.name)
    if terms.stage == 2 or not (free or any(more or len(group) > 1 for group in groups.values())):
        return
    also = {tensor.name for tensor in state if tensor.tied in free}
    for group in groups.values():          # other names of the same memory would else get another value
        group += [tensor.name for tensor in state if tensor.tied in group and tensor.name not in group]
    raise OtherTerms(InputTerms(terms.kept | free | also, tuple(tuple(group) for group in groups.values()), 2, terms.needed))


def _mattering_tensors(
    ask: Ask, secret_inputs: SecretInputs, state: Sequence[ReferenceTensor], missing: Iterable[str]
) -> list[ReferenceTensor]:
    """Returns which tensors of `missing` matter to the reference's outputs.

    One after the other is set back to its constructed value, and stays so unless the outputs change, so that the ones that do
    not matter do not matter together either. Constants come first; if none of them matters, the rest is not tried.
    """
    gone = set(missing)
    lacking = [tensor for tensor in state if tensor.name in gone and tensor.tied == tensor.name]
    lacking.sort(key=lambda tensor: not tensor.constant)
    if not secret_inputs.renewed or not any(tensor.constant for tensor in lacking):
        return []
    secret, plain = secret_inputs.state, ask(Renew(seed=0, keep=tuple(tensor.name for tensor in state))).state
    changed = set(ask(FindChangedState(secret, plain)).names)
    mattering: list[ReferenceTensor] = []
    back: set[str] = set()
    for tensor in lacking:
        if tensor.name not in changed or not (tensor.constant or mattering):
            continue
        more = back | {other.name for other in state if other.tied == tensor.name}
        mixed = ask(MixState(secret, plain, tuple(sorted(more)))).state
        other = SecretInputs(state=mixed, renewed=True, usual=secret_inputs.usual, sets=secret_inputs.sets[:1])
        if _matters(ask, secret_inputs, other):
            mattering.append(tensor)
        else:
            back = more
    return mattering


def _matters(ask: Ask, secret_inputs: SecretInputs, other: SecretInputs) -> bool:
    """Whether the reference's outputs with the parameters of `other` are wrong for those with its own, on any input set."""
    bounds = secret_inputs.bounds(len(secret_inputs.sets))
    for given in secret_inputs.sets:
        variants = list(dict.fromkeys([given.variant, GIVEN]))
        try:
            again = draw_set(ask, other, seed=given.seed, variants=variants)
        except BadInput:                   # the reference fails on it, which says nothing about the program
            continue
        if again.names != given.names or again.variant != given.variant:
            continue
        if ask(FindWrong(other.state, again, secret_inputs.state, given, bounds)).names:
            return True
    return False
