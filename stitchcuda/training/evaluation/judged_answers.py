"""Has the programs in answers judged by `bench`, and by a rubric's judge if there is one; keeps every verdict.

Equal programs of a problem are judged once. What is no program is refused without being judged. What could not be judged has no
value, and is left out of all figures but that of answers that were cut off. It computes no figures.
Where to look next: `bench/judging.py` (who judges), `training/evaluation/figures.py` (what is made of it).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from stitchcuda.bench.judging import judge
from stitchcuda.bench.problems import digest, write_text
from stitchcuda.bench.programs import ExistingProgram
from stitchcuda.bench.table import Row, is_faster, read_table
from stitchcuda.engineers.chat import Chat
from stitchcuda.engineers.reply import Malformed
from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.completion_program import program_in
from stitchcuda.training.evaluation.evaluation_folder import EvaluationFolder, EvaluationTerms, WrittenAnswer
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.reward_service.jobs import place
from stitchcuda.training.reward_service.verdicts import kind_of
from stitchcuda.training.rubric import judge_program, vetoes
from stitchcuda.training.rubric_record import Rubric
from stitchcuda.verify.api import Verdict

SPEEDUPS = (0.0, 1.0, 1.5, 2.0)
"""The thresholds of fast_p."""


class JudgedAnswer(Record):
    """What became of one answer. `correct`, `fast` and `attack` are None where it was not judged."""

    checkpoint: int
    problem: str
    seed: int
    program: str                           # its id in programs/, verdicts/ and bench/; "": it is no program
    kind: str                              # "accepted", or why not; "not judged", "no verdict yet"
    cut_off: bool
    correct: bool | None = None
    fast: dict[str, dict[str, bool | None]] = Field(default_factory=dict)  # by baseline and threshold
    attack: bool | None = None
    rubric: float | None = None            # of an accepted program, from 0 to 1
    reasons: tuple[str, ...] = ()


def judge_answers(
    problems: Sequence[EvaluationProblem], folder: EvaluationFolder, terms: EvaluationTerms, chat: Chat | None, *,
    source: Path, gpus: Sequence[str], at_once: int | None, tell: Callable[[str], None],
) -> list[JudgedAnswer]:  # fmt: skip
    """Judges what has no verdict yet, and returns all answers. `source`: where the problems are from."""
    found: list[JudgedAnswer] = []
    pairs: dict[str, ExistingProgram] = {}
    by_program: dict[str, EvaluationProblem] = {}
    for number in range(len(terms.checkpoints)):
        for problem in problems:
            for seed in range(terms.sampling.seeds):
                answer = folder.answer(number, problem.name, seed, terms)
                assert answer is not None, "all answers are written before any is judged"
                made = _take(number, problem, answer, folder, pairs)
                by_program[made.program] = problem
                found.append(made)
    if not pairs:
        return found
    judge(
        [*pairs.values()], folder.bench, terms.settings, source="answers", path=source, gpus=gpus, at_once=at_once, tell=tell,
        seen=lambda name, verdict: folder.keep_record("verdicts", name, verdict),
    )  # fmt: skip
    rows = {row.name: row for row in read_table(folder.bench).problems}
    rubrics = _rubrics(rows, by_program, pairs, folder, chat, tell) if chat is not None else {}
    return [_judged(answer, rows, rubrics, folder) if answer.program else answer for answer in found]


def _take(
    number: int, problem: EvaluationProblem, answer: WrittenAnswer, folder: EvaluationFolder,
    pairs: dict[str, ExistingProgram],
) -> JudgedAnswer:  # fmt: skip
    """Writes an answer's program where it can be judged; one that was written before is not written again."""
    known = JudgedAnswer(
        checkpoint=number, problem=problem.name, seed=answer.seed, program="", kind="no program", cut_off=answer.cut_off,
        correct=False, attack=False,
    )  # fmt: skip
    try:
        files = program_in(answer.text, problem.program)
    except Malformed as error:
        return known.model_copy(update={"reasons": (str(error),)})
    id = f"{problem.name}-{digest(problem.reference, json.dumps(files, sort_keys=True))}"
    if id not in pairs:
        try:
            program = place(files, folder.out / "programs" / id)
        except BadInput as error:
            return known.model_copy(update={"reasons": (str(error),)})
        reference = folder.out / "references" / f"{problem.name}.py"
        write_text(reference, problem.reference, problem.name)
        pairs[id] = ExistingProgram(name=id, program=program.resolve(), reference=reference.resolve())
    return known.model_copy(update={"program": id})


def _rubrics(
    rows: Mapping[str, Row], problems: Mapping[str, EvaluationProblem], pairs: Mapping[str, ExistingProgram],
    folder: EvaluationFolder, chat: Chat, tell: Callable[[str], None],
) -> dict[str, Rubric]:  # fmt: skip
    """The rubrics of accepted programs; one without scores is told and not kept, so that it is asked for again."""
    found: dict[str, Rubric] = {}
    accepted = [name for name, row in rows.items() if row.correct]
    for done, name in enumerate(accepted, 1):
        rubric, problem = folder.record("rubrics", name, Rubric), problems[name]
        if rubric is None:
            verdict = folder.record("verdicts", name, Verdict)
            assert verdict is not None, "a verdict is kept before its result"
            asked = "\n\n".join(turn.content for turn in problem.messages) if problem.skill == 2 else ""
            rubric = judge_program(
                chat, pairs[name].program, problem.reference, verdict, skill=problem.skill, evidence=asked
            )
            if rubric.scores is not None:
                folder.keep_record("rubrics", name, rubric)
            tell(f"rubric {done} of {len(accepted)}: {name}{'' if rubric.scores else f' has no score ({rubric.no_score})'}")
        found[name] = rubric
    return found


def _judged(
    answer: JudgedAnswer, rows: Mapping[str, Row], rubrics: Mapping[str, Rubric], folder: EvaluationFolder
) -> JudgedAnswer:
    row, rubric = rows[answer.program], rubrics.get(answer.program)
    verdict = folder.record("verdicts", answer.program, Verdict)
    if row.end not in ("accepted", "refused") or verdict is None:
        final = row.end in ("broken", "could not judge")
        unknown = {"correct": None, "attack": None, "kind": "not judged" if final else "no verdict yet"}
        return answer.model_copy(update={**unknown, "reasons": row.reasons})
    baselines = [*row.speedups] or ["eager"]
    return answer.model_copy(update={
        "kind": "accepted" if row.correct else kind_of(verdict).replace("_", " "), "correct": row.correct,
        "fast": {name: {f"{p:g}": is_faster(row, name, p) for p in SPEEDUPS} for name in baselines} if row.correct else {},
        "attack": bool(vetoes(verdict)) or (rubric is not None and rubric.major_hacking),
        "rubric": rubric.scores.share if rubric is not None and rubric.scores is not None else None,
        "reasons": row.reasons,
    })  # fmt: skip
