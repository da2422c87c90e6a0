"""The package's structure, read from its imports: rooms, floors, arrows, circles of files; as a table or as a picture.

    python scripts/house.py                       the table, and whatever breaks the rules below
    python scripts/house.py --write               the picture (docs/house.svg) and the index of all files (docs/files.md)
    python scripts/house.py --root CHECKOUT       another checkout, such as one of an older version, beside this one

A room is a folder of the package; those of `tools` count one by one, and a file beside the folders counts as a room. FLOORS
says which room may import which: an import goes down, or on one floor to the left. INSIDE does so for the folders of a room.
Nothing of the package is imported or run. `tests/test_house.py` holds the package to these rules.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (                                 # from the ground up; on a floor, imports go from right to left where ORDERED says so
    ("state",),
    ("store", "sandbox"),
    ("simulator", "compiler"),
    ("tools/device", "tools/build", "tools/profile", "tools/doctor"),
    ("verify",),
    ("rag", "engineers", "memory"),
    ("nodes", "graph"),
    ("sessions",),
    ("report", "bench", "agents", "training"),
    ("cli",),
)
ORDERED = (3, 6, 8)                          # floors whose rooms may import what stands to their left
INSIDE = {
    "compiler": ("syntax", "capture", "lower", "regions", "templates", "codegen", "printing"),
    "verify": (
        "messages", "compare", "integrity", "processes", "inputs", "timing", "reference", "program", "ablation", "judge",
        "client", "api",
    ),
}  # fmt: skip
GROUND = {"state", "errors", "counts", "remedies", "version"}  # files that make up the room `state`
DOORS = {"__init__", "__main__", "tools"}  # the package's own and tools' `__init__`: they hold names and no code
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the package. `name` is dotted, without the package's own name; `imports` are names of other modules."""

    name: str
    path: Path
    lines: int
    code: int                              # lines that are neither blank, nor comment, nor docstring
    docstrings: int                        # lines of docstrings
    imports: frozenset[str] = field(default_factory=frozenset)

    @property
    def room(self) -> str:
        parts = self.name.split(".")
        if parts[0] == "tools" and len(parts) > 1:
            return "/".join(parts[:2])
        return "state" if self.name in GROUND else parts[0]

    @property
    def place(self) -> str:
        """The folder or file inside of its room, for INSIDE."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "__init__"


def modules(root: Path = ROOT) -> dict[str, Module]:
    package = root / "stitchcuda"
    paths = {_name(path, package): path for path in sorted(package.rglob("*.py"))}
    return {name: _read(name, path, paths) for name, path in paths.items()}


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) or "__init__"


def _read(name: str, path: Path, known: Mapping[str, Path]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    documented: set[int] = set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, False):
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= set(_imported(node.module, [alias.name for alias in node.names], known))
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("stitchcuda.") for alias in node.names if alias.name.startswith("stitchcuda.")}
    lines = text.splitlines()
    code = [line.strip() for at, line in enumerate(lines, 1) if at not in documented]
    plain = [line for line in code if line and not line.startswith("#")]
    return Module(name, path, len(lines), len(plain), len(documented), frozenset(found & set(known)) - {name})


def _imported(module: str, names: list[str], known: Mapping[str, Path]) -> Iterator[str]:
    if module == "stitchcuda" or module.startswith("stitchcuda."):
        inside = module.removeprefix("stitchcuda").removeprefix(".")
        for name in names:
            inner = f"{inside}.{name}".removeprefix(".")
            yield inner if inner in known else inside or "__init__"


def arrows(house: Mapping[str, Module]) -> dict[tuple[str, str], int]:
    """(from room, to room) → how many imports."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for module in house.values():
        for target in module.imports:
            if module.name not in DOORS and target not in DOORS and house[target].room != module.room:
                found[module.room, house[target].room] += 1
    return dict(found)


def circles(house: Mapping[str, Module]) -> list[list[str]]:
    """Files that import each other, directly or through others, a list for each knot (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    knots: list[list[str]] = []
    for start in house:
        if start in order:
            continue
        work = [(start, iter(sorted(house[start].imports)))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            name, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    knot = stack[stack.index(name):]
                    del stack[stack.index(name):]
                    knots += [sorted(knot)] if len(knot) > 1 else []
            elif following not in order:
                order[following] = low[following] = len(order)
                stack.append(following)
                work.append((following, iter(sorted(house[following].imports))))
            elif following in stack:
                low[name] = min(low[name], order[following])
    return knots


def climbing(house: Mapping[str, Module]) -> list[str]:
    """Imports that go up, between rooms or inside one whose folders have an order, each as a sentence."""
    level = {room: (at, place) for at, floor in enumerate(FLOORS) for place, room in enumerate(floor)}
    wrong = []
    for module in house.values():
        if module.name in DOORS:
            continue
        if module.room not in level:
            wrong.append(f"{module.name} stands on no floor: add its room to FLOORS and to CONTRIBUTING.md")
            continue
        for target in sorted(module.imports - DOORS):
            room = house[target].room
            if room == module.room:
                inside = INSIDE.get(room)
                places = [house[name].place for name in (module.name, target)]
                if inside and all(place in inside for place in places) and inside.index(places[0]) < inside.index(places[1]):
                    wrong.append(f"{module.name} imports {target}, which is later in the order of {room}")
            elif room in level:
                (mine, my_place), (theirs, their_place) = level[module.room], level[room]
                if theirs > mine or (theirs == mine and (mine not in ORDERED or their_place > my_place)):
                    wrong.append(f"{module.name} imports {target}, which is not below it")
    return wrong


def twins(house: Mapping[str, Module]) -> dict[str, list[str]]:
    """Names of public classes that are defined in more than one file, with the files."""
    found = defaultdict(list)
    for module in house.values():
        for node in ast.parse(module.path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def table(house: Mapping[str, Module]) -> str:
    rooms = defaultdict(list)
    for module in house.values():
        if module.name not in DOORS:
            rooms[module.room].append(module)
    rows = [f"{'room':16} {'files':>5} {'lines':>6} {'code':>6} {'docstrings':>10}"]
    order = [room for floor in FLOORS for room in floor]
    for room, files in sorted(rooms.items(), key=lambda item: (order.index(item[0]) if item[0] in order else -1, item[0])):
        rows.append(_row(room, files))
    every = list(house.values())
    rows.append(_row("all", every))
    rows.append(f"{len(rooms)} rooms, {len(arrows(house))} arrows between them, {len(circles(house))} circles of files")
    return "\n".join(rows)


def _row(name: str, files: list[Module]) -> str:
    lines = sum(module.lines for module in files)
    share = sum(module.docstrings for module in files) / max(lines, 1)
    return f"{name:16} {len(files):5} {lines:6} {sum(module.code for module in files):6} {share:10.0%}"


def index(house: Mapping[str, Module]) -> str:
    """Every file of the package with the first sentence of its docstring, room by room, as Markdown."""
    rows = [
        "# Every file of the package",
        "",
        "Made from the docstrings by `python scripts/house.py --write`. Paths are from `stitchcuda/`.",
        "Rooms are in the order in which they build on each other: a file imports only what stands above it.",
    ]
    for room in (room for floor in FLOORS for room in floor):
        rows += ["", f"## {room}", ""]
        files = [module for module in house.values() if module.room == room]
        for module in sorted(files, key=lambda module: str(module.path)):
            relative = module.path.as_posix().rpartition("/stitchcuda/")[2]
            rows.append(f"- `{relative}`: {_first_sentence(module.path)}")
    return "\n".join(rows) + "\n"


def _first_sentence(path: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    return re.split(r"(?<=[.!?])\s(?=[A-Z`*])", text, maxsplit=1)[0]


WIDTH, HIGH, GAP, BOX = 1060, 46, 42, 150


def svg(house: Mapping[str, Module]) -> str:
    """The rooms on their floors, with an arrow for each pair of rooms that import: dark where no other way leads there."""
    files: dict[str, list[Module]] = defaultdict(list)
    for module in house.values():
        files[module.room].append(module)
    top = len(FLOORS) * (HIGH + GAP) + 30
    at = {}
    for level, floor in enumerate(FLOORS):
        left = (WIDTH - len(floor) * BOX - (len(floor) - 1) * 60) / 2
        for place, room in enumerate(floor):
            at[room] = (left + place * (BOX + 60), top - (level + 1) * (HIGH + GAP) + GAP / 2 - 15)
    found = arrows(house)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="system-ui, sans-serif">',
        "<title>Rooms of stitchcuda, and which imports which; every arrow goes down</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>',
    ]
    for pair in sorted(found, key=lambda pair: (_needed(pair, found), pair)):
        parts.append(_arrow(pair, at, "#345" if _needed(pair, found) else "#ccd5dd"))
    for room, (x, y) in at.items():
        size = f"{len(files[room])} files, {sum(module.lines for module in files[room]):,} lines"
        parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX}" height="{HIGH}" rx="6" fill="#eef4fa" stroke="#345"/>'
            f'<text x="{x + BOX / 2:.0f}" y="{y + 19:.0f}" text-anchor="middle" font-size="15">{escape(room)}</text>'
            f'<text x="{x + BOX / 2:.0f}" y="{y + 36:.0f}" text-anchor="middle" font-size="11" fill="#567">{size}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _needed(pair: tuple[str, str], found: Mapping[tuple[str, str], int]) -> bool:
    """Whether no longer way leads from the first room to the second."""
    start, end = pair
    seen, work = set(), [target for source, target in found if source == start and target != end]
    while work:
        room = work.pop()
        if room == end:
            return False
        if room not in seen:
            seen.add(room)
            work += [target for source, target in found if source == room]
    return True


def _arrow(pair: tuple[str, str], at: Mapping[str, tuple[float, float]], colour: str) -> str:
    (x0, y0), (x1, y1) = at[pair[0]], at[pair[1]]
    if y0 == y1:
        return f'<path d="M{x0:.0f} {y0 + HIGH / 2:.0f} H{x1 + BOX:.0f}" stroke="{colour}" fill="none" marker-end="url(#tip)"/>'
    start, end = x0 + BOX / 2 + (x1 - x0) * 0.08, x1 + BOX / 2 + (x0 - x1) * 0.08
    middle = (y0 + HIGH + y1) / 2
    return (
        f'<path d="M{start:.0f} {y0 + HIGH:.0f} C{start:.0f} {middle:.0f} {end:.0f} {middle:.0f} {end:.0f} {y1:.0f}" '
        f'stroke="{colour}" fill="none" marker-end="url(#tip)"/>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=re.sub(r"\n\n.*", "", __doc__ or "", flags=re.S))
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--write", action="store_true", help="docs/house.svg and docs/files.md anew")
    given = parser.parse_args()
    house = modules(given.root)
    if given.write:
        (ROOT / "docs" / "house.svg").write_text(svg(house), encoding="utf-8")
        (ROOT / "docs" / "files.md").write_text(index(house), encoding="utf-8")
    print(table(house))
    for knot in circles(house):
        print("circle:", ", ".join(knot))
    if given.root == ROOT:
        print(*climbing(house), sep="\n")
        print(*(f"{name} is defined in {', '.join(places)}" for name, places in twins(house).items()), sep="\n")


if __name__ == "__main__":
    main()
