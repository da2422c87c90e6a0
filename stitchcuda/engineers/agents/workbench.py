"""A workbench: a folder in which an agent, or a person, works on a program with the commands of the session.

Where to look next: `engineers/agents/workbench_folder.py` (what lies in it), `engineers/agents/workbench_server.py` (who
answers), `engineers/agents/agent_engineer.py` (the protocol).
"""

from __future__ import annotations

import time
from pathlib import Path

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.engineers.agents.workbench_folder import lay_out
from stitchcuda.engineers.agents.workbench_server import WorkbenchServer
from stitchcuda.errors import BadInput

IDLE_H = 24.0                              # hours without a command, after which a session ends


class Workbench:
    """Implements `Agent` for a folder: nobody is started, whoever works in it calls its commands."""

    def __init__(self, folder: Path, *, idle_h: float = IDLE_H) -> None:
        self.name = "workbench"
        self.folder = folder
        self._idle_h = idle_h
        self._server: WorkbenchServer | None = None
        self._tools: AgentTools | None = None

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        """Lays the folder out for the assignment, and answers its commands from now on."""
        lay_out(self.folder, assignment)
        if self._server is None:
            try:
                self._server = WorkbenchServer(self.folder, tools)
            except OSError as error:
                raise BadInput(f"the workbench {self.folder} has no room for a socket ({error.strerror or error})") from error
        self._tools = tools

    def gone(self) -> str:
        if not self.folder.is_dir():
            return f"the workbench {self.folder} was removed"
        idle_s = time.monotonic() - self._tools.last_call if self._tools else 0.0
        return f"no command was called in {self._idle_h:g} hours" if idle_s > 3600 * self._idle_h else ""

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
