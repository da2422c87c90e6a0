"""Runs the tools of this machine (nvcc, judge, profilers) for one session's reference: what the tool nodes call.

The judge is started on first use and runs until `close`; device facts are measured once. It only forwards calls, of one
thread at a time (`Context.looking`).

Where to look next: `verify/client.py` (the judge), `tools/build/nvcc.py`, `tools/profile/profiling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from stitchcuda.state import BuildResult, CheckResult, DeviceFacts, ProfileResult, SanitizerResult, Settings, TimingResult
from stitchcuda.tools.build.build_pool import build_many
from stitchcuda.tools.build.nvcc import build
from stitchcuda.tools.build.simulated_build import compile_simulated
from stitchcuda.tools.device.device import device_facts
from stitchcuda.tools.profile.memory_errors import sanitize
from stitchcuda.tools.profile.ncu import profile_kernels
from stitchcuda.tools.profile.nsys import profile_system
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.client import Judge
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.reference.baseline_times import BaselineTimes
from stitchcuda.verify.reference.baselines import time_baselines


class LocalTools:
    """Implements `SessionTools` (`nodes/context.py`) with nvcc, the judge and the profilers of this machine."""

    def __init__(self, reference: Path, settings: Settings, *, cache: Path) -> None:
        self._reference, self._settings, self._cache = reference, settings, cache

    def device(self) -> DeviceFacts:
        return self._facts

    @cached_property
    def _facts(self) -> DeviceFacts:
        return device_facts(self._settings.target, predict_for=self._settings.predict_for, measure=True)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self._reference, self._settings, cache=self._cache, arch=self.device().arch)

    def study(self) -> ReferenceFacts:
        return self._judge.baseline()

    def build(self, program: Path) -> BuildResult:
        link = self._settings.target == "cuda"
        return build(program, arch=self.device().arch, cache=self._cache, link=link, machine=True)

    def build_many(self, programs: Sequence[Path]) -> list[BuildResult]:
        link = self._settings.target == "cuda"
        return build_many(programs, arch=self.device().arch, cache=self._cache, link=link, machine=True)

    def compile(self, program: Path) -> BuildResult:
        if self._settings.target == "sim":
            return compile_simulated(program, cache=self._cache)
        return build(program, arch=self.device().arch, cache=self._cache, link=False, machine=True)

    def check(self, program: Path, seeds: int) -> CheckResult:
        return self._judge.check(program, seeds=seeds)

    def check_many(self, programs: Sequence[Path], seeds: int) -> list[CheckResult]:
        return self._judge.check_many(programs, seeds=seeds)

    def verify(self, program: Path, seeds: int) -> CheckResult:
        return self._judge.verify_final(program, seeds=seeds)

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        if self._settings.target != "cuda":
            return None
        return self._judge.time(program, previous, twice=twice)

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        return profile_system(program, self._judge)

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        return profile_kernels(program, self._judge, system)

    def sanitize(self, program: Path) -> SanitizerResult:
        return sanitize(program, self._judge)

    def baselines(self) -> BaselineTimes:
        return time_baselines(self._reference, precision=self._settings.precision)

    def close(self) -> None:
        judge = self.__dict__.pop("_judge", None)  # absent if it was never started
        if judge is not None:
            judge.close()
