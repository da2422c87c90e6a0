"""The ReAct engineer's agent: LangChain's agent loop over a chat model and tools, in a thread of this process.

Its conversation is checkpointed at every step in the session's folder, so a session that was killed goes on after the last step
that was finished, and a call of a tool that was running is made again. It ends when the session does, when it has used its
turns, when it calls no tool any more, or by the session's budgets; what ended a call of the model is raised by `gone`, so the
session ends as with any chat model.

Where to look next: `engineers/agents/react_tools.py` (the tools), `engineers/agents/metered_model.py` (the model),
`engineers/agents/agent_engineer.py` (who starts it), `engineers/prompts/react.md.j2` (its first message).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, ModelCallLimitMiddleware, hook_config
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from stitchcuda.counts import counted
from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.agent_files import AgentFiles
from stitchcuda.engineers.agents.metered_model import BROKEN, PROBLEM, MeteredModel
from stitchcuda.engineers.agents.react_tools import AgentEnded, ReactTools
from stitchcuda.engineers.agents.tools import AgentTools, attempts_left
from stitchcuda.engineers.attempt_history import describe_attempt
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.program_excerpts import list_files
from stitchcuda.engineers.prompt_values import PromptBudget, common_values, render_prompt
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings

TURNS = 150                                # calls of the model, unless the option `turns` says otherwise
ROOM = 60_000                              # tokens of a request above which older results are left out: the option `room`
FILE, FOLDER = "agent.sqlite", "agent"     # in the session's folder: the conversation, and the files that the agent works in
_IDLE = 3                                  # replies without a call of a tool, in a row, that end the agent
_STEPS = 10                                # of LangChain's graph in a turn, at most, beside calls of tools
_STOP_S = 5.0                              # that stopping waits; what runs on then is not recorded


class ReactAgent:
    """Implements `Agent` for `react:PROVIDER:NAME`. `folder`: the session's."""

    def __init__(self, name: str, chat: MeteredChat, folder: Path, settings: Settings) -> None:
        self.name = name
        self._chat, self._folder = chat, folder
        self._turns, self._room = (_count(settings, option, usual) for option, usual in (("turns", TURNS), ("room", ROOM)))
        self._tools = ReactTools(AgentFiles(folder / FOLDER), chat.transcript)
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._why = ""
        self._error: Exception | None = None

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        self._tools.session, self._tools.assignment = tools, assignment
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(assignment,), name=self.name, daemon=True)
            self._thread.start()

    def gone(self) -> str:
        """Returns why it works no more; "" while it does. Raises what ended it, if that was an error or a budget."""
        if self._error is not None:
            raise self._error
        return self._why

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _work(self, assignment: Assignment) -> None:
        try:
            self._run(assignment)
            self._why = f"it called no tool {_IDLE} times in a row"
        except AgentEnded as ended:
            self._why = str(ended) or "it was stopped"
        except ModelCallLimitExceededError:
            self._why = f"it has used its {counted(self._turns, 'turn')}"
        except Exception as error:         # raised where the session waits for it
            self._error = error

    def _run(self, assignment: Assignment) -> None:
        with closing(sqlite3.connect(self._folder / FILE, check_same_thread=False, timeout=30)) as connection:
            model = MeteredModel(chat=self._chat, about=self._about, admit=self._go_on, room=self._room)
            limit: AgentMiddleware[Any, None, Any] = ModelCallLimitMiddleware(thread_limit=self._turns, exit_behavior="error")
            saver = _NewestOnly(connection, serde=JsonPlusSerializer())
            graph = create_agent(model, self._tools.all(), checkpointer=saver, middleware=[limit, _Reminder(), _Unreadable()])
            config: RunnableConfig = {
                "configurable": {"thread_id": self._folder.name}, "max_concurrency": 1,  # calls of a turn in their order
                "recursion_limit": _STEPS * (self._turns + 1),
            }  # fmt: skip
            request: Any = None
            if graph.get_state(config).created_at is None:
                self._tools.files.begin(assignment.program, assignment.brief.reference)
                request = {"messages": [HumanMessage(self._first_message(assignment), id=assignment.about)]}
            for _ in graph.stream(request, config, durability="sync"):
                self._go_on()

    def _about(self) -> str:
        assert self._tools.assignment is not None
        return self._tools.assignment.about

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise AgentEnded

    def _first_message(self, assignment: Assignment) -> str:
        brief, budget = assignment.brief, PromptBudget(self._chat.counter)
        values = common_values(brief, budget) | {
            "program": str(assignment.program.get("model_new.py", "")),
            "form": not any(path.endswith("_binding.cc") for path in assignment.program),
            "files": list_files(assignment.program, ()),
            "kept": assignment.kept,
            "record": budget.fit("\n".join(f"- {describe_attempt(attempt)}" for attempt in brief.history), "record"),
            "left": counted(attempts_left(brief), "attempt"),
            "turns": self._turns,
            "shell_denied": self._tools.shell_denied,
        }
        return render_prompt("react", values)


def _count(settings: Settings, option: str, usual: int) -> int:
    value = settings.options.get(option, usual)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"--model-option {option}={value} is no number of {option}: give a whole number from 1")
    return value


class _Reminder(AgentMiddleware):
    """Asks again after a reply without a call of a tool, _IDLE times in a row at most."""

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: AgentState[Any], runtime: Runtime[None]) -> dict[str, Any] | None:
        messages = state["messages"]
        problem = messages[-1].response_metadata.get(PROBLEM)
        if not problem or _idle(messages) >= _IDLE:
            return None
        again = f"Your reply could not be used. {problem} Call a tool; call `finish` if nothing more is worth trying."
        return {"messages": [HumanMessage(again)], "jump_to": "model"}


class _Unreadable(AgentMiddleware):
    """Answers a call whose arguments were no JSON, without the tool."""

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        call = request.tool_call
        if BROKEN not in call["args"]:
            return handler(request)
        told = f"It was not called: its arguments were no JSON ({call['args'][BROKEN]}). Call it again."
        return ToolMessage(told, tool_call_id=call["id"], name=call["name"], status="error")


def _idle(messages: Sequence[Any]) -> int:
    """Returns how many replies in a row, up to the last, could not be used."""
    count = 0
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            if PROBLEM not in message.response_metadata:
                break
            count += 1
    return count


class _NewestOnly(SqliteSaver):
    """Checkpoints of one conversation, of which only the newest and the one before are kept: each holds all messages."""

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        stored = super().put(config, checkpoint, metadata, new_versions)
        if before := config["configurable"].get("checkpoint_id"):
            with self.cursor() as cursor:
                for table in ("checkpoints", "writes"):
                    cursor.execute(
                        f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id < ?",
                        (config["configurable"]["thread_id"], before),
                    )
        return stored
