"""Keeps an evaluation in a folder: what was asked, every answer with its text, every verdict and rubric, and the figures.

    OUT/terms.json                        what was asked     OUT/evaluation.json, evaluation.md   the figures, written last
    OUT/answers/CHECKPOINT/PROBLEM/SEED.json   answers       OUT/programs/ID   the programs in them
    OUT/verdicts/ID.json, rubrics/ID.json                    OUT/bench         the results, as of `bench verify`

Each is written once; the same request goes on with what is there. It generates nothing and judges nothing.
Where to look next: `training/evaluation/evaluate.py` (who fills it), `bench/results.py` (the results).
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from stitchcuda.bench.problems import file_name
from stitchcuda.errors import BadInput, Damaged, Unavailable
from stitchcuda.state import Record, Settings
from stitchcuda.store import write_atomically, writing
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint

R = TypeVar("R", bound=Record)


class AnswerSampling(Record):
    """How answers are drawn. One answer to each problem for each of the seeds 0 to `seeds` - 1."""

    seeds: int = Field(ge=1)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)  # 0: the likeliest token
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)            # 0: no limit
    max_completion: int = Field(ge=1)      # tokens
    batch: int = Field(ge=1)               # answers that are written at once; they share a generator


class WrittenAnswer(Record):
    """What a checkpoint answered."""

    seed: int
    text: str
    tokens: int
    cut_off: bool                          # it was still writing after `max_completion` tokens
    seconds: float                         # its part of its batch


class EvaluationTerms(Record):
    """What was asked. An evaluation can be gone on with by the same request only."""

    checkpoints: tuple[ModelCheckpoint, ...]
    weights: tuple[str, ...]               # a digest of each one's weights, or the hub's revision
    problems: dict[str, str]               # by name, a digest of each
    sampling: AnswerSampling
    settings: Settings                     # of the verifier
    judge: str                             # the rubric's chat model; "": none


class EvaluationFolder:
    """The folder of an evaluation: its terms, answers and verdicts. Call its other methods inside of `begin`."""

    def __init__(self, out: Path) -> None:
        self.out, self.bench = out, out / "bench"

    @contextmanager
    def begin(self, terms: EvaluationTerms) -> Iterator[None]:
        """Keeps what is asked, and takes the folder for this process. Raises `BadInput` if it holds something else,
        `Unavailable` if another process is at work there."""
        path = self.out / "terms.json"
        if self.out.exists() and not path.is_file() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise BadInput(f"{self.out} is there already and is no evaluation: give a new folder")
        with writing(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
            lock = (self.out / "lock").open("ab")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(f"another process is at work in {self.out}: wait for it, or give another --out") from error
            if path.is_file():
                before = self._read(path, EvaluationTerms)
                if changed := [key for key in type(terms).model_fields if getattr(before, key) != getattr(terms, key)]:
                    raise BadInput(
                        f"{self.out} is an evaluation with other {' and '.join(changed)}: give the same request to go on with "
                        "it, or another --out"
                    )
            else:
                write_atomically(path, terms.model_dump_json(indent=1).encode())
            yield

    def answer(self, checkpoint: int, problem: str, seed: int, terms: EvaluationTerms) -> WrittenAnswer | None:
        """An answer by the checkpoint's place and the problem's name; None while there is none."""
        path = self._answers(checkpoint, terms) / problem / f"{seed}.json"
        return self._read(path, WrittenAnswer) if path.is_file() else None

    def keep_answer(self, checkpoint: int, problem: str, answer: WrittenAnswer, terms: EvaluationTerms) -> None:
        path = self._answers(checkpoint, terms) / problem / f"{answer.seed}.json"
        write_atomically(path, answer.model_dump_json(indent=1).encode())

    def record(self, kind: str, id: str, form: type[R]) -> R | None:
        """A verdict or rubric; None while there is none."""
        path = self.out / kind / f"{id}.json"
        return self._read(path, form) if path.is_file() else None

    def keep_record(self, kind: str, id: str, record: Record) -> None:
        write_atomically(self.out / kind / f"{id}.json", record.model_dump_json(indent=1).encode())

    def missing(self, checkpoint: int, problem: str, seeds: Sequence[int], terms: EvaluationTerms) -> list[int]:
        """The seeds without an answer."""
        return [seed for seed in seeds if not (self._answers(checkpoint, terms) / problem / f"{seed}.json").is_file()]

    def _answers(self, checkpoint: int, terms: EvaluationTerms) -> Path:
        return self.out / "answers" / f"{checkpoint}-{file_name(terms.checkpoints[checkpoint].label)}"

    def _read(self, path: Path, form: type[R]) -> R:
        try:
            return form.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise Damaged(f"{path} cannot be read: remove it, and the same command makes it anew") from error
