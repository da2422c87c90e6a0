"""Secret input sets with the reference's answers, drawn by the judge and written by the reference worker.

An exam keeps one set of parameters and grows by input sets, the first as `get_inputs()` gives it, the others varied. Programs
of one session sit the same exam, the final verification sits a fresh one. Files live in the judge's scratch folder, which no
program worker can read; one is lent for the time of its question. Where to look next: `verify/inputs/variants.py` (what is
varied), `verify/processes/file_grants.py`, `verify/program/trial.py`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stitchcuda.compiler.printing.manifest import FreeSize, free_sizes
from stitchcuda.errors import BadInput
from stitchcuda.sandbox.removal import remove
from stitchcuda.verify.compare import bound
from stitchcuda.verify.compare.bound import Bound, Measure, pool_measures
from stitchcuda.verify.compare.expected_outputs import ExpectedOutput, ExpectedOutputs
from stitchcuda.verify.inputs.variants import MASKS_AS_GIVEN, SMALL, VALUES
from stitchcuda.verify.messages import wire
from stitchcuda.verify.processes.worker import WorkerFailed

Ask = Callable[..., dict[str, Any]]
"""Asks the reference worker: ask(do, **fields)."""

Groups = tuple[tuple[str, ...], ...]

GIVEN = "as given"
_TOUCHED = 3                               # the number of the set that is the first one with a few places exchanged or changed
_LAYOUT = 4                                # the number of the set in another layout: the loop's exams never come that far
_LARGER = 2                                # times the given size: what another size may cost
_MEASURING = ThreadPoolExecutor(4)         # no thread of it starts before it is used
_random = secrets.SystemRandom()


class ReferenceLost(BadInput):
    """The reference's process ended while it was asked; it is started anew for the next question."""


@dataclass
class InputSet:
    """One call of the reference as files: inputs, which are lent to a worker when it is asked, and answers, which never are."""

    inputs: Path
    structure: Any
    names: list[str]
    expected: Path
    exact: Path
    variant: str = GIVEN
    lenient: bool = False                  # in a layout that no program promises to take
    seed: int = 0                          # of the reference's get_inputs()

    @property
    def most_bytes(self) -> int:
        """What a worker's file of outputs may hold: twice what was expected, with room for other layouts."""
        return 2 * self.expected.stat().st_size + 2 * self.inputs.stat().st_size + 2**20

    def answers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """(own dtype, float64), in the order of `names`."""
        return wire.read_tensors(self.expected), wire.read_tensors(self.exact)


@dataclass
class SecretInputs:
    """Parameters and input sets that share them, as files in `folder`."""

    folder: Path
    state: Path
    renewed: bool
    note: str = ""
    kept: frozenset[str] = frozenset()     # parameters that are as constructed all the same
    alike: Groups = ()                     # parameters with one secret value in common (verify/ablation/state_mismatch.py)
    usual: float = 0.0                     # the reference's own error on inputs as given
    backwards: bool = field(default_factory=lambda: secrets.randbelow(2) == 1)  # how the simulator's blocks run the first time
    sets: list[InputSet] = field(default_factory=list)
    variants: list[str] = field(default_factory=lambda: _random.sample(VALUES, len(VALUES)))
    _bounds: dict[int, dict[str, Bound]] = field(default_factory=dict)
    _measures: dict[Path, Future[list[Measure]]] = field(default_factory=dict)
    _keys: ExpectedOutputs = field(default_factory=ExpectedOutputs)

    def bounds(self, count: int) -> dict[str, Bound]:
        """What is allowed per output, pooled over the first `count` input sets."""
        if count not in self._bounds:
            self._bounds[count] = self.bounds_of(self.sets[:count])
        return self._bounds[count]

    def bounds_of(self, sets: list[InputSet]) -> dict[str, Bound]:
        """The same pooled over any sets, such as those of other sizes. Raises `BadInput` where other outputs come of them."""
        for inputs in sets:
            if inputs.names != sets[0].names:
                raise BadInput(
                    "The reference returns or writes other tensors for other inputs of get_inputs(): "
                    f"{shorten_list(sets[0].names)}; then {shorten_list(inputs.names)}. "
                    "Give inputs for which they are always the same, or let forward return all of them for every input."
                )
        measures = [self.measures(inputs) for inputs in sets]
        for name, of_sets in zip(sets[0].names, zip(*measures, strict=True), strict=True):
            if len({measure.unit for measure in of_sets}) > 1:
                raise BadInput(f"The reference gives {name} another dtype for other inputs of get_inputs(); let it be one.")
        return {name: pool_measures([of_set[i] for of_set in measures]) for i, name in enumerate(sets[0].names)}

    def measures(self, inputs: InputSet) -> list[Measure]:
        """The reference's own errors, in the order of its names."""
        self.measure_soon(inputs)
        return self._measures[inputs.expected].result()

    def measure_soon(self, inputs: InputSet) -> None:
        """Begin with that, unless it was begun before."""
        if inputs.expected not in self._measures:
            self._measures[inputs.expected] = _MEASURING.submit(lambda: self.key(inputs).measure_errors())

    def key(self, inputs: InputSet) -> ExpectedOutput:
        """Inputs and answers, of a set of this exam or beside it."""
        return self._keys.get(inputs.expected, lambda: (wire.read_tensors(inputs.inputs), *inputs.answers()))

    def transient(self, state_names: Sequence[str]) -> list[str]:
        """Buffers that the reference's forward changes and its state_dict does not hold (non-persistent ones)."""
        changed = [name.removeprefix("buffer:") for name in self.sets[0].names if name.startswith("buffer:")]
        return [name for name in changed if name not in state_names]

    def bytes_of_a_call(self) -> int:
        """Of parameters, inputs and answers, as files."""
        first = self.sets[0]
        return sum(path.stat().st_size for path in (self.state, first.inputs, first.expected, first.exact))

    def remark(self, note: str) -> None:
        """Say once what was not looked at."""
        if note and note not in self.note:
            self.note = f"{self.note}; {note}" if self.note else note

    def close(self) -> None:
        remove(self.folder)


def set_paths(folder: Path, label: str) -> dict[str, Path]:
    """Where the files of one input set go."""
    return {what: folder / f"{what}-{label}" for what in ("inputs", "expected", "exact")}


def draw(ask: Ask, folder: Path, *, kept: frozenset[str] = frozenset(), alike: Groups = ()) -> SecretInputs:
    """A new exam without input sets. Parameters get secret values, but for those that are kept as constructed."""
    folder.mkdir(parents=True)
    state = folder / "state"
    answer = ask("renew", seed=secrets.randbits(31), state=str(state), keep=sorted(kept), alike=alike)
    return SecretInputs(folder=folder, state=state, renewed=not answer["note"], note=answer["note"], kept=kept, alike=alike)


def extend(ask: Ask, exam: SecretInputs, count: int, *, tell: Callable[[InputSet], object] = lambda inputs: None) -> None:
    """Draw secret seeds until the exam has `count` input sets: the first as given, the others varied where the reference
    stands it (what it does not stand is noted). Each of them is told of as soon as it is there."""
    while len(exam.sets) < count:
        number = len(exam.sets)
        seed = exam.sets[0].seed if number == _TOUCHED else None
        variants = _candidates(exam, number)
        inputs = draw_set(ask, exam, f"{number}", seed=seed, variants=variants)
        if number == _TOUCHED and inputs.variant.startswith("exchanged") and _answered_alike(exam, inputs):
            inputs = draw_set(ask, exam, f"{number}", seed=seed, variants=variants[variants.index("touched") :])
        exam.sets.append(inputs)
        tell(inputs)
        if number == _TOUCHED:
            for position in _never_varied(exam):
                exam.remark(f"input {position} was never varied")
            if plain := _always_the_same(exam):
                exam.remark(
                    f"limited: plain arguments of get_inputs() ({shorten_list(plain)}) are always the same: a program may have them "
                    "written into it"
                )


def _answered_alike(exam: SecretInputs, inputs: InputSet) -> bool:
    """Whether the answers to the exam's first set would pass for those to this one, such as those of a sum over everything."""
    bounds = exam.bounds_of(exam.sets)
    (before, _), (own, exact) = exam.sets[0].answers(), inputs.answers()
    each = zip(inputs.names, before, own, exact, strict=True)
    outputs = [answer for answer in each if not answer[0].startswith(("buffer:", "input:"))]
    return all(bound.judge(name, old, new, true, bounds[name]).ok for name, old, new, true in outputs)


def _never_varied(exam: SecretInputs) -> list[int]:
    """Inputs that are the same in all sets: a program may have them written into it."""
    first, *others = (wire.read_tensors(inputs.inputs) for inputs in exam.sets)
    same = [position for position, tensor in enumerate(first) if tensor.numel()]
    for other in others:
        same = [position for position in same if position < len(other) and torch.equal(first[position], other[position])]
    return same


def _always_the_same(exam: SecretInputs) -> list[str]:
    """Arguments that are no tensors and have one value in all sets, which none of the variants changes."""
    first, *others = (dict(_plain(inputs.structure)) for inputs in exam.sets)
    return list(dict.fromkeys(said for place, said in first.items() if all(other.get(place) == said for other in others)))


def _plain(structure: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    """(where, what) of each number, text, dtype and so on in an encoded set; None says nothing."""
    if not isinstance(structure, dict):
        if structure is not None:
            yield place, f"{structure!r:.40}"
    elif "float" in structure:
        yield place, repr(float.fromhex(structure["float"]))
    elif "dtype" in structure or "device" in structure:
        yield place, str(structure.get("dtype", structure.get("device")))
    elif "tensor" not in structure:
        parts = [part for _, part in structure.get("dict", ())]
        for number, part in enumerate((*structure.get("tuple", ()), *structure.get("list", ()), *parts)):
            yield from _plain(part, (*place, number))


def redraw_parameters(ask: Ask, exam: SecretInputs) -> SecretInputs | None:
    """The exam's first set with other parameters; None where parameters are not varied. Its files are the exam's."""
    if not exam.renewed:
        return None
    state = exam.folder / "state-again"
    if ask("renew", seed=secrets.randbits(31), state=str(state), keep=sorted(exam.kept), alike=exam.alike)["note"]:
        return None
    other = SecretInputs(folder=exam.folder, state=state, renewed=True, kept=exam.kept, alike=exam.alike)
    other.sets.append(draw_set(ask, other, "again", seed=exam.sets[0].seed, variants=[GIVEN]))
    other.measure_soon(other.sets[0])
    return other


def draw_other_sizes(ask: Ask, exam: SecretInputs, free: Sequence[FreeSize]) -> list[InputSet]:
    """Input sets at other sizes that the program's shape guard allows, a smaller and a larger one; none are added to the exam.

    Their bounds are `exam.bounds_of([*exam.sets, one])`. Without a free size there are none, and a note says so.
    """
    if not free:
        exam.remark("limited: judged at the given sizes only; the program states no range of others")
        return []
    given = [list(tensor.shape) for tensor in wire.read_tensors(exam.sets[0].inputs)]
    sets: list[InputSet] = []
    for larger in (False, True):
        sizes: list[tuple[int, int, int]] = []
        for free_size in free:
            axes = [place for place in free_size.places if place[0] < len(given) and place[1] < len(given[place[0]])]
            now = {given[number][axis] for number, axis in axes}
            if len(axes) != len(free_size.places) or len(now) != 1:
                exam.remark(f"the program's free size {free_size.symbol} is not one size of the inputs and was not tried")
                continue
            size = now.pop()
            smaller = (free_size.low, min(free_size.high, size - 1))
            low, high = (size + 1, min(free_size.high, _LARGER * size)) if larger else smaller
            if max(1, low) <= high:
                other = _random.randint(max(1, low, free_size.low), high)
                sizes += [(number, axis, other) for number, axis in axes]
        if not sizes:
            continue
        try:
            other_size = draw_set(ask, exam, f"resized-{int(larger)}", variants=[GIVEN], sizes=sizes)
            exam.bounds_of([exam.sets[0], other_size])
            sets.append(other_size)
        except BadInput as error:
            exam.remark(f"another size was not tried: {error}")
    return sets


def read_free_sizes(program: Path) -> tuple[FreeSize, ...]:
    """What the program's shape guard leaves open; nothing for a program without one."""
    manifest = program / "program.json"
    if not manifest.is_file():
        return ()
    try:
        content = json.loads(manifest.read_text(errors="replace"))
        return free_sizes(content if isinstance(content, dict) else {})
    except (ValueError, RecursionError, BadInput) as error:
        raise WorkerFailed("error", f"the program's program.json cannot be read: {error}") from error


def _candidates(exam: SecretInputs, number: int) -> list[str]:
    """The variants to try for a set, in order."""
    if number == 0:
        return [GIVEN]
    if number == _LAYOUT:
        return ["non-contiguous", GIVEN]
    if number == 1:
        return [*_first("patchwork"), *exam.variants[:2], GIVEN]
    if number == 2:
        return [*SMALL, *exam.variants[2:4], GIVEN]
    if number == _TOUCHED:
        return [*_first("exchanged"), *_first("touched"), *exam.variants[4:6], GIVEN]
    return [exam.variants[place % len(exam.variants)] for place in (number, number + 1)] + [GIVEN]


def _first(variant: str) -> list[str]:
    """A variant with masks in another order, then without that."""
    return [variant, variant + MASKS_AS_GIVEN]


def draw_set(
    ask: Ask, exam: SecretInputs, label: str, *, variants: Sequence[str], seed: int | None = None, sizes: Sequence[Any] = ()
) -> InputSet:
    """One more set, of the first variant that the reference stands; the last one it must stand."""
    paths = set_paths(exam.folder, label)
    seed = secrets.randbits(31) if seed is None else seed
    try:
        answer = ask(
            "expect",
            seed=seed,
            state=str(exam.state),
            variants=list(variants),
            sizes=sizes,
            usual=exam.usual,
            names=exam.sets[0].names if exam.sets else None,
            **{what: str(path) for what, path in paths.items()},
        )
    except ReferenceLost as error:                  # an index that is out of range on a GPU ends a process, not only a call
        if len(variants) < 2:
            raise
        exam.remark(f"{variants[0]} inputs were not tried: the reference does not stand them ({error})")
        return draw_set(ask, exam, label, variants=variants[1:], seed=seed, sizes=sizes)
    for note in answer["skipped"]:
        exam.remark(note)
    variant = answer["variant"]
    if variant == GIVEN and not sizes:
        exam.usual = max(exam.usual, answer["usual"])
    return InputSet(
        structure=answer["structure"], names=answer["names"], variant=variant, lenient=variant == "non-contiguous", seed=seed,
        **paths,
    )  # fmt: skip


def shorten_list(names: Sequence[str]) -> str:
    """The first few of some names, for a sentence."""
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])]) or "nothing"
