"""A ReAct engineer's session in a few words: scripted turns, tools that go by comments, and a process that dies in the middle.

    python -m tests.engineers.agents.react_session FOLDER URL NUMBER      dies in the NUMBER-th call of a session's tool
    python -m tests.engineers.agents.react_session FOLDER URL edit        dies when the agent has edited a file
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.engineers.agents.agent_files import AgentFiles
from stitchcuda.sessions.session import Session
from tests.engineers.protocol_server import Failure, Request
from tests.engineers.protocols import Reply
from tests.engineers.stage import WordHands
from tests.graph.tiny import SIM, tiny_session

MODEL = "react:openai:local"


def turn(*calls: tuple[str, Any], text: str = "So be it.") -> Reply:
    return Reply(text, calls=calls)


def write(word: str, task: str = "aa") -> tuple[str, Any]:
    return "write_file", {"path": f"kernels/{task}.cu", "text": f"// {task} {word}\n"}


def submit(note: str = "Done.") -> tuple[str, Any]:
    return "submit", {"note": note}


FINISH = turn(("finish", {"note": "nothing more"}))
THREE_TASKS = (
    turn(("read_file", {"path": "."}), ("status", {})),
    turn(write("build error"), submit("first")),
    turn(("edit_file", {"path": "kernels/aa.cu", "old": "build error", "new": "saves 0.2"}), ("check", {})),
    turn(submit("repaired")),
    turn(write("saves 0.2", "bb"), submit("bb")),
    turn(write("saves 0.1", "cc"), submit("cc")),
    FINISH,
)
"""Three kept tasks; the first has a draft that does not build, and its repair."""


class Turns:
    """Answers by how many replies a conversation has; the last turn again and again."""

    def __init__(self, turns: Sequence[Reply | Failure]) -> None:
        self.turns = turns
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> str | Reply | Failure:
        self.requests.append(request)
        made: int = sum(message["role"] == "assistant" for message in request.body["messages"])
        return self.turns[min(made, len(self.turns) - 1)]

    def results(self) -> list[str]:
        """What the tools answered, in order, as the last request has it."""
        return [str(message["content"]) for message in self.requests[-1].body["messages"] if message["role"] == "tool"]


def react_session(folder: Path, url: str, **settings: Any) -> Session:
    return tiny_session(folder, "tiny", **{"model": MODEL, "base_url": url, "from_scratch": True} | settings)


def hands(before: Callable[[str], None] = lambda tool: None) -> WordHands:
    tools = WordHands(SIM)
    tools.before = before
    return tools


def main() -> None:
    folder, url, where = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    called: list[str] = []

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def before(tool: str) -> None:
        called.append(tool)
        if where == str(len(called)):
            die()

    edit = AgentFiles.edit

    def edit_and_die(self: AgentFiles, path: str, old: str, new: str) -> str:
        edit(self, path, old, new)
        die()
        raise AssertionError("still alive")

    if where == "edit":
        AgentFiles.edit = edit_and_die  # type: ignore[method-assign]
    tools = hands(before)
    react_session(folder, url).run(device="sim", tools=tools)
    print(len(called))


if __name__ == "__main__":
    main()
