"""Makes the engineer that `workbench:DIR`, `agent:COMMAND` or `react:PROVIDER:NAME` names.

Where to look next: `engineers/selection.py` (who asks), `engineers/agents/agent_engineer.py` (what is made).
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.agent_engineer import Agent, AgentEngineer
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.recorded_chat import Unrecorded
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings
from stitchcuda.store.session_record import now

CALLS = "agent.jsonl"                      # in the session's folder: each call of a tool, a line


def open_agent_engineer(
    settings: Settings, session: str, root: Path, chat: MeteredChat | None = None, *, recorded: bool
) -> AgentEngineer:
    """Returns the engineer for `settings.model`. `root`: the workspace's folder; `chat`: the model of the ReAct engineer.
    `recorded`: all drafts are recorded; one that is not is an error."""
    folder = root / "sessions" / session
    if recorded:
        return AgentEngineer(_RecordedAgent(settings.model), AgentTools())
    return AgentEngineer(_open_agent(settings, folder, root, chat), AgentTools(_Calls(folder / CALLS)))


def _open_agent(settings: Settings, folder: Path, root: Path, chat: MeteredChat | None) -> Agent:
    kind, _, rest = settings.model.partition(":")
    if kind == "workbench":
        from stitchcuda.engineers.agents.workbench import Workbench

        return Workbench(root / rest if rest else folder / "workbench")
    if kind == "react" and chat is not None:
        from stitchcuda.engineers.agents.react_agent import ReactAgent

        return ReactAgent(settings.model, chat, folder, settings)
    if kind == "agent":
        from stitchcuda.engineers.agents.agent_command import read_agent_command
        from stitchcuda.engineers.agents.command_agent import CommandAgent
        from stitchcuda.engineers.agents.workbench import Workbench

        return CommandAgent(read_agent_command(settings, root), Workbench(folder / "workbench", own=True), folder)
    raise BadInput(f"--model {settings.model!r} is not known")


class _RecordedAgent:
    """Stands in for an agent in a replay."""

    def __init__(self, model: str) -> None:
        self.name = model.partition(":")[0]

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        raise Unrecorded(f"the record has no draft of the {self.name} at {assignment.about}")

    def gone(self) -> str:
        return ""

    def stop(self) -> None:
        pass


class _Calls:
    """Appends each call to a file, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()

    def __call__(self, call: dict[str, Any]) -> None:
        line = json.dumps({"at": now(), **call}, ensure_ascii=False)
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
