"""Answers the commands of a workbench over a Unix socket in its folder: one line of JSON for a request, one for the answer.

    {"tool": "check", "files": {"model_new.py": "…"}}  →  {"code": 1, "text": "…", "ended": false}

Whoever may enter the folder may ask. A request holds all that is judged: no file of the folder is read. Garbage, and more
requests at once than AT_ONCE, get an answer with code 2; so does a defect, and no request ends the session. If the socket or
commands are removed or replaced, they are made anew.
Where to look next: `engineers/agents/tools.py` (what is called), `engineers/agents/workbench_client.py` (who asks).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stitchcuda.engineers.agents.tools import MOST_CHARACTERS, AgentTools, ToolAnswer
from stitchcuda.engineers.agents.workbench_folder import HIDDEN, make_folder, opened, write_commands
from stitchcuda.sandbox.removal import clear

log = logging.getLogger(__name__)

AT_ONCE = 16                               # requests that are worked on at once
_MOST_BYTES = 12 * MOST_CHARACTERS + 65_536  # of a request: JSON may take 12 bytes for a character
_REQUEST_S = 60.0                          # to send a request in
_LOOK_S = 1.0                              # how often it looks whether its socket is still there


class WorkbenchServer:
    """Serves `tools` at `folder`/.workbench/socket from construction until `close`. Raises OSError if it cannot."""

    def __init__(self, folder: Path, tools: AgentTools, *, profiles: bool) -> None:
        self._folder, self._tools, self._profiles = folder, tools, profiles
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._closed = threading.Event()
        self._listener, self._inode = _listen(folder)
        self._thread = threading.Thread(target=self._serve, name="workbench", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops taking requests; those that wait have been answered by `AgentTools.end`."""
        self._closed.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._stay_there()
                continue
            except OSError as error:
                log.warning("the workbench's socket: %s", error)
                self._closed.wait(_LOOK_S)
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
        self._listener.close()
        with suppress(OSError), opened(self._folder / HIDDEN) as hidden:
            (hidden / "socket").unlink()

    def _stay_there(self) -> None:
        """Listens anew where the agent has removed or replaced the socket; waits where the folder itself is gone."""
        if _inode(self._folder) == self._inode or not self._folder.is_dir():
            return
        try:
            listener, inode = _listen(self._folder)
        except OSError as error:
            log.warning("the workbench's socket: %s", error)
            return
        self._listener.close()
        self._listener, self._inode = listener, inode
        self._put_commands_back()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_REQUEST_S)
            try:
                if not self._room.acquire(blocking=False):
                    _send(connection, ToolAnswer(2, f"{AT_ONCE} commands are at work: wait for one of them."))
                    return
                try:
                    answer = self._carry_out(connection)
                finally:
                    self._room.release()
                connection.settimeout(_REQUEST_S)
                self._put_commands_back()
                _send(connection, answer)
            except OSError as error:
                log.info("a command of the workbench went away: %s", error)

    def _carry_out(self, connection: socket.socket) -> ToolAnswer:
        with connection.makefile("rb") as lines:
            line = lines.readline(_MOST_BYTES + 1)
        if len(line) > _MOST_BYTES:
            return ToolAnswer(2, f"The request is too long: a program has at most {MOST_CHARACTERS:,} characters.")
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return ToolAnswer(2, "The request is not valid JSON.")
        try:
            return call_tool(self._tools, request)
        except Exception as error:         # the session goes on, and whoever asked is answered
            log.exception("a command of the workbench failed")
            return ToolAnswer(2, f"It cannot be done, by a defect of StitchCUDA ({type(error).__name__}); the session goes on.")

    def _put_commands_back(self) -> None:
        try:
            with opened(self._folder) as place:
                write_commands(place, self._profiles, missing=True)
        except OSError as error:
            log.warning("the workbench's commands: %s", error)


def call_tool(tools: AgentTools, request: Any) -> ToolAnswer:
    """Calls the tool that a request names; an answer with code 2 for one that is malformed."""
    if not isinstance(request, dict):
        return ToolAnswer(2, "The request is no object.")
    files, words = request.get("files", {}), {key: request.get(key, "") for key in ("kernel", "query", "note")}
    texts = isinstance(files, dict) and all(isinstance(part, str) for pair in files.items() for part in pair)
    if not texts or not all(isinstance(word, str) for word in words.values()):
        return ToolAnswer(2, "The request is malformed: files are texts by their paths, and so are kernel, query and note.")
    known: dict[str, Callable[[], ToolAnswer]] = {
        "status": tools.status,
        "check": lambda: tools.check(files),
        "bench": lambda: tools.bench(files, words["kernel"]),
        "profile": lambda: tools.profile(words["kernel"]),
        "docs": lambda: tools.docs(words["query"]),
        "submit": lambda: tools.submit(files, words["note"]),
        "finish": lambda: tools.finish(words["note"]),
    }
    name = request.get("tool")
    if not isinstance(name, str) or name not in known:
        return ToolAnswer(2, f"There is no tool {str(name)[:80]!a}: there are {', '.join(known)}.")
    return known[name]()


def _listen(folder: Path) -> tuple[socket.socket, int]:
    """Listens at the folder's socket, and returns its inode too. The socket has its name only once it can be reached. A path
    may be longer than a socket's address: the address goes by way of the open folder."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with opened(folder) as place:
            make_folder(place / HIDDEN)
            with opened(place / HIDDEN) as hidden:
                clear(hidden / "socket.new")
                listener.bind(str(hidden / "socket.new"))
                listener.listen(AT_ONCE)
                clear(hidden / "socket")
                os.rename(hidden / "socket.new", hidden / "socket")
    except OSError:
        listener.close()
        raise
    listener.settimeout(_LOOK_S)
    return listener, _inode(folder)


def _inode(folder: Path) -> int:
    try:
        return (folder / HIDDEN / "socket").lstat().st_ino
    except OSError:
        return 0


def _send(connection: socket.socket, answer: ToolAnswer) -> None:
    connection.sendall(json.dumps({"code": answer.code, "text": answer.text, "ended": answer.ended}).encode() + b"\n")
