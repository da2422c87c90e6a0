"""Computes what programs are compared with: the reference's outputs, also in float64, for inputs that are drawn or given.

Of the input variants asked for it takes the first that the reference computes without an exception and with a usable result. A
call may follow others on the state that they left (`expect_row`), or get one tensor for two inputs (`expect_shared`).
Where to look next: `verify/reference/reference_worker.py` (the process), `verify/reference/float64_truth.py` (the calls),
`verify/inputs/reference_requests.py` and `verify/inputs/call_requests.py` (the requests).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from stitchcuda.errors import BadInput
from stitchcuda.state import Precision
from stitchcuda.verify.compare.bound import Measure, eps, pool_measures
from stitchcuda.verify.inputs import draw_seeds, timed_contents, variants
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs.call_requests import ExpectRow, ExpectShared, OtherCalls
from stitchcuda.verify.inputs.input_ranges import InputRanges, list_tensors
from stitchcuda.verify.inputs.other_parameters import widest
from stitchcuda.verify.inputs.rare_values import ONE, RARE
from stitchcuda.verify.inputs.reference_requests import InputSet
from stitchcuda.verify.messages import out_of_memory, wire
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.request import Done
from stitchcuda.verify.messages.shared_tensors import group_by_memory
from stitchcuda.verify.messages.tensor_block import unpack
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.reference.blocks import Blocks
from stitchcuda.verify.reference.comparisons import Comparisons, find_differing
from stitchcuda.verify.reference.condition_search import meet
from stitchcuda.verify.reference.conditions import Conditions
from stitchcuda.verify.reference.float64_truth import Row, run_in_precision, run_row64, run_row_in_precision
from stitchcuda.verify.reference.random_draws import RandomDraws
from stitchcuda.verify.reference.range_search import (
    allow_beside,
    find_open,
    find_smooth,
    is_any_zero,
    search_ranges,
    stands_rounding,
)
from stitchcuda.verify.reference.reference import Reference
from stitchcuda.verify.reference.reference_state import ReferenceState

_LITTLE = 2**26                            # bytes of a call that is repeated with noise
_MOST_JOINED = 4                           # ways to give one tensor for two inputs that are tried

Outputs = dict[str, torch.Tensor]


class LostContext(Exception):
    """The process has lost its CUDA context: only a new process can use the GPU again."""


class ExpectedOutputs:
    """Those of one reference. `ranges`: of its inputs, once they were looked at."""

    def __init__(
        self, reference: Reference, state: ReferenceState, precision: Precision, device: str, blocks: Blocks,
        comparisons: Comparisons,
    ) -> None:  # fmt: skip
        self._reference, self._state, self._precision, self._device = reference, state, precision, device
        self._blocks, self._comparisons = blocks, comparisons
        self.ranges: InputRanges | None = None
        self._errors: dict[str, Measure] = {}    # the reference's own on inputs as given
        self._infinite: dict[str, torch.Tensor] = {}  # where outputs for them are
        self._conditions: Conditions | None = None  # of the check that runs, if it is a final one
        self._open: Outputs | None = None  # of the last set, the elements that rounding decides; None: not looked at
        self._noisy: Outputs | None = None  # ... its outputs if operators round otherwise; None: programs may not differ so far
        self._on_cpu = False               # whether float64 was computed there for once, for want of the GPU's memory
        self._seconds = 0.0                # that the last outputs took to compute

    def watch_conditions(self, request: requests.WatchConditions) -> Done:
        """From now on it is noted which conditions the reference meets."""
        self._conditions = Conditions(self._reference.path, self._reference.source)
        return Done()

    def find_unmet(self, request: requests.FindUnmet) -> requests.Unmet:
        """What was noted since `watch_conditions`, which ends it: nothing if this process is another one."""
        found, self._conditions = self._conditions, None
        return requests.Unmet(tuple(found.unmet()) if found else ())

    def _keep_conditions(self, calls: int | None = None) -> None:
        """Counts what the last calls met, the first `calls` or all: a program is called so too."""
        if self._conditions:
            self._conditions.keep(calls)

    def expect(self, request: requests.Expect) -> requests.Expected:
        self._state.use(request.state)
        skipped: list[str] = []
        found = self._draw_variant(request, skipped)
        if found is None:
            return requests.Expected(None, 0.0, tuple(skipped))
        self._keep_conditions()
        variant, arguments, expected, exact, generators = found
        if variant == variants.GIVEN and not request.sizes:
            self._infinite = variants.infinities(exact)
        usual = 0.0
        if self._open is None:
            self._open = self._find_few_open(arguments, (expected, exact, generators), self._draw_seed(request))
        if variant == variants.GIVEN:
            decided = {name: torch.where(mask, exact[name].to(expected[name].dtype), expected[name])
                       for name, mask in self._open.items()}
            usual = variants.relative_error(expected | decided, exact)
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode(arguments, tensors)
        except WireError as error:
            name = self._reference.path.name
            raise BadInput(f"get_inputs() of {name} gives {error}, which cannot be passed on.") from error
        made = self._comparisons.keep(
            structure, tensors, expected, exact, variant=variant, seed=request.seed, draw_seed=self._draw_seed(request),
            generators=generators, undecided=self._open, noisy=self._noisy, seconds=self._seconds,
        )
        if variant == variants.GIVEN and not request.sizes:
            self._errors = dict(zip(made.names, made.measures, strict=True))
        skipped += self.ranges.notes if self.ranges else ()
        if self._on_cpu:
            skipped.append("limited: float64 was computed on the CPU, because the GPU's memory does not suffice")
        return requests.Expected(made, usual, tuple(skipped))

    def find_rare_kinds(self, request: requests.FindRareKinds) -> requests.RareKinds:
        tensors = list_tensors(self._reference.inputs(request.seed))
        suits = {test: any(map(test, tensors)) for test in {kind.suits for kind in RARE.values()}}
        return requests.RareKinds(tuple(name for name, kind in RARE.items() if suits[kind.suits]))

    def find_movable(self, request: requests.FindMovable) -> requests.Movable:
        """What timed calls may change. Zeros stay that every draw has in the same places."""
        found, still = self._comparisons.find_movable(request), self.ranges.still if self.ranges else {}
        groups = group_by_memory(unpack(request.inputs[0], self._device)) if still else []
        held = {position for number, positions in enumerate(groups) if number in still for position in positions}

        def keep(pairs: list[list[int]]) -> list[list[int]]:
            return [pair[:1] if pair[0] in held else pair for pair in pairs]

        return replace(found, moving=keep(found.moving), floats=keep(found.floats))

    def _draw_variant(
        self, request: requests.Expect, skipped: list[str]
    ) -> tuple[str, Any, Outputs, Outputs, str] | None:
        """Returns (variant, inputs, what `_compute` returns) for the first variant that the reference can compute; None if it
        is none of an optional set. Appends to `skipped` why those before were not taken."""
        given, draw_seed = self._reference.inputs(request.seed), self._draw_seed(request)
        self._open = self._noisy = None
        others = request.variants if request.optional else request.variants[:-1]
        if others and request.beyond and self.ranges is None:
            self.ranges = self._find_ranges(request)
        ranges = self.ranges if request.beyond and self.ranges else InputRanges()
        alike = [variant for variant in others if variants.is_rare(variant) or variant.startswith(variants.LIKE_ANOTHER)]
        wider = [variant.removesuffix(variants.BEYOND) + variants.BEYOND for variant in others if variant not in alike]
        for variant in dict.fromkeys([*alike, *wider, *others]):
            try:
                made = self._try_variant(request, given, variant, ranges, draw_seed)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                skipped.append(f"limited: {variants.describe(variant)} were not tried, for want of memory")
                continue
            if made is None:
                continue                   # nothing to vary this way
            if not isinstance(made, str):
                skipped += self._describe_open(variant)
                return variant, *made
            if not (variants.is_rare(variant) or variant.endswith(variants.BEYOND)):
                skipped.append(f"{variants.describe(variant)} were not tried: the reference is of no use on them ({made})")
        if request.optional:
            return None
        with self.explained(*given):
            arguments = variants.resize(given, request.sizes)
            return request.variants[-1], arguments, *self._compute(*arguments, draw_seed=draw_seed, watched=True)

    def _meet_conditions(self, given: Any, variant: str, generator: torch.Generator, ranges: InputRanges) -> Any | None:
        """The arguments with elements for which comparisons have a result that they never had; None where none is found."""
        wanted = self._conditions.comparisons() if self._conditions and not self._reference.draws else []
        return meet(self._reference.module, given, wanted, ranges.free, generator) if wanted else None

    def _try_variant(
        self, request: requests.Expect, given: Any, variant: str, ranges: InputRanges, draw_seed: int | None
    ) -> tuple[Any, Outputs, Outputs, str] | str | None:
        """Returns (inputs, what `_compute` returns) for a variant, why the reference does not stand it, or None if there is
        nothing to vary this way."""
        generator = torch.Generator(self._device).manual_seed(request.seed + 1)
        met = variant == variants.MET
        arguments = (self._meet_conditions if met else variants.vary)(given, variant, generator, ranges)
        if arguments is None:
            return None
        rare = met or variants.is_rare(variant)
        constant = rare or variant == variants.BLANK
        made = self.compute_or_say(arguments, request.usual, draw_seed, constant=constant, watched=True)
        if isinstance(made, str):
            return made
        if tuple(made[0]) != request.names:
            return "it returns or writes other tensors"
        tested = rare or variant.endswith(variants.BEYOND) or variant.startswith("patchwork") or is_any_zero(made[1])
        self._open = self._noisy = None
        if tested:
            self._open = self._find_open(variant, arguments, made, draw_seed, generator)
            if self._open is None and variants.is_rare(variant):  # whose bounds are their own
                self._noisy = self._find_smooth(variant, arguments, made, draw_seed, generator)
                self._open = {} if self._noisy else None
            if self._open is None:
                return "rounding decides what it returns"
        return arguments, *made

    def _draw_seed(self, request: requests.Expect) -> int | None:
        if not self._reference.draws:
            return None
        return draw_seeds.seed_for_inputs(request.seed) if request.draw_seed is None else request.draw_seed

    def _find_ranges(self, request: requests.Expect) -> InputRanges:
        """Finds out which inputs may leave the range that get_inputs() shows."""
        seeds = itertools.count(request.seed + 2)
        reference, draw_seed = self._reference, self._draw_seed(request)

        def judge(arguments: Any, *, constant: bool = False) -> tuple[Outputs, Outputs] | str:
            found = self.compute_or_say(arguments, request.usual, draw_seed, constant=constant)
            return found if isinstance(found, str) else found[:2]

        def rerun(arguments: Any) -> Outputs:
            return self._rerun(arguments, draw_seed)

        generator = torch.Generator(self._device).manual_seed(request.seed + 1)
        module = reference.module
        state = dict(module.named_parameters()) | dict(module.named_buffers())
        return search_ranges(judge, rerun, lambda: reference.inputs(next(seeds)), generator, state)

    def _rerun(self, arguments: Any, draw_seed: int | None) -> Outputs:
        (args, kwargs), drawn = arguments, None if draw_seed is None else RandomDraws(draw_seed)
        return run_in_precision(self._reference.module, args, kwargs, self._precision, self._device, drawn)

    def _find_open(
        self, variant: str, arguments: Any, made: tuple[Outputs, Outputs, str], draw_seed: int | None,
        generator: torch.Generator,
    ) -> Outputs | None:  # fmt: skip
        """The elements that rounding decides (`find_open`); None where it decides all outputs."""
        met = variant == variants.MET
        if made[0].keys() != self._errors.keys():
            return None
        return find_open(
            lambda: self._rerun(arguments, draw_seed), *made[:2], allow_beside(self._errors), generator,
            centred=_may_centre(variant), spare_exact=met, apart=self._picks(made[0]), fine=self._fine,
        )  # fmt: skip

    def _find_smooth(
        self, variant: str, arguments: Any, made: tuple[Outputs, Outputs, str], draw_seed: int | None,
        generator: torch.Generator,
    ) -> Outputs | None:  # fmt: skip
        return find_smooth(
            lambda: self._rerun(arguments, draw_seed), made[1], generator, centred=_may_centre(variant), fine=self._fine
        )

    def _find_few_open(self, arguments: Any, made: tuple[Outputs, Outputs, str], draw_seed: int | None) -> Outputs:
        """The same of a set that is judged in any case, where the order of values matters: integers that only few programs
        would return, and what follows from them."""
        expected, exact, _ = made
        size = sum(tensor.nbytes for tensor in (*expected.values(), *list_tensors(arguments)))
        if size > _LITTLE or not self._picks(expected):
            return find_differing(expected, exact)
        generator = torch.Generator(self._device).manual_seed(0)
        found = find_open(
            lambda: self._rerun(arguments, draw_seed), expected, exact, lambda _, own: pool_measures([own]), generator,
            apart=True, fine=self._fine,
        )  # fmt: skip
        return {name: mask for name, mask in (found or {}).items() if not bool(mask.all())}

    def _describe_open(self, variant: str) -> list[str]:
        """A note on outputs that are not compared at all, for a variant that has one."""
        names = [name for name, mask in (self._open or {}).items() if bool(mask.all())]
        if not names or variants.is_rare(variant) or variant == variants.MET:
            return []
        what = variants.describe(variant.removesuffix(variants.BEYOND))
        return [f"limited: {what} said nothing about {', '.join(names)}: rounding decides what it is"]

    @property
    def _fine(self) -> bool:
        return self.ranges is not None and self.ranges.fine_noise

    def _picks(self, expected: Outputs) -> bool:
        """Whether the order of values matters to what the reference returns."""
        return any(eps(own.dtype) == 0.0 for own in expected.values()) if self.ranges is None else self.ranges.ties

    def compute_or_say(
        self, arguments: Any, usual: float, draw_seed: int | None, *, constant: bool = False, watched: bool = False
    ) -> tuple[Outputs, Outputs, str] | str:
        """Returns what `_compute` returns for other inputs, or why programs cannot be judged by them. `constant`: whether they
        may be constant."""
        try:
            made = self._compute(*arguments, draw_seed=draw_seed, watched=watched)
        except Exception as error:
            return self._why(error)
        return variants.why_unsuitable(*made[:2], usual, constant=constant, infinite=self._infinite) or made

    def rounding_decides(self, arguments: Any, made: tuple[Outputs, Outputs, str], draw_seed: int | None) -> bool:
        """Whether the last bits of each operator's result decide what the reference returns: with others it is too far from
        float64, though by an eighth of what programs may be with other parameters. `made`: as `compute_or_say` returns it."""
        generator = torch.Generator(self._device).manual_seed(0)
        stands = stands_rounding(
            lambda: self._rerun(arguments, draw_seed), *made[:2], lambda _, own: widest([own], 1.0), generator, fine=self._fine
        )
        if not stands:
            self.check_alive("it raises where its operators round otherwise")
        return not stands

    def _why(self, error: Exception) -> str:
        """Says that the reference raises this. Raises it itself where the GPU's memory did not suffice."""
        if is_out_of_memory(error):
            raise error
        problem = f"it raises {type(error).__name__}"
        self.check_alive(problem)
        return problem

    def find_rare_seeds(self, request: requests.FindRareSeeds) -> requests.RareSeeds:
        self._state.use(request.state)
        _, args, kwargs = self.arguments(request.given)
        drawn = RandomDraws(request.begin)
        run_in_precision(self._reference.module, args, kwargs, self._precision, self._device, drawn)
        return requests.RareSeeds(drawn.rare_seeds())

    def reweigh(self, request: requests.Reweigh) -> requests.Reweighed:
        self._state.use(request.state)
        _, args, kwargs = self.arguments(request.given)
        parameters = self._state.change_far(request.seed)
        try:
            exact = self._compute(args, kwargs, draw_seed=request.given.draw_seed)[1]
        except Exception as error:
            self.check_alive(f"it raises {type(error).__name__}")
            if out_of_memory.is_out_of_memory(error):
                raise
            return requests.Reweighed(parameters=parameters)
        return requests.Reweighed(tuple(exact), parameters, self._blocks.pack(list(exact.values())))

    def arguments(self, given: InputSet) -> tuple[list[torch.Tensor], tuple[Any, ...], dict[str, Any]]:
        """Returns (the tensors of a set's inputs, args, kwargs)."""
        tensors = unpack(given.inputs, self._device)
        return tensors, *wire.decode(given.structure, tensors, self._device)

    def expect_turned(self, request: requests.ExpectTurned) -> requests.ExpectedTurned:
        self._state.use(request.state)
        sources, structure = unpack(request.given.inputs, self._device), request.given.structure
        tensors = timed_contents.allocate_like(sources)
        timed_contents.refresh(tensors, sources, request.turn, request.moving, scaled=request.scaled)
        inputs = timed_contents.sample(tensors, request.sample)
        args, kwargs = wire.decode(structure, tensors, self._device)
        draw_seed = draw_seeds.seed_for_turn(request.given.draw_seed, request.turn)
        try:
            expected, exact, _ = self._compute(args, kwargs, draw_seed=draw_seed)
            finite = _finite(expected) + _finite(exact)
        except (RuntimeError, ValueError, IndexError) as error:
            self.check_alive(f"it raises {type(error).__name__}")
            raise BadInput(f"The reference raises on inputs that were moved on: {str(error)[:300]}") from error
        expected, exact = (
            dict(zip(outputs, timed_contents.sample(list(outputs.values()), request.sample), strict=True))
            for outputs in (expected, exact)
        )
        return requests.ExpectedTurned(self._comparisons.keep(structure, inputs, expected, exact), finite)

    def expect_row(self, request: ExpectRow) -> OtherCalls:
        self._state.use(request.state)
        arguments = [self.arguments(given) for given in request.row]
        try:
            seeds = [given.draw_seed for given in request.row]
            made = self._compute_row([given[1:] for given in arguments], seeds, watched=True)
        except Exception as error:
            return OtherCalls(note=f"limited: calls in a row were not tried: on the state of one, {self._why(error)}")
        sets: list[InputSet] = []
        for given, (tensors, *_), (expected, exact, generators) in list(zip(request.row, arguments, made, strict=True))[1:]:
            why = variants.why_unsuitable(expected, exact, request.usual)
            if why or set(expected) != set(request.row[0].names):
                why = why or "it writes other buffers than in the first call"
                self._keep_conditions(len(sets) + 1)
                return OtherCalls(tuple(sets), f"limited: only {len(sets) + 1} calls in a row were tried: in the next, {why}")
            sets.append(self._comparisons.keep(
                given.structure, tensors, expected, exact, variant=given.variant, seed=given.seed, draw_seed=given.draw_seed,
                generators=generators,
            ))  # fmt: skip
        self._keep_conditions()
        return OtherCalls(tuple(sets))

    def expect_shared(self, request: ExpectShared) -> OtherCalls:
        self._state.use(request.state)
        given = request.given
        tensors = self.arguments(given)[0]
        groups = group_by_memory(tensors)
        sets, note = [], ""
        joined = () if given.written else _joined(tensors, groups)
        for changed in itertools.chain([*self._parted(tensors, groups, given.seed)], joined):
            arguments = wire.decode(given.structure, changed, self._device)
            made = self.compute_or_say(arguments, request.usual, given.draw_seed, watched=True)
            if not isinstance(made, str) and tuple(made[0]) != given.names:
                made = "it returns or writes other tensors"
            joins = len(group_by_memory(changed)) < len(groups)
            if isinstance(made, str):
                note = note if joins else f"limited: inputs that share memory were not given apart: {made} then"
                continue
            self._keep_conditions()
            sets.append(self._comparisons.keep(
                given.structure, changed, *made[:2], variant=given.variant, seed=given.seed, draw_seed=given.draw_seed,
                generators=made[2], seconds=self._seconds,
            ))  # fmt: skip
            if joins:
                break                      # one way to join inputs is enough
        return OtherCalls(tuple(sets), note)

    def _parted(self, tensors: list[torch.Tensor], groups: list[list[int]], seed: int) -> Iterator[list[torch.Tensor]]:
        """Yields the tensors with memory of their own for each, those after the first of a group with the values of other draws
        of get_inputs(); nothing if no two share memory."""
        changed = list(tensors)
        for number in range(1, max(map(len, groups), default=0)):
            others = [leaf for leaf in tree_leaves(self._reference.inputs(seed + number)) if isinstance(leaf, torch.Tensor)]
            for position in (group[number] for group in groups if len(group) > number):
                if len(others) != len(tensors) or others[position].shape != tensors[position].shape:
                    return
                changed[position] = others[position].clone()
        if len(groups) < len(tensors):
            yield changed

    def _compute(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, draw_seed: int | None, watched: bool = False
    ) -> tuple[Outputs, Outputs, str]:
        """Returns the reference's outputs for these inputs in its own precision and in float64, under the same names, and a
        digest of the generators' states, "" without a `draw_seed`: with it both get the random numbers that are drawn after it
        in the reference's own precision. `watched`: which conditions it meets is noted, for `_keep_conditions`."""
        begun = time.monotonic()
        made = self._compute_row([(args, kwargs)], [draw_seed], watched=watched)[0]
        if self._device == "cuda":
            torch.cuda.synchronize()
        self._seconds = time.monotonic() - begun
        return made

    def compute(self, given: InputSet) -> tuple[Outputs, Outputs]:
        """Computes the outputs of a set once more, with the parameters that the reference has now."""
        _, args, kwargs = self.arguments(given)
        return self._compute(args, kwargs, draw_seed=given.draw_seed)[:2]

    def _compute_row(
        self, row: Row, draw_seeds: Sequence[int | None], *, watched: bool
    ) -> list[tuple[Outputs, Outputs, str]]:
        """The same for each of the calls in a row, which find the state that the one before left."""
        reference = self._reference
        watch = self._conditions.watch if self._conditions and watched else contextlib.nullcontext
        if self._conditions:
            self._conditions.drop()
        drawn = [RandomDraws(seed) for seed in draw_seeds if seed is not None]
        owns = run_row_in_precision(reference.module, row, self._precision, self._device, drawn, watch)
        found = []
        exacts = self._compute64(row, drawn)
        for number, (expected, exact) in enumerate(zip(owns, exacts, strict=True)):
            if any(value.device.type == "cpu" for value in exact.values()):
                expected = {name: value.cpu() for name, value in expected.items()}
            if list(exact) != list(expected):
                raise BadInput(f"The reference {reference.path.name} returns other outputs in float64: {', '.join(exact)}.")
            for name, own in expected.items():
                if own.shape != exact[name].shape:
                    raise BadInput(
                        f"The size of {name} of the reference {reference.path.name} follows from rounding: {tuple(own.shape)} "
                        f"in its own precision, {tuple(exact[name].shape)} in float64. Give inputs that are far from its "
                        "threshold."
                    )
            found.append((expected, exact, drawn[number].generators if drawn else ""))
        return found

    def _compute64(self, row: Row, drawn: Sequence[RandomDraws]) -> list[Outputs]:
        """Returns the reference's outputs in float64, which the CPU computes if the GPU's memory does not suffice."""
        module = self._reference.module
        try:
            return run_row64(module, row, drawn=drawn)
        except RuntimeError as error:
            if self._device == "cpu" or not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()           # outside of the handler, whose traceback holds the tensors
        self._on_cpu = True
        return run_row64(module, row, on_cpu=True, drawn=drawn)

    def check_alive(self, problem: str) -> None:
        """Raises `LostContext` if this process is of no use any more."""
        if not alive(self._device):
            raise LostContext(problem)

    @contextlib.contextmanager
    def explained(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        """As `Reference.explained`, but raises `LostContext` if this process is of no use any more."""
        try:
            with self._reference.explained(args, kwargs):
                yield
        except BadInput as problem:
            self.check_alive(str(problem))
            raise


def _may_centre(variant: str) -> bool:
    """Whether the reference may have operators that centre values inside, for inputs of this kind."""
    kind = RARE.get(variant.removesuffix(ONE))
    return kind is None or not kind.offset


def alive(device: str) -> bool:
    """Whether anything can still be computed here: after an index out of range on a GPU, the CUDA context is lost."""
    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _joined(tensors: list[torch.Tensor], groups: list[list[int]]) -> Iterator[list[torch.Tensor]]:
    """Yields the tensors with one in place of all floating-point ones of the same shape and strides, then in place of two."""
    alike: dict[Any, list[int]] = {}
    for position in (group[0] for group in groups if len(group) == 1):
        tensor = tensors[position]
        if tensor.is_floating_point() and tensor.numel() > 1:
            alike.setdefault((tensor.dtype, tensor.shape, tensor.stride(), tensor.device), []).append(position)
    several = [places for places in alike.values() if len(places) > 1]
    pairs = [[list(pair)] for places in several for pair in itertools.combinations(places, 2) if several != [list(pair)]]
    for chosen in [several, *pairs][:_MOST_JOINED] if several else ():
        changed = list(tensors)
        for places in chosen:
            for position in places:
                changed[position] = tensors[places[0]]
        yield changed


def _finite(outputs: dict[str, torch.Tensor]) -> int:
    return sum(map(variants.count_finite, outputs.values()))
