"""Formats an attempt's evidence as text to act on: compile errors with their lines, wrong outputs with their size.

Pure formatting: nothing is judged, and of what was measured only resources of kernels that a draft did not touch are left out.
What is too long is cut in `engineers/prompt.py`.

Where to look next: `state.py` (Evidence), `engineers/prompt.py` (shows this text), `engineers/tokens.py` (cuts logs).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from stitchcuda.counts import counted
from stitchcuda.engineers import Files
from stitchcuda.engineers.program_excerpts import changed_files
from stitchcuda.state import (
    BuildResult,
    CheckResult,
    Evidence,
    KernelUsage,
    OutputError,
    ProfileResult,
    Settings,
    Tier,
    TimingResult,
)
from stitchcuda.verify.policy import policy_reasons

HEADERS = (".cuh", ".h", ".hpp")
RACE_ACCESSES = 500_000  # of a kernel in a call, among which the simulator looks for races (kMost in its access_check.h)


def describe_evidence(evidence: Evidence, *, limits: bool = True) -> str:
    """Returns the results of all tools, in the order in which they ran, one finding a line. `limits`: with what a check of its
    tier never looks for."""
    parts = [describe_build(evidence.build)]
    if evidence.check is not None:
        parts.append(describe_check(evidence.check, limits=limits))
    if evidence.timing is not None:
        parts.append(describe_timing(evidence.timing))
    parts += [_profile(profile) for profile in (evidence.system, evidence.kernels) if profile is not None]
    return "\n".join(part for part in parts if part)


def without_untouched(evidence: Evidence, before: Files, after: Files) -> Evidence:
    """Returns the evidence without the resources of kernels that are, by their names, in files of `after` only that are as in
    `before`. Everything stays where no file or a header differs."""
    changed = changed_files(before, after)
    if not changed or any(path.endswith(HEADERS) for path in changed):
        return evidence
    touched = "\n".join(changed.values())
    untouched = "\n".join(text for path, text in after.items() if isinstance(text, str) and path not in changed)

    def is_shown(kernel: KernelUsage) -> bool:
        names = re.findall(r"\w+(?=[<(])", kernel.name) or re.findall(r"\w+", kernel.name)
        return any(re.search(rf"\b{name}\b", touched) for name in names) or not all(name in untouched for name in names)

    build = evidence.build
    shown = tuple(kernel for kernel in build.kernels if is_shown(kernel))
    if len(shown) == len(build.kernels):
        return evidence
    note = f"{counted(len(build.kernels) - len(shown), 'kernel')} of files that the draft did not change left out"
    return evidence.model_copy(update={"build": build.model_copy(update={"kernels": shown, "notes": (*build.notes, note)})})


def describe_build(build: BuildResult) -> str:
    """Returns one build as text: the compiler's log if it failed, else registers, shared memory and spills by kernel."""
    if build.skipped:
        return f"Build: skipped ({build.skipped})."
    if not build.ok:
        return f"Build: failed.\n```\n{build.log.strip()}\n```"
    lines = ["Build: ok."]
    for kernel, name in zip(build.kernels, _short([kernel.name for kernel in build.kernels]), strict=True):
        line = f"- {name}: {kernel.registers} registers, {kernel.shared_bytes} B shared"
        if kernel.spill_bytes or kernel.stack_bytes:
            line += f", {kernel.spill_bytes} B spilled, {kernel.stack_bytes} B stack"
        lines.append(f"{line}; {kernel.machine}" if kernel.machine else line)
    return "\n".join([*lines, *(f"- {note}" for note in build.notes)])


def _short(names: Sequence[str]) -> list[str]:
    """Kernels' names without return type, anonymous namespace and arguments, where these do not tell two of them apart."""
    plain = [re.sub(r"^void |\(anonymous namespace\)::", "", name) for name in names]
    short = [re.sub(r"\([^()]*\)$", "", name) for name in plain]
    return [brief if short.count(brief) == 1 else whole for brief, whole in zip(short, plain, strict=True)]


def describe_check(check: CheckResult, *, limits: bool = True) -> str:
    """Returns a check as text: correct or not, why, each output with its error, shares of the work. `limits`: with what a check
    of its tier never looks for."""
    where = "on the CPU simulator" if check.tier == "simulated" else "on the GPU"
    if check.tier == "compiled":
        where = "(nothing ran)"
    head = f"Check {where}, {counted(check.seeds, 'secret input set')}: {'correct' if check.ok else 'NOT correct'}."
    lines = [head, *(f"- {reason}" for reason in check.reasons)]
    told = [output for output in check.outputs if output.note and any(output.note in reason for reason in check.reasons)]
    outputs = [output for output in check.outputs if output.max_bound or output not in told]  # others say no more than a reason
    lines += [_output(output) for output in sorted(outputs, key=lambda output: (output.ok, -_excess(output)))]
    if check.own_share or check.vendor_share or check.framework_share:
        shares = (
            f"Shares of work: own kernels {check.own_share:.0%}, vendor libraries {check.vendor_share:.0%}, "
            f"framework {check.framework_share:.0%}"
        )
        first = not check.ok and check.seeds <= 1  # it may have been seen in its first call only, which warms up and records
        lines.append(f"{shares}." if first else f"{shares}; {counted(check.launches, 'own launch')} a call.")
    if check.deterministic is False:
        lines.append("Two runs on the same inputs differ: it is not deterministic.")
    unchecked = (*check.notes, *describe_unchecked(check.tier)) if check.ok and limits else check.notes
    lines += [f"- {note}" if note.startswith("limited: ") else f"- not checked: {note}" for note in unchecked]
    return "\n".join(lines)


def describe_strictness(settings: Settings, check: CheckResult) -> str:
    """Returns lines that say what policy `strict` will refuse in a program that is correct so far; "" if nothing."""
    return "".join(f"\n- the last check will refuse it as it is: {reason}" for reason in strict_reasons(settings, check))


def strict_reasons(settings: Settings, check: CheckResult) -> tuple[str, ...]:
    """Returns why policy `strict` will refuse a program that is correct so far; () if it will not."""
    return policy_reasons(Path(), "strict", check)[0] if settings.policy == "strict" and check.ok else ()


def describe_unchecked(tier: Tier, *, sanitized: bool = False) -> tuple[str, ...]:
    """Returns what a check of this tier never looks for, a sentence each. `sanitized`: compute-sanitizer ran as well."""
    shapes = "inputs of other shapes or dtypes than get_inputs() gives"
    if tier == "compiled":
        return ()
    if tier == "simulated":
        return (
            f"races of a kernel behind its first {RACE_ACCESSES:,} accesses in a call, and in device memory where a kernel has "
            "memory fences; volatile and atomic accesses count as ordered (any other race refuses a program, with the line)",
            "values read before they are written, unless they reach an output: new memory holds NaN",
            shapes,
        )
    memory = "races, accesses out of bounds and shared memory read before it is written: nothing looks for them on a GPU here"
    return (shapes,) if sanitized else (memory, shapes)


def _excess(output: OutputError) -> float:
    return output.max_error / output.max_bound if output.max_bound > 0 else output.max_error


def _output(output: OutputError) -> str:
    if not output.max_bound:               # nothing could be measured (shape, type, NaN), or it must be exact
        return f"- {output.name}: {'ok, exact' if output.ok else f'WRONG, {output.note}'}"
    if output.ok:
        norm = f", in norm {output.norm_error / output.norm_bound:.1%}" if output.norm_bound > 0 else ""
        return f"- {output.name}: ok, its worst error is {_excess(output):.1%} of what is allowed{norm}"
    times = f", {_excess(output):,.1f} times too much" if output.max_bound < output.max_error else ""
    line = f"- {output.name}: WRONG, worst error {output.max_error:.3g} (allowed {output.max_bound:.3g}{times})"
    line += f", error in norm {output.norm_error:.3g} (allowed {output.norm_bound:.3g})"
    return line + (f"; {output.note}" if output.note else "")


def describe_timing(timing: TimingResult) -> str:
    """Returns times of one call: the program, the one before it, eager; and the saving with its interval."""
    lines = [
        f"Time: {timing.program_ms:.4g} ms; the program before it {timing.previous_ms:.4g} ms, "
        f"eager {timing.reference_ms:.4g} ms ({timing.speedup:.2f}× over eager).",
        f"Saved against the program before it: {timing.saving_ms:.4g} ms "
        f"(95 % interval {timing.saving_low_ms:.4g} to {timing.saving_high_ms:.4g}, {timing.samples} samples, {timing.clock}).",
    ]
    return "\n".join([*lines, *(f"- {note}" for note in timing.notes)])


def _profile(profile: ProfileResult) -> str:
    if profile.skipped:
        return f"{profile.tool}: skipped ({profile.skipped})."
    head = f"{profile.tool}: {profile.bottleneck}" if profile.bottleneck else f"{profile.tool}:"
    return "\n".join([head, *(f"- {line}" for line in profile.lines)])
