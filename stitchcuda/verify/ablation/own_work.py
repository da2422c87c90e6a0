"""What leaving kernels out, and the device's own trace, add to a check: kernels that do nothing, names that are borrowed.

Own work is then what kernels do that were shown to be needed: none that are undecided, whatever they hold. On a GPU they are
weighed by their time; the simulator does not know bytes by kernel, there launches weigh. What has no switch cannot be left out,
which is no fault of its own: it counts, and a note says so.
Pure functions on what others found. Where to look next: `verify/ablation/ablation.py` (who leaves kernels out),
`verify/integrity/device_time.py` (whose kernel ran), `verify/api.py` (policies on the shares).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.state import CheckResult, KernelRole
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.verify.ablation.ablation import AblationResult, base
from stitchcuda.verify.integrity import device_time


def judged(
    check: CheckResult, skipped: AblationResult, traced: Mapping[str, int], times: Mapping[str, int] | None = None
) -> CheckResult:
    """The check with what was found; refused when a kernel is idle or a kernel's name is not its own.

    `traced` are launches of own kernels by full name in the device's trace, `times` what they took; empty on the simulator.
    """
    roles = tuple(KernelRole(name=kernel.name, role=kernel.status, note=kernel.why) for kernel in skipped.kernels)
    reasons = (*skipped.reasons, *(device_time.find_borrowed_names(traced, dict(skipped.counted)) if traced else ()))
    needed, notes = _needed(check, skipped, times or {})
    return check.model_copy(
        update={
            "own_share": needed * check.own_share,
            "ok": check.ok and not reasons,
            "reasons": (*check.reasons, *reasons),
            "kernels": roles,
            "notes": (*check.notes, *skipped.notes, *notes),
        }
    )


def _needed(check: CheckResult, skipped: AblationResult, times: Mapping[str, int]) -> tuple[float, list[str]]:
    """(share of the own work that kernels do which are needed, notes)."""
    run = [kernel for kernel in skipped.kernels if kernel.launches]
    if not run:
        unknown = check.own_share > 0 and not skipped.reasons
        return 1.0, ["limited: no kernel could be left out: whether they are needed is not known"] * unknown
    lacking = [kernel for kernel in run if kernel.status != "needed"]
    notes = []
    if times:
        known, lost = {base(kernel.name) for kernel in run}, {base(kernel.name) for kernel in lacking}
        blind = [name for name in times if base_name(name) not in known]
        total, missing = sum(times.values()), sum(took for name, took in times.items() if base_name(name) in lost)
        if blind:
            names = ", ".join(dict.fromkeys(map(base_name, blind[:6])))
            notes.append(f"limited: without a switch and so never left out, but counted as needed: {names}")
    else:
        total, missing = sum(kernel.launches for kernel in run), sum(kernel.launches for kernel in lacking)
    share = 1.0 - missing / total if total else 1.0
    if missing:
        notes.append(f"of its own kernels' work {share:.0%} is in kernels that are known to be needed; the rest does not count")
    return share, notes
