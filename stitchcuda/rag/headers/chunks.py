"""Turns header entries into chunks: overloads together, types with their members, values under the names people use.

Nothing that a header declares gets lost: what has no chunk of its own is a name of another's. It reads no files. Where to look
next: `rag/headers/reading.py` (entries), `rag/index.py` (what becomes of them).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.headers.comments import BRIEF_CHARS, cut
from stitchcuda.rag.headers.places import library_of
from stitchcuda.rag.headers.reading import Entry

_OVERLOADS = 12                            # shown; further ones are counted
_DECLARATION = 1500                        # characters of one declaration
_MEMBERS = 60_000                          # characters of a type's members
_FIELD = 1000                              # characters of a field's comment
_FAMILY = re.compile(r"(?:_v\d+)?(?:_64)?(?:_pt[sd]{2}|_ptsz)?$")
_ALIAS = re.compile(r"#define \w+ (?P<macro>[A-Za-z_]\w*)|typedef (?:(?P<what>enum|struct|union) )?(?P<tag>\w+) (?P<name>\w+);")
_RENAMED = re.compile(r"#define \w+ (?:__\w+_(?P<stream>PT[SD][SDZ])\()?(?P<name>[A-Za-z]\w*)\)?")
_CONDENSED = {"CUTLASS"}                   # thousands of types with the same members: shown in the chunk of their type
_DISTINCT = re.compile(r"[a-z][A-Z]|_|\d")  # a field's name that is more than a common word

_UNNAMED = re.compile(r"(?:struct|union)\s*\{")

NARROW = re.compile(r"cuda_(?:bf|fp)\d")
"""Headers with overloads, for small types, of what other headers declare for all."""

_Key = tuple[str, str]                     # library, full name


def chunks(entries: Iterable[Entry], versions: Mapping[str, str]) -> list[Chunk]:
    """One chunk for each name and each different comment on it, in the order of the headers."""
    by_name: dict[_Key, list[Entry]] = defaultdict(list)
    members: dict[_Key, list[Entry]] = defaultdict(list)
    for entry in _outermost(entries):
        library = library_of(entry.header)
        if entry.kind in ("value", "field") and entry.inside:
            members[library, entry.inside].append(entry)
        if entry.kind != "field":
            by_name[library, entry.full].append(entry)
    for key in [key for key, group in by_name.items() if key[0] in _CONDENSED and _is_member(key, group, by_name)]:
        members[key[0], by_name[key][0].inside] += by_name.pop(key)
    aliases = _aliases(by_name)
    renamed = {key for those in aliases.values() for key in those}
    exported = {key: names for key, group in by_name.items() if (names := _exported(group))}
    for key, names in exported.items():    # what only repeats the declaration
        renamed |= {(key[0], name) for name in names if not any(entry.comment for entry in by_name.get((key[0], name), ()))}
    found: list[Chunk] = []
    for key, group in by_name.items():
        if key in renamed:
            continue
        others = [*(name for _, name in aliases.get(key, ())), *exported.get(key, ())]
        narrow = [entry for entry in group if NARROW.match(entry.header)]
        wide = [entry for entry in group if not NARROW.match(entry.header)]
        for same in (*_by_comment(wide), *_by_comment(narrow)):
            found.append(_chunk(key[0], same, others, members.get(key, ()), by_name, versions.get(key[0], "")))
    found += [_lone(library, held, versions.get(library, "")) for (library, inside), held in members.items()
              if (library, inside) not in by_name and held[0].kind == "field"]  # fmt: skip
    return found


def _outermost(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Makes fields of a type's unnamed parts fields of the type, such as `res.linear.sizeInBytes` of cudaResourceDesc."""
    parts: dict[tuple[str, str], tuple[str, str]] = {}         # by header and full name: the type, the path within it
    for entry in entries:
        holder, way = parts.get((entry.header, entry.inside), (entry.inside, ""))
        kind = entry.kind
        if kind == "type" and entry.inside and _UNNAMED.match(entry.text):
            kind, parts[entry.header, entry.full] = "field", (holder, f"{way}{entry.name}.")
        if kind == "field":
            text = "  " * way.count(".") + entry.text
            entry = entry._replace(kind=kind, inside=holder, name=f"{way}{entry.name}", text=text)
        yield entry


def _is_member(key: _Key, group: Sequence[Entry], by_name: Mapping[_Key, Sequence[Entry]]) -> bool:
    """Whether it is declared inside a type, and is no function or one without a comment."""
    inside = group[0].inside
    held = any(entry.kind == "type" for entry in by_name.get((key[0], inside), ()))
    return held and not any(entry.kind == "function" and entry.comment for entry in group)


def family(name: str) -> str:
    """Returns the common name of a function's variants: "cublasGemmEx" of cublasGemmEx_64, "cublas?gemm" of cublasSgemm_v2."""
    name = _FAMILY.sub("", name)
    return re.sub(r"^(cublas|cusparse|cusolverDn)[SDCZ](?=[a-z])", r"\1?", name)


def _aliases(by_name: Mapping[_Key, Sequence[Entry]]) -> dict[_Key, list[_Key]]:
    """Returns, by name, its aliases in the same library, as by `#define cuMemAlloc cuMemAlloc_v2`, `typedef enum E E_t;`.

    An alias of an alias keeps a chunk of its own.
    """
    stands_for: dict[_Key, _Key] = {}
    for (library, full), group in by_name.items():
        targets = {_target(entry) for entry in group}
        target = targets.pop() if len(targets) == 1 else ""
        if target and target != full and (library, target) in by_name:
            stands_for[library, full] = (library, target)
    found: dict[_Key, list[_Key]] = defaultdict(list)
    for key, known in stands_for.items():
        if known not in stands_for:
            found[known].append(key)
    return found


def _exported(group: Sequence[Entry]) -> tuple[str, ...]:
    """Returns the exported names of a function that macros rename, such as `cuMemAlloc_v2`, `cudaMemcpy_ptds`."""
    functions = [entry for entry in group if entry.kind == "function"]
    found = []
    for entry in group if functions else ():
        if entry.kind == "macro" and (other := _RENAMED.fullmatch(entry.text)) is not None:
            found += [other["name"], f"{other['name']}_{other['stream'].lower()}" if other["stream"] else ""]
    return tuple(name for name in dict.fromkeys(found) if name and name != functions[0].name)


def _target(entry: Entry) -> str:
    if entry.kind not in ("macro", "type"):
        return ""
    alias = _ALIAS.fullmatch(entry.text)
    if alias is None or alias["macro"] or alias["what"]:
        return (alias["macro"] or alias["tag"]) if alias else ""
    return alias["tag"] if _FAMILY.sub("", alias["tag"]).lstrip("_") == alias["name"] else ""


def _by_comment(group: Sequence[Entry]) -> list[list[Entry]]:
    """Groups declarations by their comments; those without one join the first that has one."""
    if any(entry.comment and not entry.header.endswith(".hpp") for entry in group):        # there they are of implementations
        group = [entry._replace(comment="", brief="") if entry.header.endswith(".hpp") else entry for entry in group]
    said = {entry.text for entry in group if entry.comment}        # a definition elsewhere repeats a declaration
    real = [entry for entry in group if entry.kind != "macro" and (entry.comment or entry.text not in said)] or list(group)
    briefs = [entry.brief for entry in real if entry.comment]
    sorted_: dict[str, list[Entry]] = {}
    for entry in real:
        sorted_.setdefault(entry.brief if entry.comment else (briefs[0] if briefs else ""), []).append(entry)
    return list(sorted_.values())


def _chunk(
    library: str, group: Sequence[Entry], others: Sequence[str], members: Sequence[Entry],
    by_name: Mapping[_Key, Sequence[Entry]], version: str,
) -> Chunk:  # fmt: skip
    first = next((entry for entry in group if entry.comment), group[0])
    ordered = sorted(group, key=lambda entry: not entry.comment)
    texts = list(dict.fromkeys(cut(entry.text, _DECLARATION) for entry in ordered))
    declared = texts[:_OVERLOADS] + ([f"({len(texts) - _OVERLOADS} more overloads)"] if len(texts) > _OVERLOADS else [])
    held = list(members)
    names = [first.full if first.kind != "value" else first.name, first.name, *others]
    names += [first.full] if first.kind == "value" and "::" in first.inside else []
    names += [name.rpartition("::")[2] for name in (*others, *(name for entry in group for name in entry.also))]
    if first.kind == "type":
        names += _distinct(held)
    comment, brief = first.comment, first.brief
    if first.kind == "value" and first.inside:
        parent = next((entry for entry in by_name.get((library, first.inside), ()) if entry.brief), None)
        whose = f"Value of {first.inside}{f': {parent.brief}' if parent else ''}"
        comment, brief = "\n".join(part for part in (comment, whose) if part), brief or f"{first.text}. {whose}"
    called = next((other for other in others if other != names[0] and _FAMILY.sub("", names[0]) == other), "")
    return Chunk(
        library=library,
        version=version,
        source=first.header,
        kind=first.kind,
        title=f"{called} ({names[0]})" if called else names[0],
        text="\n".join(declared) + _members(held),
        names=tuple(dict.fromkeys(names)),
        brief=cut(brief or texts[0], BRIEF_CHARS),
        inside=first.inside,
        comment=comment,
    )


def _members(held: Sequence[Entry]) -> str:
    lines = {(member.name.rpartition(".")[0],
              f"  {member.text.rstrip(';')}{f' - {said}' if (said := _said(member)) else ''}"): None
             for member in held}  # fmt: skip
    text = "\n".join(("", *(line for _, line in lines)))
    if len(text) > _MEMBERS:
        text = "\n" + ", ".join(dict.fromkeys(member.name for member in held))
    return text if held else ""


def _distinct(held: Sequence[Entry]) -> list[str]:
    names = [entry.name.rpartition(".")[2] for entry in held]
    return [name for name in names if len(name) > 5 and _DISTINCT.search(name)]


def _said(member: Entry) -> str:
    """Returns a field's whole comment, since it has no chunk of its own; of other members the brief."""
    return cut(" ".join(member.comment.split()), _FIELD) if member.kind == "field" else member.brief


def _lone(library: str, held: Sequence[Entry], version: str) -> Chunk:
    """Makes a chunk of the fields of a type that is not declared itself, such as one that a macro declares."""
    first = held[0]
    names = [first.inside, first.inside.rpartition("::")[2]]
    names += _distinct(held)
    return Chunk(
        library=library, version=version, source=first.header, kind="type", title=first.inside,
        text=first.inside + _members(held), names=tuple(dict.fromkeys(names)),
        brief=cut(first.text, BRIEF_CHARS), comment=first.comment,
    )  # fmt: skip
