"""What follows when a program has not all of the reference's state under its names: the judge's decision, from what it knows.

What a program lacks stays as constructed in the reference, and ones and zeros could then be left out. So a program may lack
constants that matter only where it holds as many numbers of its own, in another form. A constant that went by shape alone is
never kept as constructed: those of one shape get one secret value, so that any of them may be any other.
Where to look next: `verify/program/state_loading.py` (how a program takes over what it is given),
`verify/inputs/secret_inputs.py`.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from stitchcuda.errors import BadInput
from stitchcuda.verify.compare import bound
from stitchcuda.verify.inputs.input_terms import InputTerms, ReferenceTensor
from stitchcuda.verify.inputs.secret_inputs import GIVEN, Ask, Groups, SecretInputs, draw_set, shorten_list
from stitchcuda.verify.messages import wire
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Start

T = TypeVar("T")
_NONE = "the program has no parameter for {}, whose value matters: hold it, or take it over in a load hook"
_MOST_DOUBTED = 8


class OtherTerms(Exception):
    """The program is to be judged again, on these terms."""

    def __init__(self, terms: InputTerms) -> None:
        super().__init__(terms)
        self.terms = terms


def agreed(judge: Callable[[InputTerms], T], terms: InputTerms | None = None) -> tuple[T, InputTerms]:
    """What comes of it on the first terms that need no others, and these."""
    terms = terms or InputTerms()
    while True:
        try:
            return judge(terms), terms
        except OtherTerms as other:
            terms = other.terms


def reconsidered(
    ask: Ask, exam: SecretInputs, state: Sequence[ReferenceTensor], failure: WorkerFailed, terms: InputTerms
) -> WorkerFailed:
    """Why a program that could not be loaded is refused. Raises `OtherTerms` where it lacks what it may lack."""
    if failure.kind != "state" or terms.stage:
        return failure
    mattering = _mattering(ask, exam, state, failure.missing)
    needed = sum(tensor.numel for tensor in mattering)
    if needed > failure.held:
        return WorkerFailed("error", _NONE.format(shorten_list([tensor.name for tensor in mattering])))
    raise OtherTerms(InputTerms(kept=failure.missing & {tensor.name for tensor in state}, stage=1, needed=needed))


def unread(
    seat: Start, ask: Ask, exam: SecretInputs, state: Sequence[ReferenceTensor], terms: InputTerms
) -> WorkerFailed | None:
    """Why a program that is right with some of the state as constructed is refused, None where it holds something in its place:
    its own tensors are changed one at a time, and those count with which it is wrong. `seat`: the program in a new worker."""
    try:
        if not terms.needed or _found(seat, exam, terms.needed) >= terms.needed:
            return _idle(seat, ask, exam, state, terms.alike) if terms.alike else None
    except WorkerFailed as failure:
        return failure
    kept = shorten_list([tensor.name for tensor in state if tensor.name in terms.kept and tensor.tied == tensor.name])
    why = f"of {kept} the program leaves something out that matters: too little of what it holds instead changes its outputs"
    return WorkerFailed("error", why)


def _found(seat: Start, exam: SecretInputs, needed: int) -> int:
    """How many numbers of its own, up to `needed`, the program is wrong without. Raises `WorkerFailed`."""
    found, doubted = 0, []
    with seat() as loaded:
        if not _right(loaded, exam):          # then being wrong tells nothing
            return 0
        spare = loaded.trial.spare
        for number in sorted(range(len(spare)), key=lambda number: -spare[number]):
            if found < needed and _needs(loaded, number, exam):
                found += spare[number]
            else:
                doubted.append(number)
    for number in doubted[:_MOST_DOUBTED]:  # it may have copied what it holds when it was first called
        if found < needed:
            with seat() as loaded:
                if number < len(loaded.trial.spare) and _needs(loaded, number, exam):
                    found += loaded.trial.spare[number]
    return found


def _idle(seat: Start, ask: Ask, exam: SecretInputs, state: Sequence[ReferenceTensor], alike: Groups) -> WorkerFailed | None:
    """Why a program is refused to which tensors were given that are alike, None where as many of each group matter to it as to
    the reference: one may have been read in place of another."""
    with seat() as loaded:
        names, first = loaded.trial.alike, len(loaded.trial.spare)
        sure = _right(loaded, exam)
        idle = [at for at in range(len(names)) if not (sure and _needs(loaded, first + at, exam))]
    if sure:                               # it may have copied what it holds when it was first called: some tell for all
        doubted, idle = secrets.SystemRandom().sample(idle, min(len(idle), _MOST_DOUBTED)), []
        for at in doubted:
            with seat() as loaded:
                idle += [] if _needs(loaded, first + at, exam) else [at]
    for group in alike:
        held = sum(name in group and at not in idle for at, name in enumerate(names))
        if held < len(group) and held < len(matter := _mattering(ask, exam, state, group)):
            said = shorten_list([tensor.name for tensor in matter])
            return WorkerFailed("error", f"of {said}, taken by shape, the program reads only {held}")
    return None


def _right(loaded: LoadedProgram, exam: SecretInputs) -> bool:
    bounds = exam.bounds(len(exam.sets))
    return all(loaded.trial.is_correct(given, bounds) for given in exam.sets if not given.lenient)


def _needs(loaded: LoadedProgram, number: int, exam: SecretInputs) -> bool:
    """Whether the program is wrong for some set without it: a limit matters only where values reach it."""
    bounds = exam.bounds(len(exam.sets))
    return any(loaded.trial.needs_tensor(number, given, bounds) for given in exam.sets if not given.lenient)


def regroup(state: Sequence[ReferenceTensor], terms: InputTerms, guessed: Iterable[str], *, more: bool = False) -> None:
    """Raises `OtherTerms` where a program that is wrong may be so only because it took `guessed` by shape. `more`: it had
    others to choose from."""
    taken = [tensor for tensor in state if tensor.name in set(guessed) and tensor.name not in terms.kept]
    free = {tensor.name for tensor in taken if not tensor.constant}
    groups: dict[Any, list[str]] = defaultdict(list)
    for tensor in taken:
        if tensor.constant:
            groups[tensor.parameter, tensor.floating, tuple(size for size in tensor.shape if size != 1)].append(tensor.name)
    if terms.stage == 2 or not (free or any(more or len(group) > 1 for group in groups.values())):
        return
    also = {tensor.name for tensor in state if tensor.tied in free}
    for group in groups.values():          # other names of the same memory, which would get a value of their own
        group += [tensor.name for tensor in state if tensor.tied in group and tensor.name not in group]
    raise OtherTerms(InputTerms(terms.kept | free | also, tuple(tuple(group) for group in groups.values()), 2, terms.needed))


def _mattering(ask: Ask, exam: SecretInputs, state: Sequence[ReferenceTensor], missing: Iterable[str]) -> list[ReferenceTensor]:
    """What of this matters to the reference's answers: one after the other goes back to its constructed value and stays there
    unless it is missed, so that what does not matter does not matter together either. Constants come first; where none of them
    matters, nothing can be left out and the rest is not asked for."""
    gone = set(missing)
    lacking = [tensor for tensor in state if tensor.name in gone and tensor.tied == tensor.name]
    lacking.sort(key=lambda tensor: not tensor.constant)
    if not exam.renewed or not any(tensor.constant for tensor in lacking):
        return []
    names = [tensor.name for tensor in state]
    path = exam.folder / f"constructed-{secrets.token_hex(4)}"
    ask("renew", seed=0, state=str(path), keep=names, alike=[])
    renewed, constructed = (dict(zip(names, wire.read_tensors(file), strict=True)) for file in (exam.state, path))
    mattering: list[ReferenceTensor] = []
    back: set[str] = set()
    for tensor in lacking:
        if torch.equal(renewed[tensor.name], constructed[tensor.name]) or not (tensor.constant or mattering):
            continue
        more = back | {other.name for other in state if other.tied == tensor.name}
        path = exam.folder / f"reverted-{secrets.token_hex(4)}"  # a name of its own: no file is read twice
        wire.write_tensors(path, [(constructed if name in more else renewed)[name] for name in names])
        other = SecretInputs(folder=exam.folder, state=path, renewed=True, usual=exam.usual, sets=exam.sets[:1])
        if _matters(ask, exam, other):
            mattering.append(tensor)
        else:
            back = more
    return mattering


def _matters(ask: Ask, exam: SecretInputs, other: SecretInputs) -> bool:
    """Whether the answers to any set with other parameters would not pass for those with the exam's own."""
    bounds = exam.bounds(len(exam.sets))
    for given in exam.sets:
        variants = list(dict.fromkeys([given.variant, GIVEN]))
        try:
            again = draw_set(ask, other, f"matters-{secrets.token_hex(4)}", seed=given.seed, variants=variants)
        except BadInput:                   # the reference does not stand it, which says nothing of the program
            continue
        if again.names != given.names or again.variant != given.variant:
            continue
        (own, exact), (found, _) = given.answers(), again.answers()
        each = zip(given.names, found, own, exact, strict=True)
        if not all(bound.judge(name, value, expected, true, bounds[name]).ok for name, value, expected, true in each):
            return True
    return False
