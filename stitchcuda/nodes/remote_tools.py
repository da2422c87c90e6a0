"""Stands in for the tools on a machine without the session's device: raises `DevicePending` for whatever needs it.

So a laptop can read replies and write the next requests, and only building, checking and timing need the machine with the GPU.
Compiling for a coder's look works here.

Where to look next: `nodes/local_tools.py` (the tools on the device's machine), `sessions/running.py` (chooses).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from stitchcuda.errors import DevicePending
from stitchcuda.state import BuildResult, DeviceFacts
from stitchcuda.tools.build.nvcc import build
from stitchcuda.tools.build.simulated_build import compile_simulated

ELSEWHERE = "elsewhere"
NOT_THERE = "(By the compiler of another machine than the one that runs programs: headers that are missing here may be there.)"


class RemoteTools:
    """Implements `SessionTools` (`nodes/context.py`) with the device facts of the baseline and this machine's compiler."""

    def __init__(self, facts: DeviceFacts, cache: Path) -> None:
        self._facts, self._cache = facts, cache

    def device(self) -> DeviceFacts:
        return self._facts

    def compile(self, program: Path) -> BuildResult:
        if self._facts.target == "sim":
            return compile_simulated(program, cache=self._cache)
        found = build(program, arch=self._facts.arch, cache=self._cache, link=False, machine=True)
        return found if found.ok else found.model_copy(update={"log": f"{found.log.rstrip()}\n{NOT_THERE}"})

    def close(self) -> None:
        return

    def _wait(self, *_: Any, **__: Any) -> NoReturn:
        where = self._facts.name if self._facts.target == "cuda" else "the simulator (--device sim)"
        raise DevicePending(f"{where}: resume it on a machine that has it")

    study = build = build_many = check = check_many = verify = time = _wait
    profile_system = profile_kernels = sanitize = baselines = _wait
