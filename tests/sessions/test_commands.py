"""The commands for sessions as people type them: exit codes, one sentence for what is wrong, one object with --json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stitchcuda.cli.app import app
from stitchcuda.sessions.session import Session
from stitchcuda.store import SessionLock, Workspace
from tests.cli.test_app import REFERENCE, stitchcuda
from tests.fake_model import run, story
from tests.memory.postgres_server import PASSWORD
from tests.sessions.made_sessions import ended, named


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that tests only add to."""
    home = Workspace(tmp_path_factory.mktemp("commands"))
    ended(home, "one")
    ended(home, "other", {"a": ["saves 0.2"], "b": ["saves 0.4"]})
    return home.root


def called(command: str, *arguments: str | Path) -> Result:
    """The command in this process; what is in `tests/cli/test_app.py` is in processes of their own."""
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def told(command: str, *arguments: str | Path, at: Path, code: int = 0) -> str:
    done = called(command, *arguments, "--workspace", at)
    assert done.exit_code == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout


def in_json(command: str, *arguments: str | Path, at: Path, code: int = 0) -> dict[str, Any]:
    """Exactly one object on stdout."""
    found = json.loads(told(command, *arguments, "--json", at=at, code=code))
    assert isinstance(found, dict)
    return found


def refused(command: str, *arguments: str | Path, at: Path, words: str) -> None:
    """Exit code 2 and one sentence, with --json in the object too."""
    done = called(command, *arguments, "--workspace", at, "--json")
    assert done.exit_code == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("stitchcuda: ")
    assert words in line
    assert "defect" not in line
    assert json.loads(done.stdout) == {"error": line.removeprefix("stitchcuda: ")}


def test_diff(workspace: Path) -> None:
    text = told("diff", "one", "other", at=workspace)
    assert "the same reference; the records part at attempt 2; 1 file of the programs differs" in " ".join(text.split())
    assert "-b saves 0.3\n" in text
    assert "+b saves 0.4\n" in text
    found = in_json("diff", "one@1", "other@1", at=workspace)
    assert (found["parts"], found["files"], found["a"]["name"]) == (None, {}, "one@1")
    refused("diff", "one", "gone", at=workspace, words="there is no session 'gone'")
    refused("diff", "one@9", "other", at=workspace, words="give one@0 (the start) to one@6")


def test_fork(workspace: Path) -> None:
    text = told("fork", "one", "--at", "3", "--to", "forked", "--max-attempts", "9", at=workspace)
    assert text.splitlines() == [
        "forked: forked from one, 3 attempts taken over", f"next:    stitchcuda resume forked --workspace {workspace}",
    ]  # fmt: skip
    made = named(Workspace(workspace), "forked")
    assert (len(made.attempts()), made.settings.max_attempts) == (3, 9)
    found = in_json("fork", "one", "--at", "0", at=workspace)
    assert (found["session"], found["status"], found["attempts"]) == ("one-fork-1", "parked", 0)
    refused("fork", "one", "--at", "7", at=workspace, words="give a number from 0 (the start) to 6")
    refused("fork", "one", "--to", "forked", at=workspace, words="'forked' exists already")
    refused("fork", "one", "--goal", "-1", at=workspace, words="--goal -1.0 is no speed-up")
    refused("fork", "one", "--model", "oracle", at=workspace, words="'oracle' is not known")


@pytest.mark.long
def test_replay_of_a_real_session(tmp_path: Path) -> None:
    """The tools are real: nvcc and the simulator."""
    reference, workspace = tmp_path / "norm.py", tmp_path / "ws"
    reference.write_text(REFERENCE)
    assert stitchcuda("optimize", reference, "--device", "sim", "--session", "first", "--workspace", workspace).returncode == 0
    text = told("replay", "first", at=workspace)
    attempts = len(Session(Workspace(workspace), Workspace(workspace).record("first")).attempts())
    assert text == f"first-replay-1: the same as first ({attempts} of {attempts} attempts)\n"
    forked = in_json("fork", "first", "--at", "0", "--to", "second", at=workspace)
    assert forked["attempts"] == 0
    assert in_json("resume", "second", at=workspace)["accepted"]
    assert in_json("diff", "first", "second", at=workspace)["parts"] is None
    refused("replay", "gone", at=workspace, words="there is no session 'gone'")


@pytest.mark.long
def test_a_replay_that_parts_ends_with_1(workspace: Path) -> None:
    """The engineer of that session is not the one that its record names."""
    found = in_json("replay", "one", "--to", "again", at=workspace, code=1)
    assert (found["same"], found["of"]) == (False, 6)
    assert found["parts"].startswith("attempt 1 works on ")


def test_rm(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    for name in ("one", "two", "three"):
        ended(home, name)
    refused("rm", "one", "gone", at=tmp_path, words="there is no session 'gone'")
    with SessionLock(home.folder("two")):
        refused("rm", "one", "two", at=tmp_path, words="'two' is being run by process")
        text = told("rm", "one", at=tmp_path)
        assert text.startswith("removed; what nothing else uses goes with a later rm, since this runs: two (process ")
    found = in_json("rm", "two", at=tmp_path)
    assert found["waits_for"] == ""
    text = told("rm", "three", at=tmp_path)
    assert text.startswith("removed, with ")
    assert home.store.names() == []
    assert list(home.store.artefacts()) == []
    assert stitchcuda("rm", "--workspace", tmp_path).returncode == 2


@pytest.mark.more
def test_export_and_import(workspace: Path, tmp_path: Path) -> None:
    archive = tmp_path / "one.stitch.tar.gz"
    found = in_json("export", "one", "-o", archive, at=workspace)
    assert found == {"archive": str(archive), "bytes": archive.stat().st_size}
    assert told("export", "one", "-o", archive, at=workspace).startswith(f"{archive} (")
    there = tmp_path / "there"
    text = told("import", archive, at=there)
    assert text.splitlines() == [
        "one: done, 6 attempts; asks builtin", f"next:    stitchcuda show one --workspace {there}",
    ]  # fmt: skip
    assert in_json("resume", "one", at=there)["accepted"]
    refused("import", archive, at=there, words="'one' exists already")
    assert in_json("import", archive, "--to", "two", at=there)["session"] == "two"
    refused("import", tmp_path / "none", at=there, words="there is no such file")
    archive.write_bytes(archive.read_bytes()[:-20])
    refused("import", archive, "--to", "three", at=there, words="is no exported session, or not all of it")
    refused("export", "gone", at=workspace, words="there is no session 'gone'")


def test_what_an_imported_session_asks_is_shown(tmp_path: Path) -> None:
    session = story(tmp_path / "here", roles={"coder": ("openai:local",)}, base_url="http://192.0.2.1/v1")
    run(session)
    archive = tmp_path / "story.gz"
    told("export", "story", "-o", archive, at=session.home.root)
    done = called("import", archive, "--workspace", tmp_path / "there", "--json")
    assert json.loads(done.stdout)["status"] == "parked"
    assert "asks mailbox:box, openai:local at http://192.0.2.1/v1" in done.stderr


def test_in_a_database(database: str, tmp_path: Path) -> None:
    """The same commands; no password is shown."""
    home = Workspace(tmp_path / "ws", checkpoint=database)
    ended(home, "one")
    home.close()
    place = ("--checkpoint", database)
    text = told("fork", "one", "--at", "2", *place, at=tmp_path / "ws")
    archive = tmp_path / "one.gz"
    text += told("diff", "one", "one-fork-1", *place, at=tmp_path / "ws")
    text += told("export", "one", "-o", archive, *place, at=tmp_path / "ws")
    text += told("rm", "one", "one-fork-1", *place, at=tmp_path / "ws")
    text += told("import", archive, *place, at=tmp_path / "elsewhere")
    text += told("sessions", *place, at=tmp_path / "third")
    text += told("show", "one", *place, at=tmp_path / "third")
    assert PASSWORD not in text
    assert "--checkpoint postgresql://tester@127.0.0.1" in text
    assert "a saves 0.2" in (next((tmp_path / "third").rglob("program/drafts.txt"))).read_text()
