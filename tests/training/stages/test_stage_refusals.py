"""What a stage refuses before it trains, by the command: one sentence each, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from tests.training.reward_server import ScriptedPool, serving
from tests.training.stages.data_folder import data_folder, row
from tests.training.stages.tiny_model import tiny_model

pytestmark = pytest.mark.more              # each imports TRL, which takes seconds
pytest.importorskip("trl")
REFERENCE = "import torch\nclass Model(torch.nn.Module): ...\ndef get_inputs(): return []\n"
STAGES = """
[sft]
model = "model"
data = "data"
lora_rank = 4
learning_rate = 0.001
batch = 1
steps = 1
max_length = 100

[grpo]
model = "model"
tasks = "relu.py"
skill2_weight = 0
lora_rank = 4
learning_rate = 0.001
prompts = 1
rollouts = 2
steps = 1
max_prompt = 4000
max_completion = 2
patience_s = 1

[ppo]
model = "model"
tasks = "relu.py"
skill2_weight = 0
lora_rank = 4
learning_rate = 0.001
prompts = 2
steps = 1
max_prompt = 4000
max_completion = 2
patience_s = 1

[agentic]
model = "model"
tasks = "relu.py"
turns = 2
checks = 1
lora_rank = 4
learning_rate = 0.001
prompts = 2
steps = 1
max_prompt = 4000
max_completion = 100
patience_s = 1

[value]
model = "model"
rollouts = ["rolled"]
learning_rate = 0.001
batch = 1
steps = 1
max_length = 100
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STITCHCUDA_REWARD_TOKEN", raising=False)
    monkeypatch.setenv("STITCHCUDA_REWARD_URL", "http://127.0.0.1:9")
    tiny_model(tmp_path / "model", ["answer"])
    data_folder(tmp_path / "data", [row("rft", "0", "ask", "answer", REFERENCE)])
    (tmp_path / "relu.py").write_text(REFERENCE)
    (tmp_path / "own.toml").write_text(STAGES)
    return tmp_path


def refusal(stage: str, *more: str) -> str:
    done = CliRunner().invoke(app, ["train", stage, "own.toml", "--out", "out", "--json", *more])
    assert done.exit_code == 2, done.output
    return str(json.loads(done.stdout.splitlines()[-1])["error"])


def test_a_model_that_cannot_be_trained_is_refused(folder: Path) -> None:
    tiny_model(folder / "model", ["answer"], template=None)
    (folder / "model" / "chat_template.jinja").unlink(missing_ok=True)
    assert "model has no chat template" in refusal("sft")
    (folder / "model" / "adapter_config.json").write_text("{}")
    assert "model is an adapter" in refusal("sft")
    (folder / "own.toml").write_text(STAGES.replace('model = "model"', 'model = "./missing"'))
    assert "the tokenizer of ./missing cannot be loaded" in refusal("grpo")
    assert not (folder / "out").exists()


def test_a_template_without_marks_around_the_answers_is_refused(folder: Path) -> None:
    path = folder / "model" / "chat_template.jinja"
    path.write_text(path.read_text().replace("{% generation %}", "").replace("{% endgeneration %}", ""))
    assert "TRL cannot train on model: " in refusal("sft")


def test_rows_that_are_too_long_are_left_out_and_not_cut(folder: Path) -> None:
    (folder / "own.toml").write_text(STAGES.replace("max_length = 100", "max_length = 8"))
    assert "no row of data has at most 8 tokens" in refusal("sft")
    (folder / "own.toml").write_text(STAGES.replace("max_prompt = 4000", "max_prompt = 8"))
    assert "no prompt of skill 1 has at most 8 tokens" in refusal("grpo")
    assert "raise ppo.max_prompt, or set ppo.skill1_weight to 0" in refusal("ppo")
    assert "raise agentic.max_prompt" in refusal("ppo", "--agentic")


def test_a_reward_service_that_is_away_or_has_no_answer_trains_nothing(folder: Path) -> None:
    planned = CliRunner().invoke(app, ["train", "grpo", "own.toml", "--out", "out", "--dry-run"])
    assert planned.exit_code == 1
    assert "the reward service at http://127.0.0.1:9 does not answer" in planned.stdout
    assert "the reward service at http://127.0.0.1:9 does not answer" in refusal("grpo")
    assert not (folder / "out").exists()
    (folder / "relu.py").rename(folder / "other.py")
    with serving(folder / "store", ScriptedPool()) as server:
        own = STAGES.replace("relu.py", "other.py").replace("patience_s = 1", f'patience_s = 30\nreward_url = "{server.url}"')
        (folder / "own.toml").write_text(own)
        said = refusal("grpo")
    assert "none of the 2 answers of a step has a reward (there is no task 'other'" in said
    assert "there is no save point yet" in said
    assert (folder / "out" / "rollouts.jsonl").exists()
    assert not (folder / "out" / "log.jsonl").exists()


def test_what_ppo_and_a_critic_cannot_begin_with_is_refused(folder: Path) -> None:
    for flags in ([], ["--agentic"]):
        assert "the reward service at http://127.0.0.1:9 does not answer" in refusal("ppo", *flags)
    assert "rolled holds no rollouts that can be read: give the folder of a run of ppo" in refusal("value")
    (folder / "own.toml").write_text(STAGES.replace('rollouts = ["rolled"]', 'data = "data"'))
    assert "data has no rows jsonl/value.train.jsonl" in refusal("value")
    (folder / "own.toml").write_text(STAGES.replace('turns = 2', 'turns = 2\ncritic = "model"'))
    assert "model is no critic" in refusal("ppo", "--agentic")
    assert not (folder / "out").exists()
    with serving(folder / "store", ScriptedPool()) as server:
        own = STAGES.replace("patience_s = 1", f'patience_s = 30\nreward_url = "{server.url}"')
        (folder / "own.toml").write_text(own)
        assert "TRL cannot train model: " in refusal("ppo", "--agentic"), "it reads no calls of tools of this template"
