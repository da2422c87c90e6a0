"""Both stages as a person runs them: fine-tuning, then GRPO against the real reward service on the simulator, killed and
resumed.

The model is tiny and random, and its tokens are whole programs: a right one, a wrong one, one that does not build, an attack,
and words. Fine-tuning teaches it to write one of them, so rewards differ within groups.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from benchmarks.reward_service import Server, free_port
from stitchcuda.training.session_rows import asked_to_write
from tests.training.stages.data_folder import data_folder, row
from tests.training.stages.tiny_model import tiny_model
from tests.verify import programs

pytest.importorskip("trl")
WRONG = programs.KERNEL.replace("* gain;", "* gain + 1.0f;")
ATTACK = """
import sys, torch
class ModelNew(torch.nn.Module):
    def forward(self, x, gain):
        return sys._getframe(1).f_locals["expected"]
"""


def answer(kernel: str) -> str:
    files = {"model_new.py": programs.KERNEL_MODEL, "kernels/gate.cu": kernel, "kernels/gate_binding.cc": programs.BINDING}
    return "\n\n".join(f"```{name}\n{text.strip()}\n```" for name, text in files.items())


ANSWERS = {
    "right": answer(programs.KERNEL), "wrong": answer(WRONG), "attack": f"```model_new.py\n{ATTACK.strip()}\n```",
    "broken": answer(programs.KERNEL.replace("const float*", "no_type*")), "words": "I would rather write about the weather.",
}  # fmt: skip
ASKED = {
    1: asked_to_write(programs.REFERENCE)[0].content,
    2: f"Write a better program.\n\n{programs.REFERENCE}\n\n{ANSWERS['wrong']}\n\nCheck: wrong.",
}
SFT = """
[sft]
model = "model"
data = "data"
kinds = ["skill1", "skill2"]
lora_rank = 0
learning_rate = 0.003
batch = 6
micro_batch = 6
steps = 24
save_every = 24
max_length = 8192
"""
GRPO = """
[grpo]
model = "warm/model"
data = "data"
reward = "log-speedup/1"
lora_rank = 8
learning_rate = 0.001
prompts = 2
rollouts = 4
updates = 2
micro_batch = 4
steps = 6
save_every = 3
kl = 0.03
clip_high = 0.28
temperature = 1.0
max_prompt = 8000
max_completion = 3
"""


def train(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stitchcuda", "train", *arguments]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the model, the data and both files, and the reward service's address in its environment."""
    folder = tmp_path_factory.mktemp("stages")
    tiny_model(folder / "model", list(ANSWERS.values()))
    rows = [
        row(f"skill{skill}", f"{name}{copy}", ASKED[skill] + "\n" * copy, text, programs.REFERENCE)
        for skill in (1, 2)
        for name, text in ANSWERS.items()
        for copy in range(4 if name == "right" else 2)
    ]
    data_folder(folder / "data", rows)
    (folder / "sft.toml").write_text(SFT)
    (folder / "grpo.toml").write_text(GRPO)
    (folder / "gate.py").write_text(programs.REFERENCE)
    server = Server(folder, folder / "gate.py", "sim", free_port())
    server.start()
    try:
        (folder / "grpo.toml").write_text(GRPO + f'reward_url = "http://127.0.0.1:{server.port}"\ntoken_file = "token"\n')
        yield folder
    finally:
        server.stop()


@pytest.mark.more
def test_a_killed_run_goes_on_to_the_same_adapter(folder: Path) -> None:
    tuned = train(folder, "sft", "sft.toml", "--out", "warm", "--json")
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["last"]["loss"] < lines(folder / "warm" / "log.jsonl")[0]["loss"] / 2
    planned = train(folder, "grpo", "grpo.toml", "--out", "none", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["verdicts"] == 48
    assert not (folder / "none").exists()

    straight = train(folder, "grpo", "grpo.toml", "--out", "straight", "--json")
    assert straight.returncode == 0, straight.stderr
    expected = json.loads(straight.stdout)
    assert (expected["steps"], expected["updates"]) == (6, 12)

    with subprocess.Popen(command("grpo", "grpo.toml", "--out", "killed"), cwd=folder, stderr=subprocess.DEVNULL) as process:
        saved = folder / "killed" / "checkpoints" / "checkpoint-6" / "stage.json"
        while not saved.exists():
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not (folder / "killed" / "summary.json").exists()
    resumed = train(folder, "grpo", "grpo.toml", "--out", "killed", "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["sha256"] == expected["sha256"]
    assert "from update 6" in resumed.stderr

    for run in ("straight", "killed"):
        _adds_up(folder / run)
    first, second = (lines(folder / run / "rollouts.jsonl") for run in ("straight", "killed"))
    assert [(line["update"], line["row"], line["reward"]) for line in first] == [
        (line["update"], line["row"], line["reward"]) for line in second
    ]
    page = (folder / "straight" / "curves.html").read_text()
    assert "mean reward" in page
    assert list((folder / "straight" / "tensorboard").iterdir())
    _other_config_is_refused(folder)


def _adds_up(run: Path) -> None:
    """Parts of the reward in the log add up to it, as the answers and the verifier's verdicts say."""
    log, rollouts = lines(run / "log.jsonl"), lines(run / "rollouts.jsonl")
    assert [line["update"] for line in log] == list(range(1, 13))
    assert [line["update"] for line in log if "reward" in line] == [1, 3, 5, 7, 9, 11], "two updates a step"
    assert len(rollouts) == 48
    assert {line["skill"] for line in rollouts} == {1, 2}
    assert len({line["reward"] for line in rollouts}) > 1
    assert any(line["grad_norm"] > 0 for line in log), "nothing was learnt"
    adapter = load_file(run / "adapter" / "adapter_model.safetensors")
    assert any(tensor.any() for name, tensor in adapter.items() if "lora_B" in name), "B begins as zeros"
    for line in log:
        if "reward" not in line:
            continue
        own = [rollout for rollout in rollouts if rollout["update"] == line["update"]]
        given = [rollout["reward"] for rollout in own if rollout["reward"] is not None]
        assert line["reward"] == pytest.approx(sum(given) / len(given), abs=1e-6)
        parts = [value for name, value in line.items() if name.startswith("reward_part/")]
        assert sum(parts) == pytest.approx(line["reward"], abs=1e-6)
        assert sum(value for name, value in line.items() if name.startswith("answers/")) == pytest.approx(1.0)
        assert line["share/attacks"] == pytest.approx(sum(rollout["attack"] for rollout in own) / len(own))
        groups = [{rollout["reward"] for rollout in own[at : at + 4]} - {None} for at in (0, 4)]
        assert line["share/groups_without_signal"] == sum(len(group) < 2 for group in groups) / 2
    for rollout in rollouts:
        assert rollout["reward"] == (1.0 if rollout["kind"] == "ok" else -1.0)


def _other_config_is_refused(folder: Path) -> None:
    (folder / "other.toml").write_text((folder / "grpo.toml").read_text().replace("kl = 0.03", "kl = 0.04"))
    refused = train(folder, "grpo", "other.toml", "--out", "killed", "--resume", "--json")
    assert refused.returncode == 2
    assert "another config (grpo.kl = 0.03)" in json.loads(refused.stdout)["error"]
