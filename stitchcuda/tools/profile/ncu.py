"""Profiles a program's kernels for a session: a sentence, lines for each kernel, and the whole profiles.

Where to look next: `tools/profile/profiling.py` (how it is measured), `tools/profile/kernel_profile.py` (what is decided),
`tools/profile/kernel_text.py` (the words).
"""

from __future__ import annotations

from pathlib import Path

from stitchcuda.state import ProfileResult
from stitchcuda.tools.profile import kernel_text, profiling
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.runner import Runner
from stitchcuda.tools.profile.system_profile import SystemProfile


def profile_kernels(program: Path, judge: Runner, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
    """Reads hardware counters of the kernels that take the most time in `system`; `skipped` says why there are none.

    Returns the lines for a session and the whole profiles, which are None if skipped.
    """
    if system is None:
        return ProfileResult(tool="ncu", skipped="without a system profile it is not known which kernels to look at"), None
    counted = profiling.kernel_profiles(judge, program, system)
    if counted.skipped:
        return ProfileResult(tool="ncu", skipped=counted.skipped), None
    lines = tuple(line for kernel in counted.kernels for line in kernel_text.for_model(kernel))
    head = kernel_text.bottleneck(counted.kernels[0]) if counted.kernels else ""
    return ProfileResult(tool="ncu", source="ncu", bottleneck=head, lines=(*lines, *counted.notes)), counted
