"""Shows what a draft changed to a reviewer: a diff in which each kernel that changed is whole, with what is generated left out.

Lines are marked as in a unified diff. Around a change three lines are shown, or the whole kernel or device function that it
lies in. Bindings are one line each unless few of their lines changed; text that the built-in compiler writes into every program
(`GraphReplay`, `load_kernels`) is one line for each function. Long runs of removed lines are shortened. In a review of the
whole program `model_new.py` and the bindings that changed are whole too. Kernels come first and are the last to be cut; the
files that were cut are named. Text only: nothing is compiled, and it does not say whether a change is right.

Where to look next: `engineers/prompt.py` (the request for a review), `engineers/program_excerpts.py` (the whole program).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from stitchcuda.compiler.printing.program import loader_text, prelude_parts
from stitchcuda.counts import counted
from stitchcuda.engineers import Files
from stitchcuda.engineers.program_excerpts import changed_files, file_block
from stitchcuda.engineers.tokens import TokenCounter, fit
from stitchcuda.simulator.source import closing, line_of, masked, statement_start

CONTEXT = 3                                # unchanged lines around a change
REMOVED = 6                                # removed lines of one change that are shown
BINDING = 12                               # changed lines up to which the diff of a binding is shown
KERNELS, BINDINGS = (".cu", ".cuh"), "_binding.cc"
DEVICE = re.compile(r"__(?:global|device)__")


class Change(NamedTuple):
    """One change of a file: lines `old[first:last]` became `new[start:end]`."""

    first: int
    last: int
    start: int
    end: int


class ShownChanges(NamedTuple):
    """The changed files as text, and the paths of those that are not shown as whole as they should be, for lack of room."""

    text: str
    cut: tuple[str, ...]


def describe_changes(before: Files, after: Files, tokens: int, counter: TokenCounter, *, entry: bool = False) -> ShownChanges:
    """Returns the changed files in at most about `tokens`. A file that does not fit is shown with three lines around each
    change only, and what still does not fit is cut, down to its heading. Kernels get room first, short ones before long ones.
    `entry`: the last lines between a caller and the kernels, model_new.py and changed bindings, are whole. Without changes the
    text is ""."""
    files = changed_files(before, after)
    if entry and isinstance(model := after.get("model_new.py"), str):
        files.setdefault("model_new.py", model)
    olds = {path: old if isinstance(old := before.get(path, ""), str) else "" for path in files}
    whole = {path: _describe_file(path, olds[path], files[path], path in after, whole=True, entry=entry) for path in files}
    shown: dict[str, str] = {}
    cut, left = [], tokens
    for path in sorted(files, key=lambda path: (not path.endswith(KERNELS), counter.count(whole[path]), path)):
        text = whole[path]
        if counter.count(text) > left:
            text = _describe_file(path, olds[path], files[path], path in after, whole=False, entry=False)
            cut.append(path)
        heading, _, body = text.partition("\n")
        shown[path] = fit(text, left, counter) or (f"{heading} (no room to show it)" if body else heading)
        left = max(0, left - counter.count(shown[path]))
    order = sorted(files, key=lambda path: (not path.endswith(KERNELS), not path.endswith(BINDINGS), path))
    return ShownChanges("\n".join(shown[path] for path in order), tuple(path for path in order if path in cut))


def _describe_file(path: str, old: str, new: str, exists: bool, *, whole: bool, entry: bool) -> str:
    """Returns a heading and the file, if it is new, or its changes. `whole`: kernels that changed are whole. `entry`: bindings
    and model_new.py are."""
    if not exists:
        return f"### {path}: removed"
    old, new = _fold_generated(old), _fold_generated(new)
    lines = new.splitlines()
    size = counted(len(lines), "line")
    binding = path.endswith(BINDINGS)
    if not old:
        return f"### {path}: new, a binding of {size}, not shown" if binding and not entry else file_block(path, new)
    changes = _find_changes(old.splitlines(), lines)
    removed, added = sum(change.last - change.first for change in changes), sum(change.end - change.start for change in changes)
    title = f"{path}: {added:,} added, {removed:,} removed, {size} now"
    if binding and max(removed, added) > BINDING and not entry:
        return f"### {title}, a binding, not shown"
    kernels = _device_functions(new) if whole and path.endswith(KERNELS) else []
    parts = [kernel for kernel in kernels if any(_touches(change, kernel) for change in changes)]
    if entry and (binding or path == "model_new.py"):
        parts = [range(len(lines))]
    marked = _diff_lines(old.splitlines(), lines, changes, parts)
    return "\n".join([f"### {title}", "```diff", *marked, "```"])


def _fold_generated(text: str) -> str:
    """Returns the text with each function and class that the built-in compiler writes into every program as one line."""
    for part in (*prelude_parts().values(), loader_text().strip()):
        head = next(line for line in part.splitlines() if not line.startswith("@"))
        name = head.partition("(")[0].rstrip(":")
        text = text.replace(part, f"{name}: ...  # {counted(len(part.splitlines()), 'generated line')}, not shown")
    return text


def _find_changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Change(first, last, start, end) for kind, first, last, start, end in codes if kind != "equal"]


def _device_functions(text: str) -> list[range]:
    """Returns the lines, from 0, of each kernel and device function that has a body."""
    blank, found = masked(text), []
    for match in DEVICE.finditer(blank):
        body, declared = blank.find("{", match.end()), blank.find(";", match.end())
        if body < 0 or 0 <= declared < body:
            continue
        start = statement_start(blank, match.start())
        start += len(blank[start:]) - len(blank[start:].lstrip())
        found.append(range(line_of(text, start) - 1, line_of(text, max(closing(blank, body), body))))
    return found


def _touches(change: Change, part: range) -> bool:
    return change.start in part or part.start in range(change.start, change.end)


def _diff_lines(old: Sequence[str], new: Sequence[str], changes: Sequence[Change], parts: Sequence[range]) -> Iterator[str]:
    """Yields the marked lines, and one line for each run of lines that is left out. `parts`: lines that are shown as well."""
    wanted = {line for change in changes for line in range(change.start - CONTEXT, change.end + CONTEXT)}
    wanted.update(line for part in parts for line in part)
    removed = {change.start: old[change.first : change.last] for change in changes}
    added = {line for change in changes for line in range(change.start, change.end)}
    left_out = 0
    for at in range(len(new) + 1):
        shown = at < len(new) and at in wanted
        if left_out and (shown or at in removed or at == len(new)):
            yield f"@@ {counted(left_out, 'unchanged line')} @@"
            left_out = 0
        gone = removed.get(at, ())
        yield from (f"-{line}" for line in gone[:REMOVED])
        if len(gone) > REMOVED:
            yield f"@@ {counted(len(gone) - REMOVED, 'more removed line')} @@"
        if shown:
            yield f"{'+' if at in added else ' '}{new[at]}"
        else:
            left_out += at < len(new)
