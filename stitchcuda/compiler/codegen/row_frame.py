"""Writes what a reducing kernel does once per row: finding the thread's row, values per row, stores per row.

A row is one point of the kept axes. Where rows do not fill the last block, idle threads follow the last row and store nothing.

Where to look next: `compiler/codegen/row_kernel.py` (adds the loops over a row's points and the reductions that end them).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stitchcuda.compiler.codegen.canonical_nest import Access, CanonicalNest
from stitchcuda.compiler.codegen.expressions import COMPUTE
from stitchcuda.compiler.codegen.points import EmitRequest, Points, PointWriter, Writer, constant_texts, split_index
from stitchcuda.compiler.codegen.row_passes import RowPasses, row_steps
from stitchcuda.compiler.codegen.source_file import KernelFunction, indent
from stitchcuda.compiler.codegen.thread_mapping import RowSchedule
from stitchcuda.compiler.lower.ir import Step


@dataclass
class RowFrame:
    """Writes the parts of a `__global__` function that run once per row: coordinates, row values, row stores."""

    nest: CanonicalNest
    schedule: RowSchedule
    passes: RowPasses
    out: Writer = field(default_factory=Writer)
    numbered: bool = False                              # the body uses the variable `row`, not only coordinates

    def __post_init__(self) -> None:
        self.points = PointWriter(self.nest, self.out)
        self.names = constant_texts(self.nest)               # row value → C++ text, once computed
        self.row_coordinates: dict[int, str] = {}
        self.used: set[str] = set()                     # tensors that this function touches
        self.live = ""
        self.shared_bytes = 0                           # dynamic shared memory
        self.index = self.nest.index_type
        self.shared: list[str] = []                     # shared-memory arrays of the reductions
        self.suffix = "[v]" if self.schedule.several else ""

    # -- the thread's place -------------------------------------------------------------------------------------------

    def declare_row(self) -> None:
        """Declares the thread's row and its coordinates."""
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
            for name, text in split_index("row", sizes, names, self.index).items():
                axis = names.index(name)
                if any(a.strides[axis] for a in (*nest.loads.values(), *nest.stores)) or axis in nest.axis_of.values():
                    self.out.line(f"const {self.index} {name} = {text};")
        self.row_coordinates = dict(enumerate(names))

    # -- row values ---------------------------------------------------------------------------------------------------

    def compute_row_values(self, wanted: set[str], level: int) -> None:
        """Computes the wanted row values that need at most `level` finished reductions and are not computed yet."""
        steps = row_steps(self.nest, wanted, set(self.names), level)
        if not steps:
            return
        held = {}
        if self.suffix:
            for step in steps:
                self.out.line(f"{COMPUTE[self.nest.kinds[step.name]]} {step.name}[{self.schedule.width}];")
                held[step.name] = f"{step.name}[v]"
        self._write_at_row(EmitRequest(steps, self.names, held=held))

    def _write_at_row(self, request: EmitRequest) -> None:
        width = self.schedule.width if self.suffix else 1
        self._note_tensors(request.steps, request.stores)
        self.points.write(Points(self.nest, width, self.nest.kept - 1, self.row_coordinates), request)

    def store_rows(self, later: set[str]) -> None:
        """Writes the stores that are made once per row.

    `later`: row values that this function's passes read. If a store overwrites their tensor, threads are synchronised first.
    """
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
            self._write_at_row(EmitRequest(steps, dict(self.names), stores=stores))

    def _note_tensors(self, steps: list[Step], stores: list[Access]) -> None:
        self.used.update(self.nest.loads[s.name].argument.name for s in steps if s.fn == "load")
        self.used.update(store.argument.name for store in stores)

    def function(self, name: str, parameters: list[str] | None = None) -> KernelFunction:
        """Returns the finished `__global__` function."""
        arguments = [a for a in self.nest.arguments if a.name in self.used]
        lines = [f"  {text}" for text in dict.fromkeys(self.shared)] + indent(self.out.lines)
        return KernelFunction(
            name, arguments, lines, self.schedule.threads, self.schedule.blocks(self.nest), self.points.functions,
            self.points.templated, parameters or [], self.shared_bytes,
        )  # fmt: skip
