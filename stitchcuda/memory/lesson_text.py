"""Formats experiences as lines for prompts and people, and as cells of the table of `stitchcuda memory list`.

Refutations are never left out, and a saving that was not timed is called predicted. Pure formatting.

Where to look next: `memory/experience.py` (what is formatted), `nodes/lessons.py` (prompts), `cli/memory.py` (the table).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.counts import counted
from stitchcuda.memory.experience import Experience, SimilarExperience
from stitchcuda.memory.lesson import Situation, plain_operator
from stitchcuda.state import Tier

SHOWN_OPERATORS = 6
SHOWN_REASONS = 2
TIERS: tuple[Tier, ...] = ("measured", "timed", "simulated", "compiled")


def describe_experiences(recalled: Sequence[SimilarExperience], *, notes: bool = False) -> str:
    """Returns one line for each experience, in the given order; "" for none. `notes` adds the coder's notes."""
    return "\n".join(f"- {describe_experience(found.experience, notes=notes)}" for found in recalled)


def describe_experience(experience: Experience, *, notes: bool = False) -> str:
    """Returns one line: situation, strategy, predicted and measured saving, and how often it was accepted."""
    best = experience.best
    own_words = f" ({best.note.rstrip('.')})" if notes and best.note else ""
    tried = f"{situation_text(experience)}: {strategy_text(experience)}{own_words}"
    return f"{tried}: {savings_text(experience)}, {outcome_text(experience)}."


def situation_text(experience: Experience) -> str:
    """Returns the situation, such as "layer_norm + gelu at [4096, 1024] float16 on NVIDIA H100 (sm_90a)"."""
    situation = experience.best.situation
    tensors = [f"at {list(tensor.shape)} {tensor.dtype}" for tensor in situation.tensors[:1]]
    devices = " or ".join(sorted({lesson.situation.device for lesson in experience.lessons} - {""}))
    where = f"on {devices}" if devices else "on an unknown device"
    precision = [] if situation.precision == "reference" else [f"in {situation.precision}"]
    arch = [f"({situation.arch})"] if situation.arch else []
    return " ".join([operators(situation), *tensors, *precision, where, *arch])


def operators(situation: Situation) -> str:
    """Returns the operators, such as "add ×2 + layer_norm"; of many only the first SHOWN_OPERATORS and how many more."""
    named = [f"{plain_operator(name)} ×{count}" if count > 1 else plain_operator(name) for name, count in situation.operators]
    more = len(named) - SHOWN_OPERATORS
    if more > 1:
        named = [*named[:SHOWN_OPERATORS], f"{more} more kinds"]
    return " + ".join(named) or "no operators"


def strategy_text(experience: Experience) -> str:
    """Returns the strategy; for a host-side task its title before it; the title where there is no strategy."""
    best = experience.best
    if best.kind == "host" and best.strategy:
        return f"{best.title}, {best.strategy.rstrip('.')}"
    return (best.strategy or best.title).rstrip(".")


def savings_text(experience: Experience) -> str:
    """Returns predicted and measured savings: medians over the lessons, and the union of their intervals."""
    predicted = f"predicted {milliseconds(experience.predicted_ms)}"
    if experience.saving_ms is None:
        return f"{predicted}, not timed"
    return f"{predicted}, measured {measured_text(experience)}"


def measured_text(experience: Experience) -> str:
    """Returns the measured saving, such as "0.10 (0.09 to 0.11) ms"; "-" where nothing was timed."""
    saving, interval = experience.saving_ms, experience.interval_ms
    if saving is None:
        return "-"
    if interval is None:
        return milliseconds(saving)
    unit, scale = ("ms", 1.0) if abs(saving) >= 0.01 else ("µs", 1e3)
    low, high = interval
    return f"{saving * scale:.3g} ({low * scale:.3g} to {high * scale:.3g}) {unit}"


def outcome_text(experience: Experience) -> str:
    """Returns how often it was accepted, the tiers of evidence, and why it was refuted."""
    tried = len(experience.lessons)
    seen = {lesson.tier for lesson in experience.lessons}
    tiers = ", ".join(tier for tier in TIERS if tier in seen)
    text = f"accepted {experience.accepted} of {counted(tried, 'time')}" + (f" ({tiers})" if tiers else "")
    if experience.accepted < tried and experience.reasons:
        text += f"; refuted: {'; '.join(reason.rstrip('.') for reason in experience.reasons[:SHOWN_REASONS])}"
    return text


def milliseconds(value: float) -> str:
    return f"{value:.3g} ms" if abs(value) >= 0.01 or value == 0 else f"{value * 1e3:.3g} µs"
