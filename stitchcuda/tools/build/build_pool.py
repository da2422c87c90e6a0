"""Many programs built at once: as many compilers as the machine bears, nothing twice, one program's errors its own.

It runs nothing of what it builds and gives no verdicts; it fills the cache from which a judge's builder is served.
Where to look next: `tools/build/nvcc.py` (one program), `tools/build/compilers.py` (turns), `tools/build/masks.py` (switches).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stitchcuda.errors import BadInput
from stitchcuda.state import BuildResult
from stitchcuda.tools.build import compilers, masks, nvcc, program_sources


def build_many(
    programs: Sequence[Path],
    *,
    arch: str,
    cache: Path,
    jobs: int | None = None,
    switches: bool = False,
    link: bool = True,
    machine: bool = False,
) -> list[BuildResult]:
    """All programs in their order as `nvcc.build` makes them, with at most `jobs` compilers at once (None: what the machine
    bears); `link` and `machine` are its own.

    `switches`: each library once more with a switch for each kernel, as a final check wants it. Such a build that fails is
    told in the `log` of a result that is `ok`: the program itself was built. What cannot be read is a result that is not.
    Raises `Unavailable` where nothing can be built at all, such as on a full disk, when those under way have ended.
    """
    number = jobs or compilers.bearable()

    def one(program: Path) -> BuildResult:
        try:
            if not program.exists():
                raise BadInput(f"there is no program {program}")
            if switches:
                return _switched(program, arch, cache)
            return nvcc.build(program, arch=arch, cache=cache, link=link, machine=machine)
        except (BadInput, OSError, UnicodeError) as error:
            return BuildResult(ok=False, log=f"{program.name}: error: {error}")

    # Twice as many programs as compilers are under way, so that none of them waits for hashing or linking.
    with compilers.at_most(number), ThreadPoolExecutor(2 * number) as pool:
        waiting = [pool.submit(one, program) for program in programs]
        try:
            return [future.result() for future in waiting]
        finally:
            for future in waiting:
                future.cancel()


def _switched(program: Path, arch: str, cache: Path) -> BuildResult:
    started = time.monotonic()
    plain = nvcc.build(program, arch=arch, cache=cache, link=True)
    if not plain.ok or plain.skipped:
        return plain
    made = with_switches(program, arch=arch, cache=cache)
    return plain.model_copy(update={
        "seconds": time.monotonic() - started,
        "cached": plain.cached and all(one.cached for one in made),
        "log": "\n".join(f"with switches: {one.log}" for one in made if one.path is None),
    })  # fmt: skip


def with_switches(program: Path, *, arch: str, cache: Path) -> list[nvcc.Library]:
    """The program's libraries with switches, file by file those that its builder makes (`verify/program/builder_worker.py`)."""
    root, folder = program.resolve(), cache.resolve() / "masked"
    made = []
    for group in program_sources.groups(program_sources.sources(root)):
        sources, _ = masks.masked_files(group, folder=folder, within=root)
        made.append(nvcc.library(sources, arch=arch, cache=cache, root=root, cuda_includes=(root, folder)))
    return made
