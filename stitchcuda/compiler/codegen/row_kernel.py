"""Emits kernels that reduce rows: one or more threads per row, in one or more passes over its points.

Between passes, values stay in registers or shared memory, or are read again. This file writes the loops over a row's points and
the reductions over threads.

Where to look next: `compiler/codegen/thread_mapping.py` (how rows are spread over threads), `compiler/codegen/row_passes.py`
(what each pass computes), `compiler/codegen/row_frame.py` (what happens once per row), `compiler/codegen/split_kernel.py` (rows
that several blocks share).
"""

from __future__ import annotations

from dataclasses import dataclass

from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest
from stitchcuda.compiler.codegen.expressions import COMPUTE, reduction_identity, reduction_operator, reduction_type
from stitchcuda.compiler.codegen.points import EmitRequest, Points, split_index
from stitchcuda.compiler.codegen.row_frame import RowFrame
from stitchcuda.compiler.codegen.row_passes import RowPass
from stitchcuda.compiler.codegen.source_file import KernelFunction
from stitchcuda.compiler.codegen.thread_mapping import RowSchedule, pass_points, plan_passes, row_constants, row_values_read
from stitchcuda.compiler.lower.ir import Step


@dataclass
class RowWriter(RowFrame):
    """Writes the body of one `__global__` function; the caller decides the order of its parts."""

    def declare_kept(self) -> None:
        """Declares registers, or a part of shared memory, for the values that are kept between passes."""
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
        """Returns the C++ type of a kept load: its element type in memory, or a vector of it."""
        storage, width = self.nest.loads[name].storage, self.schedule.width
        if width > 1:
            self.points.functions.add("Pack")
        return f"Pack<{storage}, {width}>" if width > 1 else storage

    def _declare_cache(self) -> None:
        self.out.line("extern __shared__ __align__(16) unsigned char cache[];  // each thread reads what it wrote: no barriers")
        kept = self.passes.packs | self.passes.values
        slots: list[tuple[int, int, int]] = []          # start, bytes per element, last pass that reads it
        for name in sorted(kept, key=lambda n: (self.passes.life[n], n)):
            storage = self.nest.loads[name].storage if name in self.passes.packs else COMPUTE[self.nest.kinds[name]]
            kind = self._pack_type(name) if name in self.passes.packs else storage
            if name in self.passes.values and self.schedule.width > 1:
                self.points.functions.add("Pack")
                kind = f"Pack<{storage}, {self.schedule.width}>"
            first, last = self.passes.life[name]
            size = self.passes.width(self.nest, name)
            # A value may reuse the memory of another whose last reader is the pass that computes the new one.
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
        """Writes pass `number` over the thread's part of the row, up to the thread's own accumulators."""
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
                    self.out.line(f"{part}[v] = {reduction_identity(step)};")
            else:
                self.out.line(f"{kind} {part} = {reduction_identity(step)};")
            accumulators[step.name] = part + self.suffix
        self._note_tensors(work.steps, work.stores)
        self._write_loops(work, accumulators, number)

    def reduce(self, steps: list[Step]) -> None:
        """Combines the accumulators of the threads of each row into the reductions' results."""
        for step in steps:
            kind = self.nest.kinds[step.name]
            if self.suffix:
                self.out.line(f"{COMPUTE[kind]} {step.name}[{self.schedule.width}];")
                with self.out.unrolled("v", self.schedule.width):
                    self.out.line(f"{step.name}[v] = {self._joined_value(step)};")
            else:
                self.out.line(f"const {COMPUTE[kind]} {step.name} = {self._joined_value(step)};")
            self.names[step.name] = step.name + self.suffix

    def _joined_value(self, step: Step) -> str:
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
            self._declare_slots(step, plan.threads)
            return f"reduce_columns<kLanes, kColumns>({part}, {slots}, {operator}()){test}"
        if plan.lanes <= 32:
            self.points.functions.add("reduce_lanes")
            return f"reduce_lanes<kLanes>({part}, {operator}()){test}"
        self.points.functions.add("reduce_block")
        self._declare_slots(step, plan.lanes // 32)
        return f"reduce_block<kLanes / 32>({part}, {slots}, {operator}()){test}"

    def _declare_slots(self, step: Step, count: int) -> None:
        vector = f"[{self.schedule.width}]" if self.suffix else ""
        self.shared.append(f"__shared__ {reduction_type(step)} {step.name}_slots{vector}[{count}];")

    def _purpose(self, work: RowPass) -> str:
        parts = [step.name for step in work.reductions] + [f"store {store.label}" for store in work.stores]
        return ", ".join(parts)

    def _write_loops(self, work: RowPass, accumulators: dict[str, str], number: int) -> None:
        plan, nest = self.schedule, self.nest
        step = 1 if plan.columns else plan.width
        scale = f" * {step}" if step > 1 else ""
        packs = {n: self._kept_text(n, True) for n in self.passes.packs}
        held = {n: self._kept_text(n, False) for n in self.passes.values}

        def request() -> EmitRequest:
            names = dict(self.names)
            # A value kept by an earlier pass is read from its register or shared memory.
            computed_here = {s.name for s in work.steps}
            names.update({n: text for n, text in held.items() if n not in computed_here})
            places = {n: text for n, text in held.items() if n in computed_here}
            return EmitRequest(
                work.steps, names, work.reductions, work.stores, places, dict(packs), set(work.loaded), accumulators, self.live
            )

        if not plan.chunks:
            start, end = ("first + ", "last") if plan.splits > 1 else ("", "kLength")
            begin = f"{start}lane{scale}"
            self.out.line("#pragma unroll 4" if plan.width < 4 else "#pragma unroll 2")
            with self.out.block(f"for ({self.index} j = {begin}; {'j < ' + end}; j += {plan.lanes * step})"):
                self.points.write(self._declare_points(work, work.loaded), request())
            return
        exact = plan.chunks * plan.lanes * step == nest.length
        place = f"n * {plan.lanes} + lane" if plan.lanes > 1 else "n"
        position = (place if step == 1 else f"({place}){scale}") if plan.chunks > 1 else f"lane{scale}"
        guard = "if (j < kLength)" if plan.chunks == 1 else f"if (n < {plan.chunks - 1} || j < kLength)"
        whole = request()
        if not exact and plan.chunks > 1 and number == 0:
            # All loads are issued before the first use; otherwise the bounds check would delay the last ones.
            early = [s.name for s in work.steps if s.fn == "load" and s.name not in self.passes.packs]
            points = pass_points(nest, plan, {})
            for name in [n for n in early if points.mode(nest.loads[n]) != "same"]:
                self.out.line(f"{self._pack_type(name)} {name}_pack[{plan.chunks}];")
                whole.packs[name] = f"{name}_pack[n]"
            packed = [step for step in work.steps if step.name in whole.packs]
            loads = EmitRequest(packed, {}, packs=whole.packs, loaded=set(work.loaded))
            with self.out.unrolled("n", plan.chunks):
                self.out.line(f"const {self.index} j = {position};")
                with self.out.block(guard):
                    self.points.prefetch(self._declare_points(work, work.loaded), loads)
            whole.loaded = set(whole.packs)
        with self.out.unrolled("n", plan.chunks) if plan.chunks > 1 else self.out.block(""):
            if not exact or self._needs_position(work, whole.loaded):
                self.out.line(f"const {self.index} j = {position};")
            if exact:
                self.points.write(self._declare_points(work, whole.loaded), whole)
            else:
                with self.out.block(guard):
                    self.points.write(self._declare_points(work, whole.loaded), whole)

    def _needs_position(self, work: RowPass, loaded: set[str]) -> bool:
        """Whether a pass over registers needs the position `j`: it loads, stores or uses an index."""
        fresh = [self.nest.loads[s.name] for s in work.steps if s.fn == "load" and s.name not in loaded]
        indexed = any(s.fn == "index" and self.nest.axis_of[s.name] >= self.nest.kept for s in work.steps)
        return indexed or any(self.nest.is_full(access) for access in (*fresh, *work.stores))

    def _declare_points(self, work: RowPass, loaded: set[str]) -> Points:
        """Declares the reduced coordinates, from `j`, that the pass's accesses need; `loaded` values need none."""
        nest = self.nest
        axes = range(nest.kept, len(nest.sizes))
        coordinates = dict(self.row_coordinates)
        if len(axes) == 1:
            coordinates[nest.kept] = "j"
            return pass_points(nest, self.schedule, coordinates)
        names = [f"j{axis - nest.kept}" for axis in axes]
        accesses = [nest.loads[s.name] for s in work.steps if s.fn == "load" and s.name not in loaded] + work.stores
        indexed = {nest.axis_of[s.name] for s in work.steps if s.fn == "index"}
        for name, text in split_index("j", nest.sizes[nest.kept :], names, self.index).items():
            axis = nest.kept + names.index(name)
            coordinates[axis] = name
            if axis in indexed or any(access.strides[axis] for access in accesses):
                self.out.line(f"const {self.index} {name} = {text};")
        return pass_points(nest, self.schedule, coordinates)


def emit_rows(nest: CanonicalNest, schedule: RowSchedule) -> tuple[list[KernelFunction], list[str]]:
    """Returns the kernel of a nest with reductions, and the `constexpr` lines of constants that it uses."""
    passes = plan_passes(nest, schedule)
    writer = RowWriter(nest, schedule, passes)
    wanted = row_values_read(nest, passes)
    writer.declare_row()
    writer.declare_kept()
    writer.compute_row_values(wanted, 0)
    for number, work in enumerate(passes.passes):
        writer.sweep(number)
        writer.reduce(work.reductions)
        writer.compute_row_values(wanted, number + 1)
    writer.store_rows(wanted)
    return [writer.function(f"{nest.name}_kernel")], row_constants(nest, schedule)
