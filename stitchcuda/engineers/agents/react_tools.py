"""The tools of the ReAct engineer: files in its folder, a shell in the sandbox, and the session's own tools.

A tool answers with text and never fails because of what it was given. Tools that judge are given the files' content, so what is
judged is what was sent. What a look found is recorded under its turn: a call that is made again after a kill gets the same
answer. So is the attempt that a program was handed in for: handed in again at a later attempt, it was judged, and the answer is
its verdict.

Where to look next: `engineers/agents/tools.py` (the session's tools), `engineers/agents/agent_files.py` (the folder),
`engineers/agents/react_agent.py` (runs the agent).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.agent_files import SHOWN, AgentFiles, RefusedPath
from stitchcuda.engineers.agents.tools import AgentTools, ToolAnswer, describe_verdict
from stitchcuda.engineers.metered_chat import Transcript
from stitchcuda.errors import StitchError
from stitchcuda.sandbox import command
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.protections import NAMES

SHELL_S = 120.0
_LIMITS = Limits(memory_gib=4, file_gib=0.25, disk_gib=0.5, output_gib=0.05, tasks=256)
_NEEDED = ("network", "processes", "privileges", "seccomp", "limits", "watch")
_FILES = ("mounts", "landlock")            # one of them keeps a command in the folder
_HEAD = 0.3                                # of a long output that is shown from its beginning


class AgentEnded(Exception):
    """The session goes on without the agent, or it was stopped. Its call is not recorded: a resumed agent makes it again."""


class ReactTools:
    """`assignment` is the open one; whoever starts the agent sets it before each draft. `transcript` records what was seen."""

    def __init__(self, files: AgentFiles, transcript: Transcript) -> None:
        self.files = files
        self.assignment: Assignment | None = None
        self.session: AgentTools | None = None
        self._transcript = transcript
        self.shell_denied = shell_denied()

    def all(self) -> list[BaseTool]:
        """Returns the tools for LangChain's agent. Their docstrings are what the model reads."""
        methods: list[Callable[..., str]] = [
            self.write_file, self.edit_file, self.read_file, self.search_files, self.restore, self.check, self.bench,
            self.profile, self.docs, self.status, self.submit, self.finish,
        ]  # fmt: skip
        if not self.shell_denied:
            methods.insert(5, self.run_command)
        return [StructuredTool.from_function(_told(method), parse_docstring=True) for method in methods]

    # Files

    def write_file(self, path: str, text: str) -> str:
        """Write a whole file; an existing one is replaced.

        Args:
            path: Relative to your folder, such as kernels/gelu.cu.
            text: The file's content.
        """
        self.files.write(path, text)
        return f"{path} is written."

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace lines of a file.

        Args:
            path: Relative to your folder.
            old: Text that is in the file exactly once.
            new: What stands there afterwards.
        """
        return self.files.edit(path, old, new)

    def read_file(self, path: str, first: int = 1, last: int = 0) -> str:
        """Read a file, or lines of it. For a folder, such as ".", list its files.

        Args:
            path: Relative to your folder.
            first: The first line, counted from 1.
            last: The last line; 0 reads to the end.
        """
        return self.files.show(path, first, last)

    def search_files(self, words: str) -> str:
        """Find the lines of all files in your folder that contain a text.

        Args:
            words: The text as it stands in a line; no pattern.
        """
        return self.files.search(words)

    def restore(self) -> str:
        """Put the session's present program back: model_new.py and kernels/ become as they are there."""
        self.files.put_program(self._given().program)
        return "model_new.py and kernels/ are the session's program."

    def run_command(self, command_line: str) -> str:
        """Run a shell command in your folder, without network and GPU, for at most two minutes.

        Args:
            command_line: For bash, such as: grep -n __shared__ kernels/*.cu
        """
        root = self.files.root
        done = command.run(["bash", "-c", command_line], seconds=SHELL_S, cwd=root, write=[root], limits=_LIMITS)
        late = f"It was stopped after {SHELL_S:.0f} s.\n" if done.timed_out else ""
        return f"{late}exit {done.code}\n{_shortened(done.output)}".strip()

    # The session's tools

    def check(self, runtime: ToolRuntime) -> str:
        """Build the program in your folder and judge it on secret inputs, as a draft is judged. It is no attempt."""
        return self._look(runtime, lambda tools: tools.check(self.files.program()))

    def bench(self, runtime: ToolRuntime, kernel: str = "") -> str:
        """Time a call of the program in your folder; on the simulator, count the bytes that a call moves.

        Args:
            kernel: Part of a kernel's name, to time only those; empty for the whole call.
        """
        return self._look(runtime, lambda tools: tools.bench(self.files.program(), kernel))

    def profile(self, runtime: ToolRuntime, kernel: str = "") -> str:
        """Show what the profilers measured of the session's program and of your last submission.

        Args:
            kernel: Part of a kernel's name; empty for everything.
        """
        return self._look(runtime, lambda tools: tools.profile(kernel))

    def docs(self, query: str, runtime: ToolRuntime) -> str:
        """Search the documentation of CUDA, cuBLASLt and cuDNN.

        Args:
            query: A name, words, or skeleton:NAME for a skeleton that compiles and runs.
        """
        return self._look(runtime, lambda tools: tools.docs(query))

    def status(self, runtime: ToolRuntime) -> str:
        """Say how the session stands: its best program, and how many attempts are left."""
        return self._look(runtime, lambda tools: tools.status())

    def submit(self, note: str, runtime: ToolRuntime) -> str:
        """Hand in the program in your folder as the session's next attempt, and get its verdict.

        Args:
            note: One or two sentences on what you changed and why.
        """
        tools, given = self._open(), self._given()
        handed = self._transcript.record_once(f"handed-{_place(runtime)}", lambda: given.about)
        return _text(tools.submit(self.files.program(), note) if handed == given.about else describe_verdict(given))

    def finish(self, note: str) -> str:
        """End the session with its best program, when nothing more is worth trying.

        Args:
            note: Why you stop.
        """
        return _text(self._open().finish(note))

    def _look(self, runtime: ToolRuntime, look: Callable[[AgentTools], ToolAnswer]) -> str:
        """Returns what a look found, as it was recorded if it was made before; its seconds on the GPU are counted."""
        tools, given = self._open(), self._given()

        def find() -> tuple[str, float]:
            before = given.look.gpu_s if given.look else 0.0
            text = _text(look(tools))
            return text, (given.look.gpu_s if given.look else 0.0) - before

        return self._transcript.record_look(f"look-{given.about}-{_place(runtime)}", find)

    def _open(self) -> AgentTools:
        assert self.session is not None
        return self.session

    def _given(self) -> Assignment:
        assert self.assignment is not None
        return self.assignment


def shell_denied() -> str:
    """Returns why no command can be run safely on this machine: the protections of the sandbox that are missing; "" if none."""
    denied = dict(command.available().denied)
    missing = [NAMES[short] for short in _NEEDED if NAMES[short] in denied]
    if all(NAMES[short] in denied for short in _FILES):
        missing.append("files")
    return ", ".join(missing)


def _told(method: Callable[..., str]) -> Callable[..., str]:
    """Returns the tool with its refusals as text."""

    @functools.wraps(method)
    def tool(*arguments: Any, **named: Any) -> str:
        try:
            return method(*arguments, **named)
        except (RefusedPath, StitchError, OSError) as error:
            return str(error)

    return tool


def _text(answer: ToolAnswer) -> str:
    if answer.ended:
        raise AgentEnded(answer.text)
    return answer.text


def _place(runtime: ToolRuntime) -> str:
    """Returns which call of a tool this is: the conversation (its first message's id), the turn, and the place in the turn.
    Servers may use an id for many calls."""
    messages = runtime.state["messages"]
    replies = [message for message in messages if isinstance(message, AIMessage)]
    ids = [call["id"] for call in replies[-1].tool_calls]
    return f"{messages[0].id}-{len(replies)}-{ids.index(runtime.tool_call_id)}"


def _shortened(output: str) -> str:
    if len(output) <= SHOWN:
        return output
    head = int(SHOWN * _HEAD)
    return f"{output[:head]}\n… ({len(output) - SHOWN:,} characters left out)\n{output[head - SHOWN :]}"
