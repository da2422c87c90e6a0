"""Turns collected steps into a `Kernel`: checks that they fit one nest, orders and merges its loops, numbers its values.

It raises `CannotLower` unless: no value runs over the same loop twice; all reductions run over the same loops, and over values
that span the whole nest; each stored value is one per point or one per row of the nest, so nothing is written twice; the nest
has at most `MOST_AXES` loops. Loops follow the memory order of what is stored.

Where to look next: `compiler/lower/nest.py` (collects the steps), `compiler/lower/loops.py` (loops that are still being split).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stitchcuda.compiler.lower.ir import Argument, Axis, Fn, Kernel, KernelStore, Step
from stitchcuda.compiler.lower.loops import CannotLower, Dim, Loop, extent, leaves, tie
from stitchcuda.state import TensorSpec

REDUCTIONS = frozenset({"sum", "max", "min", "prod", "any", "all"})
MOST_AXES = 6


@dataclass(frozen=True)
class Load:
    """A load from the tensor named `key`; `offset` and one stride per loop in elements."""

    key: str
    offset: int
    strides: tuple[tuple[Loop, int], ...]


@dataclass(frozen=True)
class ProtoStep:
    """A step whose loops may still be split. `loops` are those that an `index` counts or that a reduction runs over."""

    fn: Fn
    args: tuple[str | float | int | bool, ...]
    dtype: str
    load: Load | None = None
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Write:
    """A store of `value` into the tensor `spec`; `inout` if the kernel also reads that tensor."""

    spec: TensorSpec
    value: str
    strides: tuple[tuple[Loop, int], ...]
    offset: int
    dims: tuple[Dim, ...]
    inout: bool


@dataclass
class UnfinishedKernel:
    """Steps and stores as the rules added them. `dims` are the loops of each step's value, by the step's name."""

    steps: dict[str, ProtoStep] = field(default_factory=dict)
    dims: dict[str, tuple[Dim, ...]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)

    def add(self, step: ProtoStep, dims: tuple[Dim, ...]) -> str:
        name = f"v{len(self.steps)}"
        self.steps[name] = step
        self.dims[name] = dims
        return name


def finish_kernel(draft: UnfinishedKernel, name: str, specs: dict[str, TensorSpec], comment: str) -> Kernel:
    """Returns the finished kernel. `specs` describes every tensor that was loaded.

    Raises `CannotLower` if the steps do not fit one nest (the rules are in the module's docstring).
    """
    if not draft.writes:
        raise CannotLower("nothing is stored")
    live = _steps_needed(draft)
    reduced = _check_and_find_reduced(draft, live)
    order = _order_loops(draft, live, reduced)
    groups = _merge_loops(draft, live, order, reduced)
    if not groups:
        raise CannotLower("a single number")
    if len(groups) > MOST_AXES:
        raise CannotLower(f"{len(groups)} loops")
    keys, arguments = _arguments(draft, live, specs)
    numbering = _Numbering(draft, groups, keys)
    for step in live:
        numbering.add(step)
    stores = [
        KernelStore(keys[write.spec.name], numbering.names[write.value], _strides(write.strides, groups), write.offset)
        for write in draft.writes
    ]
    steps = _drop_unused_steps(numbering.steps, stores)
    axes = tuple(Axis(_size(group), group[0] in reduced) for group in groups)
    return Kernel(name, axes, arguments, steps, tuple(stores), comment)


def _steps_needed(draft: UnfinishedKernel) -> list[str]:
    wanted: set[str] = set()
    stack = [write.value for write in draft.writes]
    while stack:
        name = stack.pop()
        if name not in wanted:
            wanted.add(name)
            stack.extend(arg for arg in draft.steps[name].args if isinstance(arg, str))
    return [name for name in draft.steps if name in wanted]


def _check_and_find_reduced(draft: UnfinishedKernel, live: Sequence[str]) -> set[Loop]:
    """Returns the reduced loops, after checking the rules in the module's docstring. Raises `CannotLower`."""
    _tie_reductions([draft.steps[name].loops for name in live if draft.steps[name].fn in REDUCTIONS])
    everything: set[Loop] = set()
    for name in live:
        loops = leaves(draft.dims[name])
        if len(loops) != len(set(loops)):
            raise CannotLower("a value would run over one loop twice")
        everything.update(loops)
    for write in draft.writes:
        everything.update(leaves(write.dims))
    overs = [set(leaves([step.loops])) for name in live if (step := draft.steps[name]).fn in REDUCTIONS]
    if any(over != overs[0] for over in overs):
        raise CannotLower("reductions over different dimensions")
    reduced = overs[0] if overs else set()
    varying = _varying(draft, live, reduced)
    for name in live:
        step = draft.steps[name]
        if step.fn not in REDUCTIONS:
            continue
        arg = step.args[0]
        if not isinstance(arg, str) or set(leaves(draft.dims[arg])) != everything:
            raise CannotLower("a reduction that does not span the nest")
        if arg not in varying:
            raise CannotLower("a reduction over repeated values")
    kept = everything - reduced
    for write in draft.writes:
        loops = leaves(write.dims)
        if len(loops) != len(set(loops)):
            raise CannotLower("a value would run over one loop twice")
        if set(loops) not in (everything, kept):
            raise CannotLower("a stored value smaller than the nest")
        if set(loops) == everything and reduced and write.value not in varying:
            raise CannotLower("a row is stored at every point")
    return reduced


def _tie_reductions(reductions: Sequence[tuple[Loop, ...]]) -> None:
    """Makes reductions of equal extent run over the same loops. No other step reads a reduction's loops, so this is safe."""
    for loops in reductions[1:]:
        first, other = leaves([reductions[0]]), leaves([loops])
        if set(first) != set(other) and extent(tuple(first)) == extent(tuple(other)):
            tie(tuple(first), tuple(other))


def _varying(draft: UnfinishedKernel, live: Sequence[str], reduced: set[Loop]) -> set[str]:
    """Returns the values that differ along a reduced loop; a row value that was only broadcast does not."""
    varying: set[str] = set()
    for name in live:
        step = draft.steps[name]
        if step.fn in REDUCTIONS:
            continue
        if step.load is not None:
            moves = any(leaf in reduced for loop, stride in step.load.strides if stride for leaf in loop.leaves())
        elif step.fn == "index":
            moves = any(leaf in reduced for leaf in leaves([step.loops]))
        else:
            moves = any(arg in varying for arg in step.args if isinstance(arg, str))
        if moves:
            varying.add(name)
    return varying


def _order_loops(draft: UnfinishedKernel, live: Sequence[str], reduced: set[Loop]) -> list[Loop]:
    """Loops by falling stride of the largest store, then of the loads; reduced ones last."""
    everything: dict[Loop, None] = {}
    references: list[tuple[tuple[Loop, int], ...]] = [
        write.strides for write in sorted(draft.writes, key=lambda write: -len(leaves(write.dims)))
    ]
    loads = [load for name in live if (load := draft.steps[name].load) is not None]
    references += [load.strides for load in sorted(loads, key=lambda load: -sum(1 for _, stride in load.strides if stride))]
    for strides in references:
        spread = _final_strides(strides)
        for loop in sorted(spread, key=lambda loop: -abs(spread[loop])):
            everything.setdefault(loop)
    for name in live:
        for loop in leaves(draft.dims[name]):
            everything.setdefault(loop)
    return [loop for loop in everything if loop not in reduced] + [loop for loop in everything if loop in reduced]


def _merge_loops(draft: UnfinishedKernel, live: Sequence[str], order: list[Loop], reduced: set[Loop]) -> list[tuple[Loop, ...]]:
    """Merges neighbouring loops that every load and store walks like a single loop."""
    tables = [_final_strides(step.load.strides) for name in live if (step := draft.steps[name]).load is not None]
    tables += [_final_strides(write.strides) for write in draft.writes]
    fixed = {leaf for name in live if draft.steps[name].fn == "index" for leaf in leaves([draft.steps[name].loops])}
    groups: list[tuple[Loop, ...]] = []
    for loop in order:
        if groups:
            outer = groups[-1][-1]
            joins = (outer in reduced) == (loop in reduced) and outer not in fixed and loop not in fixed
            if joins and all(table.get(outer, 0) == table.get(loop, 0) * loop.size for table in tables):
                groups[-1] = (*groups[-1], loop)
                continue
        groups.append((loop,))
    return groups


def _final_strides(strides: Sequence[tuple[Loop, int]]) -> dict[Loop, int]:
    """Returns the strides of the final loops, from strides given for loops that may have been split since."""
    spread: dict[Loop, int] = {}
    for loop, stride in strides:
        for leaf in reversed(loop.leaves()):
            spread[leaf] = spread.get(leaf, 0) + stride
            stride *= leaf.size
    return spread


def _strides(strides: Sequence[tuple[Loop, int]], groups: Sequence[tuple[Loop, ...]]) -> tuple[int, ...]:
    spread = _final_strides(strides)
    return tuple(spread.get(group[-1], 0) for group in groups)


def _size(group: Sequence[Loop]) -> int:
    size = 1
    for loop in group:
        size *= loop.size
    return size


def _arguments(
    draft: UnfinishedKernel, live: Sequence[str], specs: dict[str, TensorSpec]
) -> tuple[dict[str, str], tuple[Argument, ...]]:
    """Returns argument names by key, and the arguments: inputs by first load, then tensors updated in place, then outputs."""
    keys: dict[str, str] = {}
    arguments: list[Argument] = []
    updated = {write.spec.name for write in draft.writes if write.inout}
    plain: Callable[[str], bool] = lambda key: key not in updated  # noqa: E731
    loaded = list(dict.fromkeys(load.key for name in live if (load := draft.steps[name].load) is not None))
    groups: list[tuple[str, Any, list[str]]] = [
        ("in", "in", [key for key in loaded if plain(key)]),
        ("state", "inout", [write.spec.name for write in draft.writes if write.inout]),
        ("out", "out", list(dict.fromkeys(write.spec.name for write in draft.writes if not write.inout))),
    ]
    known = {**specs, **{write.spec.name: write.spec for write in draft.writes}}
    for stem, role, members in groups:
        for number, key in enumerate(members):
            keys[key] = f"{stem}{number}"
            spec = known[key]
            arguments.append(Argument(keys[key], spec.dtype, spec.shape, spec.strides, role, key))
    return keys, tuple(arguments)


class _Numbering:
    """Gives steps their final names; equal steps share a name."""

    def __init__(self, draft: UnfinishedKernel, groups: Sequence[tuple[Loop, ...]], keys: dict[str, str]) -> None:
        self.draft, self.groups, self.keys = draft, groups, keys
        self.names: dict[str, str] = {}
        self.steps: list[Step] = []
        self.seen: dict[tuple[Any, ...], str] = {}

    def add(self, name: str) -> None:
        step = self.draft.steps[name]
        if step.fn == "index":
            self.names[name] = self._position(leaves([step.loops]))
            return
        args = tuple(self.names[arg] if isinstance(arg, str) else arg for arg in step.args)
        if step.load is not None:
            final = Step(
                "", "load", (self.keys[step.load.key],), step.dtype, _strides(step.load.strides, self.groups), step.load.offset
            )
        else:
            final = Step("", step.fn, args, step.dtype)
        self.names[name] = self._number(final)

    def _number(self, step: Step) -> str:
        # repr tells 1 from 1.0 and True, and nan equals itself in it
        key = (step.fn, repr(step.args), step.dtype, step.strides, step.offset)
        if key not in self.seen:
            self.seen[key] = f"t{len(self.steps)}"
            self.steps.append(replace(step, name=self.seen[key]))
        return self.seen[key]

    def _position(self, loops: Sequence[Loop]) -> str:
        """Adds the steps that compute the index along a dimension from the indices of its axes; returns the last one's name."""
        total: str | None = None
        scale = 1
        for loop in reversed(loops):
            axis = next(i for i, group in enumerate(self.groups) if group == (loop,))
            term = self._number(Step("", "index", (axis,), "int64"))
            if scale != 1:
                term = self._number(Step("", "mul", (term, scale), "int64"))
            total = term if total is None else self._number(Step("", "add", (total, term), "int64"))
            scale *= loop.size
        assert total is not None
        return total


def _drop_unused_steps(steps: Sequence[Step], stores: Sequence[KernelStore]) -> tuple[Step, ...]:
    wanted = {store.value for store in stores}
    for step in reversed(steps):
        if step.name in wanted and step.fn not in ("load", "index", "const"):
            wanted.update(arg for arg in step.args if isinstance(arg, str))
    return tuple(step for step in steps if step.name in wanted)
