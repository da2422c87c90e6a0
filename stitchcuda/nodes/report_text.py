"""A session's summary as Markdown: what was done, what it rests on, and what was left out. Pure text from records.

Every figure states its tier; what nothing timed is called a prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stitchcuda.nodes.attempt_figures import missing
from stitchcuda.nodes.final_check import gone_on_from
from stitchcuda.nodes.prediction import Prediction, prediction
from stitchcuda.state import Attempt, Baseline, Evidence, State, TimingResult, Usage
from stitchcuda.store import mended
from stitchcuda.verify.reference import baselines
from stitchcuda.verify.reference.baselines import BaselineTimes

if TYPE_CHECKING:
    from stitchcuda.nodes.context import Context

RESTS_ON = {
    "measured": "measured on a GPU, with hardware counters",
    "timed": "timed on a GPU",
    "simulated": "kernels ran on the CPU simulator; every time here is a prediction",
    "compiled": "the compiler accepted it, nothing ran",
}


def summary(state: State, context: Context, history: tuple[Attempt, ...]) -> str:
    baseline, final = state["baseline"], state.get("final")
    assert baseline is not None
    kept = state.get("tasks_kept", ())
    tier = final.tier if final else None
    lines = [
        f"# {context.name}",
        "",
        f"- reference: {context.record.reference_name}",
        f"- precision: {context.settings.precision}; policy: {context.settings.policy}",
        f"- device: {baseline.device.name} ({'measured' if baseline.device.measured else 'nominal figures'})",
        f"- tier: {f'{tier}: {RESTS_ON[tier]}' if tier else 'none: nothing was kept'}",
        f"- tasks: {len(kept)} kept of {len(state.get('tasks_done', ()))} finished; {state.get('attempts', 0)} attempts",
        f"- ended: {state.get('stop_reason')}",
        *([f"- spent: {spent(state.get('usage', Usage()), history)}"] if state.get("usage", Usage()).calls else []),
        *_times(state, context, history),
        "",
        *_attempts(context, history),
    ]
    if final and final.check:
        shares = final.check
        share_of = "bytes" if tier == "simulated" else "device time"
        lines += [
            f"The last verification used {shares.seeds} fresh secret input sets: correct. Shares of {share_of}: own kernels "
            f"{shares.own_share:.0%}, vendor libraries {shares.vendor_share:.0%}, framework {shares.framework_share:.0%}.",
            *(f"Not accepted: {reason}." for reason in shares.reasons),
            "",
        ]
        if digest := state.get("baselines"):
            found = context.load(BaselineTimes, digest)
            lines += ["## Baselines", "", "```", baselines.text(found).rstrip(), "```", ""]
    lines += _profiles(context, baseline, final, history)
    notes = state.get("notes", ())
    if notes:
        lines += ["## Notes", "", *(f"- {note}" for note in notes), ""]
    if damage := mended(context.workspace.store, context.name):
        lines += ["## What was damaged, and mended", "", *(f"- {text}" for text in damage), ""]
    return "\n".join(lines)


def over_start(timing: TimingResult) -> str:
    """What a chat model gained over the program that it went on from, timed side by side."""
    gain = timing.previous_ms / timing.program_ms if timing.program_ms else 0.0
    interval = f"95 % interval {timing.saving_low_ms:.4f} to {timing.saving_high_ms:.4f}"
    return (
        f"over what the built-in engineer had: {timing.previous_ms:.4f} ms → {timing.program_ms:.4f} ms, {gain:.2f}x; saved "
        f"{timing.saving_ms:.4f} ms ({interval})"
    )


def spent(usage: Usage, history: tuple[Attempt, ...]) -> str:
    """Calls, tokens and money of chat models, and what each of their accepted tasks has cost."""
    writers = {attempt.engineer for attempt in history if attempt.engineer not in ("", "builtin")}
    accepted = len({attempt.task for attempt in history if attempt.kept and attempt.engineer in writers})
    text = f"{usage.calls} calls, {usage.input_tokens:,} tokens read and {usage.output_tokens:,} written"
    if usage.usd is None:
        text += ", at a price that is not known"
        each = f"{(usage.input_tokens + usage.output_tokens) // accepted:,} tokens" if accepted else ""
    else:
        text += f", ${usage.usd:.2f}"
        each = f"${usage.usd / accepted:.2f}" if accepted else ""
    return text + (f": {each} for each of {accepted} accepted tasks" if each else ": none of their tasks was accepted")


def _profiles(context: Context, baseline: Baseline, final: Evidence | None, history: tuple[Attempt, ...]) -> list[str]:
    """Where the time goes before and after, what the counters and compute-sanitizer say, and who did not look and why."""
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
        lines += [f"- programs: {one}" for one in missing(context.load(Evidence, one.evidence) for one in history)]
    found = final.sanitizer if final else None
    if found is not None:
        told = [
            *(f"found by {one}" for one in (*found.errors, *found.warnings)), *(f"note on {one}" for one in found.notes),
            *(f"skipped: {one}" for one in found.skipped),
        ]  # fmt: skip
        clean = f"- compute-sanitizer ({', '.join(found.tools)}): nothing wrong" if found.clean else "- compute-sanitizer:"
        lines += [clean, *(f"  - {one}" for one in told)]
    return ["## Where the time goes", "", *lines, ""] if lines else []


def _times(state: State, context: Context, history: tuple[Attempt, ...]) -> list[str]:
    baseline, final = state["baseline"], state.get("final")
    assert baseline is not None
    if final and final.timing:
        timing = final.timing
        ratio = f"{timing.speedup:.2f}x ({final.tier}, {timing.clock})"
        lines = [f"- time: {timing.reference_ms:.4f} ms → {timing.program_ms:.4f} ms, {ratio}"]
        return lines + ([f"- {over_start(timing)}"] if gone_on_from([one for one in history if one.kept]) else [])
    predicted = prediction(context.workspace.store, state, history)
    if predicted is None:
        return ["- prediction: none, for the reference could not be captured"]
    return [f"- prediction: {predicted_text(predicted, baseline)}"]


def predicted_text(predicted: Prediction, baseline: Baseline) -> str:
    """A prediction with what it rests on."""
    ceilings = "measured" if baseline.device.measured else "nominal"
    light = f"speed of light {baseline.floor_ms:.4f} ms, {ceilings} ceilings"
    return f"{predicted}, by the cost model; {light}; torch.compile is not predicted"


def _attempts(context: Context, history: tuple[Attempt, ...]) -> list[str]:
    if not history:
        return []
    lines = ["| attempt | task | correct | kept | predicted saving | measured saving | route | why |", "|---" * 8 + "|"]
    for a in history:
        saved = "not timed" if a.saving_ms is None else f"{a.saving_ms:.4f} ms"
        why = (a.diagnosis or a.route_reason).replace("|", "\\|")
        lines.append(
            f"| {a.id[:8]} | {a.task} | {'yes' if a.correct else 'no'} | {'yes' if a.kept else 'no'} "
            f"| {'claims ' if a.claimed else ''}{a.predicted_ms:.4f} ms | {saved} | {a.route} | {why} |"
        )
    return [*lines, ""]
