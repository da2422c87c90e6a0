"""Writes a checkpoint's answers with transformers, in this process, on one GPU or on the CPU.

Imported when an evaluation runs. A batch has answers to problems whose prompts are about as long, and its generator is set by
what is in it; all its answers are kept together, so a killed run repeats the batch that it was at and no other. Nothing is cut:
a prompt that leaves no room for an answer raises `BadInput` before anything is written. It judges nothing.
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
from stitchcuda.training.stages.training import first_line, load_tokenizer, load_weights, tokens_of, weights_digest

_Asked = tuple[EvaluationProblem, int]
"""A problem and the seed of an answer to it."""


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
        tokens = len(_prompt_ids(tokenizer, problem))
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
    tokenizer = load_tokenizer(checkpoint.model)
    work = [
        batch for batch in _batches(problems, sampling, tokenizer)
        if any(folder.missing(number, problem.name, [seed], terms) for problem, seed in batch)
    ]  # fmt: skip
    if not work:
        return
    model = _load(checkpoint)
    try:
        for done, batch in enumerate(work, 1):
            for (problem, _), answer in zip(batch, _answers(model, tokenizer, batch, sampling), strict=True):
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


def _batches(problems: Sequence[EvaluationProblem], sampling: AnswerSampling, tokenizer: Any) -> list[list[_Asked]]:
    """All answers that are asked for, those to short prompts first: `sampling.batch` of them at once."""
    short_first = sorted(problems, key=lambda problem: (len(_prompt_ids(tokenizer, problem)), problem.name))
    asked = [(problem, seed) for problem in short_first for seed in range(sampling.seeds)]
    return [asked[start : start + sampling.batch] for start in range(0, len(asked), sampling.batch)]


def _answers(model: Any, tokenizer: Any, batch: Sequence[_Asked], sampling: AnswerSampling) -> list[WrittenAnswer]:
    started = time.monotonic()
    prompts = [{"input_ids": _prompt_ids(tokenizer, problem)} for problem, _ in batch]
    asked = tokenizer.pad(prompts, padding_side="left", return_tensors="pt").to(model.device)
    ends = _ends(model, tokenizer)
    settings: dict[str, Any] = {"max_new_tokens": sampling.max_completion, "pad_token_id": tokenizer.pad_token_id}
    if sampling.temperature:
        settings |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    config = GenerationConfig(do_sample=bool(sampling.temperature), eos_token_id=ends, **settings)
    names = " ".join(f"{problem.name}/{seed}" for problem, seed in batch)
    torch.manual_seed(int(hashlib.sha256(names.encode()).hexdigest()[:8], 16))
    with torch.inference_mode():
        written = model.generate(**asked, generation_config=config)
    spent = (time.monotonic() - started) / len(batch)
    found = []
    for (_, seed), ids in zip(batch, written[:, asked["input_ids"].shape[1] :].tolist(), strict=True):
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


def _prompt_ids(tokenizer: Any, problem: EvaluationProblem) -> list[int]:
    return tokens_of(tokenizer, problem.messages, answer=True)


def _config(model: str) -> Any:
    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"the model {model} cannot be read: {first_line(error)}") from error


def _revision(model: str) -> str:
    return str(getattr(_config(model), "_commit_hash", None) or "")
