"""Writes loads, steps and stores for a vector of neighbouring points of a nest; every schedule uses it.

A schedule decides which thread handles which points and in how many passes; it gives the coordinates' C++ text and says which
values are there already. This module writes the statements between, and decides which accesses are wide (`Points.mode`).

Where to look next: `compiler/codegen/expressions.py` (right-hand sides), `compiler/codegen/pointwise_kernel.py` (the simplest
user).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from stitchcuda.compiler.codegen.canonical_nest import Access, CanonicalNest
from stitchcuda.compiler.codegen.expressions import (
    COMPUTE,
    REDUCTIONS,
    called_functions,
    convert,
    cpp_literal,
    expression,
    narrow,
    reduction_operator,
    widen,
)
from stitchcuda.compiler.lower.ir import Step


class Writer:
    """Collects lines of C++ and indents them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append(text if text.startswith("#") or not text else "  " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, variable: str, count: int) -> Iterator[None]:
        """Writes an unrolled loop over a constant count; no loop if the count is 1."""
        if count == 1:
            yield
            return
        self.line("#pragma unroll")
        with self.block(f"for (int {variable} = 0; {variable} < {count}; ++{variable})"):
            yield


def split_index(variable: str, sizes: Sequence[int], names: Sequence[str], index: str) -> dict[str, str]:
    """Returns the C++ expression of each coordinate, by its name, for the flat position `variable` over axes of these sizes.

    `index` is the C++ index type. With a single axis the coordinate is the position itself.
    """
    out: dict[str, str] = {}
    below = 1
    flat = f"unsigned({variable})" if index == "int" else variable
    mark = "u" if index == "int" else ""
    for number in range(len(sizes) - 1, -1, -1):
        text = flat if below == 1 else f"{flat} / {below}{mark}"
        out[names[number]] = f"{text} % {sizes[number]}{mark}" if number else text
        below *= sizes[number]
    return dict(reversed(out.items()))


@dataclass
class Points:
    """A vector of `width` neighbouring points along `axis`, which a thread handles together.

    `coordinates`: axis → C++ text for the first neighbour. `flat`: if given, accesses that are contiguous over the whole nest
    use this text as their offset, and others use `scattered` (axis → text of the coordinate of neighbour `v`).
    """

    nest: CanonicalNest
    width: int
    axis: int
    coordinates: Mapping[int, str]
    flat: str = ""
    scattered: Mapping[int, str] = field(default_factory=dict)

    def mode(self, access: Access) -> str:
        """Returns how the access is made: "vector" (one wide access), "same" (one element for all), "each" (one by one)."""
        if self.width == 1:
            return "each"
        if self.flat:
            if not any(access.strides):
                return "same"
            return "vector" if self.contiguous(access) and access.offset % self.width == 0 else "each"
        if access.strides[self.axis] == 0:
            return "same"
        others = (stride for axis, stride in enumerate(access.strides) if axis != self.axis)
        whole = access.strides[self.axis] == 1 and not any(stride % self.width for stride in (access.offset, *others))
        return "vector" if whole else "each"

    def contiguous(self, access: Access) -> bool:
        below = 1
        for size, stride in zip(reversed(self.nest.sizes), reversed(access.strides), strict=True):
            if stride != below:
                return False
            below *= size
        return True

    def offset(self, access: Access, neighbour: bool = False) -> str:
        """Returns the C++ element offset of the first neighbour, or with `neighbour` that of neighbour `v`."""
        coordinates = self.coordinates
        terms: list[str] = []
        if self.flat:
            if self.contiguous(access):
                terms.append(self.flat if not neighbour else f"{self.flat} + v")
                return " + ".join(terms + ([str(access.offset)] if access.offset else []))
            coordinates = self.scattered
        for axis, stride in enumerate(access.strides):
            text = coordinates.get(axis, "0")
            if neighbour and axis == self.axis and not self.flat:
                text = "v" if text == "0" else f"({text} + v)"
            if stride and text != "0":
                terms.append(text if stride == 1 else f"{text} * {stride}")
        if access.offset or not terms:
            terms.append(str(access.offset))
        return " + ".join(terms)

    def coordinate(self, step: Step) -> str:
        """Returns the C++ value of an `index` step at neighbour `v`."""
        axis = self.nest.axis_of[step.name]
        if axis < 0:
            return "0"
        if self.flat:
            return self.scattered[axis]
        text = self.coordinates[axis]
        return f"{text} + v" if axis == self.axis and self.width > 1 else text


@dataclass
class EmitRequest:
    """What to emit at some points: `steps` in order, then `reductions` into accumulators and `stores`.

    `names`: value → text that is there already; grows with what is computed. `held`: value → text of a place that outlives the
    points (a register array); computed values in it are assigned instead of declared, and loads in `packs` are kept as stored.
    """

    steps: list[Step]
    names: dict[str, str]
    reductions: list[Step] = field(default_factory=list)
    stores: list[Access] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    packs: dict[str, str] = field(default_factory=dict)      # load → text of its stored elements, kept over passes
    loaded: set[str] = field(default_factory=set)            # packs that an earlier pass has filled
    accumulators: dict[str, str] = field(default_factory=dict)
    live: str = ""                                           # C++ condition under which stores are made; "" for always


def steps_to_compute(nest: CanonicalNest, wanted: Sequence[str], available: set[str], only_full: bool = False) -> list[Step]:
    """Returns the steps that compute the wanted values from the available ones, in order.

    Raises ValueError if a reduction would be needed that is not available.
    """
    need: set[str] = set()
    stack = list(wanted)
    steps = {step.name: step for step in nest.steps}
    while stack:
        name = stack.pop()
        if name in need or name in available or (only_full and name not in nest.full):
            continue
        step = steps[name]
        if step.fn == "const":
            continue
        if step.fn in REDUCTIONS:
            raise ValueError(f"kernel {nest.name}: {name} is used before its reduction")
        need.add(name)
        if step.fn not in ("load", "index"):
            stack.extend(arg for arg in step.args if isinstance(arg, str))
    return [step for step in nest.steps if step.name in need]


def constant_texts(nest: CanonicalNest) -> dict[str, str]:
    """Returns the C++ constant of each `const` step, by the step's name."""
    out: dict[str, str] = {}
    for step in nest.steps:
        if step.fn == "const" and not isinstance(step.args[0], str):
            out[step.name] = cpp_literal(step.args[0], nest.kinds[step.name])
    return out


def accumulate(step: Step, accumulator: str, value: str) -> str:
    """Returns the C++ statement that adds a value to a reduction's accumulator (or multiplies, or takes the maximum, ...)."""
    if step.fn == "sum":
        return f"{accumulator} += {value};"
    if step.fn == "prod":
        return f"{accumulator} *= {value};"
    if step.fn in ("any", "all"):
        return f"{accumulator} = {accumulator} {'||' if step.fn == 'any' else '&&'} {value};"
    return f"{accumulator} = {reduction_operator(step).lower()}({accumulator}, {value});"


class PointWriter:
    """Writes the statements of requests and records the names of the device functions that they call."""

    def __init__(self, nest: CanonicalNest, writer: Writer) -> None:
        self.nest = nest
        self.out = writer
        self.functions: set[str] = set()
        self.templated = False                               # whether an access is wide: alignment is a template parameter then

    def write(self, points: Points, request: EmitRequest) -> None:
        self.prefetch(points, request)
        self.compute(points, request)

    def prefetch(self, points: Points, request: EmitRequest) -> None:
        """Writes the loads that are made before the loop over neighbours."""
        for step in request.steps:
            if step.fn != "load" or step.name in request.loaded:
                continue
            access = self.nest.loads[step.name]
            mode, kept = points.mode(access), request.packs.get(step.name)
            source = f"{access.argument.name} + {points.offset(access)}"
            if mode == "vector":
                self.functions.add("load_pack")
                self.templated = True
                text = f"load_pack<kAligned, {points.width}>({source})"
                if kept:
                    self.out.line(f"{kept} = {text};")
                else:
                    self.out.line(f"const Pack<{access.storage}, {points.width}> {step.name}_pack = {text};")
            elif kept:                                        # scattered elements, kept as stored
                with self.out.unrolled("v", points.width):
                    place = f"{kept}.at[v]" if points.width > 1 else kept
                    self.out.line(f"{place} = {access.argument.name}[{points.offset(access, points.width > 1)}];")
            elif mode == "same":
                element = f"{access.argument.name}[{points.offset(access)}]"
                kind = access.kind
                self.out.line(f"const {COMPUTE[kind]} {step.name} = {widen(element, access.argument.dtype, kind)};")
                request.names[step.name] = step.name

    def compute(self, points: Points, request: EmitRequest) -> None:
        """Writes the loop over neighbours, and the stores."""
        wide: list[tuple[Access, str]] = []
        for number, store in enumerate(request.stores):
            if points.mode(store) == "vector":
                name = f"{store.label}_out" if number == 0 else f"{store.label}_out{number}"
                halves = store.argument.dtype in ("float16", "bfloat16")
                self.out.line(
                    f"float {name}[{points.width}];" if halves else f"Pack<{store.storage}, {points.width}> {name};"
                )
                wide.append((store, name))
        targets = {id(store): name for store, name in wide}
        body = [s for s in request.steps if request.names.get(s.name) != s.name]
        if body or request.reductions or request.stores:
            with self.out.unrolled("v", points.width):
                for step in body:
                    self._step(step, points, request)
                for step in request.reductions:
                    self._join(step, request)
                for store in request.stores:
                    self._store(store, points, request, targets.get(id(store)))
        for store, name in wide:
            self.functions.add("store_pack")
            self.templated = True
            pack = name
            if store.argument.dtype in ("float16", "bfloat16"):
                helper = "pack_half" if store.argument.dtype == "float16" else "pack_bfloat16"
                self.functions.add(helper)
                pack = f"{helper}({name})"
            guard = f"if ({request.live}) " if request.live else ""
            self.out.line(f"{guard}store_pack<kAligned>({store.label} + {points.offset(store)}, {pack});")

    def _step(self, step: Step, points: Points, request: EmitRequest) -> None:
        kind = self.nest.kinds[step.name]
        names = request.names
        if step.fn == "load":
            access = self.nest.loads[step.name]
            kept = request.packs.get(step.name)
            if points.mode(access) == "vector" or (kept and points.width > 1):
                element = f"{kept or f'{step.name}_pack'}.at[v]"
            else:
                element = kept or f"{access.argument.name}[{points.offset(access, points.width > 1)}]"
            text = widen(element, access.argument.dtype, kind)
        elif step.fn == "index":
            text = points.coordinate(step)
        else:
            self.functions.update(called_functions(step))
            text = expression(step, names, self.nest.kinds)
        if step.name in request.held:
            names[step.name] = request.held[step.name]
            self.out.line(f"{names[step.name]} = {text};")
        else:
            names[step.name] = step.name
            self.out.line(f"const {COMPUTE[kind]} {step.name} = {text};")

    def _join(self, step: Step, request: EmitRequest) -> None:
        self.functions.update(called_functions(step))
        (arg,) = step.args
        kind = self.nest.kinds[step.name]
        want = "bool" if step.fn in ("any", "all") else kind
        known = isinstance(arg, str)
        value = convert(request.names[str(arg)], self.nest.kinds[str(arg)], want) if known else cpp_literal(arg, want)  # type: ignore[arg-type]
        if want == "bool":
            value = f"static_cast<int>({value})"
        self.out.line(accumulate(step, request.accumulators[step.name], value))

    def _store(self, store: Access, points: Points, request: EmitRequest, pack: str | None) -> None:
        kind = self.nest.kinds[store.value]
        value = request.names[store.value]
        if pack is not None:
            if store.argument.dtype in ("float16", "bfloat16"):
                self.out.line(f"{pack}[v] = {convert(value, kind, 'float32')};")
            else:
                self.out.line(f"{pack}.at[v] = {narrow(value, kind, store.argument.dtype)};")
            return
        text = narrow(value, kind, store.argument.dtype)
        guard = f"if ({request.live}) " if request.live else ""
        self.out.line(f"{guard}{store.label}[{points.offset(store, points.width > 1)}] = {text};")
