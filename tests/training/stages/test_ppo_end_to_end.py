"""CUDA Agent's stages as a person runs them, against the real reward service on the simulator: PPO in one turn, killed and
resumed; a critic and fine-tuning on what its model wrote; PPO on episodes with tools.

Models are tiny and random. Whole programs, whole calls of tools and whole prompts are single tokens, so steps are fast.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from benchmarks.reward_service import Server, free_port
from stitchcuda.training.openenv.episode import task_prompt
from tests.training.stages.data_folder import data_folder, row
from tests.training.stages.test_stages_end_to_end import ANSWERS, ASKED, SFT, WRONG, command, lines, train
from tests.training.stages.tiny_model import qwen_template, tiny_model
from tests.verify import programs

pytest.importorskip("trl")
pytestmark = pytest.mark.more
TURNS, CHECKS = 3, 1
PROMPT = task_prompt(programs.REFERENCE, "sim", TURNS, CHECKS)
PPO = """
[ppo]
model = "warm/model"
data = "data"
lora_rank = 8
learning_rate = 0.001
critic_learning_rate = 0.001
critic_warmup = 1
prompts = 4
rollouts = 2
updates = 2
micro_batch = 4
steps = 6
save_every = 3
kl = 0.03
clip_high = 0.28
max_prompt = 8000
max_completion = 3
"""
AGENTIC = f"""
[agentic]
model = "warm-agent/model"
tasks = "gate.py"
lora_rank = 8
learning_rate = 0.001
critic_learning_rate = 0.001
prompts = 8
micro_batch = 4
steps = 2
save_every = 1
turns = {TURNS}
checks = {CHECKS}
max_prompt = 8000
max_completion = 4000
"""
RFT = """
[sft]
model = "warm/model"
rollouts = ["straight"]
least_outcome = 0.0
lora_rank = 0
learning_rate = 0.003
batch = 4
steps = 6
max_length = 8192
"""
VALUE = """
[value]
model = "warm/model"
rollouts = ["straight"]
learning_rate = 0.001
batch = 8
micro_batch = 4
epochs = 6
save_every = 100
max_length = 8192
"""


def calls(kernel: str) -> str:
    files = {"model_new.py": programs.KERNEL_MODEL, "kernels/gate.cu": kernel, "kernels/gate_binding.cc": programs.BINDING}
    said: list[dict[str, Any]] = [{"name": "write", "arguments": {"path": path, "text": text}} for path, text in files.items()]
    said.append({"name": "submit", "arguments": {}})
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in said)


CALLS = {"right": calls(programs.KERNEL), "wrong": calls(WRONG), "words": "I would rather write about the weather."}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with both models, their data and the files, and the reward service."""
    folder = tmp_path_factory.mktemp("ppo")
    tiny_model(folder / "model", [*ANSWERS.values(), *ASKED.values()])
    tiny_model(folder / "agent", [*CALLS.values(), PROMPT], template=qwen_template())
    tiny_model(folder / "narrow", [*ANSWERS.values(), *ASKED.values()], hidden=32)
    data_folder(folder / "data", [
        row(f"skill{skill}", f"{name}{copy}", ASKED[skill] + "\n" * copy, text, programs.REFERENCE)
        for skill in (1, 2) for name, text in ANSWERS.items() for copy in range(4 if name == "right" else 2)
    ])  # fmt: skip
    data_folder(folder / "talks", [
        row("rft", f"{name}{copy}", PROMPT + "\n" * copy, text, programs.REFERENCE)
        for name, text in CALLS.items() for copy in range(2)
    ])  # fmt: skip
    (folder / "gate.py").write_text(programs.REFERENCE)
    server = Server(folder, folder / "gate.py", "sim", free_port())
    server.start()
    service = f'reward_url = "http://127.0.0.1:{server.port}"\ntoken_file = "token"\n'
    agent = SFT.replace('"model"', '"agent"').replace('"data"', '"talks"').replace('["skill1", "skill2"]', '["rft"]')
    for name, text in {
        "sft": SFT, "agent": agent, "ppo": PPO + service, "agentic": AGENTIC + service, "value": VALUE,
        "rft": RFT,
    }.items():  # fmt: skip
        (folder / f"{name}.toml").write_text(text)
    try:
        yield folder
    finally:
        server.stop()


def done(folder: Path, *arguments: str) -> dict[str, Any]:
    ended = train(folder, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def straight(folder: Path) -> dict[str, Any]:
    """A run of PPO that was not stopped, in straight/."""
    done(folder, "sft", "sft.toml", "--out", "warm")
    return done(folder, "ppo", "ppo.toml", "--out", "straight")


def test_a_plan_writes_nothing(folder: Path, straight: dict[str, Any]) -> None:
    planned = done(folder, "ppo", "ppo.toml", "--out", "none", "--dry-run")
    assert (planned["verdicts"], planned["memory"]["critic"] > 0) == (48, True)
    assert not (folder / "none").exists()


def test_a_killed_run_goes_on_to_the_same_adapter_and_critic(folder: Path, straight: dict[str, Any]) -> None:
    with subprocess.Popen(command("ppo", "ppo.toml", "--out", "killed"), cwd=folder, stderr=subprocess.DEVNULL) as process:
        while not (folder / "killed" / "checkpoints" / "checkpoint-6" / "stage.json").exists():
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not (folder / "killed" / "summary.json").exists()
    resumed = done(folder, "ppo", "ppo.toml", "--out", "killed", "--resume")
    assert [resumed[key] for key in ("sha256", "critic_sha256")] == [straight[key] for key in ("sha256", "critic_sha256")]
    adapters = [digest(folder / run / "adapter" / "adapter_model.safetensors") for run in ("straight", "killed")]
    assert adapters[0] == adapters[1]
    assert lines(folder / "straight" / "tokens.jsonl") == lines(folder / "killed" / "tokens.jsonl")


def test_the_log_says_what_the_answers_and_their_tokens_say(folder: Path, straight: dict[str, Any]) -> None:
    run = folder / "straight"
    assert (straight["steps"], straight["updates"], straight["result"]) == (6, 12, "model")
    log, rollouts, tokens = (lines(run / name) for name in ("log.jsonl", "rollouts.jsonl", "tokens.jsonl"))
    assert [line["update"] for line in log if "value_loss" in line] == [1, 3, 5, 7, 9, 11], "two updates a step"
    assert len(rollouts) == len(tokens) == 48
    assert [line["reward"] for line in rollouts] == [line["reward"] for line in tokens]
    for line in log:
        assert {"ratio/mean", "ratio/max", "ratio/clipped", "kl_of_update", "kl", "entropy"} <= set(line)
    assert [line["loss"] for line in log[:2]] == [0, 0], "the critic is trained alone"
    assert [line["ratio/max"] for line in log[:3]] == [1, 1, 1], "and the policy stays what it is"
    assert any(line["ratio/max"] > 1 for line in log[3:])
    assert log[0]["value/mean"] == 0, "a new critic's values are 0"
    assert log[2]["value/mean"] != 0
    for line in (line for line in log if "reward" in line):
        own = [rollout["reward"] for rollout in rollouts if rollout["update"] == line["update"]]
        assert line["reward"] == pytest.approx(sum(own) / len(own), abs=1e-6)
    adapter = load_file(run / "adapter" / "adapter_model.safetensors")
    assert any(tensor.any() for name, tensor in adapter.items() if "lora_B" in name), "B begins as zeros"
    page = (run / "curves.html").read_text()
    assert "importance ratio" in page
    assert "loss of the critic" in page


def test_a_critic_is_learnt_from_rollouts_and_ppo_begins_with_it(folder: Path, straight: dict[str, Any]) -> None:
    learnt = done(folder, "value", "value.toml", "--out", "value")
    log = lines(folder / "value" / "log.jsonl")
    assert (learnt["result"], learnt["updates"], len(log)) == ("critic", 36, 36)
    first, last = ([line.get("explained_variance", 0.0) for line in part] for part in (log[:6], log[-12:]))
    assert max(first) < 0.05 < 0.1 < sum(last) / len(last), "it explains the rewards better and better"
    from transformers import AutoModelForTokenClassification

    critic = AutoModelForTokenClassification.from_pretrained(folder / "value" / "critic")
    assert (critic.config.num_labels, bool(critic.score.weight.any())) == (1, True)
    own = (folder / "ppo.toml").read_text().replace("steps = 6", "steps = 1").replace("save_every = 3", "save_every = 1")
    (folder / "begun.toml").write_text(own + 'critic = "value/critic"\n')
    done(folder, "ppo", "begun.toml", "--out", "begun")
    assert lines(folder / "begun" / "log.jsonl")[0]["value/mean"] != 0, "it begins with what was learnt"
    _save_critic(folder / "narrow")
    for given, words in (("warm/model", "is no critic"), ("narrow/critic", "its hidden_size is 32, and the model's is 64")):
        (folder / "bad.toml").write_text(own + f'critic = "{given}"\n')
        refused = train(folder, "ppo", "bad.toml", "--out", "bad", "--json")
        assert refused.returncode == 2
        assert words in json.loads(refused.stdout)["error"]
    assert not (folder / "bad").exists()


def _save_critic(model: Path) -> None:
    from stitchcuda.training.stages.critic import load_critic

    load_critic(str(model)).save_pretrained(model / "critic")


def test_fine_tuning_learns_what_was_good_of_rollouts(folder: Path, straight: dict[str, Any]) -> None:
    tuned = done(folder, "sft", "rft.toml", "--out", "rft")
    log = lines(folder / "rft" / "log.jsonl")
    assert (tuned["result"], log[-1]["loss"] < log[0]["loss"]) == ("model", True)
    (folder / "strict.toml").write_text((folder / "rft.toml").read_text().replace("outcome = 0.0", "outcome = 9.0"))
    refused = train(folder, "sft", "strict.toml", "--out", "none", "--json")
    assert "no answer of straight has a reward of at least 9.0" in json.loads(refused.stdout)["error"]


def test_episodes_are_trained_on_without_what_the_tools_said(folder: Path) -> None:
    done(folder, "sft", "agent.toml", "--out", "warm-agent")
    planned = done(folder, "ppo", "agentic.toml", "--agentic", "--out", "none", "--dry-run")
    assert (planned["rows"], planned["verdicts_a_step"]) == ({"tasks": 1}, 8 * (CHECKS + 1))
    ended = done(folder, "ppo", "agentic.toml", "--agentic", "--out", "episodes")
    run = folder / "episodes"
    rollouts, tokens, log = (lines(run / name) for name in ("rollouts.jsonl", "tokens.jsonl", "log.jsonl"))
    assert (ended["steps"], len(rollouts), len(tokens)) == (2, 16, 16)
    assert [line["reward"] for line in rollouts] == [line["reward"] for line in tokens]
    assert {line["reward"] for line in rollouts} == {1.0, -1.0}
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "agent")
    spoken = 0
    for line in tokens:
        wrote, told = (
            tokenizer.decode([token for token, own in zip(line["answer"], line["wrote"], strict=True) if own == kind])
            for kind in (1, 0)
        )
        assert "<tool_response>" not in wrote
        spoken += "<tool_response>" in told
        assert told.count("<|im_start|>assistant") <= TURNS
    assert spoken, "no tool was called"
    assert all("episode/calls" in line for line in log)
    assert log[0]["completions/mean_length"] == pytest.approx(sum(sum(line["wrote"]) for line in tokens[:8]) / 8)
