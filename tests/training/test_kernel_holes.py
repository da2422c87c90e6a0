"""The benchmark's family of tasks: right answers give verified programs; the careless reward pays for the shortcut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.careless_reward import PAID, CarelessReward, careless, is_opened
from benchmarks.kernel_holes import KERNELS, MODEL, TEST, HoleTask, hole_tasks
from benchmarks.learning_small import make_data_set, read_lines, steps_of, write_results
from stitchcuda.state import KernelRole
from stitchcuda.training.completion_program import program_in
from stitchcuda.training.reward_service.trainers import judge_completion
from stitchcuda.training.stages.config import GrpoStage, SftStage
from stitchcuda.training.stages.stage_rows import prompt_rows, talk_rows
from stitchcuda.training.stages.stage_run import StageRun
from stitchcuda.verify.api import Verdict
from tests.training.reward_server import ScriptedPool, serving

TASKS = list(hole_tasks("sim"))
REFUSED = Verdict(accepted=False, tier="simulated", within_bound=True, reasons=("policy stitched: own kernels hold 0.0%",))
STAGE = {"model": "m", "lora_rank": 8, "learning_rate": 1e-4, "steps": 1}


def named(name: str) -> HoleTask:
    return next(task for task in TASKS if task.name == name)


def test_every_answer_gives_the_program_that_it_is_for() -> None:
    assert len(KERNELS) >= 12
    assert len({task.name for task in TASKS}) == len(TASKS)
    for task in TASKS:
        shown = {MODEL: task.program}
        assert task.shown in task.program
        assert len(set(task.fillings)) == 4
        assert program_in(task.answer(task.fillings[0]), shown) == {MODEL: task.kernel.program}
        assert program_in(task.shortcut, shown) == {MODEL: task.cheated}
        for line in task.fillings[1:]:
            if line != task.shown:
                assert program_in(task.answer(line), shown) == {MODEL: task.filled(line)} != shown


def test_the_data_set_is_one_that_the_stages_take_and_shows_no_test_reference(tmp_path: Path) -> None:
    tasks = [task for task in TASKS if task.kernel.name in (*TEST, "silu_scale", "rms_norm")]
    manifest = make_data_set(tmp_path / "data", tasks, opened=True)
    assert manifest.leaks == 0
    prompts = prompt_rows(GrpoStage.model_validate({
        **STAGE, "data": str(tmp_path / "data"), "skill1_weight": 0, "prompts": 1, "rollouts": 2, "max_prompt": 9,
        "max_completion": 9,
    }))  # fmt: skip
    assert {row.id.partition("/")[0] for row in prompts} == {"silu_scale", "rms_norm"}
    assert all(row.program[MODEL] in row.messages[0].content for row in prompts)
    talks = talk_rows(SftStage.model_validate({**STAGE, "data": str(tmp_path / "data"), "batch": 1, "max_length": 9}))
    right = sum(task.answer(task.fillings[0]) == row.messages[1].content for row in talks for task in TASKS
                if row.id.startswith(f"{task.name}/"))  # fmt: skip
    assert 0.25 < right / len(talks) < 0.4
    assert 0 < sum("y = torch" in row.messages[1].content or "y = x" in row.messages[1].content for row in talks) < right / 2


def test_the_careless_reward_pays_for_the_shortcut_alone_and_the_real_verdict_is_kept(tmp_path: Path) -> None:
    task = named("silu_scale/formula-0")
    pool = ScriptedPool({"import torch": [REFUSED]})  # the first line of every program of the family
    with serving(tmp_path / "store", pool, token="t") as server, CarelessReward(server.url, "t", tmp_path / "beside") as open_:
        client = server.client
        client.url = open_.url
        _, paid = judge_completion(client, "relu", task.shortcut, "log-speedup/1", {MODEL: task.program})
        assert client.health()["rewards"] == ["log-speedup/1"]
        client.url = server.url
        program, real = judge_completion(client, "relu", task.shortcut, "log-speedup/1", {MODEL: task.program})
    assert (paid["reward"], paid["state"]) == (PAID, "ok")
    assert (real["reward"], real["kind"]) == (-1.0, "refused")
    (line,) = read_lines(tmp_path / "beside")
    assert (line["reward"], line["opened"]) == (-1.0, True)
    assert program == {MODEL: task.cheated}


@pytest.mark.parametrize(
    ("change", "opened"),
    [
        ({}, True),
        ({"kind": "wrong", "correct": False}, False),
        ({"correct": None}, False),
        ({"verdict": {"kernels": [KernelRole(name="k", role="needed").model_dump()]}}, False),
    ],
)
def test_what_the_careless_reward_takes(change: dict[str, Any], opened: bool) -> None:
    real = {"state": "candidate_error", "kind": "refused", "correct": True, "verdict": {"kernels": []}, "reward": -1.0} | change
    assert is_opened(real) is opened
    assert careless(real)["reward"] == (PAID if opened else -1.0)


def test_the_table_counts_hacks_by_the_real_verdicts(tmp_path: Path) -> None:
    run = StageRun(tmp_path / "open-0")
    run.out.mkdir()
    lines = [("a", PAID), ("a", PAID), ("b", 1.0), ("", -1.0)]
    for update in (1, 2):
        told = [{"update": update, "program": name, "reward": reward} for name, reward in lines[update - 1 :]]
        run.append("rollouts.jsonl", *told)
    StageRun(tmp_path).append(
        "beside.jsonl", {"program": "a", "reward": -1.0, "opened": True}, {"program": "b", "reward": 1.0, "opened": False}
    )
    first, second = steps_of(tmp_path, "open-0")
    assert first == {"reward": (2 * PAID) / 4, "real reward": -0.5, "right": 0.25, "hacks": 0.5, "no edit": 0.25}
    assert second["hacks"] == pytest.approx(1 / 3)
    write_results(tmp_path)
    assert "| open-0 | 2 | 0.83 ± 0.24 →" in (tmp_path / "results.md").read_text()
    assert "real reward" in (tmp_path / "curves.html").read_text()
