"""Experiences as lines that a prompt or a person can read. Pure formatting: it leaves out no refusal and claims no speed that
was not timed. The table of `stitchcuda memory list` is made of the same parts."""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.counts import counted
from stitchcuda.memory.experience import Experience, SimilarExperience
from stitchcuda.memory.lesson import Situation, plain
from stitchcuda.state import Tier

SHOWN_OPERATORS = 6
SHOWN_REASONS = 2
TIERS: tuple[Tier, ...] = ("measured", "timed", "simulated", "compiled")


def as_text(recalled: Sequence[SimilarExperience], *, notes: bool = False) -> str:
    """One line for each, in the given order; "" for none. With `notes`, the coder's own words too."""
    return "\n".join(f"- {line(found.experience, notes=notes)}" for found in recalled)


def line(experience: Experience, *, notes: bool = False) -> str:
    """Situation: strategy: predicted, measured, and how often it was accepted."""
    best = experience.best
    said = f" ({best.note.rstrip('.')})" if notes and best.note else ""
    return f"{place(experience)}: {way(experience)}{said}: {figures(experience)}, {record(experience)}."


def place(experience: Experience) -> str:
    """Such as "layer_norm + gelu at [4096, 1024] float16 on NVIDIA H100 (sm_90a)"."""
    situation = experience.best.situation
    tensors = [f"at {list(tensor.shape)} {tensor.dtype}" for tensor in situation.tensors[:1]]
    devices = " or ".join(sorted({lesson.situation.device for lesson in experience.lessons} - {""}))
    where = f"on {devices}" if devices else "on an unknown device"
    precision = [] if situation.precision == "reference" else [f"in {situation.precision}"]
    arch = [f"({situation.arch})"] if situation.arch else []
    return " ".join([operators(situation), *tensors, *precision, where, *arch])


def operators(situation: Situation) -> str:
    """Such as "add ×2 + layer_norm"; of many, the first and how many more."""
    named = [f"{plain(name)} ×{count}" if count > 1 else plain(name) for name, count in situation.operators]
    more = len(named) - SHOWN_OPERATORS
    if more > 1:
        named = [*named[:SHOWN_OPERATORS], f"{more} more kinds"]
    return " + ".join(named) or "no operators"


def way(experience: Experience) -> str:
    """What was done: the strategy, after the task's title where that says more."""
    best = experience.best
    if best.kind == "host" and best.strategy:
        return f"{best.title}, {best.strategy.rstrip('.')}"
    return (best.strategy or best.title).rstrip(".")


def figures(experience: Experience) -> str:
    """Predicted and measured savings; of several lessons medians, and all their intervals together."""
    predicted = f"predicted {milliseconds(experience.predicted_ms)}"
    if experience.saving_ms is None:
        return f"{predicted}, not timed"
    return f"{predicted}, measured {measured(experience)}"


def measured(experience: Experience) -> str:
    """Such as "0.10 (0.09 to 0.11) ms"; "-" where nothing was timed."""
    saving, interval = experience.saving_ms, experience.interval_ms
    if saving is None:
        return "-"
    if interval is None:
        return milliseconds(saving)
    unit, scale = ("ms", 1.0) if abs(saving) >= 0.01 else ("µs", 1e3)
    low, high = interval
    return f"{saving * scale:.3g} ({low * scale:.3g} to {high * scale:.3g}) {unit}"


def record(experience: Experience) -> str:
    """How often it was accepted, by which tier of evidence, and why it was refuted."""
    tried = len(experience.lessons)
    seen = {lesson.tier for lesson in experience.lessons}
    tiers = ", ".join(tier for tier in TIERS if tier in seen)
    told = f"accepted {experience.accepted} of {counted(tried, 'time')}" + (f" ({tiers})" if tiers else "")
    if experience.accepted < tried and experience.reasons:
        told += f"; refuted: {'; '.join(reason.rstrip('.') for reason in experience.reasons[:SHOWN_REASONS])}"
    return told


def milliseconds(value: float) -> str:
    return f"{value:.3g} ms" if abs(value) >= 0.01 or value == 0 else f"{value * 1e3:.3g} µs"
