"""Keeps what a run of a stage writes: its terms, logs, save points and result, in one folder.

    OUT/run.json            the stage, and the digest of all that decides the weights; written first
    OUT/log.jsonl           one line for each update of the weights
    OUT/rollouts.jsonl      one line for each answer that was judged (GRPO, PPO)
    OUT/attacks.jsonl       programs that the verifier refused as attacks (GRPO, PPO)
    OUT/tokens.jsonl        answers as tokens, with their rewards (PPO)
    OUT/checkpoints/        save points; one counts when it holds stage.json, which is written last
    OUT/tensorboard/        if tensorboard is installed
    OUT/adapter, OUT/model, OUT/critic   the result; OUT/curves.html; OUT/summary.json, written last

A run that goes on first cuts its logs at the save point. Nothing of TRL is known here.
Where to look next: `training/stages/stage_callback.py` (who writes), `training/stages/curves.py` (the page).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stitchcuda.errors import BadInput
from stitchcuda.state import Digest, Record
from stitchcuda.store import write_atomically, writing
from stitchcuda.version import VERSION

LOG, ROLLOUTS, ATTACKS, TOKENS = "log.jsonl", "rollouts.jsonl", "attacks.jsonl", "tokens.jsonl"
_SAVED = re.compile(r"checkpoint-(\d+)")


class RunTerms(Record):
    """What a run was asked to do. `digest`: of all that decides its weights."""

    table: str
    digest: Digest
    stage: dict[str, Any]
    stitchcuda: str = VERSION


class RunSummary(Record):
    """What came of a run."""

    steps: int
    updates: int
    result: str                            # the folder of the adapter or the model
    sha256: Digest                         # of its weights' files
    critic_sha256: Digest | None = None    # of those of critic/
    last: dict[str, Any] = Field(default_factory=dict)  # line of the log


class StageRun:
    """One run's folder. Call `begin` before anything is written."""

    def __init__(self, out: Path) -> None:
        self.out, self.checkpoints = out, out / "checkpoints"

    def begin(self, terms: RunTerms, *, resume: bool) -> int:
        """Makes the folder, or checks that it holds the same run; returns the update to go on from, or 0. Raises `BadInput`."""
        path = self.out / "run.json"
        if not resume:
            if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
                raise BadInput(f"{self.out} is there already and not empty: give a new folder, or --resume")
            write_atomically(path, terms.model_dump_json(indent=1).encode())
            return 0
        try:
            before = RunTerms.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise BadInput(f"{self.out} holds no run to go on with: leave --resume out, and give a new folder") from error
        if before.digest != terms.digest:
            raise BadInput(f"{self.out} is a run of {_difference(before, terms)}: go on with what it was begun with")
        update = self.last_saved()
        for name in (LOG, ROLLOUTS, ATTACKS, TOKENS):
            self._cut(name, update)
        return update

    def last_saved(self) -> int:
        """The update of the last complete save point; 0 if there is none."""
        found = [path for path in self.checkpoints.glob("checkpoint-*") if (path / "stage.json").is_file()]
        return max((int(match[1]) for path in found if (match := _SAVED.fullmatch(path.name))), default=0)

    def saved(self, update: int) -> Path:
        return self.checkpoints / f"checkpoint-{update}"

    def mark_saved(self, update: int, digest: Digest) -> None:
        """Says that a save point is complete."""
        write_atomically(self.saved(update) / "stage.json", json.dumps({"digest": digest, "update": update}).encode())

    def require_saved_by(self, update: int, digest: Digest) -> Path:
        """The folder of a save point. Raises `BadInput` if it is another run's."""
        path = self.saved(update)
        if json.loads((path / "stage.json").read_bytes()).get("digest") != digest:
            raise BadInput(f"{path} is a save point of another run: remove it, or go on with what it was made by")
        return path

    def append(self, name: str, *lines: Mapping[str, Any]) -> None:
        """Adds lines, each with its "update". Raises `Unavailable` if the disk is full."""
        path = self.out / name
        with writing(path), path.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.out / name
        for text in path.read_text().splitlines() if path.exists() else ():
            yield json.loads(text)

    def summary(self) -> RunSummary | None:
        """What came of the run; None while it is not finished."""
        path = self.out / "summary.json"
        return RunSummary.model_validate_json(path.read_bytes()) if path.exists() else None

    def finish(self, summary: RunSummary) -> None:
        write_atomically(self.out / "summary.json", summary.model_dump_json(indent=1).encode())

    def _cut(self, name: str, update: int) -> None:
        """Leaves out what was logged after an update; it is done again. A line that a kill cut off is left out too."""
        path = self.out / name
        if not path.exists():
            return
        kept = []
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line["update"] <= update:
                kept.append(text + "\n")
        write_atomically(path, "".join(kept).encode())


def _difference(before: RunTerms, now: RunTerms) -> str:
    if before.table != now.table:
        return f"the stage {before.table}, not {now.table}"
    changed = [key for key in now.stage if before.stage.get(key) != now.stage[key]]
    if changed:
        return f"another config ({', '.join(f'{before.table}.{key} = {before.stage.get(key)!r}' for key in changed)})"
    return "other rows: the data has changed"
