"""The published recipes as verl takes them: composed, validated, rows loaded, and 32 answers scored, by verl's own classes.

    pip install 'verl==0.9.1' 'TransferQueue>=0.1.10' 'trl>=1.16' cachetools fastapi jmespath   # an environment of its own
    pip install -e '.[service]'                                                                 # with this package
    python benchmarks/verl_presets.py --to benchmarks/results/verl_presets.md

Each stage's run is written by `stitchcuda train verl`'s own function, with the preset's numbers. verl's hydra composes it, its
`validate_config` checks it, its `RLHFDataset` loads the rows, and its reward manager scores 32 answers at the real reward
service on the simulator: right, wrong, not building, no program, and for a reference that breaks. `--start` also starts the
warm-up with a model of random weights and says what came of it. Exits 1 where something else came of it than has to.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.agent_rollouts import RIGHT, TASKS, WRONG, byte_tokenizer  # noqa: E402
from benchmarks.reward_service import TOKEN, Server, free_port  # noqa: E402
from stitchcuda.training.reward_service.trainers import EPISODE  # noqa: E402
from stitchcuda.training.verl_config import VerlRun, VerlStage, find_stage, write_run  # noqa: E402
from tests.verify import programs  # noqa: E402

_MOST_S = 240                              # for one step of the tiny model
ROWS = 1024                                # the most prompts that a stage has in a step
COUNTS = {"right": 4, "wrong": 4, "does not build": 12, "no program": 8, "broken reference": 4}
RUNS = (                                   # preset, stage, reward (None: the preset's)
    ("stitchcuda-paper", "grpo", None), ("stitchcuda-paper", "grpo", "log-speedup/1"),
    ("cuda-agent-paper", "warmup", None), ("cuda-agent-paper", "agentic", None),
)  # fmt: skip
SCORES: dict[str, tuple[float | None, float]] = {  # accepted and refused, on the simulator; None: there is none
    "stitchcuda-product/1": (None, 0.0), "log-speedup/1": (1.0, -1.0), "cuda-agent-milestones/1": (1.0, -1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a model may say, as text and as the files of an episode."""

    kind: str
    task: str
    files: Mapping[str, str]

    @property
    def text(self) -> str:
        return "\n".join(f"```{name}\n{text.rstrip()}\n```" for name, text in self.files.items()) or "I cannot do that."


def answers(run: str) -> list[Answer]:
    """32 of them, no two with the same text where there is a program, nor with that of another run: each is judged."""
    made = []
    for kind, count in COUNTS.items():
        kernel = programs.KERNEL.replace(RIGHT, WRONG) if kind == "wrong" else programs.KERNEL
        for number in range(count):
            broken = "int broken = ;\n" if kind == "does not build" else ""
            files = {"model_new.py": programs.KERNEL_MODEL, "kernels/gate_binding.cc": programs.BINDING,
                     "kernels/gate.cu": f"// {run} {number}\n{broken}{kernel}"}  # fmt: skip
            task = "broken" if kind == "broken reference" else f"gate{number:04}"
            made.append(Answer(kind, task, {} if kind == "no program" else files))
    return made


def write_tasks(path: Path) -> Path:
    named = {f"gate{at:04}": TASKS["gate"] for at in range(ROWS - 1)} | {"broken": TASKS["broken"]}
    path.write_text("".join(json.dumps({"name": name, "source": text}) + "\n" for name, text in named.items()))
    return path


def tiny_model(folder: Path) -> Path:
    """A model of random weights with a tokenizer of one token a byte: nothing is downloaded."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = byte_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=131072,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def compose(lines: Sequence[str]) -> Any:
    """verl's configuration with the overrides, after verl's own check. Raises what hydra and verl raise.

    Without vLLM the check is told of another rollout engine: for LoRA verl imports vLLM there, to look up its ranks.
    """
    from hydra import compose as compose_by_hydra
    from hydra import initialize_config_module
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose_by_hydra("ppo_trainer", overrides=list(lines))
    checked = copy.deepcopy(config)
    if importlib.util.find_spec("vllm") is None:
        checked.actor_rollout_ref.rollout.name = "sglang"
    validate_config(checked, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    return config


def parsed(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.select(config, key, throw_on_missing=True)


def load(config: Any) -> dict[str, Any]:
    """The rows by task, as verl's data set gives them, of the tasks that are asked for."""
    from verl.trainer.ppo.utils import create_rl_dataset

    data = create_rl_dataset(config.data.train_files, config.data, byte_tokenizer(), None)
    rows = (data[number] for number in range(len(data)))
    return {row["extra_info"]["task"]: row for row in rows}


def score(config: Any, rows: Mapping[str, Any], said: Sequence[Answer], tools: bool) -> list[float | None]:
    """Scores by the reward manager and the reward function that the configuration names, all answers at once."""
    import numpy as np
    import torch
    from tensordict import TensorDict
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    from stitchcuda.errors import Unavailable

    tokenizer = byte_tokenizer()

    async def score_answer(manager: Any, answer: Answer) -> float | None:
        row = copy.deepcopy(rows[answer.task])
        ids = tokenizer("Done." if tools else answer.text)["input_ids"]
        tokens = {"responses": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.int64)}
        columns = {name: np.array([row[name]], dtype=object) for name in ("data_source", "reward_model", "extra_info")}
        columns["__num_turns__"] = np.array([2])
        if tools:
            held = {EPISODE: {"files": dict(answer.files), "answer": {}}}
            columns["tool_extra_fields"] = np.array([held], dtype=object)
        try:
            found = await manager.run_single(DataProto(TensorDict(tokens, batch_size=1), columns))
        except Unavailable:
            return None
        return float(found["reward_score"])

    async def every() -> list[float | None]:
        manager = load_reward_manager(config, tokenizer)
        return list(await asyncio.gather(*(score_answer(manager, answer) for answer in said)))

    return asyncio.run(every())


def expected(kind: str, reward: str) -> float | None:
    accepted, refused = SCORES[reward]
    return accepted if kind == "right" else None if kind == "broken reference" else refused


def table_row(stage: VerlStage, reward: str | None, url: str, folder: Path, tasks: Path, model: Path) -> tuple[str, list[str]]:
    """A line of the table of one run, and what is wrong."""
    name = reward or stage.reward
    written = write_run(stage, VerlRun(
        model=str(model), data=tasks, out=folder, reward_url=url, reward=reward, target="sim",
        critic=str(model) if stage.pretrained_critic else None,
    ))  # fmt: skip
    config = compose(written.overrides)
    rows = load(config)
    said = answers(folder.name)
    begin = time.monotonic()
    scores = score(config, rows, said, stage.turns is not None)
    seconds = time.monotonic() - begin
    wrong, told = [], []
    for kind in COUNTS:
        given = [found for answer, found in zip(said, scores, strict=True) if answer.kind == kind]
        wrong += [f"{stage.stage}, {name}: {kind} got {found}" for found in given if found != expected(kind, name)]
        counts = Counter("none" if found is None else f"{found:.1f}" for found in given)
        told.append(", ".join(f"{number} × {value}" for value, number in counts.items()))
    if len(rows) != written.rows:
        wrong.append(f"{stage.stage}: {len(rows)} of {written.rows} rows were loaded")
    cells = (f"{stage.preset} {stage.stage}", name, len(written.overrides), len(rows), *told, f"{seconds:.0f}")
    return f"| {' | '.join(map(str, cells))} |", wrong


def start(url: str, folder: Path, tasks: Path, model: Path) -> str:
    """What comes of `run.sh` of the warm-up, for one step with a tiny model. (With LoRA verl's check asks vLLM first.)"""
    write_run(find_stage("cuda-agent-paper", "warmup"), VerlRun(
        model=str(model), data=tasks, out=folder, reward_url=url, gpus=1, prompts=4, target="sim",
    ))  # fmt: skip
    more = ["trainer.total_training_steps=1", "data.max_prompt_length=8192", "data.max_response_length=64",
            "data.train_max_samples=4", "data.val_max_samples=4", "trainer.save_freq=-1", "data.dataloader_num_workers=0",
            "ray_kwargs.ray_init.num_cpus=16", "reward.num_workers=1", "actor_rollout_ref.rollout.agent.num_workers=1",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"]  # fmt: skip
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HYDRA_FULL_ERROR": "1"}
    with (folder / "log").open("w") as log:
        try:
            code = subprocess.run(
                ["bash", str(folder / "run.sh"), *more], cwd=folder, env=environment, timeout=_MOST_S, check=False,
                stdout=log, stderr=subprocess.STDOUT,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"`run.sh` was stopped: it had not trained a step after {_MOST_S} s."
    if code == 0:
        return "One step was trained."
    told = (folder / "log").read_text().splitlines()
    raised = [line for line in told if re.match(r"(\S*\(?.*\) )?[\w.]*Error: ", line)]
    return f"`run.sh` ended with exit code {code}: `{(raised or told)[-1].strip()}`"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--start", action="store_true", help="also start a run of one step")
    parser.add_argument("--to", type=Path, help="file for the table")
    given = parser.parse_args()
    os.environ["STITCHCUDA_REWARD_TOKEN"] = TOKEN
    head = [
        "# The published recipes in verl", "",
        f"`python benchmarks/verl_presets.py{' --start' if given.start else ''}`, {date.today()}, {os.cpu_count()} cores.",
        "Each line: a run with the preset's own numbers was composed by hydra, passed verl's `validate_config`, its rows were",
        "loaded by `RLHFDataset`, and 32 answers were scored by verl's reward manager at the reward service on the simulator.",
        "\"none\" is what `compute_score` and `episode_score` raise for: verl leaves it out. The simulator times nothing.",
        "", f"| run | reward | overrides | rows | {' | '.join(COUNTS)} | seconds |", "|---" * (5 + len(COUNTS)) + "|",
    ]  # fmt: skip
    lines, wrong, ended = [], [], ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks, model = write_tasks(folder / "tasks.jsonl"), tiny_model(folder / "model")
        server = Server(folder, tasks, "sim", free_port())
        server.start()
        url = f"http://127.0.0.1:{server.port}"
        try:
            for number, (preset, stage, reward) in enumerate(RUNS):
                line, found = table_row(find_stage(preset, stage), reward, url, folder / f"run{number}", tasks, model)
                print(line, flush=True)
                lines.append(line)
                wrong += found
            if given.start:
                ended = start(url, folder / "started", tasks, model)
        finally:
            server.stop()
    versions = [f"{part} {importlib.metadata.version(part)}" for part in ("verl", "transformers", "torch", "hydra-core")]
    foot = [f"{', '.join(versions)}." + ("" if importlib.util.find_spec("vllm") else " vLLM was not there.")]
    text = "\n".join([*head, *lines, "", *foot, *([ended] if ended else []), *(f"Wrong: {what}" for what in wrong)])
    print(text)
    if given.to:
        given.to.write_text(text + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
