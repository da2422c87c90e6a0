"""Evaluates checkpoints in one order: looks for overlap with their training, writes answers, has them judged, makes figures.

Imported when an evaluation runs: it needs transformers and PEFT. All answers are written before any is judged, so that no model
is on the GPU while programs are timed. What is there already is neither written nor judged again.
Where to look next: `training/evaluation/generation.py`, `training/evaluation/judged_answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from transformers.utils import logging as transformers_logging

from stitchcuda.bench.results import RunFolder
from stitchcuda.counts import counted
from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import BadInput
from stitchcuda.state import Record, Settings
from stitchcuda.store import write_atomically
from stitchcuda.training.evaluation.evaluation_folder import AnswerSampling, EvaluationFolder, EvaluationTerms
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.evaluation.evaluation_table import Evaluation, evaluation_markdown, make_evaluation
from stitchcuda.training.evaluation.generation import identify, longest_prompt, write_answers
from stitchcuda.training.evaluation.judged_answers import JudgedAnswer, judge_answers
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint
from stitchcuda.training.evaluation.overlap import refuse_overlap


class EvaluationPlan(Record):
    """What an evaluation would do."""

    terms: EvaluationTerms
    clusters: int
    answers: int
    left: int                              # answers that are not written yet
    longest_prompt: int                    # tokens
    notes: tuple[str, ...]


def plan_evaluation(
    checkpoints: Sequence[ModelCheckpoint], problems: Sequence[EvaluationProblem], sampling: AnswerSampling,
    settings: Settings, out: Path, *, judge: str = "",
) -> EvaluationPlan:  # fmt: skip
    """Nothing is written, and no weights are loaded. Raises `BadInput` for checkpoints that were trained on the problems, that
    cannot be read, or that have no room for an answer."""
    labels = [checkpoint.label for checkpoint in checkpoints]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise BadInput(f"{twice} is given twice: give each checkpoint once")
    if not sampling.temperature and sampling.seeds > 1:
        raise BadInput("with --temperature 0 all answers of a problem are the same: give --seeds 1, or another temperature")
    transformers_logging.disable_progress_bar()
    notes = refuse_overlap(problems, checkpoints)
    terms = EvaluationTerms(
        checkpoints=tuple(checkpoints), weights=tuple(map(identify, checkpoints)), sampling=sampling, settings=settings,
        problems={problem.name: problem.digest for problem in problems}, judge=judge,
    )  # fmt: skip
    longest = max(longest_prompt(checkpoint, problems, sampling) for checkpoint in checkpoints)
    folder, seeds = EvaluationFolder(out), range(sampling.seeds)
    left = [
        seed for number in range(len(checkpoints)) for problem in problems
        for seed in folder.missing(number, problem.name, seeds, terms)
    ]  # fmt: skip
    return EvaluationPlan(
        terms=terms, clusters=len({problem.cluster for problem in problems}), longest_prompt=longest, notes=tuple(notes),
        answers=len(checkpoints) * len(problems) * sampling.seeds, left=len(left),
    )  # fmt: skip


def evaluate(
    plan: EvaluationPlan, problems: Sequence[EvaluationProblem], out: Path, chat: Chat | None, *, source: Path,
    gpus: Sequence[str] = (), at_once: int | None = None, tell: Callable[[str], None] = print,
) -> Evaluation:  # fmt: skip
    """Does what is left of a plan, and writes OUT/evaluation.json and evaluation.md. `source`: where the problems are from.
    Raises `BadInput` if `out` holds something else, `Unavailable` for what stopped it; what was made stays."""
    folder, terms = EvaluationFolder(out), plan.terms
    with folder.begin(terms):
        for note in plan.notes:
            tell(note)
        tell(f"{counted(plan.left, 'answer')} to write, of {plan.answers:,}")
        for number in range(len(terms.checkpoints)):
            write_answers(number, problems, folder, terms, tell)
        answers = judge_answers(problems, folder, terms, chat, source=source, gpus=gpus, at_once=at_once, tell=tell)
        made = make_evaluation(
            problems, answers, terms, source=str(source), device=_device(folder, answers), notes=plan.notes
        )
        lines = "".join(answer.model_dump_json() + "\n" for answer in answers)
        write_atomically(out / "answers.jsonl", lines.encode())
        write_atomically(out / "evaluation.md", evaluation_markdown(made).encode())
        write_atomically(out / "evaluation.json", made.model_dump_json(indent=1).encode())
    return made


def plan_markdown(plan: EvaluationPlan) -> str:
    """A plan for people."""
    terms = plan.terms
    return "\n".join([
        *(f"checkpoint: {checkpoint.label}" for checkpoint in terms.checkpoints),
        f"problems: {len(terms.problems):,}, of {counted(plan.clusters, 'structure')}",
        f"answers: {plan.answers:,}, of which {plan.left:,} are to be written, and at most as many verdicts",
        f"longest prompt: {plan.longest_prompt:,} tokens",
        *plan.notes,
    ])  # fmt: skip


def _device(folder: EvaluationFolder, answers: Sequence[JudgedAnswer]) -> str:
    """On what programs were judged; nothing was where no answer held a program."""
    if not any(answer.program for answer in answers):
        return "no program to judge"
    return "; ".join(dict.fromkeys(r.device for r in RunFolder(folder.bench).results().values() if r.device)) or "no device"
