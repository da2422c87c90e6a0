"""Reads the program in a model's answer to one prompt: the one reader of TRL's stages, TRL's reward function and verl's.

Without a program in the prompt (skill 1) the answer is a whole one: files in blocks headed by their paths, or else the last
block of Python. With one (skill 2) the blocks are taken as a coder's are: whole files, edits and removals are applied to the
files that the prompt shows. What does not apply raises `Malformed`, whose sentence is the candidate's failure: it is judged
without asking the service. No program is run or written to disk here.
Where to look next: `engineers/draft_reply.py` (the grammar), `engineers/draft_files.py` (applies blocks),
`training/reward_service/trainers.py` (who asks for a reward), `training/session_rows.py` (the files that a prompt shows).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stitchcuda.engineers import Files
from stitchcuda.engineers.draft_blocks import Block
from stitchcuda.engineers.draft_files import EDIT, apply_blocks
from stitchcuda.engineers.draft_reply import MARKER, DraftReply
from stitchcuda.engineers.reply import Malformed

Program = str | dict[str, str]
"""One file's text, or texts by path with model_new.py."""
_BLOCK = re.compile(r"^```[ \t]*([^\n`]*?)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_PYTHON = ("", "python", "py", "python3")
_MODEL, _MANIFEST = "model_new.py", "program.json"
_SHOWN = "the program that the prompt shows"


def program_in(completion: str | Sequence[Mapping[str, Any]], shown: Mapping[str, str] | None = None) -> Program:
    """Returns the program in a completion, which is a text or a list of messages. `shown`: the files of the program that the
    prompt shows, by path; None or empty where it shows none. Raises `Malformed` where blocks do not apply to these."""
    text = completion_text(completion)
    try:
        blocks = DraftReply.from_text(text).files
    except Malformed:
        if shown and MARKER.search(text):
            raise
        return _whole_in(text)
    if shown and blocks:
        return _applied(blocks, shown)
    files = {block.name: block.body for block in blocks}
    return files if _MODEL in files else _whole_in(text)


def completion_text(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """Returns the text of a completion: of a list of messages, that of the last one."""
    return completion if isinstance(completion, str) else str((completion[-1].get("content") if completion else "") or "")


def shown_files(column: object) -> dict[str, str]:
    """Returns the files of a row's column `program`: a mapping, or JSON with one (a column of parquet has one type); {} for an
    empty or missing one. Raises `ValueError` for anything else."""
    found = json.loads(column) if isinstance(column, str) and column else column or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"a row's program is {type(found).__name__}, not texts by path")
    return {str(path): text for path, text in found.items() if text is not None}  # arrow gives all rows all keys


def _whole_in(text: str) -> Program:
    """Files where a block is headed model_new.py, each block by its path (of two for one path the last); else the last block of
    Python; else all of the text."""
    blocks: list[tuple[str, str]] = _BLOCK.findall(text)
    files = {head: body for head, body in blocks if "." in head}
    if _MODEL in files:
        return files
    return next((body for head, body in reversed(blocks) if head.lower() in _PYTHON), text)


def _applied(blocks: Sequence[Block], shown: Mapping[str, str]) -> dict[str, str]:
    base: Files = dict(shown)
    applied = apply_blocks(blocks, base, _SHOWN, frozenset(), base)
    if applied.problems:
        raise Malformed("\n".join(applied.problems))
    files = {path: text for path, text in applied.files.items() if isinstance(text, str)}
    if applied.manifest:
        if EDIT.search(applied.manifest):
            raise Malformed(f"{_MANIFEST} cannot be edited: write it whole")
        files[_MANIFEST] = applied.manifest
    return files
