"""Applies the blocks of a coder's reply to a program's files: whole files, edits and removals.

All blocks of one file are taken, or none of them; what is not taken is returned as a problem, in words for the model that name
what the edit was applied to and show the nearest lines. Nothing is written to disk, and no file is compiled.

Where to look next: `engineers/draft_in_progress.py` (keeps the files over several replies), `engineers/draft_reply.py`
(blocks), `engineers/missing_files.py` (files that are named and not there).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from stitchcuda.engineers import Files
from stitchcuda.engineers.draft_blocks import Block
from stitchcuda.engineers.draft_reply import MARKER
from stitchcuda.engineers.reply import Malformed

SEARCH, MIDDLE, REPLACE = r"[ \t]*<{5,9}[ \t]*SEARCH[ \t]*\n", r"[ \t]*={5,9}[ \t]*\n", r"[ \t]*>{5,9}[ \t]*REPLACE[ \t]*$\n?"
EDIT = re.compile(rf"^{SEARCH}(?P<old>.*?)^{MIDDLE}(?P<new>.*?)^{REPLACE}", re.DOTALL | re.MULTILINE)
FORM = "SEARCH, =======, then >>>>>>> REPLACE, each on its own line"
ELIDED = re.compile(
    r"^[ \t]*(?://|#|/\*)[ \t]*(?:\.{3}|…)[ \t]*(?:\*/)?[ \t]*$"
    r"|^[ \t]*(?://|#|/\*|<|\[)?[ \t]*(?:\.{3}|…)[ \t(]*(?:the )?(?:rest|existing|unchanged|remain|same|other|code)\b.*$"
    r"|^[ \t]*(?://|#|/\*)[ \t]*\(?(?:the )?(?:rest|remaining|existing|other)\b.*\b(?:unchanged|as before|as it was)\b.*$",
    re.MULTILINE | re.IGNORECASE,
)
"""A line that stands for lines that were left out."""
NEAREST, AROUND = 24, 2  # lines shown of a file where an edit does not fit, and around them
Edit = tuple[str, str, str]
"""A file, lines that are in it, and what replaces them."""


@dataclass(frozen=True)
class Applied:
    """What a reply's blocks came to. `done` are all edits that are in `files`, with those of earlier replies; `manifest` is the
    text of a program.json that the model wrote: the program gets one of ours."""

    files: Files
    taken: tuple[str, ...]
    problems: tuple[str, ...]
    done: frozenset[Edit]
    manifest: str = ""


def apply_blocks(blocks: Iterable[Block], base: Files, base_name: str, done: frozenset[Edit], origin: Files) -> Applied:
    """Applies blocks in their order. An edit that is in `done` (made by an earlier reply, or given twice) is not made again. A
    reply that edits all the lines again which earlier ones edited, of the file as it was in `origin`, replaces those edits."""
    files, problems, manifest = dict(base), [], ""
    by_path: dict[str, list[Block]] = {}
    for block in blocks:
        try:
            by_path.setdefault(program_path(block.name), []).append(block)
        except Malformed as error:
            problems.append(str(error))
    taken = []
    for path, bodies in by_path.items():
        if path == "program.json":
            manifest = bodies[-1].body
            continue
        edited = {old for name, old, _ in done if name == path}
        try:
            try:
                text, made = _apply_to_file(path, bodies, files, base_name, done)
            except Malformed:
                again = {old for block in bodies for old, _ in EDIT.findall(block.body)}
                if not edited or not edited <= again or path not in origin:
                    raise
                before = frozenset(edit for edit in done if edit[0] != path)
                text, made = _apply_to_file(path, bodies, files | {path: origin[path]}, base_name, before)
        except Malformed as error:
            problems.append(str(error))
            continue
        taken.append(path)
        if text is None:
            files.pop(path, None)
        else:
            files[path] = text
        done = made
    return Applied(files, tuple(taken), tuple(problems), done, manifest)


def _apply_to_file(
    path: str, blocks: list[Block], files: Files, base_name: str, done: frozenset[Edit]
) -> tuple[str | None, frozenset[Edit]]:
    """Returns the file's new text (None: removed) and the edits made. Raises `Malformed`."""
    now: str | bytes | None = files.get(path)
    place = base_name
    for number, block in enumerate(blocks):
        edits = EDIT.findall(block.body)
        around = EDIT.sub("", block.body)
        if MARKER.search(around):
            raise Malformed(f"an edit of {path} is not closed: {FORM}")
        if not edits:
            whole = block.body if block.body.strip() else None
            if number and whole != now:
                raise Malformed(f"{path} is given twice, and not with the same text: write it once")
            _check_whole(path, whole, now)
            now, place, done = whole, "what this reply wrote before", frozenset(edit for edit in done if edit[0] != path)
            continue
        extra = [line for line in around.splitlines() if line.strip()]
        if extra and not (extra == block.body.splitlines()[:1] and path in extra[0]):  # but for a comment with the file's name
            raise Malformed(f"the block of {path} has edits and other lines ({_quoted(extra[0])}): write one or the other")
        if not isinstance(now, str):
            near = difflib.get_close_matches(path, [name for name in files if isinstance(files[name], str)], 1, 0.5)
            there = f"; did you mean {near[0]}?" if near else f". These are there: {', '.join(sorted(files))[:600]}"
            raise Malformed(f"{path} cannot be edited: there is no such file in {base_name}; write it whole{there}")
        for old, new in edits:
            if (path, old, new) in done:
                continue
            now = _edited(path, now, old, new, place, files.get(path))
            done |= {(path, old, new)}
    return now if isinstance(now, str) else None, done


def _check_whole(path: str, text: str | None, before: str | bytes | None) -> None:
    """Raises `Malformed` for a file that may not be removed, and for a text that is not the whole file."""
    if text is None:
        if path == "model_new.py":
            raise Malformed("model_new.py cannot be removed")
        return
    if re.match(r"\s*(?:-{3} |\+{3} |@@ |diff -)", text):
        raise Malformed(f"the block of {path} is a diff: write the file whole, or edits with {FORM}")
    known = set(before.splitlines()) if isinstance(before, str) else set()
    left_out = next((found[0] for found in ELIDED.finditer(text) if found[0] not in known), "")
    if left_out:
        raise Malformed(f"{path} is not whole ({_quoted(left_out)}): write all of it, or only edits of it")


def _edited(path: str, text: str, old: str, new: str, place: str, before: str | bytes | None) -> str:
    """Returns the text with `old` replaced, which must be in it exactly once; white space at the end of lines may differ."""
    if MARKER.search(old + new) or re.search(rf"^{MIDDLE}", old + new, re.MULTILINE):
        raise Malformed(f"an edit of {path} can be read in two ways, as its lines hold =======: write the file whole")
    count = text.count(old) if old.strip() else 0
    if count == 1:
        return text.replace(old, new)
    if count == 0 and old.strip() and (spans := _loose_places(text, old)):
        if len(spans) == 1:
            (start, end), lines = spans[0], text.splitlines(keepends=True)
            return "".join([*lines[:start], new, *lines[end:]])
        count = len(spans)
    what = f"an edit of {path} does not fit: {_quoted(old)} is"
    if count > 1:
        numbers = [text[: match.start()].count("\n") + 1 for match in re.finditer(re.escape(old), text)][:6]
        where = f" (lines {', '.join(map(str, numbers))})" if numbers else ""
        raise Malformed(f"{what} in it {count} times{where}: add lines around it. It was applied to {place}.")
    overlap = isinstance(before, str) and bool(old.strip()) and old in before
    why = "; another edit of this reply has changed those lines: make one edit of both" if overlap else ""
    raise Malformed(f"{what} not in it{why}. It was applied to {place}. {_nearest(text, old)}")


def _loose_places(text: str, old: str) -> list[tuple[int, int]]:
    """Returns where `old` stands in the text as (first line, line behind the last), ends of lines ignored."""
    wanted = [line.rstrip() for line in old.splitlines()]
    lines = [line.rstrip() for line in text.splitlines()]
    return [(at, at + len(wanted)) for at in range(len(lines) - len(wanted) + 1) if lines[at : at + len(wanted)] == wanted]


def _nearest(text: str, old: str) -> str:
    """Returns the lines of the text that are most like `old`, as a sentence and a fenced block."""
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    lines = [line.strip() for line in text.splitlines()]
    if not wanted or not any(lines):
        return "There is nothing to look for." if not wanted else "The file is empty."
    scores = [sum(line in wanted for line in lines[at : at + len(wanted)] if line) for at in range(len(lines))]
    best = max(range(len(lines)), key=scores.__getitem__)
    if not scores[best]:
        like = difflib.get_close_matches(max(wanted, key=len)[:200], [line[:200] for line in lines], 1, 0.3)
        if not like:
            return "No line of it is like that: `read` shows the file."
        best = [line[:200] for line in lines].index(like[0])
    first, last = max(0, best - AROUND), min(len(lines), best + min(len(wanted), NEAREST) + AROUND)
    shown = "\n".join(text.splitlines()[first:last])
    return f"Nearest are lines {first + 1} to {last}:\n````\n{shown}\n````"


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:79]}…")


def program_path(path: str) -> str:
    """Returns a path normalised; raises `Malformed` for one that a program may not have. Allowed are `model_new.py`,
    `program.json` and Python, CUDA, C++ and JSON files below `kernels/`."""
    pure = PurePosixPath(path.strip())
    if not path.strip() or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise Malformed(f"the path {path!r} is not inside the program's folder")
    if pure.suffix not in {".py", ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp", ".json"}:
        raise Malformed(f"the file {path!r} is neither Python, CUDA, C++ nor JSON")
    if str(pure) not in ("model_new.py", "program.json") and pure.parts[0] != "kernels":
        raise Malformed(f"the file {path!r} is neither model_new.py nor below kernels/")
    return str(pure)
