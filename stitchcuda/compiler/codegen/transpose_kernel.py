"""Emits pointwise kernels whose loads and stores run along different axes: square tiles go through shared memory.

Lanes run along the loads' fastest axis while a tile is filled, and along the stores' fastest axis while it is emptied, so both
sides touch whole cache lines. Loads that already run along the stores' axis are read where the tile is emptied.

Where to look next: `compiler/codegen/schedules.py` (when tiles are tried), `compiler/codegen/pointwise_kernel.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stitchcuda.compiler.codegen.canonical_nest import Access, CanonicalNest
from stitchcuda.compiler.codegen.points import EmitRequest, Points, PointWriter, Writer, constant_texts, split_index
from stitchcuda.compiler.codegen.source_file import KernelFunction, indent


@dataclass(frozen=True)
class TileSchedule:
    """Tiles of `side` x `side` points, `lines` rows of 32 lanes each per block; `across` is the loads' fastest axis."""

    across: int
    side: int
    lines: int

    def describe(self) -> str:
        return f"transpose: {self.side} x {self.side} tiles through shared memory, {32 * self.lines} threads per block"


def crossing_axis(nest: CanonicalNest) -> int | None:
    """Returns the fastest axis of the loads that move most bytes and do not run along the stores' fastest axis.

    Returns None if a tile would not help: there is no such load, or an axis is shorter than 8.
    """
    if nest.kept < len(nest.sizes) or len(nest.sizes) < 2:
        return None
    last = len(nest.sizes) - 1
    if nest.sizes[last] < 8 or not all(store.strides[last] == 1 for store in nest.stores):
        return None
    weights: dict[int, int] = {}
    for access in nest.loads.values():
        if access.strides[last] in (0, 1):
            continue
        for axis in range(last):
            if access.strides[axis] == 1 and nest.sizes[axis] >= 8:
                weights[axis] = weights.get(axis, 0) + access.itemsize
    return max(weights, key=lambda axis: (weights[axis], axis)) if weights else None


def tiled_loads(nest: CanonicalNest, across: int) -> list[Access]:
    """Returns the loads that go through the tile."""
    last = len(nest.sizes) - 1
    return [a for a in nest.loads.values() if a.strides[across] == 1 and a.strides[last] not in (0, 1)]


def emit_tiles(nest: CanonicalNest, schedule: TileSchedule) -> tuple[list[KernelFunction], list[str]]:
    """Returns the kernel of a transposing nest, and the constants that it uses (none)."""
    out = Writer()
    writer = PointWriter(nest, out)
    across, last, side = schedule.across, len(nest.sizes) - 1, schedule.side
    index = nest.index_type
    rest = [axis for axis in range(last) if axis != across]
    columns = -(-nest.sizes[across] // side)
    rows = -(-nest.sizes[last] // side)
    outer = 1
    for axis in rest:
        outer *= nest.sizes[axis]
    coordinates = {axis: f"i{axis}" for axis in range(len(nest.sizes))}
    tiles = {}
    for access in tiled_loads(nest, across):
        # An odd number of 4-byte words per line keeps both directions free of bank conflicts.
        padding = max(1, 4 // access.itemsize)
        tiles[access.label] = f"{access.label}_tile"
        out.line(f"__shared__ {access.storage} {access.label}_tile[{side}][{side + padding}];")
    block = "blockIdx.x" if index == "int" else "static_cast<long long>(blockIdx.x)"
    out.line(f"const {index} tile = {block};")
    out.line(f"const {index} across = tile % {columns} * {side};  // the tile's corner along the loads' fastest axis")
    out.line(f"const {index} along = tile / {columns} % {rows} * {side};  // and along the stores'")
    if rest:
        rest_name = "rest" if len(rest) > 1 else coordinates[rest[0]]
        out.line(f"const {index} {rest_name} = tile / {columns * rows};")
        if len(rest) > 1:
            for name, text in split_index("rest", [nest.sizes[a] for a in rest], [coordinates[a] for a in rest], index).items():
                out.line(f"const {index} {name} = {text};")
    out.line("const int lane = threadIdx.x % 32;")
    out.line("const int line = threadIdx.x / 32;")

    sweep = [f"for (int n = line; n < {side}; n += {schedule.lines})"]
    if side > 32:
        sweep.append(f"for (int m = lane; m < {side}; m += 32)")

    def guard() -> str:
        checks = []
        if nest.sizes[across] % side:
            checks.append(f"{coordinates[across]} < {nest.sizes[across]}")
        if nest.sizes[last] % side:
            checks.append(f"{coordinates[last]} < {nest.sizes[last]}")
        return f"if ({' && '.join(checks)})" if checks else ""

    m = "m" if side > 32 else "lane"
    loads = [step for step in nest.steps if step.name in tiles]

    def nested(heads: list[str], fill: bool) -> None:
        if heads:
            out.line("#pragma unroll")
            with out.block(heads[0]):
                nested(heads[1:], fill)
            return
        fast, slow = (coordinates[across], coordinates[last]) if fill else (coordinates[last], coordinates[across])
        corner = {coordinates[across]: "across", coordinates[last]: "along"}
        out.line(f"const {index} {fast} = {corner[fast]} + {m};")
        out.line(f"const {index} {slow} = {corner[slow]} + n;")
        points = Points(nest, 1, last, coordinates)
        with out.block(guard()):
            if fill:
                packs = {name: f"{text}[n][{m}]" for name, text in tiles.items()}
                writer.prefetch(points, EmitRequest(loads, {}, packs=packs))
            else:
                steps = [step for step in nest.steps if step.fn != "const"]
                packs = {name: f"{text}[{m}][n]" for name, text in tiles.items()}
                names, stores = constant_texts(nest), list(nest.stores)
                writer.compute(points, EmitRequest(steps, names, stores=stores, packs=packs, loaded=set(tiles)))

    nested(sweep, True)
    out.line("__syncthreads();")
    nested(sweep, False)
    used = {access.argument.name for access in (*nest.loads.values(), *nest.stores)}
    arguments = [argument for argument in nest.arguments if argument.name in used]
    function = KernelFunction(
        f"{nest.name}_kernel", arguments, indent(out.lines), 32 * schedule.lines, columns * rows * outer, writer.functions,
        templated=False,
    )
    return [function], []
