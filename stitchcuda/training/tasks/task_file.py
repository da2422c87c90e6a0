"""Keeps tasks in one JSONL file, with what was refused in a second one beside it, and a manifest of how they were made.

A candidate is in exactly one of the two before the next is looked at, so that a killed run goes on where it was and ends with
the same files as one that was not. A line torn by a kill is cut off.
Where to look next: `training/tasks/candidate.py` (the records), `training/tasks/synthesis.py` (writes).
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field, ValidationError

from stitchcuda import remedies
from stitchcuda.bench.problems import NAME_FIELDS, read_rows
from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.store.files import write_atomically, writing
from stitchcuda.training.tasks.candidate import Refusal, TrainingTask
from stitchcuda.training.tasks.filters import FILTERS
from stitchcuda.version import VERSION

LICENCE = "Apache-2.0"
_SOURCES = ("source", "code", "reference", "ref_code", "pytorch_code")


class TaskManifest(Record):
    """How a file of tasks was made, and what became of its candidates. `refused`: candidates by the filter that refused them.
    Times in the file are estimates for `device`."""

    version: str = VERSION
    torch: str
    made: str                              # "synthesised from seed 0", or "filtered from FILE with SHA-256 …"
    held_out: str                          # digest of the structures
    compile: str                           # backend of torch.compile
    device: str
    licence: str = LICENCE
    tasks: int = 0
    candidates: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    sha256: str = ""                       # of the file of tasks; "" while it is being made

    @property
    def settings(self) -> dict[str, Any]:
        return self.model_dump(include={"version", "torch", "made", "held_out", "compile", "device"})


class TaskFile:
    """A file of tasks that is being made, or that is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.refused_path = path.with_name(f"{path.name}.refused")
        self.manifest_path = path.with_name(f"{path.name}.manifest.json")
        self.structures: set[str] = set()
        self.tasks = self.next = 0
        self.refused: Counter[str] = Counter()
        self._files: dict[Path, BinaryIO] = {}

    def begin(self, manifest: TaskManifest) -> None:
        """Goes on with the file, or begins it. Raises BadInput if it was made otherwise."""
        if self.manifest_path.is_file():
            before = read_manifest(self.manifest_path)
            other = [key for key, value in manifest.settings.items() if before.settings[key] != value]
            if other:
                was, now = before.settings[other[0]], manifest.settings[other[0]]
                raise BadInput(f"{self.path} was begun with {other[0]} {was}, and this is {now}: name another file with --out")
        elif self.path.exists():
            raise BadInput(f"{self.path} is there and has no manifest: name another file with --out")
        for path in (self.path, self.refused_path):
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = path.open("ab+")
            self._files[path] = file
            file.seek(0)
            data = file.read()
            whole = data.rfind(b"\n") + 1
            file.truncate(whole)
            for line in data[:whole].splitlines():
                self._count(TrainingTask.model_validate_json(line) if path == self.path else Refusal.model_validate_json(line))
        self._write(manifest, done=False)

    def add(self, outcome: TrainingTask | Refusal) -> None:
        path = self.path if isinstance(outcome, TrainingTask) else self.refused_path
        with writing(path):
            self._files[path].write(outcome.model_dump_json().encode() + b"\n")
            self._files[path].flush()
        self._count(outcome)

    def _count(self, outcome: TrainingTask | Refusal) -> None:
        self.structures.add(outcome.structure)
        self.next = max(self.next, outcome.candidate + 1)
        if isinstance(outcome, TrainingTask):
            self.tasks += 1
        else:
            self.refused[outcome.filter] += 1

    def end(self, manifest: TaskManifest) -> TaskManifest:
        """Writes the manifest with what became of the candidates, and returns it."""
        for file in self._files.values():
            os.fsync(file.fileno())
            file.close()
        return self._write(manifest, done=True)

    def _write(self, manifest: TaskManifest, *, done: bool) -> TaskManifest:
        counts = {name: self.refused[name] for name in FILTERS}
        full = manifest.model_copy(update={
            "tasks": self.tasks, "candidates": self.next, "refused": counts,
            "sha256": hashlib.sha256(self.path.read_bytes()).hexdigest() if done else "",
        })  # fmt: skip
        write_atomically(self.manifest_path, full.model_dump_json(indent=2).encode() + b"\n")
        return full


def read_manifest(path: Path) -> TaskManifest:
    try:
        return TaskManifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BadInput(f"{path} is no manifest of tasks: remove it with its file, or name another with --out") from error


def read_tasks(path: Path) -> list[TrainingTask]:
    """Returns the tasks of a file that was made here."""
    try:
        return [TrainingTask.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError) as error:
        raise BadInput(f"{path} is no file of tasks: make one with stitchcuda tasks synthesise") from error


def read_sources(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields (name, source, small stand-in or "") from any table of references: JSON lines, or Parquet with pyarrow installed.

    The text is the first of the columns `source`, `code` (as in CUDA Agent's Ops-6K), `reference`, `ref_code`, `pytorch_code`.
    """
    for number, row in enumerate(_rows(path), 1):
        source = next((row[key] for key in _SOURCES if isinstance(row.get(key), str) and row[key].strip()), None)
        if source is None:
            raise BadInput(f"{path} row {number} has no text of a reference: give it in a column {', '.join(_SOURCES)}")
        name = next((str(row[key]) for key in NAME_FIELDS if row.get(key) not in (None, "")), f"row-{number:06d}")
        small = row.get("small")
        yield name, source, small if isinstance(small, str) else ""


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise BadInput(f"there is no file {path}: give a table of references, JSON lines or Parquet")
    if path.suffix == ".parquet":
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise BadInput(f"{path} is Parquet: {remedies.extra('training')}, or write it as JSON lines") from error
        yield from parquet.read_table(path).to_pylist()
        return
    yield from (row for _, row in read_rows(path))
