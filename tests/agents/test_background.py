"""Opening a workbench: once for a folder, until its commands are answered, and what is said where that fails."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.agents import background
from stitchcuda.agents.background import OpenWorkbench, open_workbench
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.engineers.agents.workbench_folder import HIDDEN
from stitchcuda.engineers.agents.workbench_server import WorkbenchServer
from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.graph.opening import open_record
from stitchcuda.store import Workspace
from tests.engineers.agents.working_session import working


def test_one_that_is_not_ready_yet_is_waited_for(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        place = made.bench / ".workbench/socket"
        place.unlink()                     # its session makes it again
        told: list[str] = []
        given = {"workspace": tmp_path / "workspace", "device": "sim", "settings": {}, "tell": told.append}
        found = open_workbench(tmp_path / "reference.py", made.bench, **given)  # type: ignore[arg-type]
        assert place.exists()
        assert found.session == made.session.name
        assert any("is served by" in line for line in told)
        (tmp_path / "other.py").write_text("class Model: ...\n")
        with pytest.raises(BadInput, match="for another reference"):
            open_workbench(tmp_path / "other.py", made.bench, **given)  # type: ignore[arg-type]


def test_a_folder_gets_one_session_however_many_open_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*given: Any, **named: Any) -> Any:
        time.sleep(0.3)
        return open_record(*given, **named)

    monkeypatch.setattr(background, "open_record", slowly)
    monkeypatch.setattr(background, "_start", lambda *given: ("started", 0))
    monkeypatch.setattr(background, "_wait", lambda *given: 1)
    (tmp_path / "reference.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    made: list[OpenWorkbench] = []
    threads = [threading.Thread(target=lambda: made.append(open_it(tmp_path, "bench"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.session for found in made] == ["reference-1"] * 3
    assert len(tuple(Workspace(tmp_path / "workspace").sessions())) == 1


def test_a_socket_that_nobody_answers_at_is_not_ready(tmp_path: Path) -> None:
    place = tmp_path / HIDDEN / "socket"
    place.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(place))             # as a process leaves it that is killed
    assert place.exists()
    assert not background._answers(tmp_path)
    tools = AgentTools()
    tools.end("ACCEPTED", 0)
    server = WorkbenchServer(tmp_path, tools, profiles=False)
    assert not background._answers(tmp_path), "a session that has ended serves nobody"
    server.close()


def test_a_process_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(home: Workspace, name: str) -> tuple[subprocess.Popen[bytes], int]:
        log = home.folder(name) / background.LOG
        log.write_text("of an earlier run\n")
        with log.open("ab") as out:
            begins = out.tell()
            code = "import sys; sys.exit('stitchcuda: model.py raises RuntimeError: mine')"
            return subprocess.Popen([sys.executable, "-c", code], stderr=out), begins

    monkeypatch.setattr(background, "_start", start)
    (tmp_path / "reference.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    told: list[str] = []
    with pytest.raises(Unavailable, match=r"before the folder was ready: stitchcuda: model\.py raises RuntimeError: mine"):
        open_it(tmp_path, "bench", told)
    assert told == ["stitchcuda: model.py raises RuntimeError: mine"]


def test_one_that_ends_meanwhile_is_said_to_have_ended(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        errors: list[str] = []

        def open_again() -> None:
            try:
                open_it(tmp_path, "bench")
            except StitchError as error:
                errors.append(str(error))

        made.hands.before = lambda tool: time.sleep(0.2)
        made.submit("a saves 0.2")
        assert made.call("submit", "--done")[0] == 0
        thread = threading.Thread(target=open_again)  # while the process may still hold the session
        thread.start()
        made.ends()
        thread.join()
    assert len(errors) == 1
    assert "of this workbench has ended" in errors[0]


def open_it(folder: Path, bench: str, told: list[str] | None = None) -> OpenWorkbench:
    lines: list[str] = [] if told is None else told
    return open_workbench(
        folder / "reference.py", folder / bench, workspace=folder / "workspace", device="sim", settings={}, tell=lines.append
    )
