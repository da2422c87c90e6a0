"""A workbench: a folder in which an agent, or a person, works on a program with the commands of the session.

One session serves a folder at a time. If the folder cannot be written any more while an agent works in it, the session ends
with its best program. A folder of the session's own that an earlier run left unusable is set aside, or removed where it fills
the disk, and made anew.
Where to look next: `engineers/agents/workbench_folder.py` (what lies in it), `engineers/agents/workbench_server.py` (who
answers), `engineers/agents/agent_engineer.py` (the protocol).
"""

from __future__ import annotations

import errno
import logging
import time
from pathlib import Path

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.engineers.agents.workbench_folder import WorkbenchLock, has_profiles, lay_out, write_end
from stitchcuda.engineers.agents.workbench_server import WorkbenchServer
from stitchcuda.errors import BadInput
from stitchcuda.sandbox.removal import remove

log = logging.getLogger(__name__)

IDLE_H = 24.0                              # hours without a command, after which a session ends


class Workbench:
    """Implements `Agent` for a folder: nobody is started, whoever works in it calls its commands. `own`: the folder is one of
    the session's, which may be set aside."""

    def __init__(self, folder: Path, *, idle_h: float = IDLE_H, own: bool = False) -> None:
        self.name = "workbench"
        self.folder = folder
        self._idle_h = idle_h
        self._own = own
        self._lock = WorkbenchLock()
        self._server: WorkbenchServer | None = None
        self._tools: AgentTools | None = None
        self._lost = ""                    # why the folder cannot be used any more

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        """Lays the folder out for the assignment, and answers its commands from now on."""
        self._tools = tools
        if self._server is not None:
            try:
                lay_out(self.folder, assignment, self._lock)
            except BadInput as error:      # what was kept so far is not lost by what an agent did to its folder
                self._lost = str(error)
            return
        try:
            lay_out(self.folder, assignment, self._lock)
        except BadInput as error:
            if not self._own or not self.folder.exists():
                raise
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
                remove(self.folder)        # what an agent filled the disk with
                log.warning("%s is made anew, since the disk is full", self.folder)
            else:
                log.warning("%s cannot be used any more: it is kept as %s, and made anew", self.folder, self._set_aside())
            lay_out(self.folder, assignment, self._lock)
        try:
            self._server = WorkbenchServer(self.folder, tools, profiles=has_profiles(assignment))
        except OSError as error:
            raise BadInput(f"the workbench {self.folder} has no room for a socket ({error.strerror or error})") from error

    def gone(self) -> str:
        if self._lost:
            return self._lost
        if not self.folder.is_dir():
            return f"the workbench {self.folder} was removed"
        idle_s = time.monotonic() - self._tools.last_call if self._tools else 0.0
        return f"no command was called in {self._idle_h:g} hours" if idle_s > 3600 * self._idle_h else ""

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            if self._tools is not None and (result := self._tools.result()) and self.folder.is_dir():
                try:
                    write_end(self.folder, result)
                except OSError as error:   # a full disk: the ledger has the result
                    log.warning("the workbench %s does not say how its session ended: %s", self.folder, error)
        self._lock.close()

    def _set_aside(self) -> Path:
        number = 1
        while (place := self.folder.with_name(f"{self.folder.name}-unusable-{number}")).exists():
            number += 1
        try:
            self.folder.rename(place)
        except OSError as error:
            raise BadInput(f"the workbench {self.folder} cannot be set aside ({error.strerror or error})") from error
        return place
