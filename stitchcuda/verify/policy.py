"""Decides by whose work is in a correct program whether a policy accepts it: `stitched` or `strict`. Pure functions of records.

`stitched`: its own kernels hold `OWN_SHARE` of the work, or, on a GPU, they are needed, save device time and the program is
faster for certain (label "small own share"), or a host-side task that it declares was seen at work. `strict`: torch's operators
do no more than `FRAMEWORK_SHARE` of the work, whoever's kernels they launch. It measures nothing.
Where to look next: `verify/api.py` (verdicts), `verify/judge/correctness.py` and `verify/judge/program_check.py` (who fill in
the shares), `TimingResult.faster_for_certain` in `state.py`, `docs/verification.md` (the rules for readers).
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.errors import BadInput
from stitchcuda.state import CheckResult, Policy, TimingResult

OWN_SHARE = 0.05                           # "stitched": from this share on, own kernels are asked for no gain
HOST_BYTES = 1024                          # device memory that the host may touch in a call: for sizes, flags, a scalar
HOST_SHARE = 0.01                          # or so much of what the reference moves
EXCHANGED = 0.8                            # if other library kernels do more of the replaced work, a gain is needed
BESIDE = 0.5                               # the most time of such kernels beside a small share, in times of own kernels
_NAMED = 3                                 # operators that a reason names
FRAMEWORK_SHARE = 0.02                     # "strict": copies and fills around the kernels are allowed


def apply_policy(program: Path, policy: Policy, check: CheckResult, timing: TimingResult | None = None) -> CheckResult:
    """Returns the check with the policy's reasons and label; a check that failed is returned as it is. A timing that is refused
    counts as none."""
    if not check.ok:
        return check
    timing = None if timing and timing.refused else timing
    reasons, label = policy_reasons(program, policy, check, timing)
    return check.model_copy(update={"ok": not reasons, "reasons": (*check.reasons, *reasons), "label": label})


def policy_reasons(
    program: Path, policy: Policy, check: CheckResult, timing: TimingResult | None = None
) -> tuple[tuple[str, ...], str]:
    """Returns (why the policy refuses the program, its label: "host-only", "small own share" or ""). Failures of its kernels
    that the program caught come first among the reasons.

    Without a timing, a program for a GPU is refused only for what no timing could change. Raises `BadInput` for a declaration
    of host-side tasks that cannot be read.
    """
    reasons, label = _judge_shares(program, policy, check, timing)
    return ((*check.caught, *reasons) if reasons else ()), label


def _judge_shares(
    program: Path, policy: Policy, check: CheckResult, timing: TimingResult | None
) -> tuple[tuple[str, ...], str]:
    if check.host_bytes > max(HOST_BYTES, HOST_SHARE * check.whole):
        touched = f"{check.host_bytes} bytes of device memory are touched by the host in one call"
        return (f"policy {policy}: {touched}: it computes there",), ""
    if check.host_share > OWN_SHARE:
        return (f"policy {policy}: {check.host_share:.0%} of device time are copies to the host: it computes there",), ""
    if policy == "strict":
        return _strict(check), ""
    short = _short(check, timing)
    if not short:
        return (), ""
    needed = any(kernel.role == "needed" for kernel in check.kernels)
    declared = host_tasks(program)
    slower = timing is not None and timing.speedup <= 1.0
    if set(declared) & set(check.host_seen) and not slower:
        return (), "small own share" if needed else "host-only"
    doubt = _doubt(check, timing) if needed else ""
    if needed and not doubt:
        return (), "small own share"
    doubt = "" if "gains nothing" in short else doubt
    if not declared:
        return (f"{short} where no host-side task is declared{doubt}",), ""
    if not set(declared) & set(check.host_seen):
        return (f"{short}: the host-side task it declares ({', '.join(declared)}) was not seen at work{doubt}",), ""
    assert timing is not None
    return (f"{short}: the host-side task it declares gains nothing ({timing.speedup:.2f}x)",), ""


def _strict(check: CheckResult) -> tuple[str, ...]:
    framework = check.framework_share + check.vendor_by_torch
    if check.elsewhere:                    # copies at a replayed graph's boundary are not counted
        framework -= check.boundary / check.elsewhere * (check.framework_share + check.vendor_share)
    if framework <= FRAMEWORK_SHARE:
        return ()
    lent = f", {check.vendor_by_torch:.0%} in libraries' kernels that torch calls" if check.vendor_by_torch else ""
    return (
        f"policy strict: {framework:.0%} of the work is in framework operators{lent}{_largest(check)}: write kernels for it, "
        "or call cuBLASLt and cuDNN from the program's own C++",
    )


def _largest(check: CheckResult) -> str:
    """Names the operators (on a GPU their kernels) that do most of what torch does, with their lines; "" if none is known."""
    amounts: Counter[str] = Counter()
    for step in check.steps:
        if step.who == "framework" or (step.who == "vendor" and check.vendor_by_torch):
            amounts[f"{step.name} in {step.line}" if step.line else step.name] += step.amount
    return f" ({', '.join(name for name, _ in amounts.most_common(_NAMED))})" if amounts else ""


def _short(check: CheckResult, timing: TimingResult | None) -> str:
    """Returns "" if own kernels do enough of the work to be asked for no certain gain, else a sentence on what is missing."""
    taken = 1.0 - (check.elsewhere - check.boundary) / check.whole if check.whole else 1.0
    if check.tier != "simulated":
        taken = check.replaced
    if check.own_share < OWN_SHARE:
        return f"policy stitched: own kernels hold {check.own_share:.1%} of the work and {OWN_SHARE:.0%} are needed"
    if taken < OWN_SHARE:
        return (
            f"policy stitched: what libraries and framework do in a call is {1 - taken:.0%} of the reference's whole work, so "
            f"its own kernels take over less than {OWN_SHARE:.0%} of it"
        )
    if timing is not None and timing.speedup <= 1.0 and check.exchanged > EXCHANGED:
        return (
            f"policy stitched: the work was exchanged: library kernels that the reference does not run take "
            f"{check.exchanged:.0%} of the time of those that are gone, and the program gains nothing ({timing.speedup:.2f}x), "
            "so that its own kernels take over nothing that can be seen"
        )
    return ""


def _doubt(check: CheckResult, timing: TimingResult | None) -> str:
    """Why needed kernels of a small share do not suffice, as the end of a sentence; "" if they do, or if a timing has to say.

    Own kernels have to take less device time than library kernels take no longer, so a copy of what torch computed does not
    count. Library kernels that only the program runs could be what saves the time, so they may take little beside its own.
    """
    if check.tier == "simulated":
        return (
            "; the simulator times nothing: on a GPU (--device cuda) a smaller share is accepted if the kernels are needed and "
            "the program is faster for certain"
        )
    elsewhere = check.vendor_share + check.framework_share
    own = check.own_share * check.elsewhere / elsewhere if elsewhere else 0.0
    saved = check.replaced * check.whole   # ns of library kernels that are gone, less those that came
    came = saved * check.exchanged / (1.0 - check.exchanged) if check.exchanged < 1.0 else saved
    if saved <= own:
        return f"; they take {own / 1e6:.4f} ms of device time, and library kernels only {saved / 1e6:.4f} ms less than before"
    if came > BESIDE * own:
        return (
            f"; the work was exchanged: library kernels that the reference does not run take {came / 1e6:.4f} ms, its own "
            f"{own / 1e6:.4f} ms, so that what is saved may be saved by those"
        )
    if timing is None or timing.faster_for_certain:
        return ""
    return f"; with less it has to be faster for certain, and its slowest timing shows {timing.certain_ratio:.3f}x at least"


def host_tasks(program: Path) -> tuple[str, ...]:
    """Returns the host-side tasks that a folder declares in program.json, or a file as `HOST_TASKS = ["cuda_graph"]`. Raises
    `BadInput` for a declaration that is no list of names."""
    if program.is_file():
        return _tasks_in_file(program)
    manifest = program / "program.json"
    if not manifest.is_file():
        return ()
    try:
        declared = json.loads(manifest.read_text(errors="replace")).get("host", [])
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{manifest} is not a program's manifest: {error}") from error
    if not isinstance(declared, list) or not all(isinstance(task, str) for task in declared):
        raise BadInput(f'{manifest} is not a program\'s manifest: "host" is no list of names')
    return tuple(declared)


def _tasks_in_file(program: Path) -> tuple[str, ...]:
    try:
        statements = parse_module(program.read_bytes()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()                          # a file that does not load is refused elsewhere
    found = [
        statement.value for statement in statements
        if isinstance(statement, ast.Assign) and [getattr(target, "id", "") for target in statement.targets] == ["HOST_TASKS"]
    ]  # fmt: skip
    if not found:
        return ()
    tasks = [getattr(task, "value", None) for task in getattr(found[-1], "elts", [None])]
    if not isinstance(found[-1], ast.List | ast.Tuple) or not all(isinstance(task, str) for task in tasks):
        raise BadInput(f'{program} declares its host-side tasks in no list of names: write HOST_TASKS = ["cuda_graph"]')
    return tuple(map(str, tasks))
