"""What the CUDA headers of this machine say about a function, type, value or intrinsic: to look it up before it is used.

It needs no network and no index of documents: where CUDA can be compiled, its headers are. It says nothing of its own, and a
declaration without a comment is shown as it is. Where to look next: `header_index.py`, which headers these are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from stitchcuda.tools.building import header_index
from stitchcuda.tools.building.header_comments import BRIEF_CHARS, cut
from stitchcuda.tools.building.header_index import Entry, Index
from stitchcuda.tools.building.nearest_names import MOST, nearest
from stitchcuda.tools.machine import toolkit

HIT_CHARS = 1200
LINES = 5

_HITS = 3
_DECLARATION_CHARS = 700
_QUERY_CHARS = 200
_NAME = re.compile(r"[\s&*:]*(?P<name>~?[A-Za-z_]\w*(?:(?:::|\.)\w+)*)\s*(?:<.*>)?\s*(?:\(.*)?[\s;]*", re.DOTALL)
_ALIAS = re.compile(r"#define \w+ ([A-Za-z_]\w*)|typedef (?:enum|struct) (\w+) \w+;")     # cublasSgemm is cublasSgemm_v2
_LITTLE = {
    "a", "an", "and", "are", "by", "do", "does", "for", "from", "how", "i", "in", "is", "it", "of", "on", "or", "the", "to",
    "use", "using", "what", "which", "with",
}  # fmt: skip


def documentation(query: str) -> str:
    """What the headers say about a name (`cudaMemcpyAsync`, `cub::BlockReduce`, `cp.async.bulk`), or which names fit words.

    A name: its declarations and the comment above them, at most 1,200 characters for each of at most three that differ.
    Words: at most five lines `name: brief (header)`. Nothing found, or no toolkit that can be read: one sentence. Never raises.
    """
    kit = toolkit.find_toolkit()
    if kit is None:
        return toolkit.missing()
    asked = " ".join(query[:_QUERY_CHARS].encode("utf-8", "replace").decode("utf-8").split())
    try:
        index = header_index.of(kit)
    except OSError as error:
        return f"the CUDA headers of this machine cannot be read: {error}"
    hits = _named(asked, index)
    if hits:
        return _shown(hits, index)
    words = _words(asked)
    fits = _fitting(words, index)
    if not fits:                           # words around a name
        hits = [hit for word in re.findall(r"\w+", asked) if "_" in word or word.lower() != word for hit in _named(word, index)]
        return _shown(hits, index) if hits else _nothing(asked, words, index)
    return "\n".join(_line(entry) for entry in fits)


def _named(asked: str, index: Index) -> list[Entry]:
    """Everything of that name; of PTX' instructions, `cp.async.bulk.tensor.2d`, what wraps the longest beginning of it."""
    found = _NAME.fullmatch(asked)
    if found is None:
        return []
    *outer, name = found["name"].split("::")
    if "." in found["name"]:
        parts = re.split(r"::|\.", found["name"])
        tries = ["_".join(parts[:count]) for count in range(len(parts), 1, -1)]
        return next((hits for one in tries if (hits := _of(one, index, ["ptx"]))), [])
    hits = _of(name, index, outer)
    others = [alias[1] or alias[2] for hit in hits if (alias := _ALIAS.fullmatch(hit.text)) is not None]
    return [*hits, *(hit for other in others for hit in _of(other, index, []))] if len(others) == len(hits) else hits


def _of(name: str, index: Index, outer: Sequence[str]) -> list[Entry]:
    known = name if name in index.places else index.folded.get(name.lower(), "")
    hits = [index.entries[at] for at in index.places.get(known, ())]
    return [hit for hit in hits if set(outer) <= set(hit.inside.split("::"))] or ([] if outer == ["ptx"] else hits)


def _shown(hits: Sequence[Entry], index: Index) -> str:
    """By what is declared and said: overloads stand together, with those beside them in a header that say nothing."""
    real = [hit for hit in hits if hit.kind != "macro"] or list(hits)
    briefs = {(hit.full, hit.header): hit.brief for hit in reversed(real) if hit.comment}
    told = {(hit.full, hit.text) for hit in real if hit.comment}
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for hit in real:
        if hit.comment or (hit.full, hit.text) not in told:
            brief = hit.brief or briefs.get((hit.full, hit.header), "")
            groups.setdefault((hit.full, hit.kind, brief), []).append(hit)
    ordered = sorted(groups.values(), key=_weight)
    blocks = [_block(group, index) for group in ordered[:_HITS]]
    more = [f"{group[0].full} ({group[0].header})" for group in ordered[_HITS:]]
    if more:
        blocks.append(cut(f"Also: {', '.join(dict.fromkeys(more))}", HIT_CHARS // 4))
    return "\n\n".join(blocks)


def _weight(group: Sequence[Entry]) -> tuple[bool | int, ...]:
    """First what is no part of a type, what is for every type of numbers, no template, and says something."""
    first = group[0]
    constructs = first.inside.rpartition("::")[2] == first.name
    narrow = re.match(r"cuda_(?:bf|fp)\d", first.header) is not None
    generic = all(entry.text.startswith("template") for entry in group)
    return constructs, first.kind == "field", narrow, first.full.count("::"), generic, not first.comment


def _block(group: Sequence[Entry], index: Index) -> str:
    first = group[0]
    title = f"{first.full} ({', '.join(dict.fromkeys(entry.header for entry in group))})"
    if first.kind in ("value", "field") and first.inside:
        title = f"{first.name}, a {first.kind} of {first.inside} ({first.header})"
    texts = list(dict.fromkeys(entry.text for entry in sorted(group, key=lambda entry: not entry.comment)))
    room = [len("\n".join(texts[:count])) <= _DECLARATION_CHARS for count in range(1, len(texts) + 1)]
    shown = max(1, sum(room))
    declared = cut("\n".join(texts[:shown]), _DECLARATION_CHARS)
    if shown < len(texts):
        declared += f"\n({len(texts) - shown} more overloads)"
    comment = next((entry.comment for entry in group if entry.comment), "")
    lines = [cut(title, HIT_CHARS // 4), declared, comment]
    if first.kind in ("type", "enum"):
        lines = [*lines[:2], cut(comment, HIT_CHARS // 2)]
        lines.append(_members(group, index, HIT_CHARS - len("\n".join(lines)) - 1))
    return cut("\n".join(line for line in lines if line), HIT_CHARS)


def _members(group: Sequence[Entry], index: Index, room: int) -> str:
    """Values and fields, with what is said of each if there is room for all of that; functions by their names."""
    headers, full = {entry.header for entry in group}, group[0].full
    inside = [one for one in index.entries if one.inside == full and one.header in headers]
    functions = dict.fromkeys(one.name for one in inside if one.kind == "function" and one.name != group[0].name)
    last = [f"  functions: {', '.join(functions)}"] if functions else []
    held = [one for one in inside if one.kind in ("value", "field")]
    lines = [f"  {one.text.rstrip(';')}{f' - {one.brief}' if one.brief else ''}" for one in held]
    text = "\n".join((*dict.fromkeys(lines), *last))
    if len(text) <= room or not held:
        return text
    names = dict.fromkeys(one.name if one.kind == "value" else one.text.rstrip(";") for one in held)
    return "\n".join((f"  {held[0].kind}s: {', '.join(names)}", *last))


def _words(asked: str) -> list[str]:
    words = list(dict.fromkeys(re.findall(r"\w+", asked.lower())))
    return [word for word in words if word not in _LITTLE] or words


def _fitting(words: Sequence[str], index: Index, lacking: int = 0) -> list[Entry]:
    """One of each name whose text has all the words, or so many less: first where they are in the name, then in the brief."""
    wanted = max(1, len(words) - lacking)
    fits = [index.entries[at] for at, text in enumerate(index.texts) if sum(word in text for word in words) >= wanted]
    best: dict[str, tuple[tuple[int, int, int, int], Entry]] = {}
    for entry in fits:
        name, brief = entry.name.lower(), entry.brief.lower()
        in_name, in_brief = sum(word in name for word in words), sum(word in brief for word in words)
        weight = (-in_name - in_brief, -in_name, entry.kind == "field", len(entry.full))
        if entry.full not in best or weight < best[entry.full][0]:
            best[entry.full] = (weight, entry)
    return [entry for _, entry in sorted(best.values(), key=lambda one: one[0])[:LINES]]


def _line(entry: Entry) -> str:
    name = entry.name if entry.kind == "value" else entry.full
    return f"{name}: {entry.brief or cut(entry.text, BRIEF_CHARS)} ({entry.header})"


def _nothing(asked: str, words: Sequence[str], index: Index) -> str:
    near = nearest(asked, dict.fromkeys(entry.name for entry in index.entries if entry.kind != "field"))
    near = near or tuple(entry.full for entry in _fitting(words, index, lacking=1)[:MOST] if len(words) > 2)
    said = f"nothing about {cut(asked, 80)!r} in the CUDA headers of this machine" if asked else "there was no question"
    unread = f"; could not read {', '.join(index.unread[:3])}" if index.unread else ""
    names_near = f"; nearest names: {', '.join(near)}" if near else ""
    missing = "".join(f"; {why}" for name, why in index.missing.items() if asked.lower().startswith(name))
    return f"{said}{missing or names_near}{unread}"


if __name__ == "__main__":
    print(documentation(" ".join(sys.argv[1:])))
