"""The house rules that a reader relies on: imports never go up, not between the rooms of tools either, and the main
process stays free of torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "stitchcuda"
FLOORS = [
    {"errors"},
    {"state"},
    {"lines", "syntax", "postgres", "writing"},
    {"workspace"},
    {"sandbox"},
    {"simulator", "fusion"},
    {"tools"},
    {"rag"},
    {"engineers", "memory", "report"},
    {"nodes"},
    {"graph"},
    {"session", "running", "outcome"},
    {"keeping"},
    {"terminal"},
    {"summary"},
    {"card"},
    {"console", "model_flags"},
    {"memory_commands", "docs_commands", "report_commands", "session_commands"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
TOOLS = PACKAGE / "tools"
ROOMS = ["machine", "building", "running", "judging", "profiling", "doctoring"]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Rooms that a file imports at module level or inside functions, type-checking blocks included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("stitchcuda."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "stitchcuda":
            found |= {alias.name for alias in node.names if alias.name in LEVEL}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("stitchcuda.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_never_go_up(path: Path) -> None:
    room = room_of(path)
    if room in {"__init__", "__main__"}:
        return
    assert room in LEVEL, f"{room} stands on no floor: add it to the list above and to CONTRIBUTING.md"
    above = sorted(name for name in imports(path) if LEVEL[name] > LEVEL[room])
    assert above == []


def rooms_named(path: Path) -> set[str]:
    """Rooms of tools that a file imports, or names in a string, as for `python -m` or `import_module`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "stitchcuda.tools":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("stitchcuda.tools."):
            found.add(node.module.split(".")[2])
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("." * node.level + (node.module or ""))  # no room's name: imports are written in full
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[2] for alias in node.names if alias.name.startswith("stitchcuda.tools.")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"stitchcuda\.tools\.(\w+)", node.value))
    return found


@pytest.mark.parametrize("path", sorted(TOOLS.rglob("*.py")), ids=lambda p: str(p.relative_to(TOOLS)))
def test_imports_never_go_up_between_the_rooms_of_tools(path: Path) -> None:
    room = path.relative_to(TOOLS).parts[0]
    if room == "__init__.py":
        assert rooms_named(path) == set()
        return
    assert room in ROOMS, f"{room} is no room of tools: add it to the list above, to tools/__init__.py and to CONTRIBUTING.md"
    named = rooms_named(path)
    assert sorted(named - set(ROOMS)) == []
    assert sorted(name for name in named if ROOMS.index(name) > ROOMS.index(room)) == []


@pytest.mark.parametrize(
    "module", ["cli", "graph.graph", "engineers.builtin", "engineers.llm", "tools.judging.check", "session"]
)
def test_main_process_does_not_import_torch(module: str) -> None:
    code = f"import stitchcuda.{module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_worker_modules_do_not_import_langgraph() -> None:
    code = "import stitchcuda, stitchcuda.verify.program.program_worker, sys; sys.exit('langgraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
