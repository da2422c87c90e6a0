"""Compiles a program's CUDA for the CPU simulator, for its errors: what a coder's `compile` shows where programs run there.

The libraries lie in the cache of the judge's own builds, so a draft that was compiled here is not compiled again. Nothing is
loaded or run. A construct that the simulator cannot run is an error with its line.

Where to look next: `simulator/build.py` (compiles), `tools/build/nvcc.py` (the compiler for GPUs).
"""

from __future__ import annotations

import time
from pathlib import Path

from stitchcuda.errors import BadInput
from stitchcuda.simulator.build import build_simulated
from stitchcuda.simulator.compile import CompileError
from stitchcuda.simulator.unsupported import Unsupported
from stitchcuda.state import BuildResult
from stitchcuda.tools.build import program_sources
from stitchcuda.tools.build.nvcc import nothing_to_build


def compile_simulated(program: Path, *, cache: Path) -> BuildResult:
    """Compiles every CUDA source of a program's folder with its binding, but for torch extensions. Errors are in the result's
    `log`, one library after the other. Raises `Unavailable` without a C++ compiler."""
    started = time.monotonic()
    program = program.resolve()
    sources = program_sources.sources(program)
    groups = program_sources.groups(sources, program)
    if not any(path.suffix == ".cu" for group in groups for path in group):
        return BuildResult(ok=True, skipped=nothing_to_build(program, sources))
    failed = []
    for group in groups:
        try:
            build_simulated(group, name=group[0].stem, cache=cache / "simulator", within=(program,))
        except CompileError as error:
            failed.append(error.log.strip() or str(error))
        except (BadInput, Unsupported) as error:
            failed.append(f"error: {error}")
    return BuildResult(ok=not failed, seconds=time.monotonic() - started, log="\n".join(failed).replace(f"{program}/", ""))
