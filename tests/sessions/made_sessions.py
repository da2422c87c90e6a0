"""Tiny sessions in whatever workspace, and what a test compares of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stitchcuda.graph.opening import open_record
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, Call
from stitchcuda.store import Workspace
from tests.graph.tiny import REFERENCE, Script, ScriptedEngineer, TinyHands

THREE: Script = {"a": ["saves 0.2"], "b": ["build error", "saves 0.3"], "c": ["wrong", "wrong", "saves 0.1"]}
"""Six attempts, three tasks, all of them kept in the end."""


def begun(home: Workspace, name: str = "tiny", **settings: Any) -> Session:
    """A session that has not run yet."""
    reference = home.root / "reference.py"
    reference.parent.mkdir(parents=True, exist_ok=True)
    if not reference.exists():             # another process may be reading it
        reference.write_text(REFERENCE)
    return Session(home, open_record(home, reference, None, name=name, device="sim", settings=settings))


def ended(home: Workspace, name: str = "tiny", script: Script = THREE, **settings: Any) -> Session:
    return begun(home, name, **settings).run(engineer=ScriptedEngineer(script), tools=TinyHands())


def stopped(home: Workspace, name: str = "tiny", *, before: Callable[[str, int], bool], **settings: Any) -> Session:
    """A session that was interrupted at the first call of a tool for which `before(tool, number)` holds."""
    session, tools, calls = begun(home, name, **settings), TinyHands(), 0

    def strike(tool: str) -> None:
        nonlocal calls
        calls += 1
        if before(tool, calls) and tool != "close":
            raise KeyboardInterrupt

    tools.before = strike
    try:
        session.run(engineer=ScriptedEngineer(THREE), tools=tools)
    except KeyboardInterrupt:
        return session
    raise AssertionError("it was not interrupted")


def named(home: Workspace, name: str) -> Session:
    return Session(home, home.record(name))


def opened(session: Session) -> Session:
    """The same session as another process would open it."""
    url = session.home.database.database.url if session.home.database else None
    folder = session.home.root if url is None else session.home.root.parent.parent
    home = Workspace(folder, create=False, checkpoint=url)
    return Session(home, home.record(session.name))


def record(session: Session) -> tuple[list[Attempt], list[Call], dict[str, Any]]:
    """All that a session has on record."""
    store = session.home.store
    return list(store.attempts(session.name).values()), list(store.calls(session.name).values()), dict(session.state())


def program(session: Session) -> str:
    folder = session.program
    return (folder / "drafts.txt").read_text() if folder else ""


def remains(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but locks and SQLite's own."""
    kept = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in kept
        if path.name not in ("lock", "sweep.lock") and not path.name.endswith(("-wal", "-shm"))
    }
