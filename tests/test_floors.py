"""The house rules that a reader relies on: imports never go up, and the main process stays free of torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "stitchcuda"
FLOORS = [
    {"errors"},
    {"state"},
    {"workspace"},
    {"sandbox"},
    {"simulator", "rag", "fusion"},
    {"tools"},
    {"engineers", "memory", "report"},
    {"nodes"},
    {"graph"},
    {"session"},
    {"terminal"},
    {"summary"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


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


@pytest.mark.parametrize("module", ["cli", "graph.graph", "engineers.builtin", "engineers.llm", "tools.check", "session"])
def test_main_process_does_not_import_torch(module: str) -> None:
    code = f"import stitchcuda.{module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_worker_modules_do_not_import_langgraph() -> None:
    code = "import stitchcuda, stitchcuda.tools.program_worker, sys; sys.exit('langgraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
