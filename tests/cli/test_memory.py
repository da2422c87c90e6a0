"""`stitchcuda memory` as a person uses it: listing, carrying lessons between workspaces, and one sentence where that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stitchcuda.cli.memory import app
from stitchcuda.memory import Memory
from tests.memory.lessons import lesson, refuted, situation, untimed

MARKUP = "[bold]as one [/nonsense] block"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STITCHCUDA_MEMORY", "STITCHCUDA_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that has learnt four lessons of two kinds."""
    folder = tmp_path / "ws"
    (folder / "sessions").mkdir(parents=True)
    memory = Memory(folder / "memory.sqlite")
    memory.add([lesson("a1"), lesson("a2"), refuted("a3"), untimed("b1", strategy=MARKUP, of=situation(8, 64))])
    memory.close()
    return folder


def memory(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("stitchcuda: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_list_shows_situation_strategy_weight_and_evidence(workspace: Path) -> None:
    done = memory("list", "--workspace", workspace)
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    for shown in ("situation", "what was done", "weight", "[4096, 1024]", "NVIDIA H100", "0.1 (-0.02 to 0.11) ms", MARKUP[:6]):
        assert shown in text
    listed = json.loads(memory("list", "--workspace", workspace, "--json").stdout)
    assert listed["memory"] == str(workspace / "memory.sqlite")
    assert [found["tried"] for found in listed["lessons"]] == [3, 1]
    several, once = listed["lessons"]
    assert several["accepted"] == 2
    assert several["weight"] == pytest.approx(0.48)
    assert several["weight"] > once["weight"], "nobody has timed that"
    assert [several["saving_ms"], several["saving_low_ms"], several["saving_high_ms"]] == [0.1, -0.02, 0.11]
    assert {found["attempt"] for found in several["lessons"]} == {"a1", "a2", "a3"}


def test_list_of_nothing(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = memory("list")
    assert (done.exit_code, done.stdout) == (0, f"no lessons yet in {tmp_path / '.stitchcuda' / 'memory.sqlite'}\n")
    assert json.loads(memory("list", "--json").stdout)["lessons"] == []
    assert not (tmp_path / ".stitchcuda").exists(), "who only looks makes nothing"
    monkeypatch.setenv("STITCHCUDA_WORKSPACE", str(workspace))
    assert len(json.loads(memory("list", "--json").stdout)["lessons"]) == 2
    monkeypatch.setenv("STITCHCUDA_MEMORY", str(tmp_path / "shared.sqlite"))
    assert memory("list").stdout == f"no lessons yet in {tmp_path / 'shared.sqlite'}\n"


def test_lessons_travel_to_another_workspace(workspace: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "lessons.jsonl", tmp_path / "new" / "ws"
    done = memory("export", file, "--workspace", workspace)
    assert done.stdout == f"4 lessons of {workspace / 'memory.sqlite'} written to {file}\n"
    assert memory("export", "--workspace", workspace).stdout == file.read_text(), "without a file: standard output"
    done = memory("import", file, "--workspace", other)
    assert done.stdout == f"4 lessons added to {other / 'memory.sqlite'}; 0 of {file} were there already\n"
    done = memory("import", file, "--workspace", other, "--json")
    assert json.loads(done.stdout) == {"memory": str(other / "memory.sqlite"), "added": 0, "known": 4}
    here, there = (json.loads(memory("list", "--workspace", place, "--json").stdout) for place in (workspace, other))
    assert here["lessons"] == there["lessons"]


def test_merge_keeps_both_sides_and_changes_nothing_the_second_time(workspace: Path, tmp_path: Path) -> None:
    one, other, both = (tmp_path / name for name in ("one", "other", "both"))
    memory("export", one, "--workspace", workspace)
    elsewhere = Memory(tmp_path / "elsewhere.sqlite")
    elsewhere.add([lesson("a2"), refuted("a4")])
    elsewhere.export(other)
    elsewhere.close()
    assert memory("merge", one, other, "--out", both).stdout == f"5 lessons written to {both}\n"
    before = both.read_bytes()
    assert memory("merge", both, other, one, "--out", both).exit_code == 0, "a file that is merged may be replaced"
    assert both.read_bytes() == before


def test_what_is_there_is_not_written_over(workspace: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n")
    refused(memory("export", file, "--workspace", workspace), str(file), "exists already")
    memory("export", tmp_path / "one", "--workspace", workspace)
    refused(memory("merge", tmp_path / "one", "--out", file), str(file), "exists already")
    assert file.read_text() == "import torch\n"


def test_what_cannot_be_used_is_one_sentence(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(memory("import", tmp_path / "none", "--workspace", workspace), str(tmp_path / "none"), "no such file")
    (tmp_path / "model.py").write_text("import torch\n")
    refused(memory("import", tmp_path / "model.py", "--workspace", workspace), "is no export of a memory")
    refused(memory("merge", tmp_path / "model.py", "--out", tmp_path / "x"), "is no export of a memory")
    assert not (tmp_path / "x").exists()
    refused(memory("export", tmp_path / "none" / "x", "--workspace", workspace), "cannot write")
    for command in ("list", "export"):
        refused(memory(command, "--workspace", tmp_path / "nowhere"), f"no workspace at {tmp_path / 'nowhere'}")
    (workspace / "memory.sqlite").write_bytes(b"no database at all, but long enough to look like one")
    refused(memory("list", "--workspace", workspace), str(workspace / "memory.sqlite"), "damaged")
    done = memory("list", "--workspace", workspace, "--json")
    assert done.exit_code == 2
    assert done.stderr == f"stitchcuda: {json.loads(done.stdout)['error']}\n"
    monkeypatch.setenv("STITCHCUDA_MEMORY", "redis://somewhere")
    refused(memory("list", "--workspace", workspace), "redis://", "postgresql://")
