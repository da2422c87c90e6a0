"""Reads the tasks of the reward service: references by name, from a table, a folder or one file. Nothing is imported or run.

Where to look next: `bench/problems.py` (the forms).
"""

from __future__ import annotations

import re
from pathlib import Path

from stitchcuda.bench.problems import NAME_FIELDS, SOURCE_FIELDS, read_rows, read_source, text_in
from stitchcuda.errors import BadInput

_REFERENCE = re.compile(r"^class Model\b", re.MULTILINE)


def read_tasks(path: Path) -> dict[str, str]:
    """Returns references by name: of each line of a .jsonl file ("source", with "name" or "id"), of each Python file with class
    Model in a folder, or of one such file. Raises `BadInput`."""
    found: dict[str, str] = {}
    if path.suffix == ".jsonl":
        for number, row in read_rows(path):
            source = text_in(row, SOURCE_FIELDS)
            if source is None:
                raise BadInput(f'{path} line {number} has no reference: give its Python text as "source"')
            name = str(next((row[field] for field in NAME_FIELDS if field in row), number))
            if found.setdefault(name, source) != source:
                raise BadInput(f"{path} has two tasks called {name}: rename one")
    elif path.exists():
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        found = {file.stem: text for file in files if _REFERENCE.search(text := read_source(file))}
    else:
        raise BadInput(f"there is no {path}: give a .jsonl file, a folder of references, or one reference")
    if not found:
        raise BadInput(f"{path} holds no task: a reference is a Python file with class Model and get_inputs()")
    return found
