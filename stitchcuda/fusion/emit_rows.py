"""Kernels that reduce rows: one or more threads per row, values kept in registers or shared memory between passes, or re-read.

Two mappings share the code. *Rows*: the threads of a row run along the reduced axes, vectors too. *Columns*: threads and
vectors run along the kept axes, so that a reduction over a slow axis still reads whole lines; `lanes` threads share a column.
`emit_split.py` uses the same writer for reductions that several blocks share. Schedules are chosen in `emit_schedules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stitchcuda.fusion.emit_nest import Access, Nest
from stitchcuda.fusion.emit_passes import Pass, Passes, passes_of, row_steps
from stitchcuda.fusion.emit_points import Points, PointWriter, Request, Writer, constants, decomposed
from stitchcuda.fusion.emit_source import Function, indented
from stitchcuda.fusion.expressions import COMPUTE, identity, reduction_operator, reduction_type
from stitchcuda.fusion.ir import Step


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

    def blocks(self, nest: Nest) -> int:
        per_block = self.rows * (self.width if self.columns else 1)
        return -(-nest.rows // per_block) * self.splits

    def describe(self) -> str:
        what = "column" if self.columns else "row"
        share = f"{self.lanes} threads per {what}, {self.rows} {what}s side by side, {self.width} elements per access"
        if self.splits > 1:
            return f"split {what}s: {self.splits} blocks per {what}, {share}"
        if self.chunks:
            return f"{what}s in registers: {share}, {self.chunks} accesses per thread"
        return f"looped {what}s{' cached in shared memory' if self.cached else ''}: {share}"


def pass_points(nest: Nest, schedule: RowSchedule, coordinates: dict[int, str]) -> Points:
    """Where a sweep's vectors lie."""
    axis = nest.kept - 1 if schedule.columns else len(nest.sizes) - 1
    return Points(nest, schedule.width, axis, coordinates)


def broadcast_loads(nest: Nest, schedule: RowSchedule) -> set[str]:
    """Full loads that give all neighbours of a vector the same element: cheap to repeat."""
    points = pass_points(nest, schedule, {})
    return {n for n, access in nest.loads.items() if nest.is_full(access) and points.mode(access) == "same"}


def plan(nest: Nest, schedule: RowSchedule) -> Passes:
    keep = bool(schedule.chunks) or schedule.cached
    return passes_of(nest, keep, broadcast_loads(nest, schedule))


@dataclass
class RowWriter:
    """Writes the body of one `__global__` function; the caller decides the order of its parts."""

    nest: Nest
    schedule: RowSchedule
    passes: Passes
    out: Writer = field(default_factory=Writer)
    numbered: bool = False                              # the body names the row itself, not only its coordinates

    def __post_init__(self) -> None:
        self.points = PointWriter(self.nest, self.out)
        self.names = constants(self.nest)               # row values that are there
        self.row_coordinates: dict[int, str] = {}
        self.used: set[str] = set()                     # tensors that this function touches
        self.live = ""
        self.shared_bytes = 0                           # dynamic shared memory
        self.index = self.nest.index_type
        self.shared: list[str] = []                     # shared-memory arrays of the reductions
        self.suffix = "[v]" if schedule_vector(self.schedule) else ""

    # -- the thread's place -------------------------------------------------------------------------------------------

    def place(self) -> None:
        """Coordinates of the thread's row."""
        nest, plan = self.nest, self.schedule
        block = "blockIdx.x" if plan.splits == 1 else "blockIdx.x / kSplits"
        if self.index != "int":
            block = f"static_cast<long long>({block})"
        if plan.splits > 1:
            self.out.line("const int split = blockIdx.x % kSplits;")
        per_block = plan.rows * (plan.width if plan.columns else 1)
        exact = nest.rows % per_block == 0
        if plan.columns:
            self.out.line("const int lane = threadIdx.x / kColumns;  // along the reduction")
            slot = f"({block} * kColumns + threadIdx.x % kColumns)" + (f" * {plan.width}" if plan.width > 1 else "")
        elif plan.rows > 1:
            self.out.line("const int lane = threadIdx.x % kLanes;" if plan.lanes > 1 else "constexpr int lane = 0;")
            slot = f"{block} * kRowsPerBlock + threadIdx.x" + (" / kLanes" if plan.lanes > 1 else "")
        else:
            self.out.line("const int lane = threadIdx.x;")
            slot = block
        if nest.kept == 0 and not self.numbered and exact:
            pass                                        # the only row starts at the tensors' first element
        elif exact:
            self.out.line(f"const {self.index} row = {slot};")
        elif plan.lanes == 32 and not plan.columns:
            self.out.line(f"const {self.index} row = {slot};")
            self.out.line("if (row >= kRows) return;  // a whole warp at a time")
        else:
            last = f"kRows - {plan.width}" if plan.columns else "kRows - 1"
            self.out.line(f"const {self.index} slot = {slot};")
            self.out.line("const bool live = slot < kRows;  // idle threads follow the last row and store nothing")
            self.out.line(f"const {self.index} row = live ? slot : {last};")
            self.live = "live"
        sizes = nest.sizes[: nest.kept]
        names = ["row"] if nest.kept == 1 else [f"i{axis}" for axis in range(nest.kept)]
        if nest.kept > 1:
            for name, text in decomposed("row", sizes, names, self.index).items():
                axis = names.index(name)
                if any(a.strides[axis] for a in (*nest.loads.values(), *nest.stores)) or axis in nest.axis_of.values():
                    self.out.line(f"const {self.index} {name} = {text};")
        self.row_coordinates = dict(enumerate(names))

    # -- row values ---------------------------------------------------------------------------------------------------

    def section(self, wanted: set[str], level: int) -> None:
        """Row values of at most `level` that are wanted from here on."""
        steps = row_steps(self.nest, wanted, set(self.names), level)
        if not steps:
            return
        held = {}
        if self.suffix:
            for step in steps:
                self.out.line(f"{COMPUTE[self.nest.kinds[step.name]]} {step.name}[{self.schedule.width}];")
                held[step.name] = f"{step.name}[v]"
        self._rows(Request(steps, self.names, held=held))

    def _rows(self, request: Request) -> None:
        width = self.schedule.width if self.suffix else 1
        self._touch(request.steps, request.stores)
        self.points.write(Points(self.nest, width, self.nest.kept - 1, self.row_coordinates), request)

    def row_stores(self, later: set[str]) -> None:
        """Stores once per row. `later`: row values that sweeps of this function read (their tensors must not change early)."""
        stores = [store for store in self.nest.stores if not self.nest.is_full(store)]
        if not stores:
            return
        written = {store.argument.name for store in stores}
        if any(n in self.nest.loads and self.nest.loads[n].argument.name in written for n in later) and self.schedule.lanes > 1:
            wide = self.schedule.columns or self.schedule.lanes > 32
            self.out.line(f"{'__syncthreads' if wide else '__syncwarp'}();  // all have read what is written now")
        conditions = [self.live] if self.live else []
        if self.schedule.lanes > 1:
            conditions.append("lane == 0")
        if self.schedule.splits > 1:
            conditions.append("split == 0")
        steps = row_steps(self.nest, {store.value for store in stores}, set(self.names), self.nest.depth)
        with self.out.block(f"if ({' && '.join(conditions)})" if conditions else ""):
            self._rows(Request(steps, dict(self.names), stores=stores))

    # -- sweeps -------------------------------------------------------------------------------------------------------

    def declare_kept(self) -> None:
        """Places for what is kept between passes."""
        plan, nest = self.schedule, self.nest
        if plan.cached:
            self._declare_cache()
            return
        turns = f"[{plan.chunks}]" if plan.chunks > 1 else ""
        for name in sorted(self.passes.packs):
            kind = self._pack_type(name)
            self.out.line(f"{kind} {name}_pack{turns};")
        neighbours = f"[{plan.width}]" if plan.width > 1 else ""
        for name in sorted(self.passes.values):
            self.out.line(f"{COMPUTE[nest.kinds[name]]} {name}{turns}{neighbours};")

    def _pack_type(self, name: str) -> str:
        """Type in which a kept load is held: as stored, a vector of it, or the computed value for scattered loads."""
        access, width = self.nest.loads[name], self.schedule.width
        vector = pass_points(self.nest, self.schedule, {}).mode(access) == "vector"
        if vector:
            self.points.functions.add("Pack")
        return f"Pack<{access.storage}, {width}>" if vector else access.storage

    def _declare_cache(self) -> None:
        self.out.line("extern __shared__ __align__(16) unsigned char cache[];  // each thread reads what it wrote: no barriers")
        kept = self.passes.packs | self.passes.values
        slots: list[tuple[int, int, int]] = []          # of each place: start, bytes per element, last pass in use
        for name in sorted(kept, key=lambda n: (self.passes.life[n], n)):
            storage = self.nest.loads[name].storage if name in self.passes.packs else COMPUTE[self.nest.kinds[name]]
            kind = self._pack_type(name) if name in self.passes.packs else storage
            if name in self.passes.values and self.schedule.width > 1:
                self.points.functions.add("Pack")
                kind = f"Pack<{storage}, {self.schedule.width}>"
            first, last = self.passes.life[name]
            size = self.passes.width(self.nest, name)
            # A value may take the place of one that is read for the last time in the pass that computes it.
            free = [n for n, (_, width, end) in enumerate(slots) if width == size and end <= first]
            if free:
                start = slots[free[0]][0]
                slots[free[0]] = (start, size, last)
            else:
                start = self.shared_bytes
                self.shared_bytes += -(-size * self.nest.length // 16) * 16
                slots.append((start, size, last))
            self.out.line(f"{kind}* const {name}_cache = reinterpret_cast<{kind}*>(cache + {start});")

    def _kept_text(self, name: str, pack: bool) -> str:
        plan = self.schedule
        if plan.cached:
            item = "j" if plan.width == 1 else f"j / {plan.width}"
            return f"{name}_cache[{item}]" + (".at[v]" if not pack and plan.width > 1 else "")
        turn = "[n]" if plan.chunks > 1 else ""
        if pack:
            return f"{name}_pack{turn}"
        return f"{name}{turn}" + ("[v]" if plan.width > 1 else "")

    def sweep(self, number: int) -> None:
        """One pass over the thread's part of the row, and its reductions."""
        work = self.passes.passes[number]
        if work.idle:
            return
        if len(self.passes.passes) > 1:
            self.out.line()
            self.out.line(f"// Pass {number + 1}: {self._purpose(work)}")
        accumulators = {}
        for step in work.reductions:
            part = f"{step.name}_part"
            kind = reduction_type(step)
            if self.suffix:
                self.out.line(f"{kind} {part}[{self.schedule.width}];")
                with self.out.unrolled("v", self.schedule.width):
                    self.out.line(f"{part}[v] = {identity(step)};")
            else:
                self.out.line(f"{kind} {part} = {identity(step)};")
            accumulators[step.name] = part + self.suffix
        self._touch(work.steps, work.stores)
        self._loops(work, accumulators, number)

    def reduce(self, steps: list[Step]) -> None:
        """Joins the accumulators of a pass over the threads of each row."""
        for step in steps:
            kind = self.nest.kinds[step.name]
            if self.suffix:
                self.out.line(f"{COMPUTE[kind]} {step.name}[{self.schedule.width}];")
                with self.out.unrolled("v", self.schedule.width):
                    self.out.line(f"{step.name}[v] = {self._joined(step)};")
            else:
                self.out.line(f"const {COMPUTE[kind]} {step.name} = {self._joined(step)};")
            self.names[step.name] = step.name + self.suffix

    def _joined(self, step: Step) -> str:
        plan = self.schedule
        part = f"{step.name}_part{self.suffix}"
        operator = reduction_operator(step)
        test = " != 0" if reduction_type(step) == "int" else ""
        if plan.lanes == 1:
            return part + test
        self.points.functions.add(operator)
        slots = f"{step.name}_slots{self.suffix}"
        if plan.columns:
            self.points.functions.add("reduce_columns")
            self._slots(step, plan.threads)
            return f"reduce_columns<kLanes, kColumns>({part}, {slots}, {operator}()){test}"
        if plan.lanes <= 32:
            self.points.functions.add("reduce_lanes")
            return f"reduce_lanes<kLanes>({part}, {operator}()){test}"
        self.points.functions.add("reduce_block")
        self._slots(step, plan.lanes // 32)
        return f"reduce_block<kLanes / 32>({part}, {slots}, {operator}()){test}"

    def _slots(self, step: Step, count: int) -> None:
        vector = f"[{self.schedule.width}]" if self.suffix else ""
        self.shared.append(f"__shared__ {reduction_type(step)} {step.name}_slots{vector}[{count}];")

    def _purpose(self, work: Pass) -> str:
        parts = [step.name for step in work.reductions] + [f"store {store.label}" for store in work.stores]
        return ", ".join(parts)

    def _loops(self, work: Pass, accumulators: dict[str, str], number: int) -> None:
        plan, nest = self.schedule, self.nest
        step = 1 if plan.columns else plan.width
        scale = f" * {step}" if step > 1 else ""
        packs = {n: self._kept_text(n, True) for n in self.passes.packs}
        held = {n: self._kept_text(n, False) for n in self.passes.values}

        def request() -> Request:
            names = dict(self.names)
            # A value that an earlier pass has left is read from its place.
            computed_here = {s.name for s in work.steps}
            names.update({n: text for n, text in held.items() if n not in computed_here})
            places = {n: text for n, text in held.items() if n in computed_here}
            return Request(
                work.steps, names, work.reductions, work.stores, places, dict(packs), set(work.loaded), accumulators, self.live
            )

        if not plan.chunks:
            start, end = ("first + ", "last") if plan.splits > 1 else ("", "kLength")
            begin = f"{start}lane{scale}"
            self.out.line("#pragma unroll 4" if plan.width < 4 else "#pragma unroll 2")
            with self.out.block(f"for ({self.index} j = {begin}; {'j < ' + end}; j += {plan.lanes * step})"):
                self.points.write(self._here(work, work.loaded), request())
            return
        exact = plan.chunks * plan.lanes * step == nest.length
        place = f"n * {plan.lanes} + lane" if plan.lanes > 1 else "n"
        position = (place if step == 1 else f"({place}){scale}") if plan.chunks > 1 else f"lane{scale}"
        guard = "if (j < kLength)" if plan.chunks == 1 else f"if (n < {plan.chunks - 1} || j < kLength)"
        whole = request()
        if not exact and plan.chunks > 1 and number == 0:
            # All loads go out before the first is used; the guard would otherwise hold the last ones back.
            early = [s.name for s in work.steps if s.fn == "load" and s.name not in self.passes.packs]
            points = pass_points(nest, plan, {})
            for name in [n for n in early if points.mode(nest.loads[n]) != "same"]:
                self.out.line(f"{self._pack_type(name)} {name}_pack[{plan.chunks}];")
                whole.packs[name] = f"{name}_pack[n]"
            loads = Request([s for s in work.steps if s.name in whole.packs], {}, packs=whole.packs, loaded=set(work.loaded))
            with self.out.unrolled("n", plan.chunks):
                self.out.line(f"const {self.index} j = {position};")
                with self.out.block(guard):
                    self.points.prefetch(self._here(work, work.loaded), loads)
            whole.loaded = set(whole.packs)
        with self.out.unrolled("n", plan.chunks) if plan.chunks > 1 else self.out.block(""):
            if not exact or self._placed(work, whole.loaded):
                self.out.line(f"const {self.index} j = {position};")
            if exact:
                self.points.write(self._here(work, whole.loaded), whole)
            else:
                with self.out.block(guard):
                    self.points.write(self._here(work, whole.loaded), whole)

    def _placed(self, work: Pass, loaded: set[str]) -> bool:
        """Whether a pass over registers asks where its points lie: it loads, stores or counts."""
        fresh = [self.nest.loads[s.name] for s in work.steps if s.fn == "load" and s.name not in loaded]
        indexed = any(s.fn == "index" and self.nest.axis_of[s.name] >= self.nest.kept for s in work.steps)
        return indexed or any(self.nest.is_full(access) for access in (*fresh, *work.stores))

    def _here(self, work: Pass, loaded: set[str]) -> Points:
        """Declares the reduced coordinates that a pass uses, from `j`; what is `loaded` already needs none."""
        nest = self.nest
        axes = range(nest.kept, len(nest.sizes))
        coordinates = dict(self.row_coordinates)
        if len(axes) == 1:
            coordinates[nest.kept] = "j"
            return pass_points(nest, self.schedule, coordinates)
        names = [f"j{axis - nest.kept}" for axis in axes]
        accesses = [nest.loads[s.name] for s in work.steps if s.fn == "load" and s.name not in loaded] + work.stores
        indexed = {nest.axis_of[s.name] for s in work.steps if s.fn == "index"}
        for name, text in decomposed("j", nest.sizes[nest.kept :], names, self.index).items():
            axis = nest.kept + names.index(name)
            coordinates[axis] = name
            if axis in indexed or any(access.strides[axis] for access in accesses):
                self.out.line(f"const {self.index} {name} = {text};")
        return pass_points(nest, self.schedule, coordinates)

    def _touch(self, steps: list[Step], stores: list[Access]) -> None:
        self.used.update(self.nest.loads[s.name].argument.name for s in steps if s.fn == "load")
        self.used.update(store.argument.name for store in stores)

    # -- the whole ----------------------------------------------------------------------------------------------------

    def function(self, name: str, parameters: list[str] | None = None) -> Function:
        """The finished `__global__` function."""
        arguments = [a for a in self.nest.arguments if a.name in self.used]
        lines = [f"  {text}" for text in dict.fromkeys(self.shared)] + indented(self.out.lines)
        return Function(
            name, arguments, lines, self.schedule.threads, self.schedule.blocks(self.nest), self.points.functions,
            self.points.templated, parameters or [], self.shared_bytes,
        )  # fmt: skip


def schedule_vector(schedule: RowSchedule) -> bool:
    """Whether each thread handles several columns, so that its row values are small arrays."""
    return schedule.columns and schedule.width > 1


def row_values(nest: Nest, passes: Passes) -> set[str]:
    """Row values that any sweep reads."""
    return set().union(*(work.rows for work in passes.passes))


def emit_rows(nest: Nest, schedule: RowSchedule) -> tuple[list[Function], list[str]]:
    """The kernel of a nest with reductions, and the constants it names."""
    passes = plan(nest, schedule)
    writer = RowWriter(nest, schedule, passes)
    wanted = row_values(nest, passes)
    writer.place()
    writer.declare_kept()
    writer.section(wanted, 0)
    for number, work in enumerate(passes.passes):
        writer.sweep(number)
        writer.reduce(work.reductions)
        writer.section(wanted, number + 1)
    writer.row_stores(wanted)
    return [writer.function(f"{nest.name}_kernel")], row_constants(nest, schedule)


def row_constants(nest: Nest, schedule: RowSchedule) -> list[str]:
    """`constexpr` lines that the kernels of a row schedule name."""
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
