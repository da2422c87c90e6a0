"""Writes a checkpoint's answers with transformers, in this process, on one GPU or on the CPU.

Imported when an evaluation runs. A batch is of one problem, and its generator is set by the problem and the batch's first seed;
all answers of a batch are kept together, so a killed run repeats the batch that it was at and no other. Nothing is cut: a
prompt that leaves no room for an answer raises `BadInput` before anything is written. It judges nothing.
Where to look next: `training/stages/training.py` (loads weights), `training/evaluation/evaluation_folder.py` (keeps answers).
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoConfig, GenerationConfig

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.evaluation.evaluation_folder import (
    AnswerSampling,
    EvaluationFolder,
    EvaluationTerms,
    WrittenAnswer,
)  # fmt: skip
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint
from stitchcuda.training.stages.training import first_line, load_tokenizer, load_weights, weights_digest


def identify(checkpoint: ModelCheckpoint) -> str:
    """A digest of a checkpoint's weights; of a model on the hub its revision. Raises `BadInput`."""
    folders = [Path(name) for name in (checkpoint.model, checkpoint.adapter) if name]
    parts = [weights_digest(folder) if folder.is_dir() else _revision(str(folder)) for folder in folders]
    return "+".join(part for part in parts if part)


def longest_prompt(checkpoint: ModelCheckpoint, problems: Sequence[EvaluationProblem], sampling: AnswerSampling) -> int:
    """The tokens of the longest prompt. Raises `BadInput` for one that leaves no room for an answer, and for a model without a
    chat template."""
    tokenizer = load_tokenizer(checkpoint.model)
    limit = getattr(_config(checkpoint.model).get_text_config(), "max_position_embeddings", None)
    longest = 0
    for problem in problems:
        tokens = len(tokenizer(_prompt(tokenizer, problem), add_special_tokens=False)["input_ids"])
        longest = max(longest, tokens)
        if limit is not None and tokens + sampling.max_completion > limit:
            raise BadInput(
                f"the prompt of {problem.name} has {tokens} tokens, and {checkpoint.label} has room for {limit} with its "
                f"answer: lower --max-completion, which is {sampling.max_completion}"
            )
    return longest


def write_answers(
    number: int, problems: Sequence[EvaluationProblem], folder: EvaluationFolder, terms: EvaluationTerms,
    tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Writes what is missing of the answers of checkpoint `number`. Raises `BadInput`, `Unavailable`."""
    checkpoint, sampling = terms.checkpoints[number], terms.sampling
    starts = range(0, sampling.seeds, sampling.batch)
    groups = [[*range(start, min(start + sampling.batch, sampling.seeds))] for start in starts]
    work = [
        (problem, group) for problem in problems for group in groups if folder.missing(number, problem.name, group, terms)
    ]
    if not work:
        return
    tokenizer, model = load_tokenizer(checkpoint.model), _load(checkpoint)
    try:
        for done, (problem, group) in enumerate(work, 1):
            for answer in _answers(model, tokenizer, problem, group, sampling):
                folder.keep_answer(number, problem.name, answer, terms)
            tell(f"{checkpoint.label}: {done} of {len(work)} batches of answers")
    except torch.OutOfMemoryError as error:
        raise Unavailable("the GPU's memory is used up: lower --batch or --max-completion; answers so far are kept") from error
    finally:
        del model
        gc.collect()
        if torch.cuda.is_available():      # programs are judged on the same GPU
            torch.cuda.empty_cache()


def _load(checkpoint: ModelCheckpoint) -> Any:
    model = load_weights(checkpoint.model)
    if checkpoint.adapter:
        try:
            model = PeftModel.from_pretrained(model, checkpoint.adapter)
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            why = str(error).strip().partition("\n")[0][:300]
            raise BadInput(f"the adapter {checkpoint.adapter} does not fit {checkpoint.model}: {why}") from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _answers(
    model: Any, tokenizer: Any, problem: EvaluationProblem, seeds: Sequence[int], sampling: AnswerSampling
) -> list[WrittenAnswer]:
    started = time.monotonic()
    asked = tokenizer(_prompt(tokenizer, problem), add_special_tokens=False, return_tensors="pt").to(model.device)
    ends = _ends(model, tokenizer)
    settings: dict[str, Any] = {"max_new_tokens": sampling.max_completion, "pad_token_id": tokenizer.pad_token_id}
    if sampling.temperature:
        settings |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    config = GenerationConfig(
        do_sample=bool(sampling.temperature), num_return_sequences=len(seeds), eos_token_id=ends, **settings
    )
    torch.manual_seed(int(hashlib.sha256(f"{problem.name}/{seeds[0]}".encode()).hexdigest()[:8], 16))
    with torch.inference_mode():
        written = model.generate(**asked, generation_config=config)
    spent = (time.monotonic() - started) / len(seeds)
    found = []
    for seed, ids in zip(seeds, written[:, asked["input_ids"].shape[1] :].tolist(), strict=True):
        end = next((place for place, token in enumerate(ids) if token in ends), None)
        own = ids if end is None else ids[:end]
        text = tokenizer.decode(own, skip_special_tokens=True)
        found.append(WrittenAnswer(seed=seed, text=text, tokens=len(own), cut_off=end is None, seconds=spent))
    return found


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer: those of the model's own settings, and the tokenizer's."""
    own = getattr(model.generation_config, "eos_token_id", None)
    given = own if isinstance(own, list) else [own]
    return sorted({token for token in (*given, tokenizer.eos_token_id) if token is not None})


def _prompt(tokenizer: Any, problem: EvaluationProblem) -> str:
    turns = [turn.model_dump() for turn in problem.messages]
    return str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))


def _config(model: str) -> Any:
    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"the model {model} cannot be read: {first_line(error)}") from error


def _revision(model: str) -> str:
    return str(getattr(_config(model), "_commit_hash", None) or "")
