"""The house rules that a reader relies on: imports go down, no circles, names exist once, pointers lead somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import house

MODULES = house.modules()
PACKAGE = house.ROOT / "stitchcuda"
POINTER = re.compile(r"(?<![\w/.{*])((?:\w+/)*\w+\.py)\b")
NOT_OURS = {"model_new.py", "model.py", "reference.py", "program.py", "setup.py"}  # files of a user or of a generated program
NO_NAMES = {"of", "one"}                   # a reader has to be told what they stand for


def test_imports_never_go_up() -> None:
    assert house.climbing(MODULES) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert house.circles(MODULES) == []


def test_no_two_public_classes_share_a_name() -> None:
    assert house.twins(MODULES) == {}


def test_there_are_few_rooms_and_floors() -> None:
    assert len(house.FLOORS) <= 10
    assert sum(map(len, house.FLOORS)) <= 22


def test_the_picture_is_of_this_code() -> None:
    """The rooms and arrows of docs/house.svg are those of the code; `python scripts/house.py --write` draws it."""
    drawn, now = (re.findall(r'<path d="M\S+ |<text [^>]*font-size="15">[^<]*', text) for text in (
        (house.ROOT / "docs" / "house.svg").read_text(encoding="utf-8"), house.svg(MODULES),
    ))  # fmt: skip
    assert drawn == now


def test_the_index_names_every_file() -> None:
    """`python scripts/house.py --write` writes docs/files.md anew."""
    assert (house.ROOT / "docs" / "files.md").read_text(encoding="utf-8") == house.index(MODULES)


def test_the_rules_find_what_breaks_them(tmp_path: Path) -> None:
    """A small package with each fault: an import that goes up, a circle, a class that exists twice."""
    files = {
        "__init__.py": "",
        "state.py": "from stitchcuda.verify.api import Verdict\nclass Plan: ...\n",
        "verify/__init__.py": "",
        "verify/api.py": "from stitchcuda.verify.client import ask\nclass Verdict: ...\nclass Plan: ...\n",
        "verify/client.py": "def ask():\n    from stitchcuda.verify import api\n    return api\n",
    }
    for name, text in files.items():
        path = tmp_path / "stitchcuda" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    broken = house.modules(tmp_path)
    assert house.climbing(broken) == [
        "state imports verify.api, which is not below it",
        "verify.client imports verify.api, which is later in the order of verify",
    ]
    assert house.circles(broken) == [["verify.api", "verify.client"]]
    assert house.twins(broken) == {"Plan": ["state", "verify.api"]}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_pointers_name_a_path_from_the_package_s_root(name: str) -> None:
    """`verify/api.py` in a docstring or comment is a file of the package; so are lines on where to look next."""
    path = MODULES[name].path
    lost = []
    for pointer in POINTER.findall("\n".join(_prose(path.read_text(encoding="utf-8")))):
        bare = pointer.removeprefix("stitchcuda/")
        known = (PACKAGE / bare).is_file() or (house.ROOT / pointer).is_file()
        if not known and bare.rsplit("/", 1)[-1] not in NOT_OURS:
            lost.append(pointer)
    assert lost == []


def _prose(text: str) -> list[str]:
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    return [*found, *re.findall(r"(?:^|\s)#\s(.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"compiler.printing.prelude"}))  # its text is that of programs
def test_no_name_has_to_be_told(name: str) -> None:
    tree = ast.parse(MODULES[name].path.read_text(encoding="utf-8"))
    named = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    fields = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)}  # what is stored keeps its names
    bound = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    named |= {node.id for node in bound if id(node) not in fields}
    named |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert named & NO_NAMES == set()


@pytest.mark.parametrize(
    "module", ["cli.app", "graph.graph", "engineers.builtin", "engineers.chat_engineer", "verify.client", "sessions.session"]
)
def test_main_process_does_not_import_torch(module: str) -> None:
    code = f"import stitchcuda.{module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_worker_modules_do_not_import_langgraph() -> None:
    code = "import stitchcuda, stitchcuda.verify.program.program_worker, sys; sys.exit('langgraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
