"""Makes a run of verl of a published recipe: the overrides for verl's own configuration, and a folder that starts it.

    stage = find_stage("stitchcuda-paper", "grpo")
    written = write_run(stage, VerlRun(model="Qwen/Qwen3-32B", data=Path("data"), out=Path("run"), reward_url="http://…:8711"))

    OUT/run.sh          python -m verl.trainer.main_ppo with the overrides; verl starts Ray, or joins the cluster of its node
    OUT/overrides.txt   the same overrides, one a line, as hydra reads them
    OUT/rows.jsonl      the rows, where `data` holds tasks; OUT/tools.yaml: the tools, for a stage with tools

It imports no verl and starts nothing. The reward service's token stands in no file.
Where to look next: `training/verl_files.py` (rows with tools), `training/reward_service/trainers.py` (the reward functions),
`cli/verl_run.py` (the command), docs/learning.md. The numbers with their sources: `verl_presets.toml` beside this
file, and `training/stages/presets` for what TRL runs too.
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput
from stitchcuda.state import Record, Target
from stitchcuda.store import write_atomically
from stitchcuda.training.data import DataManifest
from stitchcuda.training.reward_service.known_rewards import REWARDS
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.session_rows import task_text
from stitchcuda.training.stages.config import preset_file
from stitchcuda.training.verl_files import task_rows, write_rows, write_tools

Value = bool | int | float | str | tuple[str, ...]
PRESETS = Path(__file__).with_name("verl_presets.toml")
TRAINERS = "pkg://stitchcuda.training.reward_service.trainers"  # as verl loads reward functions on every node
VERL = "0.9.1"                             # what the overrides were validated with
_COMMON = "common"
_BARE = re.compile(r"[A-Za-z_][\w-]*")     # what hydra reads as a string without quotes, but for its own words
_HYDRA_WORDS = {"true", "false", "null", "nan", "inf", "on", "off", "yes", "no"}
WITHOUT_VALUE = {
    "stitchcuda-product/1": "it needs a rubric, and the reward service asks for none",
    "cuda-agent-milestones/1": "on a GPU it needs torch.compile's time, and the reward service takes none",
}
"""Why the reward service has no value for an accepted program, or for one that is faster than eager, by the reward's name."""


_KEYS = {
    "max_prompt": "data.max_prompt_length", "max_completion": "data.max_response_length",
    "lora_rank": "actor_rollout_ref.model.lora_rank", "lora_alpha": "actor_rollout_ref.model.lora_alpha",
    "learning_rate": "actor_rollout_ref.actor.optim.lr", "kl": "actor_rollout_ref.actor.kl_loss_coef",
    "clip_low": "actor_rollout_ref.actor.clip_ratio_low", "clip_high": "actor_rollout_ref.actor.clip_ratio_high",
    "micro_batch": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "rollouts": "actor_rollout_ref.rollout.n",
    "temperature": "actor_rollout_ref.rollout.temperature", "top_k": "actor_rollout_ref.rollout.top_k",
    "top_p": "actor_rollout_ref.rollout.top_p", "epochs": "trainer.total_epochs", "steps": "trainer.total_training_steps",
    "critic_learning_rate": "critic.optim.lr", "critic_warmup": "trainer.critic_warmup", "clip_value": "critic.cliprange_value",
    "gamma": "algorithm.gamma", "gae_lambda": "algorithm.lam",
    "turns": "actor_rollout_ref.rollout.multi_turn.max_assistant_turns",
}  # fmt: skip
"""What verl calls the fields of `GrpoStage`, `PpoStage` and `AgenticStage`. verl has no word for `updates` and `checks`."""


class VerlStage(Record):
    """One stage of a recipe. Counts of prompts are those of a step and of one update of the weights."""

    preset: str
    stage: str
    about: str
    reward: str
    prompts: int = Field(ge=1)
    mini_prompts: int = Field(ge=1)
    tensor_parallel: int = Field(ge=1)     # GPUs of one rollout server
    sequence_parallel: int = Field(default=1, ge=1)  # GPUs that share one sequence in training
    turns: int | None = None               # of an episode with tools; None: one turn without
    checks: int = 0                        # of these, how many may ask for a verdict
    pretrained_critic: bool = False
    overrides: dict[str, Value]            # verl's keys


class VerlRun(Record):
    """The user's facts. `data`: what `make_data` wrote with the form "verl", or tasks as the reward service takes them."""

    model: str
    data: Path
    out: Path
    reward_url: str
    reward: str | None = None              # None: the stage's
    nodes: int = Field(default=1, ge=1)
    gpus: int = Field(default=8, ge=1)     # of each node
    prompts: int | None = Field(default=None, ge=1)  # None: the stage's
    critic: str | None = None              # a value model; None: the model itself
    target: Target = "cuda"                # what episodes compile for


class VerlFolder(Record):
    """What was written, and what its user has to know."""

    out: Path
    overrides: tuple[str, ...]             # as hydra reads them
    rows: int                              # of training
    notes: tuple[str, ...]


def verl_stages() -> dict[str, dict[str, VerlStage]]:
    """All stages by preset and name."""
    presets = tomllib.loads(PRESETS.read_text(encoding="utf-8"))
    common = dict(_flat(presets.pop(_COMMON)["verl"]))
    return {
        preset: {name: _stage(preset, name, given, common) for name, given in stages.items()}
        for preset, stages in presets.items()
    }


def _stage(preset: str, name: str, given: dict[str, Any], common: Mapping[str, Value]) -> VerlStage:
    """A stage, with the numbers of TRL's stage of the same preset where `numbers` names one."""
    overrides = dict(common)
    if table := given.pop("numbers", None):
        numbers = tomllib.loads(preset_file(preset).read_text(encoding="utf-8"))[table]
        overrides |= {key: numbers[field] for field, key in _KEYS.items() if field in numbers}
        prompts = numbers["prompts"]
        given |= {"reward": numbers["reward"], "prompts": prompts, "mini_prompts": prompts // numbers["updates"]}
        given |= {field: numbers[field] for field in ("turns", "checks") if field in numbers}
    return VerlStage(preset=preset, stage=name, overrides=overrides | dict(_flat(given.pop("verl"))), **given)


def find_stage(preset: str, stage: str | None) -> VerlStage:
    """The stage of a preset; without a name its only one. Raises `BadInput`."""
    known = verl_stages()
    if preset not in known:
        raise BadInput(f"there is no preset {preset!r}: there are {', '.join(known)}")
    names = ", ".join(known[preset])
    if stage is None and len(known[preset]) > 1:
        raise BadInput(f"{preset} has several stages: give --stage, one of {names}")
    name = stage or next(iter(known[preset]))
    if name not in known[preset]:
        raise BadInput(f"{preset} has no stage {name!r}: it has {names}")
    return known[preset][name]


def write_run(stage: VerlStage, run: VerlRun) -> VerlFolder:
    """Writes the folder of a run into the new or empty folder `run.out`. Raises `BadInput` for facts that do not fit the stage,
    each with what to give instead."""
    _require_sense(stage, run)
    prompts, mini, parallel = _sizes(stage, run)
    if run.out.exists() and (not run.out.is_dir() or any(run.out.iterdir())):
        raise BadInput(f"{run.out} is there already and not empty: give a new folder")
    out, rows, notes = run.out.resolve(), None, []
    manifest = run.data / "manifest.json"
    if manifest.is_file():
        if stage.turns is not None:
            raise BadInput(f"stage {stage.stage} works on tasks: give --data a .jsonl file or a folder of references")
        train, test, count = _parquet(run.data, manifest)
    else:
        rows = _rows(stage, run)
        train, test, count = [out / "rows.jsonl"], [], len(rows)
    if count < prompts:
        raise BadInput(
            f"{run.data} has {counted(count, 'training row')}, fewer than the {prompts} prompts of one step: give more, or a "
            "smaller --prompts"
        )
    made = stage.overrides | _facts(stage, run, out, parallel)
    made |= {"data.train_batch_size": prompts, "actor_rollout_ref.actor.ppo_mini_batch_size": mini}
    made |= {"data.train_files": tuple(map(str, train)), "data.val_files": tuple(map(str, test or train))}
    if not test:
        made["trainer.test_freq"] = -1
        notes.append("there are no test rows, so verl never validates")
    notes += _notes(stage, run, prompts)
    lines = tuple(f"{key}={hydra_text(key, value)}" for key, value in sorted(made.items()))
    out.mkdir(parents=True, exist_ok=True)
    if rows is not None:
        write_rows(out / "rows.jsonl", rows)
    if stage.turns is not None:
        write_tools(out / "tools.yaml", run.reward_url)
    write_atomically(out / "overrides.txt", "".join(f"{line}\n" for line in lines).encode())
    write_atomically(out / "run.sh", _script(stage, run, lines).encode())
    return VerlFolder(out=run.out, overrides=lines, rows=count, notes=tuple(notes))


def hydra_text(key: str, value: Value) -> str:
    """A value as hydra's command line reads it. Raises `BadInput` for a text that hydra would change."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{','.join(hydra_text(key, part) for part in value)}]"
    if "\\" in value or "${" in value or not value.isprintable():
        raise BadInput(f"{key} cannot be {value!r}: hydra changes texts with a backslash, a line break or ${{")
    if _BARE.fullmatch(value) and value.lower() not in _HYDRA_WORDS:
        return value
    return '"' + value.replace('"', '\\"') + '"'


def _flat(nested: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Value]]:
    """Dotted keys of a table of tables."""
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, tuple(value) if isinstance(value, list) else value


def _require_sense(stage: VerlStage, run: VerlRun) -> None:
    if not re.match(r"https?://[^/]", run.reward_url):
        raise BadInput(f"--reward-url {run.reward_url} is no address: it is like http://HOST:8711")
    if run.reward is not None and run.reward not in REWARDS:
        raise BadInput(f"there is no reward {run.reward!r}: give one of {', '.join(REWARDS)}")
    if stage.pretrained_critic and run.critic is None:
        raise BadInput(
            f"stage {stage.stage} starts from a pretrained critic: give --critic its folder (or the model, to go without)"
        )
    if not stage.pretrained_critic and stage.overrides["algorithm.adv_estimator"] != "gae" and run.critic is not None:
        raise BadInput(f"stage {stage.stage} has no critic: leave --critic out")


def _sizes(stage: VerlStage, run: VerlRun) -> tuple[int, int, int]:
    """Prompts of a step, of an update, and GPUs of a rollout server. Each update's answers have to be shared evenly by all
    GPUs, or by all groups of them that share a sequence."""
    world, rollouts = run.nodes * run.gpus, stage.overrides["actor_rollout_ref.rollout.n"]
    assert isinstance(rollouts, int)
    updates = stage.prompts // stage.mini_prompts
    prompts = run.prompts or stage.prompts
    parallel = min(stage.tensor_parallel, run.gpus)
    if run.gpus % parallel:
        raise BadInput(f"{run.gpus} GPUs a node are no multiple of a rollout server's {parallel}: give --gpus {parallel}")
    if world % stage.sequence_parallel:
        raise BadInput(f"{world} GPUs are no multiple of the {stage.sequence_parallel} that share a sequence")
    groups = world // stage.sequence_parallel
    least = updates * groups // math.gcd(groups, rollouts)
    if prompts % least:
        raise BadInput(
            f"{prompts} prompts a step of {counted(rollouts, 'answer')} each, in {counted(updates, 'update')}, cannot be "
            f"shared evenly by {counted(world, 'GPU')}: give --prompts {-(-prompts // least) * least}, a multiple of {least}"
        )
    return prompts, prompts // updates, parallel


def _parquet(data: Path, manifest: Path) -> tuple[list[Path], list[Path], int]:
    """Files of both skills for training and for tests, and the number of training rows."""
    try:
        made = DataManifest.model_validate_json(manifest.read_text())
    except ValidationError as error:
        raise BadInput(f"{manifest} is no manifest of a data set ({counted(error.error_count(), 'error')})") from error
    known = {file.path: file.rows for file in made.files}
    train, test = ([f"verl/{kind}.{part}.parquet" for kind in ("skill1", "skill2")] for part in ("train", "test"))
    train, test = [name for name in train if name in known], [name for name in test if name in known]
    if not train:
        raise BadInput(f"{data} has no parquet files for training on a skill: make it with --form verl, of more sessions")
    if missing := next((name for name in train + test if not (data / name).is_file()), None):
        raise BadInput(f"{data} lacks {missing}, which its manifest lists: make it anew")
    folder = data.resolve()
    return [folder / name for name in train], [folder / name for name in test], sum(known[name] for name in train)


def _rows(stage: VerlStage, run: VerlRun) -> list[dict[str, Any]]:
    tasks = read_tasks(run.data)
    if stage.turns is None:
        return single_turn_rows(tasks)
    reward = run.reward or stage.reward
    return task_rows(tasks, schema=reward, target=run.target, steps=stage.turns, checks=stage.checks)


def single_turn_rows(tasks: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row of verl's data set for each task (names with references): the model writes a program in one turn, for which
    `compute_score` asks the service by the task's name."""
    return [
        {
            "data_source": "stitchcuda/skill1", "agent_name": "single_turn_agent", "ability": "CUDA",
            "prompt": [{"role": "user", "content": task_text("write", reference)}],
            "reward_model": {"style": "rule", "ground_truth": task}, "extra_info": {"index": index, "task": task},
        }
        for index, (task, reference) in enumerate(sorted(tasks.items()))
    ]  # fmt: skip


def _facts(stage: VerlStage, run: VerlRun, out: Path, parallel: int) -> dict[str, Value]:
    """The overrides that follow from the user's facts. A key that verl's configuration does not have begins with +."""
    function, arguments = "reward.custom_reward_function", "+reward.custom_reward_function.reward_kwargs"
    made: dict[str, Value] = {
        "actor_rollout_ref.model.path": run.model,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": parallel,
        "trainer.nnodes": run.nodes, "trainer.n_gpus_per_node": run.gpus,
        "trainer.project_name": stage.preset, "trainer.experiment_name": stage.stage,
        "trainer.default_local_dir": str(out / "checkpoints"),
        f"{function}.path": TRAINERS, f"{arguments}.url": run.reward_url,
    }  # fmt: skip
    if stage.turns is None:
        made |= {f"{function}.name": "compute_score", f"{arguments}.must_judge": True}
        made[f"{arguments}.schema"] = run.reward or stage.reward
    else:
        made[f"{function}.name"] = "episode_score"
        made["actor_rollout_ref.rollout.multi_turn.tool_config_path"] = str(out / "tools.yaml")
    if stage.overrides["algorithm.adv_estimator"] == "gae":
        made["critic.model.path"] = run.critic or run.model
    if stage.sequence_parallel > 1:
        made["actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"] = stage.sequence_parallel
        made["critic.fsdp.ulysses_sequence_parallel_size"] = stage.sequence_parallel
    return made


def _notes(stage: VerlStage, run: VerlRun, prompts: int) -> Iterator[str]:
    reward = run.reward or stage.reward
    if why := WITHOUT_VALUE.get(reward):
        yield f"{reward}: {why}; verl leaves such answers out, so give --reward log-speedup/1 to train on them"
    if prompts != stage.prompts:
        yield f"a step has {prompts} prompts and not the {stage.prompts} of {stage.preset}"
    if run.nodes > 1:
        yield f"all {run.nodes} nodes read the data, the model and {run.out} by the same paths"


def _script(stage: VerlStage, run: VerlRun, lines: tuple[str, ...]) -> str:
    """`run.sh`. What follows its name on a command line is added to the overrides."""
    head = [
        "#!/usr/bin/env bash", f"# {stage.preset}, {stage.stage}: {stage.about}.",
        f"# Needs verl {VERL} with vLLM and this package, on every node.",
    ]  # fmt: skip
    if run.nodes > 1:
        head += [
            f"# Ray first, with STITCHCUDA_REWARD_TOKEN set on each of the {run.nodes} nodes:",
            "#   ray start --head                     on this one",
            "#   ray start --address=HEAD:6379        on the others",
        ]
    command = ["exec python -m verl.trainer.main_ppo", *(f"  {shlex.quote(line)}" for line in lines), '  "$@"']
    return "\n".join([*head, "set -euo pipefail", " \\\n".join(command), ""])
