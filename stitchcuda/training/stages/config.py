"""Reads what a stage of training is asked: a preset of this package, a TOML file, or both, where the file's values hold.

    [grpo]                  # one table for each stage, with the fields of `GrpoStage`; [sft], [value], [ppo], [agentic]
    model = "Qwen/Qwen3-32B"
    data = "data"

Unknown keys and impossible values raise `BadInput` with the key's name. `digest_of` names what decides the weights: a save
point of another digest cannot be gone on with. No model and no data is read here.
Where to look next: `training/stages/presets/` (published numbers with their sources), `training/stages/grpo.py`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import ConfigDict, Field, ValidationError, model_validator

from stitchcuda.errors import BadInput
from stitchcuda.state import Record, Target
from stitchcuda.training.reward_service.known_rewards import REWARDS
from stitchcuda.training.rewards import Skill

PRESETS = Path(__file__).parent / "presets"
StageName = Literal["sft", "grpo", "ppo", "value", "agentic"]
_WITH_RUBRIC = "stitchcuda-product"
_WITHOUT_EFFECT = {"reward_url", "token_file", "patience_s", "judge_url", "save_every", "keep", "keep_tokens"}  # on the weights


class TrainingStage(Record):
    """What all stages are asked."""

    model_config = ConfigDict(allow_inf_nan=False)
    table: ClassVar[StageName]
    model: str = Field(min_length=1)       # a folder, or a name on the Hugging Face hub
    held_out: tuple[str, ...] = ()         # files and folders of references that no row may show
    seed: int = Field(0, ge=0)
    learning_rate: float = Field(gt=0, lt=1)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    lora_rank: int = Field(ge=0, le=1024)  # 0: all weights are trained
    lora_alpha: int = Field(16, ge=1)
    micro_batch: int = Field(1, ge=1)      # sequences in one forward pass
    steps: int | None = Field(None, ge=1)  # of the schedule; or `epochs`
    epochs: float | None = Field(None, gt=0)
    save_every: int = Field(10, ge=1)      # steps between save points
    keep: int = Field(3, ge=2)             # save points that stay

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        return self

    def steps_for(self, rows: int, batch: int) -> int:
        """Returns how many steps the stage makes, of `batch` rows each. `rows`: how many there are."""
        return self.steps if self.steps is not None else max(1, round((self.epochs or 0.0) * rows / batch))


class RowStage(TrainingStage):
    """What a stage is asked that learns from rows which are there before it begins."""

    data: str = ""                         # a folder that `stitchcuda train data` made
    rollouts: tuple[str, ...] = ()         # folders of PPO's runs: what their models said, with its rewards
    batch: int = Field(ge=1)               # rows of an update
    max_length: int = Field(ge=8)          # tokens; longer rows are left out, not cut

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if not self.data and not self.rollouts:
            raise ValueError("give data or rollouts")
        if self.batch % self.micro_batch:
            raise ValueError(f"batch = {self.batch} is not a multiple of micro_batch = {self.micro_batch}")
        return self


class SftStage(RowStage):
    """Fine-tuning on what the assistant said in rows that ended well (rejection fine-tuning)."""

    table = "sft"
    kinds: tuple[Literal["skill1", "skill2", "rft"], ...] = Field(("rft",), min_length=1)  # of `data`
    least_outcome: float | None = None     # rows whose session or rollout ended with less are left out

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.data and self.rollouts:
            raise ValueError("give data or rollouts, and not both")
        return self


class ValueStage(RowStage):
    """Pretraining of a critic: lambda-returns at all that the assistant said, and of `data` at the state before it speaks."""

    table = "value"
    lora_rank: Literal[0] = 0              # all weights are trained
    reward: str = "log-speedup/1"          # what values are of: rows with another one are refused
    worth: Literal["reward", "credit", "outcome"] = "reward"  # of a row of `data`
    gamma: float = Field(1.0, gt=0, le=1)
    gae_lambda: float = Field(0.95, ge=0, le=1)


class RolloutStage(TrainingStage):
    """What a stage is asked that learns from answers of its own model. A step is one batch of them: `prompts` times `rollouts`,
    which are judged together."""

    tasks: str = ""                        # what the reward service has as --tasks: prompts of skill 1
    reward: str = "log-speedup/1"          # a reward of the service
    reward_url: str = ""                   # by default STITCHCUDA_REWARD_URL
    token_file: str = ""                   # by default STITCHCUDA_REWARD_TOKEN
    patience_s: float = Field(7200.0, gt=0)  # that one answer may take
    prompts: int = Field(ge=1)             # of a step
    rollouts: int = Field(ge=1)            # answers to each prompt
    updates: int = Field(1, ge=1)          # of the weights, with parts of a step's rollouts
    iterations: int = Field(1, ge=1)       # how often all rollouts of a step are used
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)            # 0: no limit
    kl: float = Field(0.0, ge=0)           # weight of the divergence from the model before training
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.2, gt=0)
    max_prompt: int = Field(ge=1)          # tokens; rows with longer prompts are left out
    max_completion: int = Field(ge=1)      # tokens
    mask_truncated: bool = False           # answers that were cut off are left out of the loss

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.answers % (self.micro_batch * self.updates):
            raise ValueError(
                f"prompts * rollouts = {self.answers} is not a multiple of micro_batch * updates = "
                f"{self.micro_batch * self.updates}"
            )
        if self.reward not in REWARDS:
            raise ValueError(f"reward = {self.reward!r} is not known: give one of {', '.join(sorted(REWARDS))}")
        return self

    @property
    def answers(self) -> int:
        """How many answers a step has."""
        return self.prompts * self.rollouts

    @property
    def updates_a_step(self) -> int:
        return self.updates * self.iterations

    @property
    def shares(self) -> dict[Skill, float]:
        """Weights of the two skills among the prompts."""
        return {1: 1.0, 2: 0.0}


class AnswerStage(RolloutStage):
    """What a stage is asked whose model answers in one turn."""

    data: str = ""                         # a folder that `stitchcuda train data` made
    skill1_weight: float = Field(1.0, ge=0)  # shares of the prompts
    skill2_weight: float = Field(1.0, ge=0)
    judge: str = ""                        # the rubric's chat model, such as openai:NAME; "": none
    judge_url: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.data and not self.tasks:
            raise ValueError("give data, tasks or both")
        if self.skill1_weight + self.skill2_weight == 0:
            raise ValueError("skill1_weight and skill2_weight are both 0")
        if not self.data and self.skill2_weight:
            raise ValueError("skill2_weight has to be 0 without data: tasks have prompts of skill 1 only")
        if self.reward.startswith(_WITH_RUBRIC) and not self.judge:
            raise ValueError(f"the reward {self.reward} needs a judge, such as openai:NAME")
        if self.judge.startswith("mailbox"):
            raise ValueError("judge cannot be a mailbox: training does not wait for people")
        return self

    @property
    def shares(self) -> dict[Skill, float]:
        return {1: self.skill1_weight, 2: self.skill2_weight}


class GrpoStage(AnswerStage):
    """GRPO on both skills."""

    table = "grpo"
    rollouts: int = Field(ge=2)            # answers to each prompt: a group


class CriticStage(RolloutStage):
    """What every stage of PPO is asked, beside what a `RolloutStage` is."""

    rollouts: int = Field(1, ge=1)         # a critic needs no group
    critic: str = ""                       # critic/ of a run of `value` or `ppo`; "": one that begins as the policy
    critic_learning_rate: float = Field(1e-5, gt=0, lt=1)
    critic_warmup: int = Field(0, ge=0)    # steps at the beginning in which the critic alone is trained
    clip_value: float = Field(0.5, gt=0)   # how far a value may move from the rollout's, in the loss
    gamma: float = Field(1.0, gt=0, le=1)
    gae_lambda: float = Field(0.95, ge=0, le=1)
    keep_tokens: bool = True               # tokens.jsonl, which `value` and `sft` can learn from

    @model_validator(mode="after")
    def _has_answers(self) -> Self:
        if self.answers < 2:
            raise ValueError("prompts * rollouts = 1: give at least 2, since advantages are compared within a step")
        return self


class PpoStage(CriticStage, AnswerStage):
    """PPO on answers of one turn (CUDA Agent's warm-up)."""

    table = "ppo"


class AgenticStage(CriticStage):
    """PPO on episodes with tools."""

    table = "agentic"
    tasks: str = Field(min_length=1)
    turns: int = Field(ge=1)               # of the model, and calls of tools
    checks: int = Field(ge=0)              # of these, how many may ask for a verdict
    target: Target = "sim"                 # what episodes compile for

    @model_validator(mode="after")
    def _has_no_rubric(self) -> Self:
        if self.reward.startswith(_WITH_RUBRIC):
            raise ValueError(f"the reward {self.reward} needs a rubric, and episodes have none")
        return self


Stage = TypeVar("Stage", bound=TrainingStage)


def read_stage(kind: type[Stage], file: Path | None, preset: str | None) -> Stage:
    """The stage that a file, a preset, or a preset with a file's values over it ask for. Raises `BadInput`."""
    if file is None and preset is None:
        raise BadInput(f"there is nothing to train by: give a TOML file, --preset {' or --preset '.join(presets())}, or both")
    given: dict[str, Any] = {}
    for path in (preset_file(preset) if preset is not None else None, file):
        found = _table(path, kind.table) if path is not None else {}
        for length, other in (("steps", "epochs"), ("epochs", "steps")):
            if length in found:
                given.pop(other, None)     # a file's length holds, in whichever form
        given |= found
    where = " and ".join(str(part) for part in (file, f"preset {preset}" if preset else None) if part)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise BadInput(f"{where}: {_sentence(kind, error)}") from error


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def preset_file(name: str | None) -> Path:
    """Raises `BadInput` for one that is not known."""
    if name not in presets():
        raise BadInput(f"there is no preset {name!r}: there are {', '.join(presets())}")
    return PRESETS / f"{name}.toml"


def digest_of(stage: TrainingStage, rows: Sequence[str]) -> str:
    """SHA-256 of all that decides the weights: the stage, and the rows that it is trained on, by their digests."""
    deciding = stage.model_dump(mode="json", exclude=_WITHOUT_EFFECT)
    return hashlib.sha256(json.dumps([stage.table, deciding, list(rows)], sort_keys=True).encode()).hexdigest()


def _table(path: Path, name: StageName) -> Mapping[str, Any]:
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}): give a TOML file with a table [{name}]") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is no TOML: {error}") from error
    if unknown := sorted(set(text) - set(get_args(StageName))):
        known = ", ".join(f"[{key}]" for key in get_args(StageName))
        raise BadInput(f"{path}: {unknown[0]} is not known: the tables of a file are {known}")
    found = text.get(name)
    if not isinstance(found, dict):
        raise BadInput(f"{path} has no table [{name}]: it has {', '.join(f'[{key}]' for key in sorted(text)) or 'none'}")
    return found


def _sentence(kind: type[TrainingStage], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join([kind.table, *map(str, first["loc"])])
    if first["type"] == "extra_forbidden":
        return f"{key} is not known: there are {', '.join(sorted(kind.model_fields))}"
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "value_error":
        return f"{key}: {first['ctx']['error']}"
    return f"{key} = {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"
