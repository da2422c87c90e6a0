"""Describes how rows are spread over threads, and derives vectors, repeated loads and named constants from it.

There are two mappings. *Rows*: the threads of a row run along the reduced axes, and so do vectors. *Columns*: threads and
vectors run along the kept axes, so that a reduction over a slow axis still reads whole cache lines; `lanes` threads share a
column. No C++ statements here.

Where to look next: `compiler/codegen/schedules.py` (chooses a mapping), `compiler/codegen/row_kernel.py` (writes the kernel).
"""

from __future__ import annotations

from dataclasses import dataclass

from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest
from stitchcuda.compiler.codegen.points import Points
from stitchcuda.compiler.codegen.row_passes import RowPasses, passes_of
from stitchcuda.counts import counted


@dataclass(frozen=True)
class RowSchedule:
    """How rows are spread over threads.

    `lanes` threads share a row (a power of two); `rows` of them stand side by side in a block. `width` neighbours are handled
    together. `chunks` vectors per thread stay in registers; 0 means a loop that reads again in each pass, from shared memory
    if `cached`. `splits` blocks share a row.
    """

    columns: bool
    lanes: int
    rows: int
    width: int
    chunks: int
    splits: int = 1
    cached: bool = False

    @property
    def threads(self) -> int:
        return self.lanes * self.rows

    def blocks(self, nest: CanonicalNest) -> int:
        per_block = self.rows * (self.width if self.columns else 1)
        return -(-nest.rows // per_block) * self.splits

    @property
    def several(self) -> bool:
        """Whether each thread handles several columns, so that its row values are small arrays."""
        return self.columns and self.width > 1

    def describe(self) -> str:
        what = "column" if self.columns else "row"
        beside = f"{self.rows} {what}s side by side, " if self.rows > 1 else ""
        share = f"{counted(self.lanes, 'thread')} per {what}, {beside}{counted(self.width, 'element')} per access"
        if self.splits > 1:
            return f"split {what}s: {self.splits} blocks per {what}, {share}"
        if self.chunks:
            return f"{what}s in registers: {share}, {counted(self.chunks, 'access')} per thread"
        return f"looped {what}s{' cached in shared memory' if self.cached else ''}: {share}"


def pass_points(nest: CanonicalNest, schedule: RowSchedule, coordinates: dict[int, str]) -> Points:
    """Returns the vector of points that a thread handles at these coordinates."""
    axis = nest.kept - 1 if schedule.columns else len(nest.sizes) - 1
    return Points(nest, schedule.width, axis, coordinates)


def broadcast_loads(nest: CanonicalNest, schedule: RowSchedule) -> set[str]:
    """Returns the loads in which all neighbours of a vector read the same element: they are cheap to repeat."""
    points = pass_points(nest, schedule, {})
    return {n for n, access in nest.loads.items() if nest.is_full(access) and points.mode(access) == "same"}


def plan_passes(nest: CanonicalNest, schedule: RowSchedule) -> RowPasses:
    """Returns the passes of the schedule; values are kept between them if it holds rows in registers or shared memory."""
    keep = bool(schedule.chunks) or schedule.cached
    return passes_of(nest, keep, broadcast_loads(nest, schedule))


def row_values_read(nest: CanonicalNest, passes: RowPasses) -> set[str]:
    """Returns the row values that any pass reads."""
    return set().union(*(work.rows for work in passes.passes))


def row_constants(nest: CanonicalNest, schedule: RowSchedule) -> list[str]:
    """Returns the `constexpr` lines that kernels of a row schedule may use."""
    index = nest.index_type
    lines = [f"constexpr {index} kRows = {nest.rows};", f"constexpr {index} kLength = {nest.length};"]
    lines.append(f"constexpr int kLanes = {schedule.lanes};")
    if schedule.columns:
        lines.append(f"constexpr int kColumns = {schedule.rows};")
    else:
        lines.append(f"constexpr int kRowsPerBlock = {schedule.rows};")
    if schedule.splits > 1:
        lines.append(f"constexpr int kSplits = {schedule.splits};")
    return lines
