"""Describes a kernel's profile in words: a sentence, a few lines for a model, a page for a person.

Figures that were not measured are left out. It decides nothing.
Where to look next: `tools/profile/kernel_profile.py` (the records, and what bounds a kernel).
"""

from __future__ import annotations

from collections.abc import Iterable

from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.tools.profile.kernel_profile import STALLS, KernelProfile, RuleResult, SourceLine

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))
_MESSAGE = 300                             # characters of a rule's message that are shown
_RULES = 3                                 # of ncu's that a person is shown


def bottleneck(profile: KernelProfile) -> str:
    """Returns one sentence on what bounds the kernel and by how much."""
    name = base_name(profile.name)
    if profile.bound is None:
        return f"{name}: its throughputs were not measured"
    roofline = profile.roofline
    figures = f"{_part('memory', roofline.memory_percent)}, {_part('multiprocessors', roofline.sm_percent)} of their peak"
    return f"{name} is bound by {profile.bound}: {profile.limiter} ({figures})"


def for_model(profile: KernelProfile, *, rules: int = 2, lines: int = 3) -> tuple[str, ...]:
    """Returns short lines with what a rewrite could act on, at most `rules` of ncu's findings and `lines` source lines."""
    roofline, occupancy = profile.roofline, profile.occupancy
    memory = (
        _part("DRAM", roofline.dram_percent),
        _part("L2", roofline.l2_percent),
        f"{_scaled(profile.dram_gbs * 1e9)}B/s" if profile.dram_gbs is not None else "",
        _part("L1 hits", profile.l1_hit_percent),
        _part("L2 hits", profile.l2_hit_percent),
    )
    work = (
        f"{_scaled(roofline.flops)}flop/s" if roofline.flops is not None else "",
        f"{roofline.intensity:.2f} flop/byte" if roofline.intensity is not None else "",
        _part("tensor pipes", profile.tensor_percent),
    )
    warps = (
        _part("achieved", occupancy.achieved),
        _part("possible", occupancy.theoretical),
        f"limited by {' and '.join(occupancy.limited_by)}" if occupancy.limited_by else "",
    )
    waits = (f"{100 * stall.share:.0f} % for {STALLS.get(stall.reason, stall.reason)}" for stall in profile.stalls[:3])
    return (
        bottleneck(profile),
        *_line("launch", _launch(profile)),
        *_line("memory", memory),
        *_line("arithmetic", work),
        *_line("occupancy", warps),
        *_line("warps wait", waits),
        *(_source(hot) for hot in profile.lines[:lines]),
        *(_rule(rule) for rule in profile.rules[:rules]),
    )


def for_person(profile: KernelProfile) -> str:
    """Returns a page for a terminal; `--json` has all figures."""
    more = len(profile.rules) - _RULES
    share = f", {100 * profile.share:.0f} % of the device time" if profile.share is not None else ""
    origin = f" ({profile.origin}{share})" if profile.origin else ""
    return "\n".join((
        f"{profile.name}{origin}",
        *(f"  {line}" for line in for_model(profile, rules=_RULES, lines=5)),
        *([f"  {more} more of ncu's rules: --json has them"] if more > 0 else []),
    ))  # fmt: skip


def _launch(profile: KernelProfile) -> tuple[str, ...]:
    return (
        f"{profile.duration_us:.2f} us" if profile.duration_us is not None else "",
        f"grid {'x'.join(map(str, profile.grid))}" if profile.grid is not None else "",
        f"block {'x'.join(map(str, profile.block))}" if profile.block is not None else "",
        f"{profile.registers} registers" if profile.registers is not None else "",
        f"{profile.shared_bytes} bytes shared" if profile.shared_bytes else "",
    )


def _source(hot: SourceLine) -> str:
    return f"{hot.file}:{hot.line}: {100 * hot.share:.0f} % {hot.stall}: {hot.text}".rstrip(": ")


def _rule(rule: RuleResult) -> str:
    gain = f" (ncu's estimate: {rule.speedup_percent:.0f} %)" if rule.speedup_percent is not None else ""
    message = rule.message if len(rule.message) <= _MESSAGE else rule.message[:_MESSAGE].rsplit(" ", 1)[0] + " ..."
    return f"ncu: {rule.title + ': ' if rule.title else ''}{message}{gain}"


def _line(title: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Returns one line, or () if none of its parts was measured."""
    text = ", ".join(part for part in parts if part)
    return (f"{title}: {text}",) if text else ()


def _part(title: str, percent: float | None) -> str:
    return f"{title} {percent:.0f} %" if percent is not None else ""


def _scaled(value: float) -> str:
    return next((f"{value / scale:.2f} {letter}" for scale, letter in _SCALES if value >= scale), f"{value:.2f} ")
