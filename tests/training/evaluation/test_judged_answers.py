"""What becomes of answers: figures of timed, refused, attacking and unjudged programs, rubrics, and a folder that goes on."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import BadInput, Damaged, Unavailable
from stitchcuda.state import KernelRole, Settings
from stitchcuda.training.evaluation.evaluation_folder import (
    AnswerSampling,
    EvaluationFolder,
    EvaluationTerms,
    WrittenAnswer,
)  # fmt: skip
from stitchcuda.training.evaluation.evaluation_problems import problems_of_tasks
from stitchcuda.training.evaluation.evaluation_table import Evaluation, evaluation_markdown, make_evaluation
from stitchcuda.training.evaluation.judged_answers import judge_answers
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint
from stitchcuda.verify.api import Shares, Verdict
from tests.training.reward_server import End, ScriptedPool, program
from tests.training.test_reward_service import SCRIPT, refused
from tests.training.test_rubric import ScriptedJudge, scores

TASK = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x.{}()\ndef get_inputs(): return []\n"


def timed(speedup: float) -> Verdict:
    return Verdict(
        accepted=True, tier="timed", speedup=speedup, within_bound=True, shares=Shares(own=1.0),
        kernels=(KernelRole(name="k", role="needed"),),
    )  # fmt: skip


POOL: dict[str, list[End]] = {
    **SCRIPT, "slow": [timed(0.8)], "fast": [timed(1.7)], "attack": [refused("the source itself: it reads frames (line 3)")],
}  # fmt: skip


class Pool(ScriptedPool):
    """In place of `VerifierPool`, whose options mean nothing to it."""

    asked: ClassVar[list[str]] = []

    def __init__(self, **options: object) -> None:
        super().__init__(POOL)

    def submit(self, program: Path, reference: Path):  # type: ignore[no-untyped-def]
        self.asked.append(program.read_text().splitlines()[0])
        return super().submit(program, reference)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def evaluated(
    folder: Path, answers: Sequence[Mapping[str, Sequence[str]]], monkeypatch: pytest.MonkeyPatch, chat: Chat | None = None
) -> Evaluation:
    """`answers`: of each checkpoint, by problem, the programs' names; "words" is no program."""
    monkeypatch.setattr("stitchcuda.bench.judging.VerifierPool", Pool)
    tasks = folder / "tasks"
    tasks.mkdir(exist_ok=True)
    for name in answers[0]:
        (tasks / f"{name}.py").write_text(TASK.format(name))
    problems = problems_of_tasks(tasks)
    terms = EvaluationTerms(
        checkpoints=tuple(ModelCheckpoint(label=f"m{number}", model="m") for number in range(len(answers))),
        weights=tuple(f"w{number}" for number in range(len(answers))), judge="scripted" if chat else "",
        problems={problem.name: problem.digest for problem in problems}, settings=Settings(),
        sampling=AnswerSampling(seeds=len(next(iter(answers[0].values()))), max_completion=9, batch=1),
    )  # fmt: skip
    out = EvaluationFolder(folder / "out")
    with out.begin(terms):
        for number, by_problem in enumerate(answers):
            for name, programs in by_problem.items():
                for seed, said in enumerate(programs):
                    text = said if said == "words" else f"```python\n{program(said)}```"
                    answer = WrittenAnswer(seed=seed, text=text, tokens=1, cut_off=said == "words", seconds=0.0)
                    out.keep_answer(number, name, answer, terms)
        judged = judge_answers(problems, out, terms, chat, source=tasks, gpus=(), at_once=None, tell=lambda line: None)
    return make_evaluation(problems, judged, terms, source="tasks", device="scripted", notes=["a note"])


def test_figures_are_of_what_bench_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pool.asked.clear()
    first = {"relu": ["slow", "wrong", "attack", "words"], "tanh": ["unavailable", "wrong", "wrong", "wrong"]}
    second = {"relu": ["fast", "fast", "slow", "wrong"], "tanh": ["fast", "wrong", "attack", "words"]}
    made = evaluated(tmp_path, [first, second], monkeypatch)
    before, after = made.checkpoints
    assert before.figures["pass@1"].value == pytest.approx((1 / 4 + 0) / 2)
    assert before.figures["fast_0"].value == pytest.approx((1 / 4 + 0) / 2)
    assert before.figures["fast_1"].value == 0
    assert after.figures["fast_1.5"].value == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert after.figures["fast_2"].value == 0
    assert after.figures["pass@4"].value == 1
    assert before.figures["pass@4"].problems == 1, "of one problem only three answers were judged"
    assert before.figures["hacking"].value == pytest.approx(1 / 8)
    assert after.differences["fast_1.5"].value == pytest.approx(3 / 8)
    assert before.kinds == {"accepted": 1, "no program": 1, "no verdict yet": 1, "refused": 1, "wrong": 4}
    assert made.without_verdict == 1
    assert len(Pool.asked) == 8, "equal programs of a problem are judged once"
    page = evaluation_markdown(made)
    assert "| pass@1 | 12.5% [" in page
    assert "1 answer without a verdict" in page
    judged = len(Pool.asked)
    assert evaluated(tmp_path, [first, second], monkeypatch) == made
    assert Pool.asked[judged:] == ["# unavailable"], "only what has no verdict is tried again"


def test_a_rubric_is_asked_for_accepted_programs_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ScriptedJudge(lambda request: scores(4, 4, 4, 4))
    answers = [{"relu": ["fast", "wrong"]}, {"relu": ["attack", "words"]}]
    made = evaluated(tmp_path, answers, monkeypatch, judge)
    assert made.checkpoints[0].figures["rubric of accepted"].value == pytest.approx(0.75)
    assert made.checkpoints[1].figures["rubric of accepted"].value is None
    asked = len(judge.asked)
    assert asked == 3
    evaluated(tmp_path, answers, monkeypatch, judge)
    assert len(judge.asked) == asked
    assert "| rubric of accepted | 0.75 [" in evaluation_markdown(made)


def test_a_veto_of_the_rubric_is_hacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = evaluated(tmp_path, [{"relu": ["fast", "wrong"]}], monkeypatch, ScriptedJudge(lambda request: scores(1, 5, 5, 5)))
    assert made.checkpoints[0].figures["hacking"].value == 0.5


def test_a_folder_is_of_one_evaluation_and_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated(tmp_path, [{"relu": ["fast"]}], monkeypatch)
    folder = EvaluationFolder(tmp_path / "out")
    terms = EvaluationTerms.model_validate_json((tmp_path / "out" / "terms.json").read_bytes())
    other = terms.model_copy(update={"sampling": terms.sampling.model_copy(update={"temperature": 0.5})})
    with pytest.raises(BadInput, match="is an evaluation with other sampling"), folder.begin(other):
        pass
    with (tmp_path / "out" / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="another process is at work"), folder.begin(terms):
            pass
    (path,) = (tmp_path / "out" / "answers").rglob("0.json")
    path.write_text(json.dumps({"seed": 0}))
    with pytest.raises(Damaged, match=r"0.json cannot be read: remove it"):
        folder.answer(0, "relu", 0, terms)
    with pytest.raises(BadInput, match="is there already and is no evaluation"), EvaluationFolder(tmp_path).begin(terms):
        pass
