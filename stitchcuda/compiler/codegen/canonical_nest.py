"""Brings a kernel's loops into the form that code is generated from: few axes, the fastest last.

Axes of size one are dropped, neighbouring axes that every access walks as one are merged, and the order of kept and of reduced
axes follows memory: the access that moves most bytes decides. It does not choose which threads run the loops, and knows
nothing of CUDA.

Where to look next: `compiler/lower/ir.py` (the kernel it starts from), `compiler/codegen/schedules.py` (which threads run it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stitchcuda.compiler.codegen.expressions import REDUCTIONS, STORAGE, compute_kind
from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.lower.ir import Argument, Kernel, Step

_RESERVED = """
    alignas auto bool break case char class const constexpr continue default delete do double else enum explicit extern
    false float for friend goto if inline int long namespace new operator private protected public register return short
    signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void
    volatile while and or not xor bitand bitor compl near far asm main std stream workspace threadIdx blockIdx blockDim
    gridDim warpSize dim3 half float2 float4 int2 int4 uint3 NAN INFINITY M_PI N T Pack Sum Product Maximum Minimum Any All
    maximum minimum abs min max row slot live lane part first last split step item tile tiles rest u v n j i e exp log sqrt
    tanh erf sin cos floor ceil trunc rint fabs fmod pow signbit isnan isinf expf logf sqrtf tanhf erff sinf cosf floorf
    exp2 exp2f log2 log2f
    ceilf truncf rintf fabsf fmodf powf log1p log1pf expm1 expm1f rsqrtf linux unix y0 y1 yn j0 j1 jn gamma index rsqrt
"""


@dataclass(frozen=True)
class Access:
    """One load or store. `strides` (one per axis) and `offset` are in elements.

    `label` is a C identifier: the loaded value's name, or the stored argument's. `value` is the value that a store writes,
    `kind` the compute type of a loaded value.
    """

    label: str
    argument: Argument
    strides: tuple[int, ...]
    offset: int
    value: str = ""
    kind: str = ""

    @property
    def itemsize(self) -> int:
        return size_of(self.argument.dtype)

    @property
    def storage(self) -> str:
        return STORAGE[self.argument.dtype]


@dataclass(frozen=True)
class CanonicalNest:
    """Axes `0..kept-1` are kept, the others reduced. All names are C identifiers, unique among values and arguments."""

    name: str
    comment: str
    sizes: tuple[int, ...]
    kept: int
    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    loads: dict[str, Access]
    stores: tuple[Access, ...]
    axis_of: dict[str, int]                  # `index` step → axis, or -1 where the axis had size one
    full: frozenset[str] = frozenset()       # values that differ along reduced axes
    level: dict[str, int] = field(default_factory=dict)   # reductions that must be finished before the value, in passes
    kinds: dict[str, str] = field(default_factory=dict)   # compute type of each value

    @property
    def rows(self) -> int:
        """Number of points of the kept axes."""
        return math.prod(self.sizes[: self.kept])

    @property
    def length(self) -> int:
        """Number of points in each row: those of the reduced axes."""
        return math.prod(self.sizes[self.kept :])

    @property
    def points(self) -> int:
        return math.prod(self.sizes)

    @property
    def depth(self) -> int:
        """Number of passes that end in a reduction."""
        return max((self.level[s.name] for s in self.steps if s.fn in REDUCTIONS), default=0)

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def is_full(self, access: Access) -> bool:
        """Whether the access moves along reduced axes."""
        return any(access.strides[self.kept :])

    def reductions(self, level: int | None = None) -> list[Step]:
        return [s for s in self.steps if s.fn in REDUCTIONS and (level is None or self.level[s.name] == level)]

    def span(self, access: Access) -> int:
        """Largest distance in elements that the access reaches, either way."""
        ahead = sum((size - 1) * stride for size, stride in zip(self.sizes, access.strides, strict=True) if stride > 0)
        behind = sum((size - 1) * stride for size, stride in zip(self.sizes, access.strides, strict=True) if stride < 0)
        return max(abs(access.offset + ahead), abs(access.offset + behind))

    @property
    def index_type(self) -> str:
        """`int`, or `long long` where an offset or a count of points needs it (a margin covers the last block's overshoot)."""
        accesses = [*self.loads.values(), *self.stores]
        reach = max([self.points, *(self.span(access) for access in accesses)])
        return "int" if reach < 2**31 - 2**22 else "long long"


class Identifiers:
    """Gives out C identifiers that are neither reserved nor given out before."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED.split(), *taken}

    def claim(self, wish: str, suffix: str = "value") -> str:
        """Returns `wish` as a C identifier; with `suffix` and a number where that is taken."""
        text = "".join(c if c.isalnum() and c.isascii() else "_" for c in wish).strip("_") or suffix
        if text.endswith(("_pack", "_part", "_parts", "_slots", "_cache", "_out", "_tile", "_kernel")):
            text += "_"
        if text[0].isdigit() or (text.startswith("k") and text[1:2].isupper()):
            text = f"t{text}"
        choice, count = text, 1
        while choice in self._taken:
            choice = f"{text}_{suffix}" if count == 1 else f"{text}_{suffix}{count}"
            count += 1
        self._taken.add(choice)
        return choice


def _steps_needed(kernel: Kernel) -> list[Step]:
    """Returns the steps that a store needs, in order."""
    wanted = {store.value for store in kernel.stores}
    kept: list[Step] = []
    for step in reversed(kernel.steps):
        if step.name in wanted:
            kept.append(step)
            if step.fn not in ("load", "index"):
                wanted.update(arg for arg in step.args if isinstance(arg, str))
    return kept[::-1]


def _drop_repeated_steps(steps: list[Step]) -> tuple[list[Step], dict[str, str]]:
    """Returns the steps without repetitions, and for each dropped name the name of the equal step that stays."""
    seen: dict[tuple[object, ...], str] = {}
    alias: dict[str, str] = {}
    out: list[Step] = []
    for step in steps:
        if step.fn in ("load", "index"):
            args = step.args
        else:
            args = tuple(alias.get(arg, arg) if isinstance(arg, str) else arg for arg in step.args)
        typed = tuple((type(arg), repr(arg)) for arg in args)
        key = (step.fn, typed, step.dtype, step.strides, step.offset)
        if key in seen:
            alias[step.name] = seen[key]
            continue
        seen[key] = step.name
        out.append(replace(step, args=args))
    return out, alias


def _order_axes(axes: list[int], sizes: list[int], accesses: list[tuple[int, tuple[int, ...]]]) -> list[int]:
    """Returns the axes in memory order, slowest first: the access that moves most bytes decides, others break ties."""
    ranked = sorted(accesses, key=lambda item: -item[0] * math.prod(n for n, s in zip(sizes, item[1], strict=True) if s))
    return sorted(axes, key=lambda axis: tuple(-abs(strides[axis]) for _, strides in ranked))


def _merge_axes(
    order: list[int], sizes: list[int], strides: list[tuple[int, ...]], pinned: set[int]
) -> tuple[list[list[int]], list[int]]:
    """Returns groups of neighbouring axes that every access walks as one, and each group's size. `pinned` axes stay alone."""
    groups: list[list[int]] = []
    totals: list[int] = []
    for axis in order:
        if groups:
            before = groups[-1][-1]
            joined = all(s[before] == s[axis] * sizes[axis] for s in strides)
            if joined and before not in pinned and axis not in pinned:
                groups[-1].append(axis)
                totals[-1] *= sizes[axis]
                continue
        groups.append([axis])
        totals.append(sizes[axis])
    return groups, totals


def canonicalise(kernel: Kernel) -> CanonicalNest:
    """Returns the canonical nest of a kernel. Raises ValueError for an element type that has no C++ type here."""
    for argument in kernel.arguments:
        if argument.dtype not in STORAGE:
            raise ValueError(f"kernel {kernel.name}: no generated code for elements of type {argument.dtype} ({argument.name})")
    names = Identifiers()
    arguments = {a.name: replace(a, name=names.claim(a.name, "tensor")) for a in kernel.arguments}
    steps, alias = _drop_repeated_steps(_steps_needed(kernel))
    call = {step.name: names.claim(step.name) for step in steps}
    rank = len(kernel.axes)

    def strides_of(strides: tuple[int, ...]) -> tuple[int, ...]:
        return strides if strides else (0,) * rank

    raw: list[tuple[int, tuple[int, ...]]] = [
        (2 * size_of(arguments[s.argument].dtype), strides_of(s.strides)) for s in kernel.stores
    ]
    raw += [(size_of(arguments[str(s.args[0])].dtype), strides_of(s.strides)) for s in steps if s.fn == "load"]
    sizes = [axis.size for axis in kernel.axes]
    reducing = any(step.fn in REDUCTIONS for step in steps)
    pinned = {int(s.args[0]) for s in steps if s.fn == "index"}
    live = [axis for axis in range(rank) if sizes[axis] != 1]
    kept_axes = [axis for axis in live if not (kernel.axes[axis].reduced and reducing)]
    reduced_axes = [axis for axis in live if kernel.axes[axis].reduced and reducing]
    strides = [item[1] for item in raw]
    kept_groups, kept_sizes = _merge_axes(_order_axes(kept_axes, sizes, raw), sizes, strides, pinned)
    reduced_groups, reduced_sizes = _merge_axes(_order_axes(reduced_axes, sizes, raw), sizes, strides, pinned)
    if reducing and not reduced_groups:
        reduced_groups, reduced_sizes = [[]], [1]
    groups = kept_groups + reduced_groups

    def walk(original: tuple[int, ...]) -> tuple[int, ...]:
        original = strides_of(original)
        return tuple(original[group[-1]] if group else 0 for group in groups)

    position = {axis: number for number, group in enumerate(groups) for axis in group}
    loads: dict[str, Access] = {}
    axis_of: dict[str, int] = {}
    renamed: list[Step] = []
    for step in steps:
        name = call[step.name]
        if step.fn == "load":
            argument = arguments[str(step.args[0])]
            loads[name] = Access(name, argument, walk(step.strides), step.offset, kind=compute_kind(step.dtype))
            renamed.append(replace(step, name=name, args=(argument.name,), strides=()))
        elif step.fn == "index":
            axis_of[name] = position.get(int(step.args[0]), -1)
            renamed.append(replace(step, name=name))
        else:
            renamed.append(replace(step, name=name, args=tuple(call[a] if isinstance(a, str) else a for a in step.args)))
    stores = tuple(
        Access(arguments[s.argument].name, arguments[s.argument], walk(s.strides), s.offset, call[alias.get(s.value, s.value)])
        for s in kernel.stores
    )
    nest = CanonicalNest(
        kernel.name, kernel.comment, tuple(kept_sizes + reduced_sizes), len(kept_groups),
        tuple(arguments[a.name] for a in kernel.arguments), tuple(renamed), loads, stores, axis_of,
    )  # fmt: skip
    return _analyse(nest)


def _analyse(nest: CanonicalNest) -> CanonicalNest:
    """Returns the nest with `full`, `level` and `kinds` filled in."""
    full: set[str] = set()
    level: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for step in nest.steps:
        kinds[step.name] = compute_kind(step.dtype)
        values = [a for a in step.args if isinstance(a, str)] if step.fn not in ("load", "index") else []
        level[step.name] = max((level[a] for a in values), default=0) + (step.fn in REDUCTIONS)
        if step.fn == "load":
            is_full = nest.is_full(nest.loads[step.name])
        elif step.fn == "index":
            is_full = nest.axis_of[step.name] >= nest.kept
        else:
            is_full = step.fn not in REDUCTIONS and any(a in full for a in values)
        if is_full:
            full.add(step.name)
    return replace(nest, full=frozenset(full), level=level, kinds=kinds)
