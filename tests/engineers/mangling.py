"""Coders' replies, recorded and generated, and the ways in which a model gets their form wrong.

A case is a base, a reply in good form and the files that it means. A mangling returns what a model might have written in its
place, and the files that this means: the same ones where only the form differs.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RECORDINGS = Path(__file__).parents[1] / "recordings"
FENCED = re.compile(r"^```(?P<path>[^\n`]+)\n(?P<body>.*?)^```$\n?", re.DOTALL | re.MULTILINE)
EDIT = re.compile(r"^<<<<<<< SEARCH\n(.*?)^=======\n(.*?)^>>>>>>> REPLACE[ \t]*$\n?", re.DOTALL | re.MULTILINE)
Files = dict[str, str]
Parts = list[tuple[str, str]]
"""Blocks in order: path and body."""


@dataclass(frozen=True)
class Case:
    """`parts` applied to `base` make `meant`."""

    base: Files
    parts: Parts
    meant: Files

    def text(self, ticks: str = "```") -> str:
        return written(self.parts, ticks)


def written(parts: Parts, ticks: str = "```") -> str:
    return "One kernel for all of it.\n" + "".join(f"{ticks}{path}\n{body}{ticks}\n" for path, body in parts)


def case_of(parts: Parts, others: Files) -> Case:
    """A case whose base has the lines that the edits look for, each once, and nothing in place of whole files."""
    base, meant = dict(others), dict(others)
    for number, (path, body) in enumerate(parts):
        edits = EDIT.findall(body)
        if not body.strip():
            base[path] = "// goes\n"
            meant.pop(path, None)
        elif not edits:
            meant[path] = body
        else:
            between = [f"// between {number} {at}\n" for at in range(len(edits))]
            base[path] = "".join(old + line for (old, _), line in zip(edits, between, strict=True))
            meant[path] = "".join(new + line for (_, new), line in zip(edits, between, strict=True))
    return Case(base, parts, meant)


@cache
def recorded_cases() -> tuple[Case, ...]:
    """The recorded replies of coders that have files, looks left out. Of edits that find each other's lines, none is kept."""
    found = []
    for text in recorded("coder"):
        parts = [(match["path"].strip(), match["body"]) for match in FENCED.finditer(text) if match["path"].strip() != "look"]
        case = case_of(parts, {"model_new.py": "class ModelNew: ...\n"}) if parts else None
        edits = [(path, old) for path, body in parts for old, _ in EDIT.findall(body)]
        if case and all(case.base[path].count(old) == 1 for path, old in edits) and len(dict(parts)) == len(parts):
            found.append(case)
    return tuple(found)


@cache
def recorded(role: str) -> tuple[str, ...]:
    texts = []
    for path in sorted(RECORDINGS.glob("*.json.gz")):
        calls = json.loads(gzip.decompress(path.read_bytes()))["calls"]
        texts += [call["reply"]["text"] for call in calls if call["id"].startswith(role) and call["reply"]]
    return tuple(texts)


def generated_case(rng: random.Random) -> Case:
    """A case of one to four files, whole, edited or removed."""
    parts: Parts = []
    for number in range(rng.randint(1, 4)):
        name = rng.choice(["kernels/k{}.cu", "kernels/k{}_binding.cc", "kernels/k{}.cuh", "kernels/k{}.py"]).format(number)
        mark = "#" if name.endswith(".py") else "//"
        lines = [f"{mark} line {number} {at} of {rng.randint(0, 99)}\n" for at in range(rng.randint(2, 9))]
        kind = rng.random()
        if kind < 0.1 and number:
            parts.append((name, ""))
        elif kind < 0.5:
            edits = [(line, line.replace("line", "new line")) for line in lines[:: rng.choice([1, 2])]]
            parts.append((name, "".join(edit(old, new) for old, new in edits)))
        else:
            parts.append((name, "".join(lines)))
    return case_of(parts, {"model_new.py": "class ModelNew: ...\n"})


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


Mangled = tuple[str, Files | None]
"""A text, and the files that it means; None where it has no clear meaning and must be asked for again."""


def _one(case: Case, rng: random.Random, change: Callable[[str, str], str]) -> str:
    """The reply with one block written by `change(path, body)`."""
    at = rng.randrange(len(case.parts))
    blocks = [f"```{path}\n{body}```\n" for path, body in case.parts]
    blocks[at] = change(*case.parts[at])
    return "One kernel for all of it.\n" + "".join(blocks)


def _edited(case: Case, rng: random.Random) -> tuple[int, list[tuple[str, str]]] | None:
    """The number of a block with edits, and its edits; None where there is none."""
    with_edits = [number for number, (_, body) in enumerate(case.parts) if EDIT.search(body)]
    if not with_edits:
        return None
    at = rng.choice(with_edits)
    return at, EDIT.findall(case.parts[at][1])


def _with_body(case: Case, at: int, body: str) -> str:
    return written([*case.parts[:at], (case.parts[at][0], body), *case.parts[at + 1 :]])


def unnamed(case: Case, rng: random.Random) -> Mangled:
    language = rng.choice(["", "cuda", "cpp", "python", "c++", "diff"])
    return _one(case, rng, lambda path, body: f"```{language}\n{body}```\n"), None


def all_unnamed(case: Case, rng: random.Random) -> Mangled:
    return written([("cuda", body) for _, body in case.parts]), None


def named_by_comment(case: Case, rng: random.Random) -> Mangled:
    mark = rng.choice(["// {}", "# {}", "/* {} */", "{}", "// file: {}", "// `{}`"])
    info = rng.choice(["", "cuda", "cpp"])
    return _one(case, rng, lambda path, body: f"```{info}\n{mark.format(path)}\n{body}```\n"), case.meant


def named_above(case: Case, rng: random.Random) -> Mangled:
    line = rng.choice(["**{}**", "### `{}`\n", "{}:", "File: {}", "2. `{}` (changed)", "Now comes {}"])
    return _one(case, rng, lambda path, body: f"{line.format(path)}\n```\n{body}```\n"), case.meant


def two_names_above(case: Case, rng: random.Random) -> Mangled:
    return _one(case, rng, lambda path, body: f"Both {path} and kernels/other.cu change:\n```\n{body}```\n"), None


def in_a_list(case: Case, rng: random.Random) -> Mangled:
    indent = rng.choice(["  ", "   ", "    "])

    def indented(path: str, body: str) -> str:
        return "".join(f"{indent}{line}\n" for line in f"```{path}\n{body}```".split("\n"))

    return _one(case, rng, indented), case.meant


def tildes(case: Case, rng: random.Random) -> Mangled:
    return written(case.parts, rng.choice(["~~~", "~~~~", "````", "``````"])), case.meant


def wrapped(case: Case, rng: random.Random) -> Mangled:
    ticks = rng.choice(["```", "````", "~~~"])
    return f"{ticks}{rng.choice(['markdown', 'md', ''])}\n{case.text()}{ticks}\n", case.meant


def nested(case: Case, rng: random.Random) -> Mangled:
    """A file that has fences of its own, within fences of the same length."""
    whole = [number for number, (_, body) in enumerate(case.parts) if body.strip() and not EDIT.search(body)]
    if not whole:
        return case.text(), case.meant
    at = rng.choice(whole)
    path, body = case.parts[at]
    info = rng.choice(["", "python", "text", "kernels/k0.cu", "look"])
    inner = f"{body}```{info}\nan example\n```\n" * rng.choice([1, 2])
    return _with_body(case, at, inner), case.meant | {path: inner}


def unclosed(case: Case, rng: random.Random) -> Mangled:
    return _one(case, rng, lambda path, body: f"```{path}\n{body}\n"), None


def cut_off(case: Case, rng: random.Random) -> Mangled:
    text = case.text()
    last = text.rindex(f"```{case.parts[-1][0]}\n")
    return text[: rng.randint(last + 3, len(text) - 5)], None


def the_same_twice(case: Case, rng: random.Random) -> Mangled:
    return _one(case, rng, lambda path, body: f"```{path}\n{body}```\nAgain:\n```{path}\n{body}```\n"), case.meant


def two_versions(case: Case, rng: random.Random) -> Mangled:
    return _one(case, rng, lambda path, body: f"```{path}\n// another\n```\n```{path}\n{body or '// third'}```\n"), None


def edits_overlap(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None:
        return case.text(), case.meant
    at, edits = found
    old, new = edits[0]
    return _with_body(case, at, case.parts[at][1] + edit(old, f"{new}// and more\n")), None


def marker_lost(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None:
        return case.text(), case.meant
    lost = rng.choice(["<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n"])
    return _with_body(case, found[0], case.parts[found[0]][1].replace(lost, "", 1)), None


def marker_changed(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None:
        return case.text(), case.meant
    was, now = rng.choice([
        ("<<<<<<< SEARCH", "<<<<<<< HEAD"), (">>>>>>> REPLACE", ">>>>>>>"), ("<<<<<<< SEARCH", "<<<<<< SEARCH  "),
        ("=======", "========"), (">>>>>>> REPLACE", "  >>>>>>> REPLACE"), ("<<<<<<< SEARCH", "<<<<<<<SEARCH"),
        ("=======", "-------"), ("<<<<<<< SEARCH", "SEARCH"),
    ])  # fmt: skip
    return _with_body(case, found[0], case.parts[found[0]][1].replace(was, now)), case.meant


def lines_beside_edits(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None:
        return case.text(), case.meant
    return _with_body(case, found[0], case.parts[found[0]][1] + "int forgotten;\n"), None


def search_misspelt(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None or not (old := found[1][0][0]).strip():
        return case.text(), case.meant
    letters = [number for number, letter in enumerate(old) if letter.isalnum()] or [0]
    number = rng.choice(letters)
    wrong = f"{old[:number]}Ω{old[number + 1:]}"
    return _with_body(case, found[0], case.parts[found[0]][1].replace(f"SEARCH\n{old}", f"SEARCH\n{wrong}", 1)), None


def spaces_at_ends(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None:
        return case.text(), case.meant
    old = found[1][0][0]
    wider = "".join(f"{line.rstrip()}  \n" for line in old.splitlines())
    return _with_body(case, found[0], case.parts[found[0]][1].replace(f"SEARCH\n{old}", f"SEARCH\n{wider}", 1)), case.meant


def unknown_file(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None:
        return case.text(), case.meant
    at = found[0]
    return written([*case.parts[:at], ("kernels/never_seen.cu", case.parts[at][1]), *case.parts[at + 1 :]]), None


def outside_of_fences(case: Case, rng: random.Random) -> Mangled:
    found = _edited(case, rng)
    if found is None or len(case.parts) == 1:
        return case.text(), case.meant
    return f"{case.text()}\n{case.parts[0][0]}:\n{edit('somewhere' + chr(10), 'else' + chr(10))}", None


def left_out(case: Case, rng: random.Random) -> Mangled:
    whole = [number for number, (_, body) in enumerate(case.parts) if body.strip() and not EDIT.search(body)]
    if not whole:
        return case.text(), case.meant
    at = rng.choice(whole)
    line = rng.choice(["// ... rest of the file unchanged", "# ... existing code ...", "// the rest is the same as before"])
    return _with_body(case, at, f"{case.parts[at][1]}{line}\n"), None


def a_diff(case: Case, rng: random.Random) -> Mangled:
    return _one(case, rng, lambda path, body: f"```diff {path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n```\n"), None


def line_ends(case: Case, rng: random.Random) -> Mangled:
    return case.text().replace("\n", rng.choice(["\r\n", "\r"])), case.meant


def outside_of_the_program(case: Case, rng: random.Random) -> Mangled:
    wrong = rng.choice(["../{}", "/work/{}", "src/{}", "{}.txt"])
    return _one(case, rng, lambda path, body: f"```{wrong.format(path)}\n{body or 'x'}```\n"), None


MANGLINGS = (
    unnamed, all_unnamed, named_by_comment, named_above, two_names_above, in_a_list, tildes, wrapped, nested, unclosed, cut_off,
    the_same_twice, two_versions, edits_overlap, marker_lost, marker_changed, lines_beside_edits, search_misspelt,
    spaces_at_ends,
    unknown_file, outside_of_fences, left_out, a_diff, line_ends, outside_of_the_program,
)  # fmt: skip
