"""Builds many programs at once, with as many compilers as cores and memory allow; one program's errors stop no other.

It runs nothing of what it builds and gives no verdicts. It fills the cache that a judge's builder reads.
Where to look next: `tools/build/nvcc.py` (one program), `tools/build/compilers.py` (how many compilers run at once).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stitchcuda.errors import BadInput
from stitchcuda.state import BuildResult
from stitchcuda.tools.build import compilers, nvcc


def build_many(
    programs: Sequence[Path],
    *,
    arch: str,
    cache: Path,
    jobs: int | None = None,
    link: bool = True,
    machine: bool = False,
) -> list[BuildResult]:
    """Returns what `nvcc.build` returns for each program, in their order; `link` and `machine` are its arguments.

    At most `jobs` compilers run at once; None: as many as `compilers.default_jobs` says. A program that cannot be read gives a
    result that is not `ok`. Raises `Unavailable` where nothing can be built at all, such as on a full disk, once the builds
    that had started are done.
    """
    number = jobs or compilers.default_jobs()

    def build_program(program: Path) -> BuildResult:
        try:
            if not program.exists():
                raise BadInput(f"there is no program {program}")
            return nvcc.build(program, arch=arch, cache=cache, link=link, machine=machine)
        except (BadInput, OSError, UnicodeError) as error:
            return BuildResult(ok=False, log=f"{program.name}: error: {error}")

    # Twice as many threads as compilers, so that no compiler waits while a program is hashed or linked.
    with compilers.limit(number), ThreadPoolExecutor(2 * number) as pool:
        waiting = [pool.submit(build_program, program) for program in programs]
        try:
            return [future.result() for future in waiting]
        finally:
            for future in waiting:
                future.cancel()
