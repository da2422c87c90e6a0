"""What a stage is asked: presets, files over presets, and one sentence for each thing that cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.errors import BadInput
from stitchcuda.training.stages.config import (
    AgenticStage,
    GrpoStage,
    PpoStage,
    SftStage,
    ValueStage,
    digest_of,
    preset_file,
    presets,
    read_stage,
)

GRPO = {
    "model": '"m"', "data": '"d"', "lora_rank": "8", "learning_rate": "1e-6", "prompts": "4", "rollouts": "4", "steps": "2",
    "max_prompt": "100", "max_completion": "100",
}  # fmt: skip


def write(path: Path, changed: dict[str, str | None], head: str = "[grpo]\n") -> Path:
    """A file with all that GRPO needs, with some keys changed; None leaves one out."""
    keys = {**GRPO, **changed}
    path.write_text(head + "".join(f"{key} = {value}\n" for key, value in keys.items() if value is not None))
    return path


def test_presets_have_the_published_numbers(tmp_path: Path) -> None:
    assert presets() == ["cuda-agent-paper", "stitchcuda-paper"]
    stage = read_stage(GrpoStage, write(tmp_path / "own.toml", {"model": '"small"'}), "stitchcuda-paper")
    assert (stage.model, stage.prompts, stage.steps, stage.epochs) == ("small", 4, 2, None), "the file's values hold"
    assert (stage.kl, stage.clip_low, stage.clip_high, stage.temperature, stage.lora_alpha) == (0.03, 0.2, 0.28, 0.9, 128)
    (tmp_path / "data.toml").write_text('[grpo]\ndata = "d"\n')
    paper = read_stage(GrpoStage, tmp_path / "data.toml", "stitchcuda-paper")
    assert (paper.rollouts, paper.prompts, paper.updates_a_step, paper.max_completion) == (6, 16, 2, 16384)
    assert paper.steps_for(200, paper.prompts) == 100, "8 epochs of 200 prompts, 16 a step"
    (tmp_path / "sft.toml").write_text('[sft]\nmodel = "m"\ndata = "d"\n')
    assert read_stage(SftStage, tmp_path / "sft.toml", "cuda-agent-paper").max_length == 131072


def test_cuda_agents_stages_are_one_preset(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[ppo]\nmodel = "m"\ntasks = "t"\n[value]\nmodel = "m"\nrollouts = ["r"]\n'
        '[agentic]\nmodel = "m"\ntasks = "t"\ncritic = "c"\n[sft]\nmodel = "m"\nrollouts = ["r"]\n'
    )
    warmup, agentic = read_stage(PpoStage, own, "cuda-agent-paper"), read_stage(AgenticStage, own, "cuda-agent-paper")
    value = read_stage(ValueStage, own, "cuda-agent-paper")
    for stage in (warmup, agentic, value):
        assert (stage.gamma, stage.gae_lambda, stage.reward) == (1.0, 0.95, "cuda-agent-milestones/1")
    assert (warmup.rollouts, warmup.shares, warmup.lora_rank) == (1, {1: 1.0, 2: 0.0}, 0)
    assert (agentic.turns, agentic.max_prompt + agentic.max_completion, agentic.critic) == (150, 131072, "c")
    assert read_stage(SftStage, own, "cuda-agent-paper").rollouts == ("r",)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (AgenticStage, "tasks = 't'\nreward = 'stitchcuda-product/1'", "needs a rubric, and episodes have none"),
        (AgenticStage, "tasks = 't'\njudge = 'openai:x'", "agentic.judge is not known"),
        (AgenticStage, "", "agentic.tasks is missing"),
        (AgenticStage, "tasks = 't'\nturns = 0", "agentic.turns = 0"),
        (PpoStage, "tasks = 't'\nturns = 3", "ppo.turns is not known"),
        (PpoStage, "tasks = 't'\nprompts = 1\nupdates = 1", "prompts * rollouts = 1: give at least 2"),
        (PpoStage, "tasks = 't'\ngae_lambda = 1.5", "ppo.gae_lambda = 1.5"),
        (PpoStage, "tasks = 't'\ncritic_learning_rate = nan", "ppo.critic_learning_rate = nan"),
        (ValueStage, "", "give data or rollouts"),
        (ValueStage, "rollouts = ['r']\nlora_rank = 8", "value.lora_rank = 8"),
        (SftStage, "rollouts = ['r']\ndata = 'd'", "give data or rollouts, and not both"),
    ],
)
def test_an_impossible_stage_of_cuda_agent_is_one_sentence(
    tmp_path: Path, kind: type[Any], text: str, words: str
) -> None:
    (tmp_path / "own.toml").write_text(f"[{kind.table}]\nmodel = 'm'\n{text}\n")
    with pytest.raises(BadInput) as error:
        read_stage(kind, tmp_path / "own.toml", "cuda-agent-paper")
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["stitchcuda-paper", "cuda-agent-paper"])
def test_numbers_of_presets_are_cited(name: str) -> None:
    text = preset_file(name).read_text()
    assert "arXiv 260" in text
    assert text.count("[paper]") + text.count("[trainer]") >= 4


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rolouts": "4"}, "grpo.rolouts is not known: there are "),
        ({"model": None}, "grpo.model is missing"),
        ({"rollouts": "1"}, "grpo.rollouts = 1: input should be greater than or equal to 2"),
        ({"learning_rate": '"fast"'}, "grpo.learning_rate = 'fast': input should be a valid number"),
        ({"temperature": "0"}, "grpo.temperature = 0: input should be greater than 0"),
        ({"temperature": "nan"}, "grpo.temperature = nan"),
        ({"kl": "inf"}, "grpo.kl = inf"),
        ({"epochs": "1"}, "give either steps or epochs"),
        ({"steps": None}, "give either steps or epochs"),
        ({"micro_batch": "3"}, "prompts * rollouts = 16 is not a multiple of micro_batch * updates = 3"),
        ({"reward": '"money/1"'}, "reward = 'money/1' is not known"),
        ({"reward": '"stitchcuda-product/1"'}, "needs a judge"),
        ({"judge": '"mailbox:box"'}, "judge cannot be a mailbox"),
        ({"data": None}, "give data, tasks or both"),
        ({"data": None, "tasks": '"t"'}, "skill2_weight has to be 0 without data"),
        ({"skill1_weight": "0", "skill2_weight": "0"}, "are both 0"),
        ({"keep": "1"}, "grpo.keep = 1"),
    ],
)
def test_an_impossible_value_is_one_sentence_with_its_key(
    tmp_path: Path, changed: dict[str, str | None], words: str
) -> None:
    with pytest.raises(BadInput) as error:
        read_stage(GrpoStage, write(tmp_path / "own.toml", changed), None)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gpro]\n", "gpro is not known: the tables of a file are [sft], [grpo], [ppo], [value], [agentic]"),
        ("[sft]\n", "has no table [grpo]: it has [sft]"),
        ("", "has no table [grpo]: it has none"),
        ("[grpo", "is no TOML"),
    ],
)
def test_a_file_without_the_stage_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(BadInput) as error:
        read_stage(GrpoStage, tmp_path / "own.toml", None)
    assert words in str(error.value)


def test_the_digest_is_of_what_decides_the_weights(tmp_path: Path) -> None:
    stage = read_stage(GrpoStage, write(tmp_path / "own.toml", {}), None)
    digest = digest_of(stage, ["row"])
    assert digest_of(stage.model_copy(update={"reward_url": "http://elsewhere", "save_every": 1}), ["row"]) == digest
    assert digest_of(stage.model_copy(update={"kl": 0.5}), ["row"]) != digest
    assert digest_of(stage, ["row", "another"]) != digest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["grpo"], "there is nothing to train by"),
        (["grpo", "--preset", "paper"], "there is no preset 'paper': there are cuda-agent-paper, stitchcuda-paper"),
        (["grpo", "--preset", "cuda-agent-paper"], "has no table [grpo]"),
        (["sft", "missing.toml"], "missing.toml cannot be read"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["train", *arguments, "--out", "out", "--json"])
    assert done.exit_code == 2
    assert words in json.loads(done.stdout)["error"]


def test_missing_packages_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stitchcuda.cli.training_stages.importlib.util.find_spec", lambda name: None)
    path = write(tmp_path / "own.toml", {})
    done = CliRunner().invoke(app, ["train", "grpo", str(path), "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"].startswith("training needs trl, peft, accelerate, datasets: ")
    assert "trl==1.16.*" in json.loads(done.stdout)["error"]
