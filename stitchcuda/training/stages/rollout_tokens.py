"""Answers of a stage's model as tokens, with which of them the model wrote and their reward: OUT/tokens.jsonl of PPO.

They are kept as tokens and not as texts, since a talk that is rendered again may have others. Answers without a reward are not
kept. No model is loaded.
Where to look next: `training/stages/ppo_trainer.py` (who writes), `training/stages/value.py`, `training/stages/sft.py` (who
reads).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput
from stitchcuda.training.session_rows import SpokenTurn
from stitchcuda.training.stages.stage_rows import StageRow, TalkRow, refuse_held_out
from stitchcuda.training.stages.stage_run import TOKENS, RunTerms, StageRun


class TokenRow(StageRow):
    """One answer. `wrote`: 1 for each token of `answer` that the model wrote, 0 for those of tools."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    wrote: tuple[int, ...]
    reward: float

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)


def vocabulary_digest(tokenizer: Any) -> str:
    """Returns a digest of the tokenizer's vocabulary: where it is equal, tokens mean the same."""
    return hashlib.sha256(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode()).hexdigest()[:16]


def token_rows(folders: Sequence[str], tokenizer: Any, held_out: Sequence[str], reward: str | None = None) -> list[TokenRow]:
    """The answers of runs, in their order. Raises `BadInput` for a run without any, of another vocabulary or, if `reward` is
    given, of another reward, and for an answer that shows a held-out reference."""
    vocabulary, found = vocabulary_digest(tokenizer), list[TokenRow]()
    for folder in map(Path, folders):
        path = folder / TOKENS
        try:
            given = RunTerms.model_validate_json((folder / "run.json").read_bytes()).stage.get("reward")
            lines = list(StageRun(folder).lines(TOKENS))
            rows = [TokenRow.model_validate({name: line[name] for name in TokenRow.model_fields}) for line in lines]
        except (OSError, ValidationError, ValueError, KeyError) as error:
            raise BadInput(f"{folder} holds no rollouts that can be read: give the folder of a run of ppo") from error
        if not rows:
            raise BadInput(f"{path} holds no answer with a reward: run that stage with keep_tokens = true")
        if wrong := next((line["vocabulary"] for line in lines if line["vocabulary"] != vocabulary), None):
            raise BadInput(f"{path} was written with another tokenizer (vocabulary {wrong}, and the model's is {vocabulary})")
        if reward is not None and given != reward:
            raise BadInput(f"{folder} has the reward {given}, and not {reward}: set reward to it, or leave the folder out")
        found += rows
    if held_out:
        refuse_held_out([_as_talk(row, tokenizer) for row in found], held_out)
    return found


def fitting(rows: Sequence[TokenRow], max_length: int, where: str) -> tuple[list[TokenRow], int]:
    """The rows of at most `max_length` tokens, and how many were left out. Raises `BadInput` if all were."""
    kept = [row for row in rows if row.length <= max_length]
    if not kept:
        raise BadInput(f"none of {counted(len(rows), 'row')} has at most {max_length} tokens: raise {where}.max_length")
    return kept, len(rows) - len(kept)


def _as_talk(row: TokenRow, tokenizer: Any) -> TalkRow:
    asked, said = tokenizer.decode(row.prompt), tokenizer.decode(row.answer)
    return TalkRow(id=row.id, messages=(SpokenTurn(role="user", content=asked), SpokenTurn(role="assistant", content=said)))
