"""`stitchcuda train reward score` as a person uses it: a verdict with its rewards, and one sentence where that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.training.rewards import REWARDS
from stitchcuda.training.scoring import Scored

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 256)]
def get_init_inputs():
    return []
"""
ATTACK = """
import sys, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return sys._getframe(1).f_locals["expected"]
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ref.py").write_text(REFERENCE)
    (tmp_path / "attack.py").write_text(ATTACK)
    return tmp_path


def score(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["train", "reward", "score", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing", "--reference", "ref.py"], "there is no program missing"),
        (["attack.py", "--reference", "missing"], "there is no reference missing"),
        (["attack.py", "--reference", "ref.py", "--judge", "gpt"], "'gpt' is not known"),
        (["attack.py", "--reference", "ref.py", "--judge", "mailbox:"], "--judge mailbox: names no folder"),
        (["ref.py", "--reference", "ref.py"], "defines no class ModelNew"),
    ],
)
def test_bad_input_is_one_sentence(files: Path, arguments: list[str], words: str) -> None:
    done = score(*arguments, "--device", "sim", "--json")
    assert done.exit_code == 2
    assert words in json.loads(done.stdout)["error"]
    assert done.stderr.count("\n") == 1


@pytest.mark.more
def test_an_attack_gets_the_least_of_every_reward_and_its_judge_is_not_asked(files: Path) -> None:
    done = score("attack.py", "--reference", "ref.py", "--device", "sim", "--judge", "mailbox:box", "--json")
    assert done.exit_code == 0, done.output
    scored = Scored.model_validate_json(done.stdout)
    assert [reward.value for reward in scored.rewards] == [0.0, -1.0, -1.0]
    assert [reward.name for reward in scored.rewards] == list(REWARDS)
    assert scored.judged.rubric is not None
    assert scored.judged.rubric.major_hacking
    assert not (files / "box").exists()
