"""What leaving kernels out, and the device's own trace, add to a check: kernels that do nothing, names that are borrowed.

Pure functions on what others found. Where to look next: `skipping.py` (who leaves kernels out), `origin.py` (whose kernel ran),
`verify.py` (policies on the shares).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.state import CheckResult, KernelRole
from stitchcuda.tools import origin
from stitchcuda.tools.skipping import Skipped


def judged(check: CheckResult, skipped: Skipped, traced: Mapping[str, int]) -> CheckResult:
    """The check with what was found; refused when a kernel is idle or a kernel's name is not its own.

    `traced` are launches of own kernels by full name in the device's trace; empty on the simulator.
    """
    roles = tuple(KernelRole(name=one.name, role=one.status, note=one.why) for one in skipped.kernels)
    reasons = (*skipped.reasons, *(origin.borrowed(traced, dict(skipped.counted)) if traced else ()))
    return check.model_copy(
        update={
            "ok": check.ok and not reasons,
            "reasons": (*check.reasons, *reasons),
            "kernels": roles,
            "notes": (*check.notes, *skipped.notes),
        }
    )
