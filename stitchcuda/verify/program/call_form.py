"""Says what is wrong with a call beside its values: other containers, outputs in one memory, effects on its caller.

It compares what the worker reports with what the reference's worker saw, on the judge's side. A report may be false: a program
that forges it harms its user only where values are not concerned.
Where to look next: `verify/integrity/call_effects.py` (how workers look), `verify/program/trial.py` (who asks).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from stitchcuda.verify.inputs.reference_requests import CallHabits, InputSet
from stitchcuda.verify.inputs.secret_inputs import shorten_list
from stitchcuda.verify.integrity.call_effects import INFERENCE, LARGER, POOLED
from stitchcuda.verify.messages import wire
from stitchcuda.verify.messages.program_requests import Called

_LIMITS = {INFERENCE: ", made under torch.inference_mode(): changing it in place, or training, raises", LARGER: ""}
_MOST_FAULTS = 4
_MOST_NAMED = 120                          # characters of what a worker reported, in a sentence


def find_faults(habits: CallHabits, given: InputSet, names: tuple[str, ...], called: Called, *, first: bool) -> list[str]:
    """Sentences on what is wrong with a call whose outputs `names` have the reference's values. `first`: of this program, which
    may build or pack something then, and draw random numbers for that."""
    containers = _other_containers(habits.structure, called.structure, "output") if habits.structure is not None else ()
    found = chain(containers, _shared_outputs(habits, names, called), _effects(habits, given, called, first=first))
    return list(islice(found, _MOST_FAULTS))


def find_limits(habits: CallHabits, names: tuple[str, ...], called: Called) -> list[str]:
    """Notes on what a user may not do with the outputs `names` of a call that is right."""
    found = []
    for mark, why in _LIMITS.items():
        marked = [name for name, marks in zip(names, called.marks, strict=False) if mark in marks]
        ours = [name for name in marked if (name, mark) not in set(map(tuple, habits.marks))]
        found += [f"limited: {shorten_list(ours)} is {mark}{why}"] if ours else []
    return found


def settings_fault(habits: CallHabits, called: Called) -> list[str]:
    """A sentence on settings of the process that a call changes."""
    named = ", ".join(name for name in called.settings if name not in habits.settings)[:_MOST_NAMED]
    what = f"a call changes a setting of the whole process ({named}): leave it alone, or set it back before returning"
    return [what] if named else []


def _kind(part: Any) -> str:
    if part is None:
        return "None"
    return "a tensor" if "tensor" in part else f"a {wire.container(part)[0]}"


def _other_containers(reference: Any, program: Any, path: str) -> Iterator[str]:
    """Both structures are encoded results that were checked (`wire.named_tensors`)."""
    theirs, ours = _kind(program), _kind(reference)
    if theirs != ours:
        yield f"{path} is {theirs} where the reference returns {ours}: return {ours}"
        return
    if ours in ("None", "a tensor"):
        return
    wanted, found = _parts(reference), _parts(program)
    if wanted.keys() != found.keys():
        here, there = (", ".join(parts)[:_MOST_NAMED] or "nothing" for parts in (found, wanted))
        yield f"{path} holds {here} where the reference's holds {there}: return all parts, also those that are None"
        return
    for key, part in wanted.items():
        yield from _other_containers(part, found[key], f"{path}.{key}")


def _parts(structure: Any) -> dict[str, Any]:
    return {key if isinstance(key, str) else f"{key!r}": part for key, part in wire.container(structure)[1]}


def _shared_outputs(habits: CallHabits, names: tuple[str, ...], called: Called) -> Iterator[str]:
    allowed = set(map(tuple, habits.overlapping))
    for left, right in called.overlapping:
        pair = tuple(names[place] for place in (left, right) if place < len(names))
        if len(pair) == 2 and pair not in allowed:
            yield f"{pair[0]} and {pair[1]} lie in one memory where the reference's do not: return a copy of one of them"
    for places, what in ((called.in_inputs, "an input"), (called.in_state, "a parameter or buffer")):
        for name in (names[place] for place in places if place < len(names)):
            if name not in habits.lent:
                yield f"{name} is the memory of {what}, which the reference's is not: return a copy"
    for name, marks in zip(names, called.marks, strict=False):
        excused = {*_LIMITS, *(mark for other, mark in habits.marks if other == name)}
        excused |= {POOLED} if name in habits.lent else set()
        for mark in (mark for mark in marks if mark not in excused):
            yield f"{name} is {mark[:_MOST_NAMED]}, which the reference's is not: return a plain tensor"


def _effects(habits: CallHabits, given: InputSet, called: Called, *, first: bool) -> Iterator[str]:
    if called.arguments_changed and not habits.changes_arguments:
        yield (
            "a call changes a list, dict or tensor object that it is given: take parts out of a copy, and leave shapes alone"
        )
    if changed := [what for what in called.module_changed if what not in habits.module_changed]:
        named = ", ".join(changed)[:_MOST_NAMED]
        yield f"a call changes the module ({named}), which a user may have set: leave it alone"
    yield from settings_fault(habits, called)
    for what in called.written_back[:1]:
        yield (
            f"a call writes into {what[:_MOST_NAMED]} and puts it back, where others may read it meanwhile: "
            "write to memory of its own"
        )
    if given.generators and called.generators != given.generators:
        yield (
            "a call leaves torch's random generator in another state than the reference does: draw as many random numbers as "
            "it does, and seed nothing"
        )
    elif not given.generators and called.generators_moved and not habits.moves_generators and not first:
        yield "a call draws from torch's generator or seeds it, as the reference does not: use one of its own"
