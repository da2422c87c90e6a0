"""What the rows of a run's rollouts are, and which runs are not learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.training.stages.rollout_tokens import TokenRow, fitting, token_rows, vocabulary_digest
from stitchcuda.training.stages.stage_run import TOKENS, RunTerms, StageRun


class Letters:
    """A tokenizer with a token for each letter."""

    def __init__(self, letters: str = "abcdefghijklmnopqrstuvwxyz") -> None:
        self.letters = letters

    def get_vocab(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.letters)}

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.letters[token] for token in tokens)


ROW = TokenRow(id="tasks/gate", prompt=(0, 1), answer=(2, 3, 4), wrote=(1, 0, 1), reward=-1.0)


def a_run(folder: Path, *rows: TokenRow, reward: str = "log-speedup/1", tokenizer: Any = None) -> str:
    run, vocabulary = StageRun(folder), vocabulary_digest(tokenizer or Letters())
    run.begin(RunTerms(table="ppo", digest="a" * 64, stage={"reward": reward}), resume=False)
    run.append(TOKENS, *({"update": 1, "vocabulary": vocabulary, **row.model_dump()} for row in rows))
    return str(folder)


def test_rows_are_what_was_written(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "one", ROW), a_run(tmp_path / "two", ROW.model_copy(update={"reward": 1.0}))]
    found = token_rows(runs, Letters(), (), "log-speedup/1")
    assert [row.reward for row in found] == [-1.0, 1.0]
    assert found[0] == ROW
    assert found[0].digest != found[1].digest
    assert fitting(found, 5, "value") == (found, 0)
    with pytest.raises(BadInput, match=r"none of 2 rows has at most 4 tokens: raise value.max_length"):
        fitting(found, 4, "value")


def test_runs_that_are_not_learnt_from_are_named(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", ROW)
    with pytest.raises(BadInput, match="was written with another tokenizer"):
        token_rows([run], Letters("zyxw"), ())
    with pytest.raises(BadInput, match=r"has the reward log-speedup/1, and not accepted/1"):
        token_rows([run], Letters(), (), "accepted/1")
    with pytest.raises(BadInput, match="holds no answer with a reward: run that stage with keep_tokens = true"):
        token_rows([a_run(tmp_path / "empty")], Letters(), ())
    with pytest.raises(BadInput, match="holds no rollouts that can be read"):
        token_rows([str(tmp_path / "none")], Letters(), ())


def test_an_answer_that_shows_a_held_out_reference_is_refused(tmp_path: Path) -> None:
    body = "y = x.relu()\n        z = y.sigmoid() * y\n        return z + y.tanh()"
    source = f"class Model:\n    def forward(self, x):\n        {body}\n"
    letters = Letters("".join(sorted(set(source))))
    tokens = tuple(letters.get_vocab()[letter] for letter in source)
    run = a_run(tmp_path / "run", ROW.model_copy(update={"prompt": tokens, "answer": (0,), "wrote": (1,)}), tokenizer=letters)
    (tmp_path / "held.py").write_text(source)
    with pytest.raises(BadInput, match="shows the held-out"):
        token_rows([run], letters, (str(tmp_path / "held.py"),))
