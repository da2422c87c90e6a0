"""`stitchcuda agent`: workbenches for coding agents. A workbench's session runs in a process of its own, in the background.

`--json` prints one JSON object on stdout; lines of progress go to stderr. Exit code 0: its commands are answered.

Where to look next: `agents/background.py` (what is called), `engineers/agents/workbench.py` (what a workbench is).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, Place, report_errors
from stitchcuda.cli.options import ATTEMPTS, Device, EffortOption, GpuMemory, Minutes, PolicyOption, PrecisionOption

app = typer.Typer(**FORM, help="Workbenches for coding agents.")


@app.callback()
def group() -> None:
    """Workbenches for coding agents."""


@app.command()
@report_errors(interrupted="interrupted: the session is kept, and the same command goes on with it")
def workbench(
    reference: Annotated[Path, typer.Argument(metavar="REF", help="A file with Model, get_inputs() and get_init_inputs().")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or a workbench to go on with.")],
    device: Device = "auto", workspace: Place = None,
    policy: PolicyOption = "stitched", precision: PrecisionOption = "reference", effort: EffortOption = "medium",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start from the reference, not from the built-in engineer's program.")
    ] = False,
    max_attempts: Annotated[int, ATTEMPTS] = 30, max_minutes: Minutes = None, gpu_memory_gb: GpuMemory = None,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Makes a folder with a program and commands that judge and time it, for a coding agent to work in."""
    from stitchcuda.agents.background import open_workbench

    ready = open_workbench(
        reference, folder, workspace=workspace, device=device, tell=lambda line: print(line, file=sys.stderr, flush=True),
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
