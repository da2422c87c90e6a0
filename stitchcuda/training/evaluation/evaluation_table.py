"""Makes the record of an evaluation's figures, and prints it as Markdown: what is noise is called so in the table.

It computes nothing that is not in `training/evaluation/figures.py`, and reads no file.
Where to look next: `training/evaluation/evaluate.py` (who writes it), `training/export/model_card.py` (who quotes it).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.counts import counted
from stitchcuda.state import Record
from stitchcuda.training.evaluation.evaluation_folder import EvaluationTerms
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.evaluation.figures import (
    LEVEL,
    FigureDifference,
    FigureInterval,
    counts_by_kind,
    difference,
    figures_of,
    interval,
    tabulate,
)  # fmt: skip
from stitchcuda.training.evaluation.judged_answers import JudgedAnswer

LEAST_CLUSTERS = 6                         # two of 2**6 exchanges are the first share below LEVEL
_SHARES = {"rubric of accepted"}           # figures that are no shares of answers


class EvaluatedCheckpoint(Record):
    """The figures of a checkpoint, and their differences from the first checkpoint's, which itself has none."""

    label: str
    weights: str                           # digest, as in the terms
    figures: dict[str, FigureInterval]
    differences: dict[str, FigureDifference]
    kinds: dict[str, int]                  # answers by what came of them
    correct: dict[str, int]                # correct answers, by problem


class Evaluation(Record):
    """All figures of an evaluation."""

    source: str                            # where the problems are from
    terms: EvaluationTerms
    device: str
    clusters: int
    checkpoints: tuple[EvaluatedCheckpoint, ...]
    without_verdict: int                   # answers that another run may judge
    notes: tuple[str, ...]                 # what was not looked for, and what the figures do not say


def make_evaluation(
    problems: Sequence[EvaluationProblem], answers: Sequence[JudgedAnswer], terms: EvaluationTerms, *, source: str, device: str,
    notes: Sequence[str],
) -> Evaluation:  # fmt: skip
    seeds, clusters = terms.sampling.seeds, [problem.cluster for problem in problems]
    figures = figures_of(answers, seeds, rubric=bool(terms.judge))
    own = [[answer for answer in answers if answer.checkpoint == number] for number in range(len(terms.checkpoints))]
    tables = [{figure.name: tabulate(figure, found, problems, seeds) for figure in figures} for found in own]
    found = []
    for number, (checkpoint, weights) in enumerate(zip(terms.checkpoints, terms.weights, strict=True)):
        found.append(EvaluatedCheckpoint(
            label=checkpoint.label, weights=weights, kinds=dict(counts_by_kind(own[number])),
            figures={
                figure.name: interval(tables[number][figure.name], clusters, figure.statistic) for figure in figures
            },
            differences={
                figure.name: difference(tables[0][figure.name], tables[number][figure.name], clusters, figure.statistic)
                for figure in figures if number
            },
            correct={
                problem.name: sum(bool(answer.correct) for answer in own[number] if answer.problem == problem.name)
                for problem in problems
            },
        ))  # fmt: skip
    told = [*notes]
    if terms.settings.target == "sim":
        told.append("the simulator times nothing, so fast_0 (correct) is the only fast_p")
    if len(terms.checkpoints) > 1 and len(set(clusters)) < LEAST_CLUSTERS:
        told.append(f"with fewer than {LEAST_CLUSTERS} structures every difference is noise: give more problems")
    return Evaluation(
        source=source, terms=terms, device=device, clusters=len(set(clusters)), checkpoints=tuple(found), notes=tuple(told),
        without_verdict=sum(answer.kind == "no verdict yet" for answer in answers),
    )  # fmt: skip


def evaluation_markdown(evaluation: Evaluation) -> str:
    """The table for people."""
    terms, found = evaluation.terms, evaluation.checkpoints
    sampling, labels = terms.sampling, [_cell(checkpoint.label) for checkpoint in found]
    drawn = f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}"
    lines = [
        f"# Evaluation on {evaluation.source}", "",
        f"{counted(len(terms.problems), 'problem')} of {counted(evaluation.clusters, 'structure')}; "
        f"{counted(sampling.seeds, 'answer')} to each, {drawn}, at most {sampling.max_completion:,} tokens; policy "
        f"{terms.settings.policy}, precision {terms.settings.precision}, {evaluation.device}"
        f"{f'; rubric by {terms.judge}' if terms.judge else ''}.", "",
        f"| figure | {' | '.join(labels)} |", "|---" * (1 + len(found)) + "|",
    ]  # fmt: skip
    for name in found[0].figures:
        lines.append(f"| {name} | {' | '.join(_interval(name, checkpoint.figures[name]) for checkpoint in found)} |")
    lines.append("")
    if len(found) > 1:
        lines += [
            f"## More than {labels[0]}", "", f"| figure | {' | '.join(labels[1:])} |", "|---" * len(found) + "|",
            *(
                f"| {name} | {' | '.join(_difference(name, checkpoint.differences[name]) for checkpoint in found[1:])} |"
                for name in found[0].figures
            ),
            "",
            f"In brackets: {1 - LEVEL:.0%}, over problems and answers. A difference is noise unless its interval leaves out 0 "
            f"and fewer than {LEVEL:.0%} of all exchanges of the two checkpoints, structure by structure, differ as much.", "",
        ]  # fmt: skip
    kinds = list(dict.fromkeys(kind for checkpoint in found for kind in checkpoint.kinds))
    lines += [f"| answers | {' | '.join(labels)} |", "|---" * (1 + len(found)) + "|"]
    lines += [f"| {kind} | {' | '.join(str(checkpoint.kinds.get(kind, 0)) for checkpoint in found)} |" for kind in kinds]
    lines += ["", f"| correct of {sampling.seeds} | {' | '.join(labels)} |", "|---" * (1 + len(found)) + "|"]
    lines += [
        f"| {name} | {' | '.join(str(checkpoint.correct[name]) for checkpoint in found)} |" for name in terms.problems
    ]
    lines += ["", *(f"- {note}" for note in evaluation.notes)]
    if evaluation.without_verdict:
        lines.append(f"- {counted(evaluation.without_verdict, 'answer')} without a verdict: the same command tries again")
    return "\n".join(lines).rstrip() + "\n"


def _interval(name: str, figure: FigureInterval) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "-"
    if name in _SHARES:
        return f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.1%} [{figure.low:.1%}, {figure.high:.1%}]"


def _difference(name: str, found: FigureDifference) -> str:
    if found.value is None or found.low is None or found.high is None or found.chance is None:
        return "-"
    scale, digits = (1.0, 2) if name in _SHARES else (100.0, 1)
    value, low, high = (f"{scale * number:+.{digits}f}" for number in (found.value, found.low, found.high))
    says = "noise" if found.noise else "more" if found.value > 0 else "less"
    return f"{says}: {value}{'' if name in _SHARES else ' points'} [{low}, {high}], as much in {found.chance:.1%} of exchanges"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
