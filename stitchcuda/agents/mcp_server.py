"""The MCP server: a session's tools for clients of the Model Context Protocol, by the official SDK.

It opens workbenches, reads programs from their folders, and asks their sessions over the same sockets as ./check does. So it
judges nothing, and a call that was cancelled or cut off can be made again: the session keeps what it has judged. While a call
waits, its client is told every few seconds what is being done. Paths are below one folder. Several clients may call at once.

A result has the same text twice, as content and in the structured content, because clients show their model one or the other.
Where to look next: `agents/workbench_calls.py` (the socket), `agents/mcp_serving.py` (stdio and HTTP), `agents/background.py`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from stitchcuda.agents.openings import Openings
from stitchcuda.agents.workbench_calls import ask, path_below, read_page, read_sources
from stitchcuda.engineers import Looked
from stitchcuda.engineers.agents.tools import ToolAnswer, refuse_words
from stitchcuda.errors import StitchError
from stitchcuda.version import VERSION

PROGRESS_S = 3.0                           # between two notifications while a call waits
SHOWN = 16_000                             # most characters of a result
_INSTRUCTIONS = """\
StitchCUDA makes a PyTorch program faster with CUDA, and judges each attempt in another process. Call `analyse` with a file that
defines Model, get_inputs() and get_init_inputs(), and a new folder. It fills the folder: SKILL.md there says how to work and
what is allowed, TASK.md how the program stands. Edit model_new.py and kernels/ in it, then `check`, `bench` and `submit`; call
`finish` when nothing more is to come. A verdict may take minutes. A call that was cut off can be made again: the same files are
not judged twice."""

Reference = Annotated[str, Field(description="Path of a Python file with Model, get_inputs() and get_init_inputs().")]
Bench = Annotated[str, Field(description="Path of the workbench: the folder that `analyse` made.")]
Query = Annotated[str, Field(description="A name such as cublasLtMatmul, words, or skeleton:NAME.")]
Word = Annotated[str, Field(description="Only lines that contain this; all of them if it is empty.")]
Note = Annotated[str, Field(description="What changed and why, in a sentence.")]


class ToolOutcome(BaseModel):
    """What a tool says, as structured content."""

    code: int = Field(description="0: accepted, or what was asked for; 1: refused; 2: it cannot be done.")
    text: str
    ended: bool = Field(description="The session has ended: stop working on it.")


Result = Annotated[CallToolResult, ToolOutcome]


class McpTools:
    """The tools, for workbenches below `root`. Each method is a tool, and its docstring is what a client's model is told."""

    def __init__(self, root: Path, openings: Openings) -> None:
        self.root, self._openings = root, openings

    async def analyse(
        self,
        reference: Reference,
        workbench: Annotated[str, Field(description="Path of a new folder, or of a workbench to go on with.")],
        context: Context,
    ) -> Result:
        """Opens a workbench for a PyTorch program, or goes on with one, and says how it stands: what is in the program, where
        the time of a call goes, what is left to gain. A new one takes a minute or more: the built-in engineer writes a first
        program. Then read SKILL.md in the folder."""
        told = [""]

        async def opened() -> ToolAnswer:
            folder = path_below(self.root, workbench)
            await self._openings.open(path_below(self.root, reference), folder, lambda line: told.__setitem__(0, line))
            task = read_page(folder, "TASK.md")
            return ToolAnswer(0, f"The workbench is {folder}; SKILL.md in it says how to work there.\n\n{task}")

        return await _wait(opened(), lambda: f"opening the workbench: {told[0]}" if told[0] else "opening", context)

    async def check(self, workbench: Bench, context: Context) -> Result:
        """Builds the program in a workbench, runs it on secret inputs and says what is wrong. It is no attempt."""
        return await self._ask("check", workbench, "builds the program and runs it on secret inputs", context, draft=True)

    async def bench(
        self,
        workbench: Bench,
        context: Context,
        kernel: Annotated[str, Field(description="Times kernels whose names contain this; a whole call if it is empty.")] = "",
    ) -> Result:
        """Times a call of the program in a workbench beside the best program and the reference. The simulator counts bytes."""
        return await self._ask("bench", workbench, "checks and times the program", context, draft=True, kernel=kernel)

    async def profile(self, workbench: Bench, context: Context, word: Word = "") -> Result:
        """Shows what the profilers measured of the session's program and the last draft. On the simulator there is nothing."""
        return await self._ask("profile", workbench, "reads the profiles", context, kernel=word)

    async def submit(self, workbench: Bench, context: Context, note: Note = "") -> Result:
        """Hands the program in a workbench in as the session's next attempt, and says what became of it. It is kept if it is
        right and, on a GPU, certainly saves time."""
        return await self._ask("submit", workbench, "builds, checks and times the attempt", context, draft=True, note=note)

    async def finish(self, workbench: Bench, context: Context, note: Note = "") -> Result:
        """Says that nothing more is to come. The session's best program gets its last check, and the session ends."""
        return await self._ask("finish", workbench, "does the last check of the best program", context, note=note)

    async def session_status(self, workbench: Bench, context: Context) -> Result:
        """Says how a workbench's session stands: the best program, and how many attempts are left."""
        return await self._ask("status", workbench, "asks how the session stands", context)

    async def docs_search(self, query: Query, context: Context) -> Result:
        """Searches documentation of CUDA, cuBLASLt and cuDNN, and of techniques. Needs no workbench."""

        async def found() -> ToolAnswer:
            if wrong := refuse_words(query=query):
                return ToolAnswer(2, wrong)
            searched = await anyio.to_thread.run_sync(_search, query, abandon_on_cancel=True)
            return ToolAnswer(0 if searched.ok else 1, searched.text)

        return await _wait(found(), lambda: "searches", context)

    def page(self, workbench: str, name: str) -> str:
        """Returns a page of a workbench, for a resource."""
        return read_page(path_below(self.root, workbench), name)

    def program(self, workbench: str) -> str:
        """Returns the best program of a workbench's session, for a resource: each file under its path."""
        files = read_sources(path_below(self.root, workbench) / "best")
        return "\n\n".join(f"==== {path}\n{text}" for path, text in files.items())

    async def _ask(
        self, tool: str, workbench: str, doing: str, context: Context, *, draft: bool = False, **words: str
    ) -> CallToolResult:
        async def answered() -> ToolAnswer:
            folder = path_below(self.root, workbench)
            files = await anyio.to_thread.run_sync(read_sources, folder) if draft else {}
            return await ask(folder, {"tool": tool, "files": files, **words})

        return await _wait(answered(), lambda: f"{tool} {doing}", context)


def make_server(tools: McpTools) -> MCPServer:
    """Returns the server with its tools and resources; it serves nothing yet."""
    server = MCPServer("stitchcuda", version=VERSION, instructions=_INSTRUCTIONS, log_level="WARNING")
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    changes = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
    reading: list[Callable[..., Any]] = [tools.check, tools.bench, tools.profile, tools.docs_search, tools.session_status]
    for tool in reading:
        server.add_tool(tool, annotations=looks)
    writing: list[Callable[..., Any]] = [tools.analyse, tools.submit, tools.finish]
    for tool in writing:
        server.add_tool(tool, annotations=changes)

    @server.resource("workbench://{+workbench}/reference", mime_type="text/x-python")
    def reference(workbench: str) -> str:
        """The PyTorch program that a workbench is for."""
        return _read(tools.page, workbench, "reference.py")

    @server.resource("workbench://{+workbench}/task", mime_type="text/markdown")
    def task(workbench: str) -> str:
        """How a workbench's session stands: the program, what was measured of it, the last verdict."""
        return _read(tools.page, workbench, "TASK.md")

    @server.resource("workbench://{+workbench}/program")
    def program(workbench: str) -> str:
        """The best program of a workbench's session, all of its files."""
        return _read(tools.program, workbench)

    return server


def cut(text: str) -> str:
    """Returns the text, or as many of its lines as may be shown."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rpartition(chr(10))[0] or text[:SHOWN]}\n… cut"


def _search(query: str) -> Looked:
    from stitchcuda.nodes.documentation import search_for_coder  # takes a second to import

    return search_for_coder(query, "builtin")


def _read(read: Callable[..., str], *given: str) -> str:
    try:
        return read(*given)
    except StitchError as error:
        raise ResourceError(str(error)) from error


async def _wait(work: Awaitable[ToolAnswer], doing: Callable[[], str], context: Context) -> CallToolResult:
    """Waits for an answer, and tells the client meanwhile what is being done. An error of ours is an answer with code 2."""

    async def tell() -> None:
        started = time.monotonic()
        while True:
            passed = time.monotonic() - started
            await context.report_progress(passed, message=f"{doing()} ({passed:.0f} s)")
            await anyio.sleep(PROGRESS_S)

    async with anyio.create_task_group() as group:
        group.start_soon(tell)
        try:
            answer = await work
        except StitchError as error:
            answer = ToolAnswer(2, str(error))
        group.cancel_scope.cancel()
    text = cut(answer.text)
    structured: dict[str, Any] = ToolOutcome(code=answer.code, text=text, ended=answer.ended).model_dump()
    content = [TextContent(type="text", text=text)]
    return CallToolResult(content=list(content), structured_content=structured, is_error=answer.code == 2)
