"""Finds out whether a draft failed by an error in a few lines of one file: then its coder needs that file, not the program.

The compiler's log or the reason of a failed check has to name the lines. Where a check names lines of a kernel, those of Python
are the calls that led there; where it names a kernel without a line, they are no place to mend. An error that the attempt
before had as well is not taken for one: the short request did not help. It reads text only, and repairs nothing.

Where to look next: `engineers/prompt.py` (the request), `engineers/prompts/coder_after_error.md.j2` (its wording).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stitchcuda.engineers import Assignment, Files
from stitchcuda.engineers.program_excerpts import LANGUAGES
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.state import Evidence

MOST_LINES = 4       # different lines with errors; with more, the draft is wrong as a whole
AROUND = 30          # lines shown above and below each error of a file that is too long to be shown whole
_PLACE = re.compile(r"""(?P<path>[\w./-]+\.(?:cuh?|cc|cpp|h|py))(?:"?,? line |\(|:)(?P<line>\d+)""")
_KERNEL = re.compile(r"\bsimulator: kernel \w")


@dataclass(frozen=True)
class LocalError:
    """`text`: what the tool said; `path`: the file of the draft that it names; `lines`: the lines, counted from 1."""

    text: str
    path: str
    lines: tuple[int, ...]


def find_local_error(assignment: Assignment) -> LocalError | None:
    """Returns the error of the last draft if it lies in at most MOST_LINES lines of one file and is new; else None."""
    if assignment.last is None or assignment.evidence is None or _came_back(assignment):
        return None
    text = _error_text(assignment.evidence)
    places = _places(text, assignment.last.files)
    python = {place for place in places if place[0].endswith(".py")}
    if places == python and _KERNEL.search(text):
        return None
    places = places - python or python
    paths = {path for path, _ in places}
    if len(paths) != 1 or len(places) > MOST_LINES:
        return None
    return LocalError(text, paths.pop(), tuple(sorted(line for _, line in places)))


def excerpt(files: Files, error: LocalError, tokens: int, counter: TokenCounter) -> str:
    """Returns the file as a fenced block, whole if it takes at most `tokens`, else the lines around the error with a sentence
    on which lines they are."""
    text = files[error.path]
    assert isinstance(text, str)
    fence = f"```{LANGUAGES.get(error.path[error.path.rfind('.'):], '')}"
    whole = f"### {error.path}\n{fence}\n{text.rstrip()}\n```"
    if counter.count(whole) <= tokens:
        return whole
    lines = text.splitlines()
    for around in (AROUND, AROUND // 2, AROUND // 4, 2):
        spans = _spans(error.lines, len(lines), around)
        parts = [f"Lines {first} to {last} of {len(lines)}:\n{fence}\n" + "\n".join(lines[first - 1 : last]) + "\n```"
                 for first, last in spans]  # fmt: skip
        shown = "\n".join([f"### {error.path}", *parts])
        if counter.count(shown) <= tokens:
            break
    return shown


def _error_text(evidence: Evidence) -> str:
    """Returns the log of a failed build, or the reasons of a check that compared no output; "" for any other evidence."""
    if not evidence.build.ok and not evidence.build.skipped:
        return evidence.build.log.strip()
    check = evidence.check
    return "\n".join(check.reasons) if check is not None and not check.ok and not check.outputs else ""


def _places(text: str, files: Files) -> set[tuple[str, int]]:
    found = ((_file_named(place["path"], files), int(place["line"])) for place in _PLACE.finditer(text))
    return {(path, line) for path, line in found if path and 1 <= line <= _length(files[path])}


def _file_named(named: str, files: Files) -> str:
    """Returns the path of the file that a tool means by its path, a longer path, or its bare name where one file has it; ""
    for any other."""
    if exact := next((path for path in files if path == named or named.endswith(f"/{path}")), ""):
        return exact
    same = [path for path in files if path.endswith(f"/{named}")]
    return same[0] if len(same) == 1 else ""


def _length(text: str | bytes) -> int:
    return len(text.splitlines()) if isinstance(text, str) else 0


def _came_back(assignment: Assignment) -> bool:
    """Whether the last two attempts at the task and its structure ended with the same error."""
    same = [attempt for attempt, _ in assignment.earlier if not attempt.beside and attempt.structure == assignment.structure]
    prints = [attempt.fingerprint for attempt in same]
    return len(prints) > 1 and bool(prints[-1]) and prints[-1] == prints[-2]


def _spans(lines: tuple[int, ...], length: int, around: int) -> list[tuple[int, int]]:
    """Returns first and last line of each stretch around the errors; stretches that touch are one."""
    spans: list[tuple[int, int]] = []
    for line in lines:
        first, last = max(1, line - around), min(length, line + around)
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    return spans
