"""Emits kernels without reductions: each point is visited once, with wide accesses where memory allows them.

Each thread handles `vectors` groups of `width` neighbours, the groups a block apart, and makes all loads before the first use.
A tensor that is contiguous over the whole nest is moved 16 bytes at a time even where rows have an odd length (`flat`).

Where to look next: `compiler/codegen/schedules.py` (chooses width and vectors), `compiler/codegen/transpose_kernel.py` (where
loads and stores run along different axes).
"""

from __future__ import annotations

from dataclasses import dataclass

from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest
from stitchcuda.compiler.codegen.points import EmitRequest, Points, PointWriter, Writer, constant_texts, split_index
from stitchcuda.compiler.codegen.source_file import KernelFunction, indent
from stitchcuda.compiler.lower.ir import Argument
from stitchcuda.counts import counted


@dataclass(frozen=True)
class PointSchedule:
    """`threads` per block, `width` neighbours per access, `vectors` accesses per thread; `flat`: vectors may cross rows."""

    threads: int
    width: int
    vectors: int
    flat: bool

    def describe(self) -> str:
        share = f"{counted(self.width, 'element')} per access, {counted(self.vectors, 'access')} per thread"
        return f"pointwise: {share}, {self.threads} threads per block"


def emit_points(nest: CanonicalNest, schedule: PointSchedule) -> tuple[list[KernelFunction], list[str]]:
    """Returns the kernel of a nest without reductions, and the `constexpr` lines of constants that it uses."""
    out = Writer()
    index, width, turns = nest.index_type, schedule.width, schedule.vectors
    writer = PointWriter(nest, out)
    items = nest.points // width
    per_block = schedule.threads * turns
    blocks = -(-items // per_block)
    exact = items % per_block == 0
    block = "blockIdx.x" if index == "int" else "static_cast<long long>(blockIdx.x)"
    request = EmitRequest(list(nest.steps), constant_texts(nest), stores=list(nest.stores))
    request.steps = [step for step in nest.steps if step.fn != "const"]
    first = f"{block} * {schedule.threads * turns} + threadIdx.x"
    if turns == 1:
        out.line(f"const {index} item = {first};")
        if not exact:
            out.line("if (item >= kItems) return;")
        writer.write(_declare_coordinates(nest, schedule, out, index), request)
    else:
        out.line(f"const {index} first = {first};")
        packs = _declare_early_loads(nest, schedule, request, out, writer)
        position = f"const {index} item = first + u * {schedule.threads};"
        loads = EmitRequest([step for step in request.steps if step.name in packs], {}, packs=packs)
        with out.unrolled("u", turns):
            out.line(position)
            with out.block("" if exact else "if (item < kItems)"):
                writer.prefetch(_declare_coordinates(nest, schedule, out, index, loads), loads)
        request.packs, request.loaded = packs, set(packs)
        with out.unrolled("u", turns):
            out.line(position)
            with out.block("" if exact else "if (item < kItems)"):
                writer.write(_declare_coordinates(nest, schedule, out, index), request)
    lines = indent(out.lines)
    function = KernelFunction(
        f"{nest.name}_kernel", _tensors_used(nest), lines, schedule.threads, blocks, writer.functions, writer.templated
    )
    return [function], [f"constexpr {index} kItems = {items};"]


def _tensors_used(nest: CanonicalNest) -> list[Argument]:
    names = {access.argument.name for access in (*nest.loads.values(), *nest.stores)}
    return [argument for argument in nest.arguments if argument.name in names]


def _declare_early_loads(
    nest: CanonicalNest, schedule: PointSchedule, request: EmitRequest, out: Writer, writer: PointWriter
) -> dict[str, str]:
    """Declares arrays for the loads that are made before the first use; returns the array element of each load."""
    points = Points(nest, schedule.width, len(nest.sizes) - 1, {}, "i" if schedule.flat else "")
    packs: dict[str, str] = {}
    for step in request.steps:
        if step.fn != "load":
            continue
        access = nest.loads[step.name]
        mode = points.mode(access)
        if mode == "vector" or schedule.width == 1:
            kind = f"Pack<{access.storage}, {schedule.width}>" if mode == "vector" else access.storage
            if mode == "vector":
                writer.functions.add("Pack")
            out.line(f"{kind} {step.name}_pack[{schedule.vectors}];")
            packs[step.name] = f"{step.name}_pack[u]"
    return packs


def _declare_coordinates(
    nest: CanonicalNest, schedule: PointSchedule, out: Writer, index: str, only: EmitRequest | None = None
) -> Points:
    """Declares the coordinates of vector number `item`, as far as the accesses (of `only`, if given) need them."""
    width, axis = schedule.width, len(nest.sizes) - 1
    accesses = [*nest.loads.values(), *nest.stores]
    if only is not None:
        accesses = [nest.loads[step.name] for step in only.steps]
    indexed = set(nest.axis_of.values()) if only is None else set()
    if not nest.sizes:
        return Points(nest, 1, 0, {})
    names = [f"i{number}" for number in range(len(nest.sizes))]
    if schedule.flat:
        if width > 1:
            out.line(f"const {index} i = item * {width};")
        flat = "i" if width > 1 else "item"
        unsigned = f"unsigned({flat} + v)" if index == "int" else f"({flat} + v)"
        mark = "u" if index == "int" else ""
        scattered, below = {}, 1
        for number in range(len(nest.sizes) - 1, -1, -1):
            text = unsigned if below == 1 else f"{unsigned} / {below}{mark}"
            text = f"{text} % {nest.sizes[number]}{mark}" if number else text
            scattered[number] = f"static_cast<{index}>({text})"
            below *= nest.sizes[number]
        return Points(nest, width, axis, {}, flat, scattered)
    if len(nest.sizes) == 1:
        if width > 1:
            out.line(f"const {index} i0 = item * {width};")
        return Points(nest, width, axis, {0: "i0" if width > 1 else "item"})
    sizes = [*nest.sizes[:-1], nest.sizes[-1] // width]
    for name, text in split_index("item", sizes, names, index).items():
        number = names.index(name)
        scaled = f"({text}) * {width}" if number == axis and width > 1 else text
        if number in indexed or any(access.strides[number] for access in accesses):
            out.line(f"const {index} {name} = {scaled};")
    return Points(nest, width, axis, dict(enumerate(names)))
