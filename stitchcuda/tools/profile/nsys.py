"""Profiles a whole program for a session: a sentence, a few lines, and the whole profile.

Where to look next: `tools/profile/profiling.py` (how it is measured, and with what), `tools/profile/profile_text.py` (the
words), `tools/profile/ncu.py`.
"""

from __future__ import annotations

from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.state import ProfileResult
from stitchcuda.tools.profile import profile_text, profiling
from stitchcuda.tools.profile.runner import Runner
from stitchcuda.tools.profile.system_profile import SystemProfile


def profile_system(program: Path | None, judge: Runner) -> tuple[ProfileResult, SystemProfile | None]:
    """Measures where the time of one warm call of the program goes, or of the reference if `program` is None.

    Returns the lines for a session and the whole profile. `skipped`: why there is none (None then); `why`: why it does not come
    from Nsight Systems.
    """
    try:
        profile = profiling.system_profile(judge, program)
    except Unavailable as why:
        return ProfileResult(tool="nsys", skipped=str(why)), None
    head, lines = profile_text.bottleneck(profile), profile_text.lines(profile)
    return ProfileResult(tool="nsys", source=profile.source, why=profile.why, bottleneck=head, lines=lines), profile
