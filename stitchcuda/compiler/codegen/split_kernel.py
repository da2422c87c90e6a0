"""Emits reductions whose rows several blocks share, for nests with too few rows to fill a GPU.

There is one kernel per pass. Each block reduces its part of a row and writes a partial result to the workspace; every block of
the next kernel first combines the partial results of its row. The last kernel makes the stores. No atomics are used, so a
kernel gives the same bits every time.

Where to look next: `compiler/codegen/row_kernel.py` (the same for rows within a block), `compiler/codegen/schedules.py` (when
rows are split).
"""

from __future__ import annotations

from dataclasses import replace

from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest
from stitchcuda.compiler.codegen.expressions import called_functions, reduction_identity, reduction_type
from stitchcuda.compiler.codegen.points import accumulate
from stitchcuda.compiler.codegen.row_kernel import RowWriter
from stitchcuda.compiler.codegen.row_passes import passes_of
from stitchcuda.compiler.codegen.source_file import KernelFunction
from stitchcuda.compiler.codegen.thread_mapping import RowSchedule, broadcast_loads, row_constants, row_values_read
from stitchcuda.compiler.lower.ir import Step

_SIZES = {"float": 4, "int": 4, "double": 8, "long long": 8}


class SplitWriter(RowWriter):
    """Writes what only split rows need: the bounds of the block's part, and partial results in the workspace."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parameters: list[str] = []

    def declare_bounds(self) -> None:
        self.out.line(f"const {self.index} first = split * kPart;")
        self.out.line(f"const {self.index} last = first + kPart < kLength ? first + kPart : kLength;")

    def add_parameter(self, step: Step, written: bool) -> None:
        kind = reduction_type(step)
        text = f"{kind if written else f'const {kind}'}* __restrict__ {step.name}_parts"
        self.parameters.append(text)

    def store_partial(self, step: Step) -> None:
        """Writes the block's partial result. `lane == 0` of each row holds it."""
        self.add_parameter(step, True)
        kind = reduction_type(step)
        conditions = (["lane == 0"] if self.schedule.lanes > 1 else []) + ([self.live] if self.live else [])
        guard = f"if ({' && '.join(conditions)}) " if conditions else ""
        value = self._joined_value(step)
        if self.suffix:
            width = self.schedule.width
            self.out.line(f"{kind} {step.name}[{width}];")
            with self.out.unrolled("v", width):
                self.out.line(f"{step.name}[v] = {value};")
            with self.out.unrolled("v", width):
                self.out.line(f"{guard}{step.name}_parts[split * kRows + row + v] = {step.name}[v];")
        else:
            self.out.line(f"const {kind} {step.name} = {value};")
            self.out.line(f"{guard}{step.name}_parts[split * kRows + row] = {step.name};")

    def join_partials(self, steps: list[Step]) -> None:
        """Combines the partial results that earlier kernels wrote for all parts of the row."""
        for step in steps:
            self.add_parameter(step, False)
            kind, part = reduction_type(step), f"{step.name}_part"
            vector = f"[{self.schedule.width}]" if self.suffix else ""
            if self.suffix:
                self.out.line(f"{kind} {part}{vector};")
                with self.out.unrolled("v", self.schedule.width):
                    self.out.line(f"{part}[v] = {reduction_identity(step)};")
            else:
                self.out.line(f"{kind} {part} = {reduction_identity(step)};")
            neighbour = " + v" if self.suffix else ""
            with self.out.block(f"for (int part = lane; part < kSplits; part += {self.schedule.lanes})"):
                self._join_part(step, part + self.suffix, f"{step.name}_parts[part * kRows + row{neighbour}]")
        self.reduce(steps)

    def _join_part(self, step: Step, accumulator: str, value: str) -> None:
        self.points.functions.update(called_functions(step))
        with self.out.unrolled("v", self.schedule.width if self.suffix else 1):
            self.out.line(accumulate(step, accumulator, value))


def emit_split(nest: CanonicalNest, schedule: RowSchedule) -> tuple[list[KernelFunction], list[str], int]:
    """Returns the kernels of a nest whose rows are split over blocks, their constants, and the workspace's bytes."""
    passes = passes_of(nest, False, broadcast_loads(nest, schedule))
    depth = nest.depth
    offsets: dict[str, int] = {}
    total = 0
    for step in nest.reductions():
        offsets[step.name] = total
        total += -(-nest.rows * schedule.splits * _SIZES[reduction_type(step)] // 256) * 256
    kernels = []
    for number in range(depth + 1):
        work = passes.passes[number]
        last = number == depth
        # Without a store per point the last kernel only combines partial results: one block per row is enough.
        single = last and work.idle
        writer = SplitWriter(nest, replace(schedule, splits=1) if single else schedule, passes, numbered=True)
        wanted = set(work.rows)
        writer.declare_row()
        if not single:
            writer.declare_bounds()
        needed = _reductions_behind(nest, wanted | ({s.value for s in nest.stores} if last else set()), last)
        writer.compute_row_values(wanted, 0)
        for level in range(1, number + 1):
            steps = [step for step in nest.reductions(level) if step.name in needed]
            writer.join_partials(steps)
            writer.compute_row_values(wanted, level)
        writer.sweep(number)
        if last:
            writer.store_rows(row_values_read(nest, passes))
        else:
            for step in work.reductions:
                writer.store_partial(step)
        name = f"{nest.name}_finish" if last else f"{nest.name}_partial{number + 1}"
        function = writer.function(name, writer.parameters)
        function.extras = [_pointer(text, offsets) for text in function.parameters]
        kernels.append(function)
    part = -(-nest.length // schedule.splits)
    stride = schedule.lanes * (1 if schedule.columns else schedule.width)
    part = -(-part // stride) * stride
    return kernels, [*row_constants(nest, schedule), f"constexpr {nest.index_type} kPart = {part};"], total


def _reductions_behind(nest: CanonicalNest, wanted: set[str], stores: bool) -> set[str]:
    """Returns the reductions from which the wanted values are computed, through row values only."""
    steps = {step.name: step for step in nest.steps}
    found: set[str] = set()
    seen: set[str] = set()
    stack = [name for name in wanted if stores or name not in nest.full]
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        step = steps[name]
        if step.fn in ("sum", "max", "min", "prod", "any", "all"):
            found.add(name)
        elif step.fn not in ("load", "index", "const"):
            stack.extend(arg for arg in step.args if isinstance(arg, str))
    return found


def _pointer(parameter: str, offsets: dict[str, int]) -> str:
    """Returns the workspace address of a kernel's `TYPE* __restrict__ NAME_parts` parameter."""
    kind, name = parameter.rsplit("* __restrict__ ", 1)
    return f"reinterpret_cast<{kind}*>(static_cast<unsigned char*>(workspace) + {offsets[name.removesuffix('_parts')]})"
