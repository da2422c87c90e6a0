"""What checkpoints are evaluated on, which checkpoint is meant, and that what it was trained on is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.errors import BadInput
from stitchcuda.training.evaluation.evaluation_problems import problems_of_split, problems_of_tasks
from stitchcuda.training.evaluation.model_checkpoint import find_checkpoint, runs_behind
from stitchcuda.training.evaluation.overlap import refuse_overlap
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms, StageRun
from tests.training.stages.data_folder import data_folder, row

HEAD = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return "
TRAINED, TESTED = (f"{HEAD}{body}\ndef get_inputs(): return [torch.randn(4)]\n" for body in ("x.relu() + 1", "x.sin().cos()"))


def made_run(
    folder: Path, *, model: str = "Qwen/Qwen3-0.6B", result: str = "model", finished: bool = True, **stage: str
) -> Path:
    run = StageRun(folder)
    run.begin(RunTerms(table="sft", digest="a" * 64, stage={"model": model, **stage}), resume=False)
    (folder / result).mkdir()
    (folder / result / ("config.json" if result == "model" else "adapter_config.json")).write_text(
        json.dumps({"base_model_name_or_path": model})
    )
    if finished:
        run.finish(RunSummary(steps=1, updates=1, result=result, sha256="b" * 64))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    tests = [
        {**row("skill2", "0", "mend", "say", TESTED), "id": "sin/skill2/1", "cluster": "t"},
        {**row("value", "0", "ask", "say", TESTED.replace("sin", "tan")), "id": "tan/value/1", "cluster": "t"},
    ]
    return data_folder(tmp_path / "data", [row("skill1", "0", "ask", "say", TRAINED)], tests)


def test_every_reference_of_a_split_is_a_problem_also_without_an_accepted_program(data: Path) -> None:
    found = problems_of_split(data, "test", [1])
    assert [(problem.name, problem.cluster, problem.skill) for problem in found] == [("sin", "t", 1), ("tan", "t", 1)]
    assert TESTED.strip() in found[0].messages[0].content
    both = problems_of_split(data, "test", [1, 2])
    assert [problem.name for problem in both] == ["sin", "tan", "sin-skill2-1"]
    assert [turn.content for turn in both[2].messages] == ["mend"]


def test_a_split_that_is_empty_or_was_changed_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no problem in the split test"):
        problems_of_split(data_folder(tmp_path / "other", [row("skill1", "0", "ask", "say", TRAINED)]), "test", [1])
    path = data / "jsonl" / "value.test.jsonl"
    path.write_text(path.read_text().replace("tan", "cos"))
    with pytest.raises(BadInput, match="is not what the manifest says"):
        problems_of_split(data, "test", [1])


def test_tasks_that_are_alike_share_a_cluster(tmp_path: Path) -> None:
    for name, source in {"a": TRAINED, "b": TRAINED.replace("+ 1", "+ 2"), "c": TESTED}.items():
        (tmp_path / f"{name}.py").write_text(source)
    first, second, third = problems_of_tasks(tmp_path)
    assert first.cluster == second.cluster != third.cluster


def test_a_checkpoint_is_a_run_a_model_an_adapter_or_a_name(tmp_path: Path) -> None:
    run = made_run(tmp_path / "warm", data="data")
    assert find_checkpoint(str(run)).model == str(run / "model")
    after = made_run(tmp_path / "after", model="warm/model", result="adapter")
    found = find_checkpoint(str(after))
    assert (found.adapter, found.model) == (str(after / "adapter"), str(tmp_path / "warm" / "model"))
    assert [behind.folder.name for behind in runs_behind(found)] == ["after", "warm"]
    assert find_checkpoint(str(after), "other/base").model == "other/base"
    assert find_checkpoint("Qwen/Qwen3-0.6B").model == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(
    ("given", "words"),
    [("./missing", "there is no folder ./missing"), ("unfinished", "is not finished"), ("empty", "holds no model"),
     ("lost", "is of the model ./gone, which is not there: give its folder by --base")],
)  # fmt: skip
def test_what_is_no_checkpoint_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    made_run(Path("unfinished"), finished=False)
    made_run(Path("lost"), model="./gone", result="adapter")
    with pytest.raises(BadInput, match=words):
        find_checkpoint(given)


def test_what_a_checkpoint_or_its_forerunner_was_trained_on_is_refused(data: Path, tmp_path: Path) -> None:
    made_run(tmp_path / "warm", data="data")
    after = find_checkpoint(str(made_run(tmp_path / "after", model="warm/model", result="adapter", tasks="gone.jsonl")))
    hub = find_checkpoint("Qwen/Qwen3-0.6B")
    notes = refuse_overlap(problems_of_split(data, "test", [1]), [hub, after])
    assert len(notes) == 2
    assert "what Qwen/Qwen3-0.6B was trained on is not known" in notes[0]
    assert "gone.jsonl, which" in notes[1]
    (tmp_path / "task.py").write_text(TRAINED.replace("+ 1", "+ 7"))
    with pytest.raises(BadInput, match=r"task is like s/skill1/0, which .*after was trained on \(.*warm\)"):
        refuse_overlap(problems_of_tasks(tmp_path / "task.py"), [hub, after])
    with pytest.raises(BadInput, match="evaluate it on a split or on tasks that it was not trained on"):
        refuse_overlap(problems_of_split(data, "train", [1]), [after])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "model"], "give either --data or --tasks"),
        (["evaluate", "model", "--data", "d", "--tasks", "t"], "give either --data or --tasks"),
        (["evaluate", "model", "--data", "d", "--split", "valid"], "--split valid is none"),
        (["evaluate", "model", "--data", "missing"], "manifest.json cannot be read"),
        (["evaluate", "model", "--tasks", "missing"], "there is no missing"),
        (["evaluate", "./gone", "--data", "data"], "there is no folder ./gone"),
        (["evaluate", "model", "--tasks", "t", "--judge", "mailbox:box"], "--judge cannot be a mailbox"),
        (["evaluate", "model", "--tasks", "t", "--judge", "gpt"], "'gpt' is not known"),
    ],
)
def test_the_command_says_what_is_wrong(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done: Any = CliRunner().invoke(app, ["train", *arguments, "--device", "sim", "--out", "out", "--json"])
    assert done.exit_code == 2, done.output
    assert words in json.loads(done.stdout)["error"]
    assert not Path("out").exists()
