"""Writes a small data set in the form of `stitchcuda train data`: prompts of both skills, and their good answers as talks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stitchcuda.training.data import DataFile, DataManifest


def data_folder(folder: Path, rows: Sequence[dict[str, Any]], test: Sequence[dict[str, Any]] = ()) -> Path:
    """`rows`, `test`: of both splits, with "kind", "id", "messages" and "reference"; the rest has defaults."""
    files = []
    splits = {"train": rows, "test": test}
    for split, kind in dict.fromkeys((split, row["kind"]) for split, found in splits.items() for row in found):
        own = [{"split": split, "cluster": "c", "outcome": 1.0, **row} for row in splits[split] if row["kind"] == kind]
        for form in ("jsonl", "trl"):
            path = folder / form / f"{kind}.{split}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in own))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append(DataFile(path=path.relative_to(folder).as_posix(), rows=len(own), sha256=digest))
    manifest = DataManifest(
        licence="Apache-2.0", authors=(), test_percent=0, sessions=(), files=tuple(files), duplicates=0, leaks=0
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    (folder / "leakage.json").write_text(json.dumps({"rows": len(rows), "fields": 0, "left out": 0, "leaks": []}))
    return folder


def row(kind: str, name: str, asked: str, answer: str, reference: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return {"kind": kind, "id": f"s/{kind}/{name}", "messages": messages, "reference": reference}
