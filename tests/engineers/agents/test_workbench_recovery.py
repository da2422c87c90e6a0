"""What a workbench does after a kill, beside another session, and with a folder that an agent took apart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.agents import workbench
from stitchcuda.engineers.agents.tools import KNOWN
from stitchcuda.engineers.agents.workbench_folder import HIDDEN
from stitchcuda.errors import BadInput
from tests.engineers.agents.test_agent_session import agent_session
from tests.engineers.agents.working_session import WorkingSession, wait_for, working
from tests.graph.tiny import TinyHands, tiny_session


def test_what_was_handed_in_before_a_kill_is_no_second_attempt(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    session = tiny_session(tmp_path, model=f"workbench:{bench}", from_scratch=True)
    first = WorkingSession(session, bench, TinyHands())
    first.start()
    wait_for(lambda: first.call("status")[0] == 0)

    def kill(tool: str) -> None:
        raise KeyboardInterrupt

    first.hands.before = kill
    assert first.submit("a wrong")[0] == 2
    wait_for(lambda: first.failure is not None)
    again = WorkingSession(session, bench, TinyHands())
    again.start()
    wait_for(lambda: "1 made" in again.call("status")[1])
    code, text = again.call("submit")
    assert (code, "REFUSED" in text, KNOWN in text, "Attempts: 1 made" in text) == (1, True, True, True)
    bench.rename(tmp_path / "removed")
    assert len(again.ends().attempts()) == 1


def test_a_second_session_cannot_have_the_folder(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        for name in ("two", "three"):
            (tmp_path / name).mkdir()
            other = tiny_session(tmp_path / name, model=f"workbench:{made.bench}", from_scratch=True)
            with pytest.raises(BadInput, match="another session serves the workbench"):
                other.run(tools=TinyHands())
            (made.bench / HIDDEN / "lock").unlink()  # it is taken again with the next verdict
            assert made.submit(f"a wrong {name}")[0] == 1


def test_commands_that_were_removed_come_back(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        (made.bench / "check").unlink()
        (made.bench / "docs").write_text("#!/bin/sh\necho mine\n")
        assert made.call("status")[0] == 0
        assert "client.py" in (made.bench / "check").read_text()
        assert "client.py" in (made.bench / "docs").read_text()
        shutil.rmtree(made.bench / HIDDEN)
        (made.bench / HIDDEN).write_text("in the way")
        (made.bench / "check").unlink()
        wait_for(lambda: made.call("status")[0] == 0)
        made.write("a saves 0.2")
        assert made.call("check")[0] == 0


def test_a_session_ends_with_its_best_where_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path) as made:
        def refuse(*given: Any) -> None:
            raise BadInput("the workbench cannot be written (Read-only file system)")

        monkeypatch.setattr(workbench, "lay_out", refuse)
        made.submit("a saves 0.2")
        session = made.ends()
    assert session.outcome().accepted
    assert "Read-only file system" in str(session.outcome().stop_reason)


@pytest.mark.parametrize("there", [
    "files in the way", pytest.param("a file", marks=pytest.mark.more),
    pytest.param("a folder without its mark", marks=pytest.mark.more),
])  # fmt: skip
def test_an_agent_s_session_goes_on_whatever_its_folder_is(tmp_path: Path, there: str) -> None:
    session = agent_session(tmp_path, """
    submit("a saves 0.3" if again else "a saves 0.2")
    subprocess.run(["./submit", "--done"])
    """)  # fmt: skip
    hands = TinyHands()

    def interrupt(tool: str) -> None:
        if (session.folder / "workbench/kernels").exists():
            raise KeyboardInterrupt

    hands.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        session.run(tools=hands)
    folder = session.folder / "workbench"
    if there == "files in the way":
        for name in (HIDDEN, "best", "kernels"):
            shutil.rmtree(folder / name)
            (folder / name).write_text("in the way")
        for name in ("TASK.md", "model_new.py"):
            (folder / name).unlink()
        (folder / "TASK.md").mkdir()
        (folder / "model_new.py").symlink_to(tmp_path / "nowhere")
        (folder / "kernels").unlink()
    else:
        shutil.rmtree(folder)
        folder.write_text("in the way") if there == "a file" else (folder / "mine").mkdir(parents=True)
    session.run(tools=TinyHands())
    assert session.outcome().accepted
    assert [attempt.kept for attempt in session.attempts()] == [True, True]
    aside = session.folder / "workbench-unusable-1"
    assert aside.exists() == (there != "files in the way")
