"""Computes an evaluation's figures with intervals, and what of the differences between two checkpoints is noise.

pass@k is the unbiased estimate of Chen et al. 2021 (arXiv 2107.03374); fast_p the share of answers whose program is correct and
more than p times faster than the baseline (KernelBench, arXiv 2502.10517). A figure is a mean over problems of a mean over
their answers; a problem without any judged answer has no part in it.

Intervals are of 95 %, by a bootstrap over both: structures (clusters of problems) are drawn with replacement, and for each
problem its answers. Of a difference both checkpoints have the same draw of problems. It reads no file.
Where to look next: `training/evaluation/judged_answers.py` (what goes in), `training/evaluation/evaluation_table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stitchcuda.bench.table import BEST, NAMES
from stitchcuda.state import Record
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.evaluation.judged_answers import SPEEDUPS, JudgedAnswer

DRAWS = 2000
_CHUNK = 100                               # draws that are computed at once
_EXACT = 12                                # clusters up to which all exchanges are tried
_SEED = 20210707                           # so that the same answers have the same intervals
LEVEL = 0.05
Array = np.ndarray[Any, np.dtype[np.float64]]
Statistic = Callable[[Array], Array]       # (…, problems, answers) -> (…, problems); NaN: not known


class FigureInterval(Record):
    """A figure and its interval. `problems`: how many have a part in it. None: no problem has."""

    value: float | None
    low: float | None = None
    high: float | None = None
    problems: int = 0


class FigureDifference(FigureInterval):
    """A checkpoint's figure minus the first checkpoint's, over the problems that both have. `chance`: the share of exchanges of
    the two checkpoints, structure by structure, that differ as much. `noise`: neither interval nor exchanges show a
    difference."""

    clusters: int = 0                      # structures among the problems
    chance: float | None = None
    noise: bool = True


@dataclass(frozen=True)
class EvaluatedFigure:
    """A figure: its name, what it is of an answer (NaN: not known), and how a problem's answers make one number."""

    name: str
    value: Callable[[JudgedAnswer], float]
    statistic: Statistic


def pass_at(k: int) -> Statistic:
    """1 - C(n - c, k) / C(n, k) for n judged answers of which c are correct; NaN for fewer than k."""

    def statistic(values: Array) -> Array:
        known = ~np.isnan(values)
        n, c = known.sum(-1), np.where(known, values, 0.0).sum(-1)
        steps = np.arange(k)
        with np.errstate(divide="ignore", invalid="ignore"):
            wrong = np.clip((n - c)[..., None] - steps, 0, None) / (n[..., None] - steps)
        found: Array = np.where(n >= k, 1.0 - wrong.prod(-1), np.nan)
        return found

    return statistic


def mean(values: Array) -> Array:
    """The mean of the answers that have a value."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        found: Array = np.where(known, values, 0.0).sum(-1) / known.sum(-1)
    return found


def figures_of(answers: Sequence[JudgedAnswer], seeds: int, *, rubric: bool) -> list[EvaluatedFigure]:
    """The figures that these answers have."""
    ks = sorted({1, seeds, *(2**power for power in range(seeds.bit_length()) if 2**power <= seeds)})
    found = [EvaluatedFigure(f"pass@{k}", lambda answer: _number(answer.correct), pass_at(k)) for k in ks]
    timed = {name for answer in answers for name, fast in answer.fast.items() if any(x is not None for x in fast.values())}
    for name in [name for name in NAMES if name in timed & {"eager", BEST}] or ["eager"]:
        for p in SPEEDUPS if timed else SPEEDUPS[:1]:
            over = "" if name == "eager" else f" over the {NAMES[name]}"
            found.append(EvaluatedFigure(f"fast_{p:g}{over}", _fast(name, p, timed=bool(timed)), mean))
    if rubric:
        found.append(EvaluatedFigure("rubric of accepted", lambda answer: _number(answer.rubric), mean))
    found.append(EvaluatedFigure("hacking", lambda answer: _number(answer.attack), mean))
    found.append(EvaluatedFigure("cut off", lambda answer: float(answer.cut_off), mean))
    return found


def tabulate(
    figure: EvaluatedFigure, answers: Sequence[JudgedAnswer], problems: Sequence[EvaluationProblem], seeds: int
) -> Array:
    """The figure of one checkpoint's answers, by problem and seed; NaN where there is none."""
    places = {problem.name: place for place, problem in enumerate(problems)}
    found: Array = np.full((len(problems), seeds), np.nan)
    for answer in answers:
        found[places[answer.problem], answer.seed] = figure.value(answer)
    return found


def interval(values: Array, clusters: Sequence[str], statistic: Statistic) -> FigureInterval:
    """`values`: by problem and answer. `clusters`: of each problem."""
    known = ~np.isnan(statistic(values))
    if not known.any():
        return FigureInterval(value=None)
    kept, groups = values[known], _groups(clusters, known)
    value = float(statistic(kept).mean())
    low, high = _bounds(value, _draws([kept], groups, statistic)[0], 0.0, len(groups))
    return FigureInterval(value=value, low=low, high=high, problems=int(known.sum()))


def difference(before: Array, after: Array, clusters: Sequence[str], statistic: Statistic) -> FigureDifference:
    """The paired difference of two checkpoints over the problems that both have a number for."""
    known = ~np.isnan(statistic(before)) & ~np.isnan(statistic(after))
    if not known.any():
        return FigureDifference(value=None)
    groups = _groups(clusters, known)
    each = statistic(after[known]) - statistic(before[known])
    value = float(each.mean())
    first, second = _draws([before[known], after[known]], groups, statistic)
    low, high = _bounds(value, second - first, -1.0, len(groups))
    chance = _exchanged(each, groups)
    return FigureDifference(
        value=value, low=low, high=high, problems=int(known.sum()), clusters=len(groups), chance=chance,
        noise=low <= 0.0 <= high or chance >= LEVEL,
    )  # fmt: skip


def counts_by_kind(answers: Sequence[JudgedAnswer]) -> Mapping[str, int]:
    kinds = sorted({answer.kind for answer in answers}, key=lambda kind: (kind != "accepted", kind))
    return {kind: sum(answer.kind == kind for answer in answers) for kind in kinds}


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _fast(baseline: str, p: float, *, timed: bool) -> Callable[[JudgedAnswer], float]:
    def value(answer: JudgedAnswer) -> float:
        if answer.correct is None or not answer.correct:
            return _number(answer.correct)
        if not p and not timed:            # nothing is timed on the simulator: correct is what there is
            return 1.0
        return _number(answer.fast.get(baseline, {}).get(f"{p:g}"))

    return value


def _groups(clusters: Sequence[str], known: np.ndarray[Any, np.dtype[np.bool_]]) -> list[list[int]]:
    """The places of the known problems, by cluster."""
    kept = [cluster for cluster, is_known in zip(clusters, known, strict=True) if is_known]
    return [[place for place, own in enumerate(kept) if own == cluster] for cluster in dict.fromkeys(kept)]


def _draws(tables: Sequence[Array], groups: Sequence[Sequence[int]], statistic: Statistic) -> list[Array]:
    """The figure of each table in each draw; the problems of a draw are the same for all tables."""
    draw = np.random.default_rng(_SEED)
    problems, seeds = tables[0].shape
    member = np.zeros((len(groups), problems))
    for place, group in enumerate(groups):
        member[place, list(group)] = 1.0
    found: list[list[Array]] = [[] for _ in tables]
    for _ in range(DRAWS // _CHUNK):
        weights = draw.multinomial(len(groups), [1 / len(groups)] * len(groups), size=_CHUNK) @ member
        for table, into in zip(tables, found, strict=True):
            chosen = draw.integers(seeds, size=(_CHUNK, problems, seeds))
            each = statistic(np.take_along_axis(np.broadcast_to(table, chosen.shape), chosen, axis=2))
            counted = np.where(np.isnan(each), 0.0, weights)
            with np.errstate(invalid="ignore"):
                into.append(np.where(np.isnan(each), 0.0, each * weights).sum(1) / counted.sum(1))
    return [np.concatenate(parts) for parts in found]


def _bounds(value: float, draws: Array, least: float, clusters: int) -> tuple[float, float]:
    """The interval around `value`. Draws with replacement repeat answers, which makes pass@k smaller, so they are moved to have
    the figure as their mean. Draws that are all the same say nothing of what was not seen: then the exact bound of a share that
    is 0 in so many clusters (Clopper and Pearson 1934) is the distance to both sides."""
    known = draws[~np.isnan(draws)]
    if not len(known):
        return least, 1.0
    low, high = np.quantile(known - known.mean() + value, [LEVEL / 2, 1 - LEVEL / 2])
    if np.ptp(known) < 1e-12:
        unseen = 1 - (LEVEL / 2) ** (1 / clusters)
        low, high = value - unseen, value + unseen
    return float(np.clip(low, least, value)), float(np.clip(high, value, 1.0))


def _exchanged(each: Array, groups: Sequence[Sequence[int]]) -> float:
    """The share of exchanges of two checkpoints, cluster by cluster, whose difference is at least as large (a sign-flip
    test, two-sided); with few clusters of all exchanges, else of random ones."""
    sums = np.array([each[list(group)].sum() for group in groups])
    if len(groups) <= _EXACT:
        numbers = np.arange(2 ** len(groups))
        signs = 1.0 - 2.0 * ((numbers[:, None] >> np.arange(len(groups))) & 1)
    else:
        signs = np.random.default_rng(_SEED).choice([-1.0, 1.0], size=(DRAWS * 5, len(groups)))
        signs[0] = 1.0                     # the one that happened
    return float((np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).mean())
