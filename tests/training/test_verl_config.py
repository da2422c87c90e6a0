"""Runs of verl that are written of the published recipes: keys, values, what a shell and hydra make of them, and bad input.

Where verl is installed, its own configuration takes each run and its own check passes; benchmarks/verl_presets.py does more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.agent_rollouts import byte_tokenizer
from benchmarks.verl_presets import compose, parsed, tiny_model
from stitchcuda.cli.app import app
from stitchcuda.errors import BadInput
from stitchcuda.store import Workspace
from stitchcuda.training.data import DataFile, DataManifest, make_data
from stitchcuda.training.reward_service.known_rewards import REWARDS
from stitchcuda.training.verl_config import WITHOUT_VALUE, VerlRun, find_stage, hydra_text, verl_stages, write_run
from stitchcuda.training.verl_files import tools_config
from tests.training.reward_server import ScriptedPool, serving
from tests.training.test_data import replayed

URL = "http://judge:8711"
STAGES = [(preset, stage) for preset, stages in verl_stages().items() for stage in stages]
TASK = "class Model:\n    'task {}'\n"
WITH_VERL = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("verl", "trl"))), reason="verl is not installed here: benchmarks/verl_presets.py"
)
NAMED = r"--prompts (\d+)"


def tasks(folder: Path, count: int) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps({"name": f"t{at}", "source": TASK.format(at)}) + "\n" for at in range(count)))
    return path


def data_set(folder: Path, files: dict[str, int]) -> Path:
    """What `make_data` leaves, as far as a run of verl looks: the manifest and the files' names."""
    (folder / "verl").mkdir(parents=True)
    for name in files:
        (folder / name).touch()
    made = [DataFile(path=name, rows=rows, sha256="0" * 64) for name, rows in files.items()]
    manifest = DataManifest(
        licence="none", authors=(), test_percent=10, sessions=(), files=tuple(made), duplicates=0, leaks=0,
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder


def a_run(folder: Path, **changed: Any) -> VerlRun:
    if "data" not in changed:
        changed["data"] = tasks(folder, 1024)
    return VerlRun(**{"model": "m", "out": folder / "run", "reward_url": URL, **changed})


def written(folder: Path, preset: str, stage: str | None = None, **changed: Any) -> dict[str, str]:
    """The overrides of a run, by key."""
    found = find_stage(preset, stage)
    if found.pretrained_critic:
        changed.setdefault("critic", "value-model")
    write_run(found, a_run(folder, **changed))
    lines = (folder / "run" / "overrides.txt").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_stitchcudas_recipe_is_the_published_one(tmp_path: Path) -> None:
    made = written(tmp_path, "stitchcuda-paper")
    model, actor, rollout = (f"actor_rollout_ref.{part}." for part in ("model", "actor", "rollout"))
    published = {
        "algorithm.adv_estimator": "grpo", "data.train_batch_size": "16", f"{actor}ppo_mini_batch_size": "8",
        f"{rollout}n": "6", f"{model}lora_rank": "128", f"{model}lora_alpha": "128", f"{model}target_modules": "all-linear",
        f"{actor}kl_loss_coef": "0.03", f"{actor}kl_loss_type": "low_var_kl", f"{actor}clip_ratio_low": "0.2",
        f"{actor}clip_ratio_high": "0.28", f"{actor}optim.lr": "1e-06", f"{rollout}temperature": "0.9", f"{rollout}top_k": "20",
        f"{rollout}top_p": "0.95", "data.max_prompt_length": "8192", "data.max_response_length": "16384",
        "trainer.total_epochs": "8", "reward.reward_manager.name": "dapo",
    }  # fmt: skip
    assert {key: made.get(key) for key in published} == published
    assert not any(key.startswith("critic.") for key in made), "GRPO has no critic"


def test_cuda_agents_stages(tmp_path: Path) -> None:
    for stage in ("warmup", "agentic"):
        (tmp_path / stage).mkdir()
        made = written(tmp_path / stage, "cuda-agent-paper", stage)
        assert (made["algorithm.adv_estimator"], made["algorithm.gamma"], made["algorithm.lam"]) == ("gae", "1.0", "0.95")
    assert made["critic.model.path"] == "value-model"
    assert int(made["data.max_prompt_length"]) + int(made["data.max_response_length"]) == 131072
    run, multi_turn = tmp_path / "agentic" / "run", "actor_rollout_ref.rollout.multi_turn."
    assert made[f"{multi_turn}max_assistant_turns"] == "150"
    assert made[f"{multi_turn}tool_config_path"] == f'"{run / "tools.yaml"}"'
    assert json.loads((run / "tools.yaml").read_text()) == tools_config(URL)
    row = json.loads((run / "rows.jsonl").read_text().splitlines()[0])
    terms = row["extra_info"]["tools_kwargs"]["check"]["create_kwargs"]
    assert (terms["steps"], terms["checks"], terms["reward_schema"]) == (150, 150, "cuda-agent-milestones/1")
    assert sorted(path.name for path in (tmp_path / "warmup" / "run").iterdir()) == ["overrides.txt", "rows.jsonl", "run.sh"]


def test_every_number_of_a_preset_has_its_source() -> None:
    text = (Path(__file__).parents[2] / "stitchcuda" / "training" / "verl_presets.toml").read_text()
    for line in text.splitlines():
        if re.search(r"= -?[\d.]", line) and not line.startswith("data.max_response_length = 122880"):
            assert re.search(r"# (kernelauto|CUDA Agent|verl's default|ours|131072 tokens)", line), line


@pytest.mark.parametrize(("preset", "stage"), STAGES)
def test_a_shell_hands_verl_what_is_written(preset: str, stage: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME, with \"quotes\""
    folder.mkdir()
    written(folder, preset, stage, nodes=2)
    script = folder / "run" / "run.sh"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(script), "a.b=c d"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "-m", "verl.trainer.main_ppo", *(folder / "run" / "overrides.txt").read_text().splitlines(), "a.b=c d"
    ]  # fmt: skip
    assert "ray start --head" in script.read_text(), "two nodes need Ray's cluster first"


@pytest.mark.parametrize(("value", "text"), [
    (True, "true"), (6, "6"), (1e-06, "1e-06"), ("grpo", "grpo"), ("all-linear", "all-linear"), ("null", '"null"'),
    ("7", '"7"'),
    ("/a b/c", '"/a b/c"'), ('a"b', '"a\\"b"'), ("it's", '"it\'s"'), (("a", "/b,c"), '[a,"/b,c"]'), ("", '""'),
])  # fmt: skip
def test_values_as_hydra_reads_them(value: Any, text: str) -> None:
    assert hydra_text("key", value) == text


@pytest.mark.parametrize("value", ["a\\b", "${oc.env:HOME}", "a\nb"])
def test_a_text_that_hydra_changes_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"actor_rollout_ref\.model\.path cannot be .*: hydra changes texts with"):
        written(tmp_path, "stitchcuda-paper", model=value)


def test_data_of_sessions_are_both_skills(tmp_path: Path) -> None:
    files = {"verl/skill1.train.parquet": 9, "verl/skill2.train.parquet": 30, "verl/rft.train.parquet": 50}
    data = data_set(tmp_path / "data", files)
    made = written(tmp_path, "stitchcuda-paper", data=data)
    skills = [f'"{data / name}"' for name in files if "skill" in name]
    assert made["data.train_files"] == f"[{','.join(skills)}]"
    assert made["trainer.test_freq"] == "-1", "without test rows nothing is validated"
    (tmp_path / "second").mkdir()
    tested = data_set(tmp_path / "second" / "data", files | {"verl/skill2.test.parquet": 4})
    made = written(tmp_path / "second", "stitchcuda-paper", data=tested)
    assert made["data.val_files"] == f'["{tested / "verl/skill2.test.parquet"}"]'
    assert made["trainer.test_freq"] == "100"


def test_both_reward_functions_are_asked_for_by_the_package(tmp_path: Path) -> None:
    made = written(tmp_path, "stitchcuda-paper", reward="log-speedup/1")
    function = "reward.custom_reward_function"
    assert made[f"{function}.path"] == '"pkg://stitchcuda.training.reward_service.trainers"'
    assert made[f"{function}.name"] == "compute_score"
    arguments = {key.rpartition(".")[2]: value for key, value in made.items() if key.startswith(f"+{function}.reward_kwargs.")}
    assert arguments == {"url": f'"{URL}"', "schema": '"log-speedup/1"', "must_judge": "true"}
    assert "TOKEN" not in (tmp_path / "run" / "overrides.txt").read_text()


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("nodes", [1, 3, 8])
@pytest.mark.parametrize(("preset", "stage"), [part for part in STAGES if part[1] != "agentic"])
def test_the_number_of_prompts_that_is_named_fits(preset: str, stage: str, nodes: int, gpus: int, tmp_path: Path) -> None:
    found, asked = find_stage(preset, stage), a_run(tmp_path, nodes=nodes, gpus=gpus)
    rollouts = found.overrides["actor_rollout_ref.rollout.n"]
    assert isinstance(rollouts, int)
    said = ""
    try:
        write_run(found, asked)
    except BadInput as error:
        said = str(error)
    if said:
        (named,) = map(int, re.findall(NAMED, said))
        asked = asked.model_copy(update={"prompts": named, "data": tasks(tmp_path, named)})
        assert f"a step has {named} prompts" in " ".join(write_run(found, asked).notes)
    lines = dict(line.split("=", 1) for line in (tmp_path / "run" / "overrides.txt").read_text().splitlines())
    assert int(lines["actor_rollout_ref.actor.ppo_mini_batch_size"]) * rollouts % (nodes * gpus) == 0


BAD: dict[str, tuple[str, str | None, dict[str, Any], str]] = {
    "preset": ("paper", None, {}, "there is no preset 'paper': there are stitchcuda-paper, cuda-agent-paper"),
    "stage": ("stitchcuda-paper", "ppo", {}, "stitchcuda-paper has no stage 'ppo': it has grpo"),
    "stages": ("cuda-agent-paper", None, {}, "several stages: give --stage, one of warmup, agentic"),
    "url": ("stitchcuda-paper", None, {"reward_url": "judge:8711"}, "is no address: it is like http://HOST:8711"),
    "reward": ("stitchcuda-paper", None, {"reward": "speed"}, "there is no reward 'speed': give one of accepted/1"),
    "critic": ("stitchcuda-paper", None, {"critic": "c"}, "stage grpo has no critic: leave --critic out"),
    "no critic": ("cuda-agent-paper", "agentic", {"critic": None}, "starts from a pretrained critic: give --critic"),
    "server": ("stitchcuda-paper", None, {"gpus": 6}, "6 GPUs a node are no multiple of a rollout server's 4"),
    "sequence": ("cuda-agent-paper", "agentic", {"gpus": 2, "critic": "c"}, "2 GPUs are no multiple of the 4"),
    "prompts": ("stitchcuda-paper", None, {"nodes": 8}, "evenly by 64 GPUs: give --prompts 64, a multiple of 64"),
    "no data": ("stitchcuda-paper", None, {"data": Path("nowhere")}, "there is no nowhere: give a .jsonl file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_one_sentence(case: str, tmp_path: Path) -> None:
    preset, stage, facts, said = BAD[case]
    with pytest.raises(BadInput, match=re.escape(said)):
        write_run(find_stage(preset, stage), a_run(tmp_path, **facts))
    assert not (tmp_path / "run").exists(), "nothing is written"


def test_data_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    cases = {
        "has no parquet files for training on a skill: make it with --form verl": data_set(
            tmp_path / "a", {"verl/rft.train.parquet": 3}
        ),
        "has 3 training rows, fewer than the 16 prompts": data_set(tmp_path / "b", {"verl/skill1.train.parquet": 3}),
        "has 1 training row, fewer than the 16 prompts": tasks(tmp_path, 1),
    }
    for said, data in cases.items():
        with pytest.raises(BadInput, match=said):
            written(tmp_path, "stitchcuda-paper", data=data)
    with pytest.raises(BadInput, match="stage agentic works on tasks: give --data"):
        written(tmp_path, "cuda-agent-paper", "agentic", data=tmp_path / "b")
    lost = data_set(tmp_path / "c", {"verl/skill1.train.parquet": 16})
    (lost / "verl" / "skill1.train.parquet").unlink()
    with pytest.raises(BadInput, match=r"lacks verl/skill1\.train\.parquet, which its manifest lists"):
        written(tmp_path, "stitchcuda-paper", data=lost)
    (lost / "manifest.json").write_text("{}")
    with pytest.raises(BadInput, match=r"manifest\.json is no manifest of a data set"):
        written(tmp_path, "stitchcuda-paper", data=lost)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").touch()
    with pytest.raises(BadInput, match="is there already and not empty: give a new folder"):
        written(tmp_path, "stitchcuda-paper")


def command(folder: Path, url: str, *more: str) -> Any:
    words = ["--model", "m", "--data", str(tasks(folder, 16)), "--reward-url", url, "--out", str(folder / "run"), *more]
    return CliRunner().invoke(app, ["train", "verl", "stitchcuda-paper", *words])


def test_the_command_says_what_to_start(tmp_path: Path) -> None:
    with serving(tmp_path / "store", ScriptedPool()) as server:
        done = command(tmp_path, server.url)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == f"start: STITCHCUDA_REWARD_TOKEN=… bash {tmp_path / 'run' / 'run.sh'}"
    assert str(tmp_path / "run" / "overrides.txt") in lines
    assert "no reward service" not in done.stdout
    assert f"note: stitchcuda-product/1: {WITHOUT_VALUE['stitchcuda-product/1']}" in done.stdout


def test_the_command_with_a_service_that_is_not_there_or_knows_less(tmp_path: Path) -> None:
    done = command(tmp_path, "http://127.0.0.1:1", "--json")
    assert done.exit_code == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["notes"][-1].startswith("no reward service was found at http://127.0.0.1:1 (")
    assert made["rows"] == 16
    (tmp_path / "second").mkdir()
    with serving(tmp_path / "store", ScriptedPool(), rewards={"accepted/1": REWARDS["accepted/1"]}) as server:
        done = command(tmp_path / "second", server.url)
    assert done.exit_code == 2
    assert f"{server.url} knows no reward stitchcuda-product/1: it has accepted/1" in done.stderr
    assert command(tmp_path, "http://127.0.0.1:1").exit_code == 2, "the folder is there"


@WITH_VERL
@pytest.mark.parametrize(("preset", "stage"), STAGES)
def test_verl_takes_it(preset: str, stage: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME, with \"quotes\""
    folder.mkdir()
    model = str(tiny_model(folder / "model"))
    critic = model if find_stage(preset, stage).pretrained_critic else None
    made = written(folder, preset, stage, nodes=8, prompts=1024, model=model, critic=critic)
    config = compose(list(map("=".join, made.items())))
    assert parsed(config, "trainer.default_local_dir") == str(folder / "run" / "checkpoints")
    assert parsed(config, "actor_rollout_ref.rollout.tensor_model_parallel_size") == 4


@WITH_VERL
@pytest.mark.more
def test_verl_loads_rows_of_sessions(tmp_path: Path) -> None:
    """From recorded sessions to verl's data set: each row has what `compute_score` needs of it."""
    home = Workspace(tmp_path / "ws")
    names = [replayed(home, name).name for name in ("mamba2", "deep_mlp")]
    make_data(names, home, tmp_path / "data", forms=("verl",), licence="none", test_percent=0)
    model = str(tiny_model(tmp_path / "model"))
    made = written(tmp_path, "stitchcuda-paper", data=tmp_path / "data", model=model, gpus=1, prompts=2)
    from verl.trainer.ppo.utils import create_rl_dataset

    config = compose([*map("=".join, made.items()), "data.max_prompt_length=100000"])
    data = create_rl_dataset(config.data.train_files, config.data, byte_tokenizer(), None)
    assert len(data) >= 2
    for row in (data[number] for number in range(len(data))):
        assert row["extra_info"]["reference"] in row["raw_prompt"][0]["content"] + "\n"
        assert row["reward_model"]["ground_truth"] == ""
