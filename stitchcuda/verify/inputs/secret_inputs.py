"""Draws the secret inputs that a program is judged on, and asks the reference worker for the outputs that are expected.

`SecretInputs` holds one set of secret parameters and a list of input sets. The first set is what `get_inputs()` gives for a
secret seed; the others are variants of such inputs (`_candidates` says which set gets which). All programs of a session are
judged on the same sets, the final verification on fresh ones. The tensors lie in blocks of memory, which nobody can open who
was not given their descriptors: a program's worker gets those of inputs when it is asked about them, of expected outputs never.
Where to look next: `verify/inputs/variants.py` (what is varied), `verify/inputs/other_parameters.py` (other secret parameters),
`verify/messages/tensor_block.py` (the blocks), `verify/program/trial.py` (who calls a program with them).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stitchcuda.compiler.printing.manifest import FreeSize, free_sizes
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.verify.compare.bound import Bound, pool_measures
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs.rare_values import FAR, IN_ROWS, LOOSE, MIXED, ONE, RARE
from stitchcuda.verify.inputs.reference_requests import Ask, Groups, InputSet
from stitchcuda.verify.inputs.variants import (
    ALIKE,
    BLANK,
    CROWDED,
    DRIFTED,
    FULL,
    GIVEN,
    MASKS_AS_GIVEN,
    MET,
    NUDGED,
    ONE_RUN,
    RARE_DRAWS,
    SMALL,
    VALUES,
    describe,
    is_rare,
)
from stitchcuda.verify.messages.tensor_block import TensorBlock
from stitchcuda.verify.processes.worker import WorkerFailed

_TOUCHED = 3                               # this set repeats set 0 with a few elements exchanged or changed
_LAYOUT = 4                                # this set has another memory layout; only the final verification draws so many
_AGAIN = 3                                 # sets on which an output must be the same, too, that says little
_MORE_PATCHWORK = 2                        # sets on which a kernel is left out that does nothing on all others
_MET = 2                                   # sets that meet conditions, as far as there are any: chance may spoil one
_LARGER = 2                                # another size is at most this many times the given one
_KINDS_S, _KINDS_LARGE_S = 30.0, 2.0       # seconds for kinds of rare inputs, and where a call takes ...
_LARGE = 2**26                             # ... so many bytes and more
_MUCH = 2**30                              # bytes of a call, above which what is only similar is not tried
LITTLE = 2**26                             # bytes of a call of which all kinds of parameters and of rare inputs are tried
KEPT_BUFFERS = "limited: buffers of masks and integers keep the constructor's values"
_random = secrets.SystemRandom()

Clock = Callable[[], float]
"""Seconds since some moment. A judge's leaves out those in which it waited for its turn on the GPU."""


class ReferenceLost(BadInput):
    """The reference's process ended before it answered. The judge starts another for the next question. `late`: it was ended
    because it took too long."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class ReferenceKilled(Unavailable):
    """Somebody killed the reference's process. The judge starts another for the next question."""


@dataclass(frozen=True)
class InputTerms:
    """Which parameters of the secret inputs may not vary freely for a program that lacks some of them, or names them otherwise.
    `verify/ablation/state_mismatch.py` sets the terms; each stage is tried once, in order."""

    kept: frozenset[str] = frozenset()     # parameters that stay as constructed
    alike: Groups = ()                     # parameters of one group have one shape and get equal secret values
    stage: int = 0                         # 1: some are kept; 2: matching names by shape was wrong
    needed: int = 0                        # how many numbers of its own the program must hold in place of what it lacks


@dataclass
class SecretInputs:
    """Secret parameters (the block `state`) and the input sets that are called with them.

    `renewed`: the parameters have secret values; else they are as constructed, and a note says why. `notes`: what was not
    looked at.
    """

    state: TensorBlock
    renewed: bool
    notes: list[str] = field(default_factory=list)
    kept: frozenset[str] = frozenset()     # parameters that keep the values of their constructor
    amplified: bool = False                # weights were scaled up, for outputs that depend on the inputs
    alike: Groups = ()                     # parameters of one group have equal values (verify/ablation/state_mismatch.py)
    usual: float = 0.0                     # the reference's own error on inputs as given, relative in norm
    kind: str = ""                         # of parameters that are far from the constructor's (`verify/inputs/far_state.py`)
    beyond: bool = True                    # whether values that get_inputs() never shows may be tried: a crash ends that
    backwards: bool = field(default_factory=lambda: secrets.randbelow(2) == 1)  # block order of a first call, simulated
    sets: list[InputSet] = field(default_factory=list)
    variants: list[str] = field(default_factory=lambda: _random.sample(VALUES, len(VALUES)))

    def bounds(self, count: int) -> dict[str, Bound]:
        """The error bound of each output by name, pooled over the first `count` input sets."""
        return self.bounds_of(self.sets[:count])

    def bounds_of(self, sets: list[InputSet]) -> dict[str, Bound]:
        """The error bounds pooled over these sets. Raises `BadInput` if their outputs differ in name or dtype."""
        for input_set in sets:
            if input_set.names != sets[0].names:
                raise BadInput(
                    "The reference returns or writes other tensors for other inputs of get_inputs(): "
                    f"{shorten_list(sets[0].names)}; then {shorten_list(input_set.names)}. "
                    "Give inputs for which they are always the same, or let forward return all of them for every input."
                )
        by_output = dict(zip(sets[0].names, zip(*(input_set.measures for input_set in sets), strict=True), strict=True))
        for name, measures in by_output.items():
            if len({measure.unit for measure in measures}) > 1:
                raise BadInput(f"The reference gives {name} another dtype for other inputs of get_inputs(); let it be one.")
        return {name: pool_measures(measures) for name, measures in by_output.items()}

    def transient_buffers(self, state_names: Sequence[str]) -> list[str]:
        """Names of the non-persistent buffers that the reference's forward changes: no name of its state_dict is theirs."""
        return [name for name in self.updated_buffers() if name not in state_names]

    def updated_buffers(self) -> list[str]:
        """Names of the buffers and parameters that the reference's forward changes."""
        return [name.removeprefix("buffer:") for name in self.sets[0].names if name.startswith("buffer:")]

    def bytes_of_a_call(self) -> int:
        """The bytes of parameters, inputs and expected outputs of the first set."""
        first = self.sets[0]
        return sum(block.size for block in (self.state, first.inputs, first.expected, first.exact))

    def remark(self, note: str) -> None:
        """Adds a note, unless it is there already."""
        if note not in self.notes:
            self.notes.append(note)

    def blocks(self) -> tuple[TensorBlock, ...]:
        """All blocks of the sets and of the parameters."""
        return self.state, *(block for given in self.sets for block in (given.inputs, given.expected, given.exact))


def draw(
    ask: Ask, *, kept: frozenset[str] = frozenset(), alike: Groups = (), amplified: bool = False
) -> SecretInputs:
    """Draws secret parameters, except for those in `kept`; parameters of a group in `alike` get equal values. Draws no sets.

    `amplified`: weights are scaled up so far that layers preserve the variance of what goes through them.
    """
    made = ask(requests.Renew(secrets.randbits(31), tuple(sorted(kept)), alike, amplified))
    return SecretInputs(made.state, made.varied, list(made.notes), kept=kept, alike=alike, amplified=amplified)


def extend(ask: Ask, secret_inputs: SecretInputs, count: int) -> None:
    """Draws input sets until there are `count`.

    The first set is as given, the others are variants. If the reference does not work for a variant, a note says so.
    """
    while len(secret_inputs.sets) < count:
        number = len(secret_inputs.sets)
        seed = secret_inputs.sets[0].seed if number == _TOUCHED else None
        variants = _candidates(secret_inputs, number)
        input_set = draw_set(ask, secret_inputs, seed=seed, variants=variants)
        if number == _TOUCHED and input_set.variant.startswith("exchanged") and _answered_alike(ask, secret_inputs, input_set):
            input_set = draw_set(ask, secret_inputs, seed=seed, variants=variants[variants.index("touched") :])
        secret_inputs.sets.append(input_set)
        if number == _TOUCHED:
            unvaried = ask(requests.FindUnvaried(tuple(given.inputs for given in secret_inputs.sets)))
            if unvaried.ranges:
                secret_inputs.remark(_describe_tried(unvaried))
            for position in unvaried.positions:
                secret_inputs.remark(f"limited: input {position} never varies: a program may ignore it or have it built in")
            if plain := _always_the_same(secret_inputs):
                secret_inputs.remark(
                    f"limited: plain arguments of get_inputs() ({shorten_list(plain)}) are always the same: a program may have "
                    "them written into it"
                )


def _describe_tried(found: requests.Unvaried) -> str:
    """The note on the values that were tried."""
    tried = [f"{low:.4g} to {high:.4g} (input {position})" for position, low, high, _ in found.ranges]
    special = [position for position, _, _, nonfinite in found.ranges if nonfinite]
    others = f"NaN or infinities in {shorten_list([f'input {position}' for position in special])} only" if special else ""
    return f"limited: values beyond these were not tried: {shorten_list(tried)}; {others or 'nor were NaN and infinities'}"


def _answered_alike(ask: Ask, secret_inputs: SecretInputs, input_set: InputSet) -> bool:
    """Whether set 0's outputs would pass as this set's, as those of a sum over all elements do if two are exchanged."""
    bounds = secret_inputs.bounds_of(secret_inputs.sets)
    state = secret_inputs.state
    wrong = ask(requests.FindWrong(state, secret_inputs.sets[0], state, input_set, bounds))
    return all(name.startswith(("buffer:", "input:")) for name in wrong.names)


def _always_the_same(secret_inputs: SecretInputs) -> list[str]:
    """The values, as text, of arguments that are no tensors and are the same in all sets. No variant changes them."""
    first, *others = (dict(_plain_values(input_set.structure)) for input_set in secret_inputs.sets)
    return list(dict.fromkeys(value for place, value in first.items() if all(other.get(place) == value for other in others)))


def _plain_values(structure: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    """(position, text) of each number, string, dtype, device and None in encoded arguments."""
    if not isinstance(structure, dict):
        yield place, f"{structure!r:.40}"
    elif "float" in structure:
        yield place, repr(float.fromhex(structure["float"]))
    elif "dtype" in structure or "device" in structure:
        yield place, str(structure.get("dtype", structure.get("device")))
    elif "tensor" not in structure:
        parts = [part for _, part in structure.get("dict", ())]
        for number, part in enumerate((*structure.get("tuple", ()), *structure.get("list", ()), *parts)):
            yield from _plain_values(part, (*place, number))


def check_reference(ask: Ask, secret_inputs: SecretInputs) -> tuple[str, list[str]]:
    """Returns (why no program can be judged by the reference, or ""; notes on single degenerate outputs).

    It is refused when all of its outputs are degenerate (`verify/compare/degenerate_outputs.py`): a program that computes
    nothing would pass. Needs two input sets, and asks for one more run in float64, with other parameters.
    """
    first = secret_inputs.sets[0]

    def find(sets: Sequence[InputSet]) -> requests.DegenerateOutputs:
        try:
            reweighed = ask(requests.Reweigh(secrets.randbits(31), secret_inputs.state, sets[0]))
        except ReferenceLost as error:
            if error.late:
                raise
            reweighed = requests.Reweighed()
        return ask(requests.FindDegenerate(secret_inputs.state, tuple(sets), secret_inputs.bounds(2), reweighed))

    has_inputs = any(tensor.bytes for tensor in first.input_facts)
    sets = secret_inputs.sets[: 2 if has_inputs else 1]
    if first.draw_seed is not None and has_inputs:        # with the same draws, so that only the inputs differ
        variants, seed = [sets[1].variant, GIVEN], sets[1].seed
        sets[1] = draw_set(ask, secret_inputs, variants=variants, seed=seed, draw_seed=first.draw_seed)
    answer = find(sets)
    names, found = answer.judged, answer.found
    if names and len(found) == len(names) and len(sets) > 1:  # parameters may matter for some values only
        again = find(sets[::-1]).found
        found = {name: why for name, why in found.items() if name in again}
    kinds = zip(first.names, first.output_facts, strict=True)  # what a call writes, such as running statistics, is judged too
    writes_state = any(not name.startswith("output") and fact.floating for name, fact in kinds)
    if names and len(found) == len(names) and not writes_state:
        listed = "; ".join(f"{name} {why}" for name, why in list(found.items())[:3])
        return f"The reference is degenerate: {listed}. A program that computes nothing would pass.", []
    if found and len(sets) > 1:            # it may be so by chance, as of a count or of a state behind short rows
        more = [draw_set(ask, secret_inputs, variants=[GIVEN], draw_seed=first.draw_seed) for _ in range(_AGAIN)]
        again = find([first, *more]).found
        found = {name: why for name, why in found.items() if name in again}
    if found and first.draw_seed is not None:
        other = draw_set(ask, secret_inputs, variants=[GIVEN], seed=first.seed, draw_seed=secrets.randbits(31))
        state = secret_inputs.state
        wrong = ask(requests.FindWrong(state, other, state, first, secret_inputs.bounds(2)))
        for name in set(wrong.names) & found.keys():
            found[name] += ", and follows from the random numbers that a call draws"
    return "", [f"the check of {name} says little: it {why}" for name, why in found.items()]


def bounds_with(secret_inputs: SecretInputs, seeds: int, given: InputSet) -> dict[str, Bound]:
    """The error bounds for a set beside the first `seeds` ones. Where all terms of a sum are equal, all of its roundings may go
    one way, in another order than the reference's: then they are at least `LOOSE`."""
    bounds = secret_inputs.bounds_of([*secret_inputs.sets[:seeds], given])
    if not is_rare(given.variant) or not RARE[given.variant.removesuffix(ONE)].loose:
        return bounds
    return {
        name: Bound(max_relative=max(LOOSE, bound.max_relative), norm_relative=max(LOOSE, bound.norm_relative))
        for name, bound in bounds.items()
    }


def draw_rare(ask: Ask, secret_inputs: SecretInputs, clock: Clock = time.monotonic) -> Iterator[InputSet]:
    """Yields input sets of which programs may think that they do not occur, where the reference stands them: zeros everywhere,
    since a guard may look at all values at once; masks that leave nothing out; values that differ by little from those of
    the first set, unless a call takes much memory; and the kinds of `verify/inputs/rare_values.py`, in random order, as far as
    time allows: it includes that of the calls of a program, between two sets. Small references also get integers that are
    nearly all one, rows that are alike, values that differ by less, random draws that are rare, and last inputs that meet
    comparisons which no set met before."""
    first = secret_inputs.sets[0]
    wanted: list[tuple[str, int | None]] = [(BLANK, None)]
    if not all(fact.floating for fact in first.input_facts):
        wanted.append((FULL, None))
    if any(fact.floating for fact in first.input_facts) and secret_inputs.bytes_of_a_call() < _MUCH:
        wanted.append((NUDGED, first.seed))
    if secret_inputs.bytes_of_a_call() < LITTLE:
        wanted += [(CROWDED, None), (ONE_RUN, None), (ALIKE, None), (DRIFTED, first.seed)]
    for variant, seed in wanted:
        drawn = draw_variant(ask, secret_inputs, variants=[variant], seed=seed)
        if drawn is not None:
            yield drawn
        del drawn                          # it may be gigabytes
    if first.draw_seed is not None and secret_inputs.bytes_of_a_call() < LITTLE:
        for rare in ask(requests.FindRareSeeds(first, secret_inputs.state, secrets.randbits(31))).seeds:
            drawn = draw_set(ask, secret_inputs, variants=[GIVEN], seed=first.seed, draw_seed=rare)
            yield replace(drawn, variant=RARE_DRAWS)
    yield from _draw_rare_kinds(ask, secret_inputs, clock)
    for _ in range(_MET if secret_inputs.bytes_of_a_call() < LITTLE else 0):
        drawn = draw_variant(ask, secret_inputs, variants=[MET])
        if drawn is not None:
            yield drawn


def _draw_rare_kinds(ask: Ask, secret_inputs: SecretInputs, clock: Clock) -> Iterator[InputSet]:
    """Yields sets of the kinds: the mixed one first, then those with something far larger than the rest, on which parts of half
    the width fail that are scaled together, those of few inputs (masks, settings), and last what rows of the mixed one hold."""
    if not secret_inputs.beyond:
        return
    found = ask(requests.FindRareKinds(secret_inputs.sets[0].seed)).names
    kinds = sorted(_random.sample(found, len(found)), key=lambda kind: (
        kind != MIXED, kind in IN_ROWS, kind not in FAR, RARE[kind].common,
    ))  # fmt: skip
    most = _KINDS_LARGE_S if secret_inputs.bytes_of_a_call() >= _LARGE else _KINDS_S
    begin = clock()
    for number, kind in enumerate(kinds):
        if number and clock() - begin > most:
            secret_inputs.remark(f"limited: of {len(kinds)} kinds of rare inputs {number} were tried, for want of time")
            return
        seed = secret_inputs.sets[0].seed if RARE[kind].before else None
        drawn = draw_variant(ask, secret_inputs, variants=[kind, kind + ONE], seed=seed)
        if drawn is not None:
            yield drawn
        del drawn


def draw_more_rare(ask: Ask, secret_inputs: SecretInputs) -> Iterator[InputSet]:
    """Yields what `draw_rare` yields, and new sets with rows of many kinds, among them rows of zeros and empty masks."""
    yield from draw_rare(ask, secret_inputs)
    for _ in range(_MORE_PATCHWORK):
        yield draw_set(ask, secret_inputs, variants=_candidates(secret_inputs, 1))


def draw_other_sizes(ask: Ask, secret_inputs: SecretInputs, free: Sequence[FreeSize]) -> Iterator[InputSet]:
    """Yields up to two input sets at other sizes that the program's shape guard allows: a smaller one and one at most `_LARGER`
    times as large. Each is drawn when it is needed, and is not added to `secret_inputs.sets`.

    A set's bounds are `bounds_of([*secret_inputs.sets, input_set])`. Without a free size there is no set, and a note says so.
    """
    if not free:
        secret_inputs.remark("limited: judged at the given sizes only, as the program names no others")
        return
    given = [fact.shape for fact in secret_inputs.sets[0].input_facts]
    for larger in (False, True):
        sizes: list[tuple[int, int, int]] = []
        for free_size in free:
            axes = [place for place in free_size.places if place[0] < len(given) and place[1] < len(given[place[0]])]
            now = {given[number][axis] for number, axis in axes}
            if len(axes) != len(free_size.places) or len(now) != 1:
                secret_inputs.remark(
                    f"the program's free size {free_size.symbol} is not one size of the inputs and was not tried"
                )
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
            other_size = draw_set(ask, secret_inputs, variants=[GIVEN], sizes=sizes)
            secret_inputs.bounds_of([secret_inputs.sets[0], other_size])
        except BadInput as error:
            secret_inputs.remark(f"another size was not tried: {error}")
            continue
        yield other_size
        del other_size                     # it may be gigabytes


def read_free_sizes(program: Path) -> tuple[FreeSize, ...]:
    """The sizes that the shape guard in a program's `program.json` leaves open; () without that file. Raises `WorkerFailed`."""
    manifest = program / "program.json"
    if not manifest.is_file():
        return ()
    try:
        content = json.loads(manifest.read_text(errors="replace"))
        return free_sizes(content if isinstance(content, dict) else {})
    except (ValueError, RecursionError, BadInput) as error:
        raise WorkerFailed("error", f"the program's program.json cannot be read: {error}") from error


def _candidates(secret_inputs: SecretInputs, number: int) -> list[str]:
    """The variants to try for the set of this number, in order: the reference need only work for the last one."""
    if number == 0:
        return [GIVEN]
    if number == _LAYOUT:
        return ["non-contiguous", GIVEN]
    if number == 1:
        return [*_with_and_without_masks("patchwork"), *secret_inputs.variants[:2], GIVEN]
    if number == 2:
        return [*SMALL, *secret_inputs.variants[2:4], GIVEN]
    if number == _TOUCHED:
        few = [*_with_and_without_masks("exchanged"), *_with_and_without_masks("touched")]
        return [*few, *secret_inputs.variants[4:6], GIVEN]
    names = secret_inputs.variants
    return [names[place % len(names)] for place in (number, number + 1)] + [GIVEN]


def _with_and_without_masks(variant: str) -> list[str]:
    """The variant that also reorders masks, then the one that leaves them as given."""
    return [variant, variant + MASKS_AS_GIVEN]


def draw_set(
    ask: Ask, secret_inputs: SecretInputs, *, variants: Sequence[str], seed: int | None = None,
    sizes: Sequence[tuple[int, int, int]] = (), draw_seed: int | None = None,
) -> InputSet:  # fmt: skip
    """Draws an input set of the first of `variants` for which the reference works. It is not added to `secret_inputs.sets`.

    `seed`: for get_inputs(), else a new secret one. `sizes`: (tensor, axis, length) to cut or tile the inputs to. `draw_seed`:
    for a reference that draws random numbers in forward, else one that follows from `seed`. Raises `BadInput` if the reference
    fails on the last variant too.
    """
    found = _draw(ask, secret_inputs, variants, seed, sizes, draw_seed)
    assert found is not None
    return found


def draw_variant(
    ask: Ask, secret_inputs: SecretInputs, *, variants: Sequence[str], seed: int | None = None
) -> InputSet | None:
    """As `draw_set`; None if the reference works for none of `variants`."""
    return _draw(ask, secret_inputs, variants, seed, optional=True)


def _draw(
    ask: Ask, secret_inputs: SecretInputs, variants: Sequence[str], seed: int | None,
    sizes: Sequence[tuple[int, int, int]] = (), draw_seed: int | None = None, *, optional: bool = False,
) -> InputSet | None:  # fmt: skip
    seed = secrets.randbits(31) if seed is None else seed
    try:
        names = secret_inputs.sets[0].names if secret_inputs.sets else None
        drawn = ask(requests.Expect(
            seed, secret_inputs.state, tuple(variants), tuple(sizes), secret_inputs.usual, names, draw_seed,
            secret_inputs.beyond, optional,
        ))  # fmt: skip
    except ReferenceLost as error:         # on a GPU an index out of range ends the whole process
        if error.late or (len(variants) < 2 and not optional):
            raise
        if secret_inputs.beyond:
            secret_inputs.beyond = False
            secret_inputs.remark(f"limited: only values like those of get_inputs() were tried: for others, {error}")
        else:
            secret_inputs.remark(f"{describe(variants[0])} were not tried: the reference is of no use on them ({error})")
            variants = variants[1:]
        return _draw(ask, secret_inputs, variants, seed, sizes, draw_seed, optional=optional) if variants else None
    for note in drawn.skipped:
        secret_inputs.remark(note)
    if not sizes:
        secret_inputs.usual = max(secret_inputs.usual, drawn.usual)
    return drawn.set


def shorten_list(names: Sequence[str]) -> str:
    """The first four names for a sentence: "a, b, c, d, …"; "nothing" if there are none."""
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])]) or "nothing"
