"""Makes the engineer that `workbench:DIR`, `agent:COMMAND` or `react:PROVIDER:NAME` names.

Where to look next: `engineers/selection.py` (who asks), `engineers/agents/agent_engineer.py` (what is made).
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from stitchcuda.engineers.agents.agent_engineer import Agent, AgentEngineer
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings

CALLS = "agent.jsonl"                      # in the session's folder: each call of a tool, a line


def open_agent_engineer(settings: Settings, session: str, root: Path) -> AgentEngineer:
    """Returns the engineer for `settings.model`. `root`: the workspace's folder."""
    folder = root / "sessions" / session
    return AgentEngineer(_open_agent(settings, folder, root), AgentTools(_Calls(folder / CALLS)))


def _open_agent(settings: Settings, folder: Path, root: Path) -> Agent:
    kind, _, rest = settings.model.partition(":")
    if kind == "workbench":
        from stitchcuda.engineers.agents.workbench import Workbench

        return Workbench(root / rest if rest else folder / "workbench")
    raise BadInput(f"--model {settings.model!r} is not known")


class _Calls:
    """Appends each call to a file, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()

    def __call__(self, call: dict[str, Any]) -> None:
        line = json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **call}, ensure_ascii=False)
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
