"""Writes a session's results as labelled sentences (for every kind of report) and as `report.md`.

Every figure states its tier; a time that was not measured is called a prediction. Pure text from records.

Where to look next: `cli/summary.py` (the same sentences on the command line), `report/report_facts.py` (on the page).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stitchcuda.counts import counted
from stitchcuda.engineers.diagnosis import describe_unchecked
from stitchcuda.engineers.plan_tree import plan_tree_text
from stitchcuda.engineers.review_findings import missing_reviews, open_defects, open_suggestions
from stitchcuda.nodes.attempt_figures import list_skipped_tools
from stitchcuda.nodes.final_check import starting_program
from stitchcuda.nodes.prediction import Prediction, predict_program
from stitchcuda.state import (
    Attempt,
    Baseline,
    CheckResult,
    Evidence,
    Plan,
    Review,
    Settings,
    State,
    Tier,
    TimingResult,
    Usage,
)
from stitchcuda.store import list_repairs
from stitchcuda.verify.reference.baseline_times import BaselineTimes, format_table

if TYPE_CHECKING:
    from stitchcuda.nodes.context import Context

RESTS_ON = {                               # tier → what figures of that tier rest on
    "measured": "measured on a GPU, with hardware counters",
    "timed": "timed on a GPU",
    "simulated": "kernels ran on the CPU simulator; every time here is a prediction",
    "compiled": "the compiler accepted it, nothing ran",
}


def report_markdown(state: State, context: Context, history: tuple[Attempt, ...]) -> str:
    """Returns the text of `report.md`: facts, attempts, baselines, profiles, notes."""
    baseline, final = state["baseline"], state.get("final")
    assert baseline is not None
    tier, timing = (final.tier, final.timing) if final else (None, None)
    predicted = predict_program(context.workspace.store, state, history)
    labelled = session_facts(state, context.settings, history, tier, timing, predicted)
    lines = [
        f"# {context.name}",
        "",
        f"- reference: {context.record.reference_name}",
        *(f"- {label}: {text}" for label, text in labelled),
        f"- ended: {state.get('stop_reason')}",
        "",
        *_plan_tree(state, context, history),
        *_attempts(context, history),
    ]
    if final and final.check:
        check = final.check
        lines += [
            f"Shares of {_work(check)}: own kernels {check.own_share:.0%}, vendor libraries {check.vendor_share:.0%}, "
            f"framework {check.framework_share:.0%}.",
            *(f"Not accepted: {reason}." for reason in check.reasons),
            "",
        ]
        if digest := state.get("baselines"):
            found = context.load(BaselineTimes, digest)
            lines += ["## Baselines", "", "```", format_table(found).rstrip(), "```", ""]
    lines += _profiles(context, baseline, final, history)
    lines += _findings(context, history, final)
    notes = state.get("notes", ())
    if notes:
        lines += ["## Notes", "", *(f"- {note}" for note in notes), ""]
    if damage := list_repairs(context.workspace.store, context.name):
        lines += ["## What was damaged, and mended", "", *(f"- {text}" for text in damage), ""]
    return "\n".join(lines)


def session_facts(
    state: State,
    settings: Settings,
    history: Sequence[Attempt],
    tier: Tier | None,
    timing: TimingResult | None,
    predicted: Prediction | None,
) -> list[tuple[str, str]]:
    """Returns (label, text) pairs on a session's results so far. `tier`, `timing` and `predicted` are of its best program."""
    baseline, final = state.get("baseline"), state.get("final")
    kept, finished = len(state.get("tasks_kept", ())), len(state.get("tasks_done", ()))
    return [
        ("tier", f"{tier}: {RESTS_ON[tier]}" if tier else "none: nothing was kept"),
        *_times(state, history, tier, timing, predicted),
        *([("rests on", verdict_grounds(final, final.check, settings.precision))] if final and final.check else []),
        ("precision", settings.precision),
        ("policy", settings.policy),
        *([("device", f"{baseline.device.name} ({_ceilings(baseline)} figures)")] if baseline else []),
        ("tasks", f"{kept} kept of {finished} finished"),
        ("attempts", str(len(history))),
        ("engineer", settings.model),
        ("cost", _cost(state.get("usage", Usage()), history)),
    ]


def verdict_grounds(final: Evidence, check: CheckResult, precision: str) -> str:
    """Returns what the verdict on the final program rests on: seeds, worst error, precision, share of own kernels, tier."""
    worst = max(check.outputs, key=lambda output: output.max_error / (output.max_bound or 1.0), default=None)
    error = f", worst error {worst.max_error:.2g} of {worst.max_bound:.2g} allowed" if worst and worst.max_bound else ""
    return (
        f"{counted(check.seeds, 'fresh secret input set')} against float64{error}; precision {precision}; own kernels hold "
        f"{check.own_share:.0%} of {_work(check)}{f' ({check.label})' if check.label else ''}, tier {final.tier}"
    )


def speedup_interval(timing: TimingResult | None) -> str:
    """Returns the 95 % interval of the speed-up; "" where it is unknown."""
    if timing is None or not timing.ratio_low or not timing.ratio_high:
        return ""
    return f"95 % interval {timing.ratio_low:.2f}× to {timing.ratio_high:.2f}×"


def gain_over_start(timing: TimingResult) -> str:
    """Returns what a chat model gained over the built-in engineer's program, timed side by side."""
    gain = timing.previous_ms / timing.program_ms if timing.program_ms else 0.0
    interval = f"95 % interval {timing.saving_low_ms:.4f} to {timing.saving_high_ms:.4f}"
    return (
        f"over what the built-in engineer had: {timing.previous_ms:.4f} ms → {timing.program_ms:.4f} ms, {gain:.2f}x; saved "
        f"{timing.saving_ms:.4f} ms ({interval})"
    )


def describe_spending(usage: Usage, history: Sequence[Attempt]) -> str:
    """Returns calls, tokens and money of chat models, and what each task that they wrote and that was kept cost."""
    writers = {attempt.engineer for attempt in history if attempt.engineer not in ("", "builtin")}
    accepted = len({attempt.task for attempt in history if attempt.kept and attempt.engineer in writers})
    calls = f"{counted(usage.calls, 'call')} of chat models"
    text = f"{calls}, {usage.input_tokens:,} tokens read and {usage.output_tokens:,} written"
    if usage.usd is None:
        text += " (the model's price is not known, so no sum of money is given)"
        each = f"{(usage.input_tokens + usage.output_tokens) // accepted:,} tokens" if accepted else ""
    else:
        text += f", ${usage.usd:.2f}"
        each = f"${usage.usd / accepted:.2f}" if accepted else ""
    if not each:
        return f"{text}; no task that they wrote is in the program so far"
    return f"{text}; {each} for {'the one task' if accepted == 1 else f'each of {accepted} tasks'} of theirs in the program"


def _profiles(context: Context, baseline: Baseline, final: Evidence | None, history: tuple[Attempt, ...]) -> list[str]:
    """Returns the section on profiles of reference and program, compute-sanitizer's findings, and what did not run and why."""
    shown = [("reference", baseline.system)]
    lines = []
    if final:
        shown += [("program", final.system), ("its kernels", final.kernels)]
    for what, profile in shown:
        if profile is None:
            continue
        if profile.skipped:
            lines += [f"- {what}: not profiled: {profile.skipped}"]
            continue
        why = f" (in place of {profile.tool}: {profile.why})" if profile.why else ""
        lines += [f"- {what}, by {profile.source}{why}: {profile.bottleneck}", *(f"  - {line}" for line in profile.lines)]
    if not final:
        skipped = list_skipped_tools(context.load(Evidence, attempt.evidence) for attempt in history)
        lines += [f"- programs: {entry}" for entry in skipped]
    found = final.sanitizer if final else None
    if found is not None:
        findings = [
            *(f"found by {entry}" for entry in (*found.errors, *found.warnings)),
            *(f"note on {entry}" for entry in found.notes),
            *(f"skipped: {entry}" for entry in found.skipped),
        ]  # fmt: skip
        clean = f"- compute-sanitizer ({', '.join(found.tools)}): nothing wrong" if found.clean else "- compute-sanitizer:"
        lines += [clean, *(f"  - {entry}" for entry in findings)]
    return ["## Where the time goes", "", *lines, ""] if lines else []


def _findings(context: Context, history: Sequence[Attempt], final: Evidence | None) -> list[str]:
    """Returns the sections on what reviews found and nobody acted on, and on what the last verification does not look for."""
    reviewed = [(attempt, context.load(Review, attempt.review)) for attempt in history]
    sanitized = bool(final and final.sanitizer and final.sanitizer.tools)
    sections = {
        "Defects that reviews named and nobody repaired": open_defects(reviewed),
        "Reviews that are missing": missing_reviews(reviewed),
        "Suggestions that nobody followed": open_suggestions(reviewed),
        "Not looked for": describe_unchecked(final.check.tier, sanitized=sanitized) if final and final.check else (),
    }
    return [
        line for title, found in sections.items() if found for line in (f"## {title}", "", *(f"- {text}" for text in found), "")
    ]


def _times(
    state: State, history: Sequence[Attempt], tier: Tier | None, timing: TimingResult | None, predicted: Prediction | None
) -> list[tuple[str, str]]:
    """Returns the facts on a call's time before and after: timed, else a prediction by the cost model."""
    baseline = state.get("baseline")
    if timing and tier in ("measured", "timed"):
        times = f"{timing.reference_ms:.4f} ms → {timing.program_ms:.4f} ms ({tier}, {timing.clock})"
        gain = ", ".join(filter(None, [f"{timing.speedup:.2f}×", speedup_interval(timing)]))
        shown = [("time of a call", times), ("over eager", gain)]
        if state.get("final") and starting_program([attempt for attempt in history if attempt.kept]):
            shown.append(("of that", gain_over_start(timing)))
        return shown
    if baseline is None or predicted is None:
        return []
    light = f"speed of light {baseline.floor_ms:.4f} ms, {_ceilings(baseline)} ceilings"
    return [("prediction", f"{predicted}, by the cost model; {light}; torch.compile is not predicted")]


def _ceilings(baseline: Baseline) -> str:
    return "measured" if baseline.device.measured else "nominal"


def _work(check: CheckResult) -> str:
    """Returns what the shares of kernels are shares of: device time, or bytes on the simulator."""
    return "device time" if check.tier in ("measured", "timed") else "bytes"


def _cost(usage: Usage, history: Sequence[Attempt]) -> str:
    money = describe_spending(usage, history) if usage.calls else "no chat model was asked"
    gpu = f", {usage.gpu_s:.0f} s on the GPU" if usage.gpu_s else ""
    return f"{money}; {usage.wall_s / 60:.1f} minutes{gpu}"


def _plan_tree(state: State, context: Context, history: tuple[Attempt, ...]) -> list[str]:
    """Returns the section on the plans' branches: what was expected of each, what it gave, and why it was left."""
    plans = [context.load(Plan, digest) for digest in state.get("plans", ())]
    tree = plan_tree_text(plans, history, state.get("tasks_done", ()))
    lines = [line if line.startswith("- ") else f"\n{line}\n" for line in tree.splitlines()]
    return ["## Plan tree", *lines, ""] if tree else []


def _attempts(context: Context, history: tuple[Attempt, ...]) -> list[str]:
    if not history:
        return []
    lines = ["| attempt | task | correct | kept | predicted saving | measured saving | route | why |", "|---" * 8 + "|"]
    for a in history:
        saved = "not timed" if a.saving_ms is None else f"{a.saving_ms:.4f} ms"
        predicted = f"{'claims ' if a.claimed else ''}{a.predicted_ms:.4f} ms" if a.predicted_ms or not a.claimed else "none"
        why = (a.diagnosis or a.route_reason).replace("|", "\\|")
        lines.append(
            f"| {a.id[:8]} | {a.task} | {'yes' if a.correct else 'no'} | {'yes' if a.kept else 'no'} "
            f"| {predicted} | {saved} | {a.route} | {why} |"
        )
    return [*lines, ""]
