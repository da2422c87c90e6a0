"""Chooses the schedules that suit a nest, best guess first: at most six, by arithmetic over sizes, strides and types.

Without reductions: pointwise, or tiles where loads and stores run along different axes. With reductions: threads along the
columns where memory runs along a kept axis, else along the rows; several blocks share a row where rows alone would leave most
of the GPU idle. Constants are those of a Hopper GPU (132 multiprocessors, 2048 threads and 64 K registers each, 227 KB of
shared memory per block); they only decide how work is spread, never whether a kernel is right. It writes no C++.

Where to look next: `compiler/codegen/pointwise_kernel.py`, `compiler/codegen/transpose_kernel.py`,
`compiler/codegen/thread_mapping.py` (what each schedule's numbers mean), `compiler/codegen/emit.py` (takes them by number).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stitchcuda.compiler.codegen.canonical_nest import Access, CanonicalNest
from stitchcuda.compiler.codegen.expressions import reduction_type
from stitchcuda.compiler.codegen.points import Points
from stitchcuda.compiler.codegen.pointwise_kernel import PointSchedule
from stitchcuda.compiler.codegen.thread_mapping import RowSchedule, plan_passes, row_values_read
from stitchcuda.compiler.codegen.transpose_kernel import TileSchedule, crossing_axis

Schedule = PointSchedule | TileSchedule | RowSchedule

MULTIPROCESSORS = 132
CACHE_BYTES = 200 * 1024                 # dynamic shared memory a block may ask for, with room for the reductions' own
KEPT_REGISTERS = {1024: 36, 512: 72}     # of a thread's 64 and 128 registers, what may hold a row; smaller blocks: 96


def _power_of_two(number: float) -> int:
    """Returns the smallest power of two that is at least `number`."""
    return 1 << max(0, math.ceil(math.log2(max(1.0, number))))


def _widths(accesses: list[Access]) -> list[int]:
    """Returns the neighbours per access to try, most first: 16 bytes of the widest type, at least 4 of the narrowest."""
    if not accesses:
        return [1]
    sizes = [access.itemsize for access in accesses]
    width = max(16 // max(sizes), 4 // min(sizes), 1)
    return [width >> shift for shift in range(width.bit_length())]


def _vector_share(points: Points, accesses: list[Access]) -> float:
    """Returns the share (0 to 1) of the bytes that wide accesses move; elements shared by all neighbours do not count."""
    moving = [access for access in accesses if points.mode(access) != "same"]
    total = sum(access.itemsize for access in moving)
    return sum(access.itemsize for access in moving if points.mode(access) == "vector") / total if total else 1.0


def _point_schedules(nest: CanonicalNest) -> Iterator[Schedule]:
    across = crossing_axis(nest)
    if across is not None:
        heaviest = max(access.itemsize for access in nest.loads.values())
        tiles = len(nest.loads) * 64 * 64 * heaviest
        if heaviest <= 2 and tiles <= 40 * 1024 and min(nest.sizes[across], nest.sizes[-1]) >= 64:
            yield TileSchedule(across, 64, 8)
        yield TileSchedule(across, 32, 8)
        yield TileSchedule(across, 32, 16)
    accesses = [*nest.loads.values(), *nest.stores]
    last = len(nest.sizes) - 1
    width, flat = 1, False
    if nest.sizes:
        probe = Points(nest, 1, last, {})
        contiguous = [access for access in accesses if probe.contiguous(access)]
        along = [access for access in accesses if access.strides[last] == 1]
        for wish in _widths(along or contiguous):
            if nest.sizes[last] % wish == 0 and _vector_share(Points(nest, wish, last, {}), accesses) >= 0.5:
                width = wish
                break
            if wish > 1 and nest.points % wish == 0 and _vector_share(Points(nest, wish, last, {}, "i"), accesses) >= 0.5:
                width, flat = wish, True
                break
    items = nest.points // width
    loaded = sum(access.itemsize for access in nest.loads.values() if sum(map(bool, access.strides)) == len(nest.sizes))
    threads = 256 if items >= MULTIPROCESSORS * 1024 else 128
    turns = 1
    while turns < 4 and turns * width * max(loaded, 1) < 32 and items >= turns * 2 * MULTIPROCESSORS * 2048:
        turns *= 2
    yield PointSchedule(threads, width, turns, flat)
    for other in (turns * 2, turns // 2, turns * 4):
        if 1 <= other <= 8 and items >= other * threads:
            yield PointSchedule(threads, width, other, flat)
    yield PointSchedule(512 if threads == 256 else 256, width, turns, flat)


def _reduced_bytes(nest: CanonicalNest, axis: int) -> int:
    """Returns the bytes per point of accesses that vary along reduced axes and are contiguous along `axis`."""
    accesses = [access for access in (*nest.loads.values(), *nest.stores) if nest.is_full(access)]
    return sum(access.itemsize for access in accesses if abs(access.strides[axis]) == 1)


def runs_by_columns(nest: CanonicalNest) -> bool:
    """Whether most bytes are contiguous along a kept axis, so that threads should run along it too."""
    if nest.kept == 0:
        return False
    kept, reduced = nest.kept - 1, len(nest.sizes) - 1
    if _reduced_bytes(nest, kept) != _reduced_bytes(nest, reduced):
        return _reduced_bytes(nest, kept) > _reduced_bytes(nest, reduced)
    accesses = [a for a in (*nest.loads.values(), *nest.stores) if nest.is_full(a)]
    steps = [(abs(a.strides[kept]), abs(a.strides[reduced])) for a in accesses if a.strides[kept] and a.strides[reduced]]
    return bool(steps) and sum(k < r for k, r in steps) * 2 > len(steps)


def _vector_width(nest: CanonicalNest, columns: bool) -> int:
    axis = nest.kept - 1 if columns else len(nest.sizes) - 1
    full = [access for access in (*nest.loads.values(), *nest.stores) if nest.is_full(access)]
    for wish in _widths([access for access in full if access.strides[axis] == 1]):
        points = Points(nest, wish, axis, {})
        if nest.sizes[axis] % wish == 0 and _vector_share(points, full) >= 0.5:
            return wish
    return 1


def _registers(nest: CanonicalNest, schedule: RowSchedule) -> float:
    """Returns the registers per thread that hold values between passes."""
    elements = schedule.chunks * schedule.width
    return plan_passes(nest, schedule).kept_bytes(nest) * elements / 4


def _fits(nest: CanonicalNest, schedule: RowSchedule) -> bool:
    elements = schedule.chunks * schedule.width
    return elements <= 128 and _registers(nest, schedule) <= KEPT_REGISTERS.get(schedule.threads, 96)


def _shared_fits(nest: CanonicalNest, schedule: RowSchedule) -> bool:
    """Whether the reductions' shared memory stays under the 48 KB that need no opt-in."""
    if not schedule.columns:
        return True
    per = sum({"double": 8, "long long": 8}.get(reduction_type(step), 4) for step in nest.reductions())
    return per * schedule.threads * schedule.width <= 40 * 1024


def _splittable(nest: CanonicalNest, schedule: RowSchedule) -> bool:
    """Whether several blocks may share a row: no tensor that they all read is written by one of them."""
    passes = plan_passes(nest, schedule)
    written = {store.argument.name for store in nest.stores if not nest.is_full(store)}
    return not any(n in nest.loads and nest.loads[n].argument.name in written for n in row_values_read(nest, passes))


def _row_candidates(nest: CanonicalNest) -> Iterator[RowSchedule]:
    """Yields schedules whose threads run along the reduced axes, best guess first."""
    rows, length = nest.rows, nest.length
    width = _vector_width(nest, False)
    vectors = -(-length // width)

    def kept(lanes: int) -> RowSchedule:
        lanes = min(1024, max(1, lanes))
        side = max(1, 128 // lanes) if lanes <= 32 else 1
        if lanes <= 32:
            side = max(side, 32 // lanes)
        return RowSchedule(False, lanes, side, width, max(1, -(-vectors // lanes)))

    looped = RowSchedule(False, min(1024, max(128, _power_of_two(vectors / 4))), 1, width, 0)
    if length == 0:
        yield looped
        return
    lanes = min(32, _power_of_two(vectors / 2)) if length <= 1024 else min(1024, max(64, _power_of_two(length / 16)))
    # With few rows, more threads per row use more of the GPU.
    while rows * lanes < MULTIPROCESSORS * 512 and lanes * 2 <= min(1024, vectors):
        lanes *= 2
    order = [lanes, lanes * 2, lanes // 2, lanes * 4]
    split = _split_rows(nest, width)
    lanes_of = [kept(lane) for lane in order if 1 <= lane <= min(1024, _power_of_two(vectors))]
    held = [candidate for candidate in lanes_of if _fits(nest, candidate)]
    # One launch that fills a third of the GPU is faster than a launch per pass that fills it.
    alone = bool(held) and rows * 3 >= MULTIPROCESSORS
    if split is not None and not alone:
        yield split
    yield from held
    if split is not None:
        yield split
    cached = RowSchedule(False, 1024, 1, width, 0, cached=True)
    if length > 8192 and 0 < plan_passes(nest, cached).kept_bytes(nest) * length <= CACHE_BYTES:
        yield cached
    yield looped
    if split is None and length >= 8192 and _splittable(nest, looped):
        yield RowSchedule(False, 256, 1, width, 0, splits=max(2, min(64, length // 4096)))


def _split_rows(nest: CanonicalNest, width: int) -> RowSchedule | None:
    """Returns a schedule with several blocks per row if rows alone would leave most of the GPU idle, else None."""
    share = 256 * width * 2
    if nest.rows >= MULTIPROCESSORS or nest.length < 4 * share or nest.points < 1 << 17:
        return None
    splits = max(2, min(1024, 4 * MULTIPROCESSORS // nest.rows, nest.length // share))
    schedule = RowSchedule(False, 256, 1, width, 0, splits=splits)
    return schedule if _splittable(nest, schedule) else None


def _column_candidates(nest: CanonicalNest) -> Iterator[RowSchedule]:
    """Yields schedules whose threads run along the kept axes, best guess first."""
    rows, length = nest.rows, nest.length
    widest = _vector_width(nest, True)
    widths = [widest >> shift for shift in range(widest.bit_length())]
    splits: list[RowSchedule] = []
    kept: list[RowSchedule] = []
    for width in widths:
        blocks = -(-rows // (32 * width))
        lanes = min(32, max(1, _power_of_two(length / 16)))
        if blocks * max(1, length // 64) < 2 * MULTIPROCESSORS and width > 1:
            continue
        if blocks < MULTIPROCESSORS and length >= 512:
            parts = max(2, min(256, 2 * MULTIPROCESSORS // blocks, length // 64))
            split = RowSchedule(True, 8, 32, width, 0, splits=parts)
            if _splittable(nest, split) and _shared_fits(nest, split):
                splits.append(split)
        for lane in (lanes, lanes * 2, lanes // 2):
            if not 1 <= lane <= 32:
                continue
            schedule = RowSchedule(True, lane, 32, width, max(1, -(-length // lane)))
            if _shared_fits(nest, schedule) and schedule.chunks * width <= 64 and _fits(nest, schedule):
                kept.append(schedule)
    enough = [s for s in kept if s.blocks(nest) >= 2 * MULTIPROCESSORS]
    looped = [RowSchedule(True, lane, 32, width, 0) for width in widths for lane in (16, 8, 4)]
    looped = [s for s in looped if _shared_fits(nest, s)]
    ordered = [s for s in looped if s.blocks(nest) >= MULTIPROCESSORS] or looped[::-1]
    if splits and not enough:
        yield splits[0]
    yield from enough[:3]
    yield from [s for s in kept if s not in enough][-3:]
    yield from ordered[:2]
    yield from splits[:1]


def schedules_of(nest: CanonicalNest) -> list[Schedule]:
    """Returns the schedules worth trying, best guess first, each once: one to six."""
    if nest.kept == len(nest.sizes):
        found = list(_point_schedules(nest))
    elif runs_by_columns(nest) and nest.length > 0:
        found = list(_column_candidates(nest))
    else:
        found = list(_row_candidates(nest))
    return list(dict.fromkeys(found))[:6]


def packed_tensors(nest: CanonicalNest, schedule: Schedule) -> list[str]:
    """Returns the names of the tensors that are accessed in vectors, in launcher order."""
    if isinstance(schedule, TileSchedule) or not nest.sizes:
        return []
    if isinstance(schedule, PointSchedule):
        points = Points(nest, schedule.width, len(nest.sizes) - 1, {}, "i" if schedule.flat else "")
    else:
        axis = nest.kept - 1 if schedule.columns else len(nest.sizes) - 1
        points = Points(nest, schedule.width, axis, {})
    wide = {a.argument.name for a in (*nest.loads.values(), *nest.stores) if points.mode(a) == "vector"}
    return [argument.name for argument in nest.arguments if argument.name in wide]

