"""Stands in for the tools on a machine without the session's device: raises `DevicePending` for whatever needs it.

So a laptop can read replies and write the next requests, and only building, checking and timing need the machine with the GPU.
Compiling for a coder's look works here.

Where to look next: `nodes/local_tools.py` (the tools on the device's machine), `sessions/running.py` (chooses).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from stitchcuda.errors import DevicePending
from stitchcuda.state import BuildResult, CheckResult, DeviceFacts, ProfileResult, SanitizerResult, TimingResult
from stitchcuda.tools.build.nvcc import build
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.client import ReferenceFacts
from stitchcuda.verify.reference.baselines import BaselineTimes

ELSEWHERE = "elsewhere"
NOT_THERE = "(By the compiler of another machine than the one that runs programs: headers that are missing here may be there.)"


class RemoteTools:
    """Implements `SessionTools` (`nodes/context.py`) with the device facts of the baseline and this machine's compiler."""

    def __init__(self, facts: DeviceFacts, cache: Path) -> None:
        self._facts, self._cache = facts, cache

    def device(self) -> DeviceFacts:
        return self._facts

    def compile(self, program: Path) -> BuildResult:
        found = build(program, arch=self._facts.arch, cache=self._cache, link=False, machine=True)
        return found if found.ok else found.model_copy(update={"log": f"{found.log.rstrip()}\n{NOT_THERE}"})

    def study(self) -> ReferenceFacts:
        self._wait()

    def build(self, program: Path) -> BuildResult:
        self._wait()

    def build_many(self, programs: Sequence[Path]) -> list[BuildResult]:
        self._wait()

    def check(self, program: Path, seeds: int) -> CheckResult:
        self._wait()

    def check_many(self, programs: Sequence[Path], seeds: int) -> list[CheckResult]:
        self._wait()

    def verify(self, program: Path, seeds: int) -> CheckResult:
        self._wait()

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        self._wait()

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        self._wait()

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        self._wait()

    def sanitize(self, program: Path) -> SanitizerResult:
        self._wait()

    def baselines(self) -> BaselineTimes:
        self._wait()

    def close(self) -> None:
        return

    def _wait(self) -> NoReturn:
        where = self._facts.name if self._facts.target == "cuda" else "the simulator (--device sim)"
        raise DevicePending(f"{where}: resume it on a machine that has it")
