"""Answers to problems of unlike length that are written at once are those that are written alone, and none is written twice.

The model is tiny and random (`tests/training/stages/tiny_model.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stitchcuda.state import Settings
from stitchcuda.training.evaluation.evaluation_folder import AnswerSampling, EvaluationFolder, EvaluationTerms
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint
from stitchcuda.training.session_rows import SpokenTurn
from tests.training.stages.tiny_model import tiny_model

pytestmark = pytest.mark.more              # it imports transformers
pytest.importorskip("peft")
ASKED = {"a": "short", "b": "a somewhat longer question", "c": "mid-length one"}


def problem(name: str) -> EvaluationProblem:
    turns = (SpokenTurn(role="user", content=ASKED[name]),)
    return EvaluationProblem(name=name, cluster=name, skill=1, messages=turns, reference="")


def written(out: Path, model: Path, names: str, sampling: AnswerSampling) -> dict[str, tuple[str, int, int]]:
    """The answers in a folder by problem and seed: text, tokens, and when each was written."""
    from stitchcuda.training.evaluation.generation import write_answers

    problems = [problem(name) for name in names]
    terms = EvaluationTerms(
        checkpoints=(ModelCheckpoint(label="m", model=str(model), adapter=""),), weights=("",), sampling=sampling,
        problems=dict.fromkeys(names, ""), settings=Settings(target="sim"), judge="",
    )  # fmt: skip
    write_answers(0, problems, EvaluationFolder(out), terms, lambda line: None)
    found = {}
    for path in (out / "answers" / "0-m").rglob("*.json"):
        answer = json.loads(path.read_text())
        found[f"{path.parent.name}/{path.stem}"] = (answer["text"], answer["tokens"], path.stat().st_mtime_ns)
    return found


def test_answers_written_at_once_are_those_written_alone(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model", ["x = 1\n", "y = 2\n"])
    likeliest = AnswerSampling(seeds=1, temperature=0.0, max_completion=12, batch=3)
    together = written(tmp_path / "together", model, "abc", likeliest)
    assert len({text for text, _, _ in together.values()}) == len(together) == 3
    for name in "abc":
        alone = written(tmp_path / name, model, name, likeliest.model_copy(update={"batch": 1}))
        assert alone[f"{name}/0"][:2] == together[f"{name}/0"][:2]


def test_a_batch_of_which_an_answer_is_missing_is_written_again_and_no_other(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model", ["x = 1\n", "y = 2\n"])
    drawn = AnswerSampling(seeds=3, max_completion=6, batch=4)
    first = written(tmp_path / "out", model, "abc", drawn)
    assert len(first) == 9
    next((tmp_path / "out").rglob("b/2.json")).unlink()  # the longest prompt comes last: a batch of its own
    again = written(tmp_path / "out", model, "abc", drawn)
    assert {name: answer[:2] for name, answer in again.items()} == {name: answer[:2] for name, answer in first.items()}
    assert {name for name in first if again[name][2] != first[name][2]} == {"b/2"}
