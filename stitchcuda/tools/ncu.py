"""The kernels' view: hardware counters per kernel through Nsight Compute. It measures nothing where counters cannot be read.

Where to look next: `nsys.py` (which kernel to look at).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from stitchcuda.state import ProfileResult
from stitchcuda.tools import device
from stitchcuda.tools.check import Judge


def profile_kernels(program: Path, judge: Judge) -> ProfileResult:
    """Counters of the program's own kernels. Skipped, with the reason, until a verdict needs more than device times."""
    if device.gpu() is None:
        return ProfileResult(tool="ncu", skipped="no GPU on this machine")
    if shutil.which("ncu") is None:
        return ProfileResult(tool="ncu", skipped="Nsight Compute (ncu) is not on the PATH; the system profile has kernel times")
    why = "hardware counters are not read by this version; the system profile has kernel times"
    return ProfileResult(tool="ncu", skipped=why)
