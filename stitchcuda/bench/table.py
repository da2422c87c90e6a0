"""Computes a benchmark's figures from its results, and prints them as Markdown or JSON.

Figures are over the problems that can be judged: those that are broken are named and counted apart. A problem without a correct
program counts as 1.0 in means over all, since its user would go on with what there was; a correct program is left out of the
figures against a baseline that was not timed for it. It judges nothing and reads no session.
Where to look next: `bench/results.py` (the results), `bench/page.py` (the same as a page).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from stitchcuda.bench.results import FINAL, Asked, End, Result, RunFolder
from stitchcuda.counts import counted
from stitchcuda.state import Record, Usage
from stitchcuda.verify.reference.baseline_times import MODE_NAMES

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0)
TOLERANCES = {"1e-2": 1e-2, "1e-4": 1e-4}
"""Of published checks: atol and rtol of torch.allclose."""
OURS = "ours"
DISAGREEING = (
    "In brackets: over a baseline whose outputs are outside of the verifier's bound. It counts in \"best, also of those that "
    "disagree\" alone."
)
BOUNDS = (*TOLERANCES, OURS)
BEST, FASTEST = "best", "fastest"
"""The fastest of a problem's baselines that agree with the reference, and of all."""
NAMES: dict[str, str] = {
    **{str(mode): name for mode, name in MODE_NAMES.items()}, BEST: "best baseline",
    FASTEST: "best, also of those that disagree",
}  # fmt: skip


class Row(Record):
    """One problem. `speedups`: of its correct program over each baseline that agrees with the reference, BEST and FASTEST.
    `disagreeing`: over the other baselines."""

    name: str
    correct: bool
    broken: bool
    end: End | None = None                 # None: no result yet
    speedups: dict[str, float] = Field(default_factory=dict)
    disagreeing: dict[str, float] = Field(default_factory=dict)
    predicted: float | None = None
    claimed: float | None = None
    reasons: tuple[str, ...] = ()
    label: str = ""
    tier: str | None = None
    eager_ms: float | None = None
    program_ms: float | None = None
    max_error: float | None = None
    within_bound: bool | None = None
    tolerance: float | None = None
    significand: tuple[float | None, float | None] = (None, None)
    shares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    attempts: int = 0
    seconds: float = 0.0
    usd: float | None = 0.0
    program: str = ""

    @property
    def within(self) -> tuple[str, ...] | None:
        """Names of the BOUNDS that its outputs are within; None if none was compared."""
        if self.within_bound is None:
            return None
        least = math.inf if self.tolerance is None else self.tolerance
        return (*(name for name, most in TOLERANCES.items() if least <= most), *([OURS] if self.within_bound else []))


class Against(Record):
    """What the programs are worth against one baseline. `fast`: share of problems with a correct program that is more than P
    times faster, by P (KernelBench's fast_p). Means are geometric; None where there is nothing to take one of."""

    baseline: str
    timed: int                             # problems whose correct program and baseline were timed
    counted: int                           # these, and those without a correct program
    fast: dict[str, float]
    mean_of_all: float | None
    mean_of_correct: float | None


class BenchTable(Record):
    """All figures of a run."""

    kind: str
    source: str
    path: str
    model: str
    policy: str
    precision: str
    devices: tuple[str, ...]
    total: int
    judged: int                            # problems that can be judged and have a result
    correct: int
    broken: int
    not_judged: int                        # that this machine cannot judge
    missing: int                           # without a result so far
    against: tuple[Against, ...]
    compared: int                          # problems with a program whose outputs were compared
    within: dict[str, int]                 # how many of these are within each of BOUNDS
    predicted_mean: float | None           # geometric mean of predictions over eager, where nothing was timed
    seconds: float
    usage: Usage
    problems: tuple[Row, ...]


def read_table(folder: Path) -> BenchTable:
    """Returns the table of the run in a folder. Raises `BadInput` if there is none, `Damaged` if a result is not as written."""
    run = RunFolder.open(folder)
    asked, results = run.asked(), {**run.unfinished(), **run.results()}
    return make_table(asked, results)


def make_table(asked: Asked, results: Mapping[str, Result]) -> BenchTable:
    differing = any(result.disagreeing for result in results.values())
    rows = tuple(_row(name, results.get(name), differing=differing) for name in asked.problems)
    judged = [row for row in rows if row.end in ("accepted", "refused", "nothing to do")]
    baselines = [name for name in NAMES if any(name in row.speedups for row in rows)]
    predictions = [row.predicted for row in judged if row.correct and row.predicted]
    compared = [row.within for row in rows if row.within is not None]
    return BenchTable(
        kind=asked.kind, source=asked.source, path=asked.path, model=asked.settings.model, policy=asked.settings.policy,
        precision=asked.settings.precision, devices=tuple(dict.fromkeys(r.device for r in results.values() if r.device)),
        total=len(rows), judged=len(judged), correct=sum(row.correct for row in judged),
        broken=sum(row.broken for row in rows), not_judged=sum(row.end == "could not judge" for row in rows),
        missing=sum(row.end not in FINAL for row in rows),
        against=tuple(_against(name, judged) for name in baselines), predicted_mean=geometric_mean(predictions),
        compared=len(compared), within={name: sum(name in found for found in compared) for name in BOUNDS},
        seconds=sum(row.seconds for row in rows), usage=_total(results.values()), problems=rows,
    )  # fmt: skip


def columns_of(tables: Sequence[BenchTable]) -> list[str]:
    """The baselines that any program of the tables was timed against."""
    rows = [row for table in tables for row in table.problems]
    return [name for name in NAMES if any(name in row.speedups or name in row.disagreeing for row in rows)]


def geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _row(name: str, result: Result | None, *, differing: bool) -> Row:
    if result is None:
        return Row(name=name, correct=False, broken=False, reasons=("no result yet",))
    speedups = dict(result.speedups)
    if result.correct and len(speedups) > 1:  # eager alone is no best of several
        speedups[BEST] = min(speedups.values())
    if result.correct and speedups and differing:
        speedups[FASTEST] = min(*speedups.values(), *result.disagreeing.values())
    shared = {
        field: getattr(result, field)
        for field in (
            "end", "correct", "predicted", "claimed", "reasons", "label", "tier", "eager_ms", "program_ms", "max_error",
            "within_bound", "tolerance", "disagreeing", "significand", "shares", "attempts", "seconds", "program",
        )
    }  # fmt: skip
    return Row(name=name, broken=result.end == "broken", speedups=speedups, usd=result.usage.usd, **shared)


def is_faster(row: Row, baseline: str, p: float) -> bool | None:
    """Whether a program is correct and more than `p` times faster than the baseline; None if it is correct and the two were not
    timed. The share of these is KernelBench's fast_p."""
    if row.correct and baseline not in row.speedups:
        return None
    return row.correct and row.speedups[baseline] > p


def _against(baseline: str, judged: Sequence[Row]) -> Against:
    counted = [row for row in judged if is_faster(row, baseline, 0.0) is not None]
    found = [row.speedups.get(baseline) for row in counted]
    timed = [value for value in found if value]
    return Against(
        baseline=baseline, timed=len(timed), counted=len(found),
        fast={f"{p:g}": sum(bool(is_faster(row, baseline, p)) for row in counted) / len(counted) for p in THRESHOLDS},
        mean_of_all=geometric_mean([value or 1.0 for value in found]), mean_of_correct=geometric_mean(timed),
    )  # fmt: skip


def _total(results: Iterable[Result]) -> Usage:
    usages = [result.usage for result in results]
    prices = [usage.usd for usage in usages]
    return Usage(
        calls=sum(usage.calls for usage in usages), input_tokens=sum(usage.input_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages), output_tokens=sum(usage.output_tokens for usage in usages),
        usd=None if None in prices else sum(price or 0.0 for price in prices), gpu_s=sum(usage.gpu_s for usage in usages),
        wall_s=sum(usage.wall_s for usage in usages),
    )  # fmt: skip


def markdown(table: BenchTable) -> str:
    """The table as Markdown: what was run, the figures, and a row for each problem."""
    money = f", {_money(table.usage.usd)}" if table.kind == "run" else ""
    share = f"{table.correct / table.judged:.0%}" if table.judged else "none"
    lines = [
        f"# {table.source}: {table.correct} of {table.judged} correct ({share})", "",
        f"{table.path}; {f'model {table.model}, ' if table.kind == 'run' else ''}policy {table.policy}, precision "
        f"{table.precision}; "
        f"{'; '.join(table.devices) or 'no device'}; {table.total} problems: {table.judged} judged, {table.broken} broken, "
        f"{table.not_judged} that could not be judged, "
        f"{table.missing} without a result. {table.seconds / 60:.0f} minutes of work{money}.", "",
    ]  # fmt: skip
    if table.against:
        lines += [
            f"| against | timed, of | {' | '.join(f'fast_{p:g}' for p in THRESHOLDS)} | geometric mean, all | correct ones |",
            "|---" * (4 + len(THRESHOLDS)) + "|",
        ]
        lines += [
            f"| {NAMES[row.baseline]} | {row.timed} of {row.counted} "
            f"| {' | '.join(f'{value:.0%}' for value in row.fast.values())} | "
            f"{_times(row.mean_of_all)} | {_times(row.mean_of_correct)} |"
            for row in table.against
        ]  # fmt: skip
        lines += ["", "A problem without a correct program counts as 1.0 in the mean of all.", ""]
        if any(row.disagreeing for row in table.problems):
            lines += [f"{DISAGREEING}", ""]
    elif table.predicted_mean:
        lines += [f"Nothing was timed; the cost model's predictions over eager have a mean of {table.predicted_mean:.2f}×.", ""]
    if table.compared:
        lines += [within_sentence(table), ""]
    columns = columns_of([table]) or ["predicted"]
    heads = [NAMES.get(column, column) for column in columns]
    claims = any(row.claimed for row in table.problems)
    lines += [
        f"| problem | outcome |{' claimed |' if claims else ''} {' | '.join(heads)} "
        "| within | bits used / needed | own kernels | s | $ | why |",
        "|---" * (8 + len(columns) + claims) + "|",
    ]
    for row in table.problems:
        values = [speedup_words(row, column) for column in columns]
        bits = " / ".join("-" if value is None else f"{value:.0f}" for value in row.significand)
        why = " ".join("; ".join(row.reasons).split()).replace("|", "/")[:200]
        claimed = f" {_times(row.claimed)} |" if claims else ""
        lines.append(
            f"| {row.name} | {row.end or 'no result yet'} |{claimed} {' | '.join(values)} | "
            f"{within_words(row)} | {bits} | "
            f"{row.shares[0]:.0%} | {row.seconds:.0f} | {_money(row.usd)} | {why} |"
        )
    return "\n".join(lines) + "\n"


def within_sentence(table: BenchTable) -> str:
    """How many programs are within each bound, of those whose outputs were compared."""
    called = {name: f"atol = rtol = {name}" for name in TOLERANCES} | {OURS: "the bound of the verifier"}
    counts = ", ".join(f"{table.within[name]} within {words}" for name, words in called.items())
    return f"Of {counted(table.compared, 'program')} whose outputs were compared at precision {table.precision}: {counts}."


def within_words(row: Row) -> str:
    """The bounds that a problem's program is within, such as "1e-2, ours"."""
    return "-" if row.within is None else ", ".join(row.within) or "none"


def speedup_words(row: Row, column: str) -> str:
    """A problem's figure in a column, such as "1.20×"; over a baseline that disagrees with the reference "(1.20×)"."""
    if column in row.disagreeing:
        return f"({row.disagreeing[column]:.2f}×)"
    return _times(row.predicted if column == "predicted" else row.speedups.get(column))


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}×"


def _money(usd: float | None) -> str:
    return "price unknown" if usd is None else f"${usd:.2f}"
