"""Opens a workbench: makes its session, or finds it, and runs it in a process of its own until the folder is ready.

The process is `stitchcuda resume SESSION`; its output is in the session's folder (LOG). It ends with the session, and can be
killed at any time: opening the same workbench again goes on. A folder has one session, also where two callers open it at once.
Where to look next: `engineers/agents/workbench.py` (what the process serves), `sessions/session.py` (sessions).
"""

from __future__ import annotations

import fcntl
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchcuda.engineers.agents.workbench_folder import HIDDEN, opened
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.graph.opening import open_record
from stitchcuda.sessions.session import Session
from stitchcuda.store import SessionRecord, Workspace
from stitchcuda.store.files import writing

LOG = "workbench.log"
_LOCK = "opening.lock"                     # in the workspace
_POLL_S = 0.2
_ANSWER_S = 10.0                           # that a session may take to say how it stands
_STOP_S = 20.0


@dataclass(frozen=True)
class OpenWorkbench:
    """A workbench that answers its commands. `option`: what a command line adds to name the workspace; "" for the default."""

    folder: Path
    session: str
    pid: int
    option: str


def open_workbench(
    reference: Path, folder: Path, *, workspace: Path | None, device: str, settings: Mapping[str, Any],
    tell: Callable[[str], None],
) -> OpenWorkbench:  # fmt: skip
    """Opens the workbench `folder` for `reference`, and returns when its commands are answered. `tell` is given lines of
    progress.

    Raises `BadInput` for a folder or reference that cannot be used, or whose session has ended; `Unavailable` if the process
    ends before the folder is ready.
    """
    folder = folder.expanduser().resolve()
    home = Workspace.at(workspace)
    with _opening(home):
        record = _find(home, folder)
        if record is None:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise BadInput(f"{folder} holds other files, or is no folder: give one that is empty, or not there yet")
            given = {**settings, "model": f"workbench:{folder}"}
            record = open_record(home, reference, None, name=None, device=device, settings=given)
        else:
            _check(home, record, reference, folder)
        owner = home.store.owner(record.name)
        started = None if owner else _start(home, record.name)
    if started is not None:
        return OpenWorkbench(folder, record.name, _wait(home, record, folder, started, tell), home.option)
    tell(f"session {record.name} is served by {owner} already")
    while owner:                           # its folder may not be ready yet
        if _answers(folder):
            return OpenWorkbench(folder, record.name, _pid(owner), home.option)
        time.sleep(_POLL_S)
        owner = home.store.owner(record.name)
    return open_workbench(reference, folder, workspace=workspace, device=device, settings=settings, tell=tell)


@contextmanager
def _opening(home: Workspace) -> Iterator[None]:
    """Inside, nobody else looks for a session of this workspace or makes one for a workbench: a folder gets one session."""
    with writing(home.root / _LOCK):
        home.root.mkdir(parents=True, exist_ok=True)
        lock = open(home.root / _LOCK, "a")  # noqa: SIM115 (closed below)
    with lock as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _find(home: Workspace, folder: Path) -> SessionRecord | None:
    """Returns the newest session that has this workbench."""
    for record in reversed(tuple(home.sessions())):
        kind, _, place = record.settings.model.partition(":")
        if kind == "workbench" and (home.root / place).resolve() == folder:
            return record
    return None


def _check(home: Workspace, record: SessionRecord, reference: Path, folder: Path) -> None:
    try:
        same = home.store.get(record.reference) == reference.read_bytes()
    except OSError as error:
        raise BadInput(f"{reference} cannot be read ({error.strerror}): give the path of a reference") from error
    if not same:
        raise BadInput(f"{folder} is the workbench of session {record.name}, for another reference: give another folder")
    _refuse_ended(home, record)


def _start(home: Workspace, name: str) -> tuple[subprocess.Popen[bytes], int]:
    """Starts the session's process, and returns when it owns the session or has ended; also where its output begins in LOG."""
    log = home.folder(name) / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stitchcuda", "resume", name, "--quiet", "--workspace", str(home.root)]
    with log.open("ab") as out:
        begins = out.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    with _stopped_too(process):
        while process.poll() is None and not home.store.owner(name):
            time.sleep(_POLL_S)
    return process, begins


def _wait(
    home: Workspace, record: SessionRecord, folder: Path, started: tuple[subprocess.Popen[bytes], int],
    tell: Callable[[str], None],
) -> int:  # fmt: skip
    """Waits until the folder's commands are answered; the process' lines are told meanwhile. Returns the id of the process that
    owns the session: another one, if somebody has resumed it by hand at that moment."""
    (process, begins), log, last = started, home.folder(record.name) / LOG, ""
    with log.open("rb") as seen, _stopped_too(process):
        seen.seek(begins)
        while True:
            ended = process.poll()
            for line in seen.read().decode("utf-8", "replace").splitlines():
                tell(line)
                last = line.strip() or last
            owner = home.store.owner(record.name)
            if owner and (_pid(owner) == process.pid or ended is not None) and _answers(folder):
                return _pid(owner)
            if ended is not None and not owner:
                _refuse_ended(home, record)
                why = home.store.failure(record.name) or last or f"exit code {ended}"
                raise Unavailable(f"the session ended before the folder was ready: {why.rstrip('.')} (see {log})")
            time.sleep(_POLL_S)


@contextmanager
def _stopped_too(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stops the process where its caller is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_S)
        raise


def _refuse_ended(home: Workspace, record: SessionRecord) -> None:
    if Session(home, record).status in ("done", "nothing_to_do"):
        told = f"`stitchcuda show {record.name}{home.option}` says what became of it"
        raise BadInput(f"session {record.name} of this workbench has ended ({told}): give another folder")


def _answers(folder: Path) -> bool:
    """Whether a session that goes on answers ./status in the folder. A socket file alone may be left from a process that was
    killed."""
    try:
        with opened(folder / HIDDEN) as hidden, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(hidden / "socket"))
            connection.sendall(b'{"tool": "status"}\n')
            with connection.makefile("rb") as lines:
                return not json.loads(lines.readline())["ended"]
    except (OSError, ValueError, LookupError, TypeError):  # nobody, or not yet
        return False


def _pid(owner: str) -> int:
    """Returns the process id in the text that names a session's owner; 0 if there is none."""
    words = owner.replace("(", " ").split()
    return int(words[1]) if len(words) > 1 and words[0] == "process" and words[1].isdigit() else 0
