"""Counts as own work only needed kernels, and refuses idle kernels and kernels with a borrowed name.

Own work is then only what kernels do that were shown to be needed. On a GPU kernels are weighed by their time, on the simulator
by their launches. A kernel without a switch cannot be left out, which is no fault of the
program: it counts as needed, and a note says so. These are pure functions.
Where to look next: `verify/ablation/ablation.py` (who leaves kernels out), `verify/integrity/device_time.py` (whose kernel
ran), `verify/policy.py` (policies on the shares).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.state import CheckResult, KernelRole
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.verify.ablation.ablation import AblationResult, traced_name
from stitchcuda.verify.integrity import device_time


def apply_ablation(
    check: CheckResult, ablated: AblationResult, traced: Mapping[str, int], times: Mapping[str, int] | None = None
) -> CheckResult:
    """Returns the check with the kernels' roles and its own share lowered; refused if a kernel is idle or its name borrowed.

    `traced`: launches of own kernels by full name in the GPU's trace, `times`: their nanoseconds; empty on the simulator.
    """
    roles = tuple(KernelRole(name=kernel.name, role=kernel.status, note=kernel.why) for kernel in ablated.kernels)
    reasons = (*ablated.reasons, *(device_time.find_borrowed_names(traced, dict(ablated.counted)) if traced else ()))
    needed, notes = _needed_share(check, ablated, times or {})
    return check.model_copy(
        update={
            "own_share": needed * check.own_share,
            "ok": check.ok and not reasons,
            "reasons": (*check.reasons, *reasons),
            "kernels": roles,
            "notes": (*check.notes, *ablated.notes, *notes),
        }
    )


def _needed_share(check: CheckResult, ablated: AblationResult, times: Mapping[str, int]) -> tuple[float, list[str]]:
    """Returns (share of the own work that is done by needed kernels, notes)."""
    run = [kernel for kernel in ablated.kernels if kernel.launches]
    if not run:
        if not check.own_share or ablated.reasons:
            return 1.0, []
        switched = {traced_name(kernel.name) for kernel in ablated.kernels}
        if switched and all(base_name(name) in switched for name in times):
            return 0.0, ["its kernels ran in the call whose work was measured, but in none of the calls without a kernel"]
        return 1.0, ["limited: no kernel could be left out: whether they are needed is not known"]
    others = [kernel for kernel in run if kernel.status != "needed"]
    notes = []
    if times:
        known, lost = {traced_name(kernel.name) for kernel in run}, {traced_name(kernel.name) for kernel in others}
        blind = [name for name in times if base_name(name) not in known]
        total, missing = sum(times.values()), sum(took for name, took in times.items() if base_name(name) in lost)
        if blind:
            names = ", ".join(dict.fromkeys(map(base_name, blind[:6])))
            notes.append(f"limited: without a switch and so never left out, but counted as needed: {names}")
    else:
        total, missing = sum(kernel.launches for kernel in run), sum(kernel.launches for kernel in others)
    share = 1.0 - missing / total if total else 1.0
    if missing:
        notes.append(f"of its own kernels' work {share:.0%} is in kernels that are known to be needed; the rest does not count")
    return share, notes
