"""Which rows a stage is trained on: those of the data set as its manifest describes it, none that leaks, skills by weight."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.store import Workspace
from stitchcuda.training.data import make_data
from stitchcuda.training.stages.config import GrpoStage, SftStage
from stitchcuda.training.stages.stage_rows import mixed, prompt_rows, require_skills, talk_rows
from tests.training.stages.data_folder import data_folder, row
from tests.training.test_data import OTHER, REFERENCE, replayed


def grpo(data: Path | str, **more: Any) -> GrpoStage:
    given = {"model": "m", "data": str(data), "lora_rank": 8, "learning_rate": 1e-6, "prompts": 2, "rollouts": 2, "steps": 1,
             "max_prompt": 100, "max_completion": 100}  # fmt: skip
    return GrpoStage.model_validate(given | more)


def sft(data: Path, **more: Any) -> SftStage:
    given = {"model": "m", "data": str(data), "lora_rank": 0, "learning_rate": 1e-6, "batch": 1, "steps": 1, "max_length": 100}
    return SftStage.model_validate(given | more)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    kinds = ("skill1", "skill2", "rft")
    rows = [row(kind, str(number), f"ask {number}", "say", REFERENCE) for kind in kinds for number in range(3)]
    return data_folder(tmp_path / "data", rows)


def test_rows_of_a_real_session_are_read(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "ws")
    replayed(home, "mamba2")
    make_data(home.store.names(), home, tmp_path / "data", licence="Apache-2.0", test_percent=0, tell=lambda line: None)
    rows = prompt_rows(grpo(tmp_path / "data"))
    assert Counter(found.skill for found in rows) == {1: 1, 2: 2}
    for found in rows:
        assert [turn.role for turn in found.messages] == ["user"]
        assert found.task == found.reference
        assert found.reference.strip() in found.messages[0].content
    talks = talk_rows(sft(tmp_path / "data", least_outcome=1.0))
    assert len(talks) == 4
    assert all(talk.messages[-1].role == "assistant" for talk in talks)
    with pytest.raises(BadInput, match=r"no row .* has an outcome of at least 9"):
        talk_rows(sft(tmp_path / "data", least_outcome=9.0))


def test_skills_are_mixed_by_weight_and_rows_come_in_turn(data: Path) -> None:
    stage = grpo(data, skill1_weight=3.0, skill2_weight=1.0)
    drawn = mixed(prompt_rows(stage), stage, 24)
    assert Counter(found.skill for found in drawn) == {1: 18, 2: 6}
    assert Counter(found.skill for found in drawn[:4]) == {1: 3, 2: 1}
    assert set(Counter(found.id for found in drawn if found.skill == 1).values()) == {6}
    assert drawn == mixed(prompt_rows(stage), stage, 24)
    assert drawn != mixed(prompt_rows(stage), stage.model_copy(update={"seed": 1}), 24)


def test_a_table_of_tasks_gives_prompts_of_skill_1_by_name(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(REFERENCE)
    (found,) = prompt_rows(grpo("", tasks=str(tmp_path), skill2_weight=0.0))
    assert (found.task, found.skill) == ("softmax", 1)
    assert REFERENCE.strip() in found.messages[0].content


def test_a_skill_without_rows_is_refused(data: Path) -> None:
    rows = [found for found in prompt_rows(grpo(data)) if found.skill == 1]
    with pytest.raises(BadInput, match="no prompt of skill 2 has at most 100 tokens"):
        require_skills(rows, grpo(data))


def change(path: Path, **columns: Any) -> None:
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | columns), *rest]) + "\n")


def test_a_data_set_that_leaks_is_refused(data: Path, tmp_path: Path) -> None:
    report = {"leaks": [{"row": "s/skill2/1", "field": "messages[0].content", "reference": "other", "how": "its text"}]}
    (data / "leakage.json").write_text(json.dumps(report))
    with pytest.raises(BadInput, match=r"the row s/skill2/1 .* leaks a test reference"):
        prompt_rows(grpo(data))
    (tmp_path / "held.py").write_text(REFERENCE.replace("weight", "gain"))
    with pytest.raises(BadInput, match=r"held_out: .*missing names no Python file"):
        prompt_rows(grpo(data, skill2_weight=0.0, held_out=[str(tmp_path / "missing")]))
    with pytest.raises(BadInput, match=r"the row s/skill1/0 shows the held-out .*held.py"):
        prompt_rows(grpo(data, skill2_weight=0.0, held_out=[str(tmp_path / "held.py")]))
    (tmp_path / "held.py").write_text(OTHER)
    assert prompt_rows(grpo(data, skill2_weight=0.0, held_out=[str(tmp_path / "held.py")]))


def test_a_data_set_that_is_not_as_it_was_made_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"manifest.json cannot be read"):
        prompt_rows(grpo(tmp_path / "missing"))
    change(data / "trl" / "rft.train.jsonl", outcome=5.0)
    with pytest.raises(BadInput, match="not what the manifest says"):
        talk_rows(sft(data))
    rows = [row("rft", "0", "ask", "say", REFERENCE) | {"split": "test"}]
    with pytest.raises(BadInput, match=r"s/rft/0 .* is of the test split"):
        talk_rows(sft(data_folder(tmp_path / "other", rows)))
    with pytest.raises(BadInput, match=r"has no rows jsonl/skill1.train.jsonl: it has jsonl/rft.train.jsonl"):
        prompt_rows(grpo(tmp_path / "other"))
    (data / "leakage.json").unlink()
    with pytest.raises(BadInput, match="is incomplete"):
        prompt_rows(grpo(data))
