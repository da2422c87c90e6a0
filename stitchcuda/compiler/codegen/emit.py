"""Writes CUDA C++ for one kernel of the kernel language: picks a schedule, writes the `.cu` file and its binding.

Each schedule is a variant; number 0 is the best guess, and a caller that measures can ask for the others. One emitter per kind
of schedule writes the text. The same kernel and variant give the same bytes. It knows no models and runs nothing.

Where to look next: `compiler/codegen/canonical_nest.py` (the loops' form), `compiler/codegen/schedules.py` (the variants),
`compiler/codegen/pointwise_kernel.py`, `compiler/codegen/transpose_kernel.py`, `compiler/codegen/row_kernel.py`,
`compiler/codegen/split_kernel.py` (the emitters).
"""

from __future__ import annotations

from stitchcuda.compiler.codegen.binding import binding_text
from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest, canonicalise
from stitchcuda.compiler.codegen.pointwise_kernel import PointSchedule, emit_points
from stitchcuda.compiler.codegen.row_kernel import emit_rows
from stitchcuda.compiler.codegen.schedules import Schedule, packed_tensors, schedules_of
from stitchcuda.compiler.codegen.source_file import KernelFunction, assemble, pointer_parameters
from stitchcuda.compiler.codegen.split_kernel import emit_split
from stitchcuda.compiler.codegen.thread_mapping import RowSchedule
from stitchcuda.compiler.codegen.transpose_kernel import TileSchedule, emit_tiles
from stitchcuda.compiler.lower.ir import Kernel, KernelSource


def count_variants(kernel: Kernel) -> int:
    """Returns how many variants `emit` has for this kernel; at least 1. Variant 0 is the best guess."""
    nest = canonicalise(kernel)
    return 1 if nest.rows == 0 else len(schedules_of(nest))


def emit(kernel: Kernel, variant: int = 0) -> KernelSource:
    """Returns the CUDA source and binding of `kernel` with schedule number `variant`.

    Raises IndexError for a variant that does not exist, and ValueError for element types or steps without a translation to C++.
    """
    nest = canonicalise(kernel)
    if nest.rows == 0:
        if variant != 0:
            raise IndexError(f"kernel {kernel.name} has one variant, not number {variant}")
        return _empty(nest)
    schedules = schedules_of(nest)
    if not 0 <= variant < len(schedules):
        raise IndexError(f"kernel {kernel.name} has variants 0 to {len(schedules) - 1}, not {variant}")
    return _source(nest, schedules[variant])


def _source(nest: CanonicalNest, schedule: Schedule) -> KernelSource:
    functions: list[KernelFunction]
    workspace = 0
    if isinstance(schedule, PointSchedule):
        functions, constants = emit_points(nest, schedule)
    elif isinstance(schedule, TileSchedule):
        functions, constants = emit_tiles(nest, schedule)
    elif isinstance(schedule, RowSchedule) and schedule.splits > 1:
        functions, constants, workspace = emit_split(nest, schedule)
    else:
        functions, constants = emit_rows(nest, schedule)
    strategy = schedule.describe()
    cuda = assemble(nest, functions, constants, strategy, workspace > 0, packed_tensors(nest, schedule))
    names = tuple(function.name for function in functions)
    return KernelSource(nest.name, cuda, binding_text(nest, workspace, False), names, len(functions), workspace, strategy)


def _empty(nest: CanonicalNest) -> KernelSource:
    """Returns the source of a kernel whose results have no elements: tensors are checked and nothing is launched."""
    parameters = ", ".join(pointer_parameters(nest, False))
    cuda = "\n".join([
        f"// {nest.name}: its results have no elements, so there is nothing to launch.", "", "#include <cuda_runtime.h>", "",
        f'extern "C" int {nest.name}_launch({parameters}) {{ return static_cast<int>(cudaSuccess); }}', "",
    ])  # fmt: skip
    return KernelSource(nest.name, cuda, binding_text(nest, 0, True), (), 0, 0, "nothing to launch")
