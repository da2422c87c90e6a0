"""Opens a workbench: makes its session, or finds it, and runs it in a process of its own until the folder is ready.

The process is `stitchcuda resume SESSION`; its output is in the session's folder (LOG). It ends with the session, and can be
killed at any time: opening the same workbench again goes on.
Where to look next: `engineers/agents/workbench.py` (what the process serves), `sessions/session.py` (sessions).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchcuda.engineers.agents.workbench_folder import HIDDEN
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.graph.opening import open_record
from stitchcuda.sessions.session import Session
from stitchcuda.store import SessionRecord, Workspace

LOG = "workbench.log"
_POLL_S = 0.2
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
    record = _find(home, folder)
    if record is None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadInput(f"{folder} holds other files, or is no folder: give one that is empty, or not there yet")
        model = f"workbench:{folder}"
        record = open_record(home, reference, None, name=None, device=device, settings={**settings, "model": model})
    else:
        _check(home, record, reference, folder)
    if owner := home.store.owner(record.name):
        tell(f"session {record.name} is served by {owner} already")
    while owner:                           # its folder may not be ready yet
        if (folder / HIDDEN / "socket").exists():
            return OpenWorkbench(folder, record.name, _pid(owner), home.option)
        time.sleep(_POLL_S)
        owner = home.store.owner(record.name)
    return OpenWorkbench(folder, record.name, _start(home, record.name, folder, tell), home.option)


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
    if Session(home, record).status in ("done", "nothing_to_do"):
        told = f"`stitchcuda show {record.name}{home.option}` says what became of it"
        raise BadInput(f"session {record.name} of this workbench has ended ({told}): give another folder")


def _start(home: Workspace, name: str, folder: Path, tell: Callable[[str], None]) -> int:
    """Starts the process and waits until the socket is there; its lines are told meanwhile. Returns its id."""
    log = home.folder(name) / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stitchcuda", "resume", name, "--quiet", "--workspace", str(home.root)]
    with log.open("ab") as out, log.open("rb") as seen:
        seen.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            while not _answers(folder, process.pid, home, name):
                ended = process.poll()
                for line in seen.read().decode("utf-8", "replace").splitlines():
                    tell(line)
                if ended is not None:
                    raise Unavailable(f"the session ended before the folder was ready (exit code {ended}): see {log}")
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait(_STOP_S)
            raise
    return process.pid


def _answers(folder: Path, pid: int, home: Workspace, name: str) -> bool:
    """Whether this process owns the session and has made the socket, which an earlier one removes when it ends."""
    return (folder / HIDDEN / "socket").exists() and _pid(home.store.owner(name) or "") == pid


def _pid(owner: str) -> int:
    """Returns the process id in the text that names a session's owner; 0 if there is none."""
    words = owner.replace("(", " ").split()
    return int(words[1]) if len(words) > 1 and words[0] == "process" and words[1].isdigit() else 0
