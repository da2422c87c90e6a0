"""Loads a stage's model and tokenizer, and runs a trainer of TRL from its start or a save point to its result.

Imported when a stage runs: it needs transformers, PEFT and TRL. What stops a run (a full disk, no memory left, a step without
rewards, a loss that is no number) is one sentence with the last save point in it. One process, one device.
Where to look next: `training/stages/sft.py`, `training/stages/grpo.py`, `training/stages/value.py`, `training/stages/ppo.py`
(the stages), `training/stages/stage_callback.py`.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from transformers.utils import logging as transformers_logging

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Record
from stitchcuda.training.stages.config import TrainingStage, digest_of
from stitchcuda.training.stages.stage_callback import StageCallback
from stitchcuda.training.stages.stage_run import LOG, RunSummary, RunTerms, StageRun

# Gradients of cuDNN's attention become NaN for some padded rows in bfloat16: https://github.com/huggingface/trl/issues/7181
torch.backends.cuda.enable_cudnn_sdp(False)
_FULL = ("No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed writing", "unexpected pos")


def load_tokenizer(model: str) -> Any:
    """Raises `BadInput` for a model that cannot be read or has no chat template."""
    if (Path(model) / "adapter_config.json").is_file():
        raise BadInput(f"{model} is an adapter: give the folder of a whole model, such as model/ of a fine-tuning run")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"the tokenizer of {model} cannot be loaded: {first_line(error)}") from error
    if not tokenizer.chat_template:
        raise BadInput(f"{model} has no chat template: take an instruction-tuned model, or save one with its tokenizer")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(stage: TrainingStage) -> Any:
    """The model in bfloat16 on a GPU, in float32 on a CPU. Raises `BadInput`, `Unavailable`."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or torch.cuda.device_count() > 1:
        raise BadInput("a stage trains on one GPU in one process: let CUDA_VISIBLE_DEVICES name one, and use no launcher")
    return load_weights(stage.model)


def load_weights(model: str, dtype: torch.dtype | str | None = None) -> Any:
    """A model's weights, by default in bfloat16 if there is a GPU, else in float32. Raises `BadInput`, `Unavailable`."""
    dtype = dtype or (torch.bfloat16 if torch.cuda.is_available() else torch.float32)
    try:
        return AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    except torch.OutOfMemoryError as error:
        raise Unavailable(f"{model} does not fit into this GPU's memory: take a larger GPU or a smaller model") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"the model {model} cannot be loaded: {first_line(error)}") from error


def tokens_of(
    tokenizer: Any, messages: Sequence[Record], *, answer: bool, tools: Sequence[Callable[..., Any]] = ()
) -> list[int]:
    """What a model reads of a talk. `answer`: up to where it begins to answer."""
    text = tokenizer.apply_chat_template(
        [turn.model_dump() for turn in messages], tools=list(tools) or None, add_generation_prompt=answer, tokenize=False
    )  # fmt: skip
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def lora_of(stage: TrainingStage) -> LoraConfig | None:
    """An adapter on all linear layers but the head; None where all weights are trained."""
    if not stage.lora_rank:
        return None
    return LoraConfig(r=stage.lora_rank, lora_alpha=stage.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def common_arguments(stage: TrainingStage, folder: StageRun, updates: int, updates_a_step: int) -> dict[str, Any]:
    """The arguments that all stages' trainers share. Save points are whole steps apart, so that no rollouts are left
    over at one; the last update is one too."""
    gpu = torch.cuda.is_available()
    board = importlib.util.find_spec("tensorboard") is not None
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder.out / "tensorboard")
    logging.getLogger("trl").setLevel(logging.ERROR)  # it prints whole prompts for answers without a reward
    return {
        "output_dir": str(folder.checkpoints), "seed": stage.seed, "learning_rate": stage.learning_rate,
        "lr_scheduler_type": stage.schedule, "per_device_train_batch_size": stage.micro_batch, "max_steps": updates,
        "save_strategy": "steps", "save_steps": stage.save_every * updates_a_step, "save_total_limit": stage.keep,
        "logging_steps": 1, "logging_nan_inf_filter": False, "report_to": ["tensorboard"] if board else [],
        "bf16": gpu, "use_cpu": not gpu, "gradient_checkpointing": gpu, "disable_tqdm": True, "dataloader_num_workers": 0,
    }  # fmt: skip


def run_stage(
    stage: TrainingStage, folder: StageRun, rows: Sequence[str], steps: int, updates_a_step: int, said: str,
    make: Callable[[StageRun], Any], *, resume: bool, tell: Callable[[str], None],
) -> RunSummary:  # fmt: skip
    """Begins a run, or goes on with the one in `folder`, until its result. `rows`: digests of what it is trained on; `said` of
    them; `make`: makes the trainer. Raises `BadInput`, `Unavailable`."""
    digest = digest_of(stage, rows)
    done = folder.begin(RunTerms(table=stage.table, digest=digest, stage=stage.model_dump(mode="json")), resume=resume)
    if (summary := folder.summary()) is not None:
        return summary
    tell(f"{said}; {counted(steps, 'step')}; from update {done}")
    return run_trainer(lambda: make(folder), stage, folder, StageCallback(folder, digest, updates_a_step, tell), done, steps)


def run_trainer(
    make: Callable[[], Any], stage: TrainingStage, folder: StageRun, callback: StageCallback, done: int, steps: int
) -> RunSummary:
    """Trains from update `done` on and writes the result. Raises `BadInput`, `Unavailable`."""
    try:
        datasets.disable_progress_bars()
        transformers_logging.disable_progress_bar()
        trainer = make()
        trainer.remove_callback(PrinterCallback)  # it prints on stdout
        trainer.add_callback(callback)
        start = str(folder.require_saved_by(done, callback.digest)) if done else None
        trainer.train(resume_from_checkpoint=start)
        result = _write_result(trainer, stage, folder)
    except StitchError as error:
        raise type(error)(f"{error}; {_last(folder, callback)}") from error
    except torch.OutOfMemoryError as error:
        hint = "lower micro_batch, or the lengths"
        raise Unavailable(f"the GPU's memory is used up: {hint}; {_last(folder, callback)}") from error
    except Exception as error:
        if not is_full(error):
            raise
        raise Unavailable(f"no space left to write {folder.out}: free some; {_last(folder, callback)}") from error
    lines, critic = list(folder.lines(LOG)), folder.out / "critic"
    return RunSummary(
        steps=steps, updates=trainer.state.global_step, result=str(result.relative_to(folder.out)),
        sha256=weights_digest(result), critic_sha256=weights_digest(critic) if critic.is_dir() else None,
        last=lines[-1] if lines else {},
    )  # fmt: skip


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, says that the disk is full. torch and safetensors say so in words alone."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error) for words in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def weights_digest(folder: Path) -> str:
    """SHA-256 of a result's weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            for block in iter(lambda: file.read(2**22), b""):
                digest.update(block)
    return digest.hexdigest()


def _write_result(trainer: Any, stage: TrainingStage, folder: StageRun) -> Path:
    """Writes the adapter, or the whole model; but for GRPO both, since later stages begin with a model. Then the critic."""
    adapter, whole, critic = folder.out / "adapter", folder.out / "model", folder.out / "critic"
    if stage.table == "value" or hasattr(trainer, "critic"):
        made = trainer.model if stage.table == "value" else trainer.critic
        made.save_pretrained(str(critic))
        trainer.processing_class.save_pretrained(str(critic))
    if stage.table == "value":
        return critic
    if not stage.lora_rank or stage.table != "grpo":
        if stage.lora_rank:
            trainer.save_model(str(adapter))
        model = trainer.model.merge_and_unload() if stage.lora_rank else trainer.model
        model.save_pretrained(str(whole))
        trainer.processing_class.save_pretrained(str(whole))
        return whole
    trainer.save_model(str(adapter))
    return adapter


def _last(folder: StageRun, callback: StageCallback) -> str:
    saved = folder.last_saved()
    return f"the last save point is update {saved}, and --resume goes on from it" if saved else "there is no save point yet"


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
