"""`stitchcuda agent`: for coding agents. Workbenches, an MCP server that opens them, and a skill that says how to use them.

A workbench's session runs in a process of its own, in the background. `--json` prints one JSON object on stdout; lines of
progress go to stderr. Exit code 0 of `workbench`: its commands are answered.

Where to look next: `agents/background.py`, `agents/mcp_serving.py`, `agents/skill_folder.py` (what is called),
`engineers/agents/workbench.py` (what a workbench is).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, Place, report_errors, tell
from stitchcuda.cli.options import ATTEMPTS, Device, EffortOption, GpuMemory, Minutes, PolicyOption, PrecisionOption

FromScratch = Annotated[
    bool, typer.Option("--from-scratch", help="Start from the reference, not from the built-in engineer's program.")
]

app = typer.Typer(**FORM, help="Workbenches, an MCP server and a skill for coding agents.")


@app.callback()
def group() -> None:
    """Workbenches, an MCP server and a skill for coding agents."""


@app.command()
@report_errors(interrupted="interrupted: the session is kept, and the same command goes on with it")
def workbench(
    reference: Annotated[Path, typer.Argument(metavar="REF", help="A file with Model, get_inputs() and get_init_inputs().")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or a workbench to go on with.")],
    device: Device = "auto", workspace: Place = None,
    policy: PolicyOption = "stitched", precision: PrecisionOption = "reference", effort: EffortOption = "medium",
    from_scratch: FromScratch = False,
    max_attempts: Annotated[int, ATTEMPTS] = 30, max_minutes: Minutes = None, gpu_memory_gb: GpuMemory = None,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Makes a folder with a program and commands that judge and time it, for a coding agent to work in."""
    from stitchcuda.agents.background import open_workbench

    ready = open_workbench(
        reference, folder, workspace=workspace, device=device, tell=tell,
        settings={
            "policy": policy, "precision": precision, "effort": effort, "from_scratch": from_scratch,
            "max_attempts": max_attempts, "max_minutes": max_minutes, "gpu_memory_gb": gpu_memory_gb,
        },
    )  # fmt: skip
    if as_json:
        print(json.dumps({"folder": str(ready.folder), "session": ready.session, "pid": ready.pid}))
        return
    print(f"workbench: {ready.folder}")
    print(f"session:   {ready.session}, served by process {ready.pid} until it ends")
    print("next:      start a coding agent in that folder; SKILL.md says how to work there")
    print(f"next:      stitchcuda show {ready.session}{ready.option}   (what it has done so far)")
    print("end:       ./submit --done in the folder")


@app.command()
@report_errors(interrupted="stopped: the workbenches' sessions go on")
def mcp(
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="References and workbenches are in it. Default: this folder.")
    ] = None,
    http: Annotated[
        int | None,
        typer.Option("--http", metavar="PORT", min=0, max=65535, help="HTTP on 127.0.0.1, not stdin and stdout; 0: any port."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="HTTP's token. Default: STITCHCUDA_MCP_TOKEN, else a new one."),
    ] = None,
    device: Device = "auto", workspace: Place = None,
    policy: PolicyOption = "stitched", precision: PrecisionOption = "reference", effort: EffortOption = "medium",
    from_scratch: FromScratch = False, max_attempts: Annotated[int, ATTEMPTS] = 30, max_minutes: Minutes = None,
    gpu_memory_gb: GpuMemory = None, debug: Debug = False,
) -> None:  # fmt: skip
    """Serves the tools of workbenches to MCP clients: over stdin and stdout, or over HTTP (docs/agents.md)."""
    from stitchcuda.agents.mcp_serving import serve
    from stitchcuda.agents.openings import Openings

    openings = Openings(workspace=workspace, device=device, settings={
        "policy": policy, "precision": precision, "effort": effort, "from_scratch": from_scratch,
        "max_attempts": max_attempts, "max_minutes": max_minutes, "gpu_memory_gb": gpu_memory_gb,
    })  # fmt: skip
    serve(root or Path.cwd(), openings, port=http, token_file=token_file, tell=tell)


@app.command()
@report_errors()
def skill(
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="A folder of skills, such as .claude/skills.")],
    debug: Debug = False,
) -> None:
    """Writes the skill `stitchcuda` for coding agents, and prints the text for AGENTS.md."""
    from stitchcuda.agents.skill_folder import AGENTS_TEXT, write_skill

    print(f"skill: {write_skill(into)}")
    print(f"for AGENTS.md, if your agents read no skills:\n\n{AGENTS_TEXT}")
