"""Builds many programs at once: as many compilers as the machine bears, nothing twice, one program's errors its own.

It runs nothing of what it builds and gives no verdicts; it fills the cache from which a judge's builder is served.
Where to look next: `tools/build/nvcc.py` (one program), `tools/build/compilers.py` (turns).
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
    """All programs in their order as `nvcc.build` makes them, with at most `jobs` compilers at once (None: what the machine
    bears); `link` and `machine` are its own.

    What cannot be read is a result that is not `ok`.
    Raises `Unavailable` where nothing can be built at all, such as on a full disk, when those under way have ended.
    """
    number = jobs or compilers.bearable()

    def build_program(program: Path) -> BuildResult:
        try:
            if not program.exists():
                raise BadInput(f"there is no program {program}")
            return nvcc.build(program, arch=arch, cache=cache, link=link, machine=machine)
        except (BadInput, OSError, UnicodeError) as error:
            return BuildResult(ok=False, log=f"{program.name}: error: {error}")

    # Twice as many programs as compilers are under way, so that none of them waits for hashing or linking.
    with compilers.at_most(number), ThreadPoolExecutor(2 * number) as pool:
        waiting = [pool.submit(build_program, program) for program in programs]
        try:
            return [future.result() for future in waiting]
        finally:
            for future in waiting:
                future.cancel()
