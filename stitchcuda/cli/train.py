"""`stitchcuda train`: what training eats. `reward serve` judges programs for trainers over HTTP.

Everything is decided in the room `training/`.
Where to look next: `training/reward_service/serve.py` (what the command calls), `cli/console.py` (options).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stitchcuda.cli.console import FORM, Debug, report_errors

app = typer.Typer(**FORM, help="Makes data and rewards for training.")
reward = typer.Typer(**FORM, help="Rewards for programs.")
app.add_typer(reward, name="reward")


@reward.command()
@report_errors(interrupted="stopped: jobs without an answer go on when the server is started again")
def serve(
    tasks: Annotated[Path, typer.Option("--tasks", metavar="PATH", help="A .jsonl file, a folder of references, or one.")],
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="The folder for the queue and the answers.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = 8711,
    host: Annotated[str, typer.Option("--host", help="The address to listen on; others than this machine's need a token.")]
    = "127.0.0.1",
    device: Annotated[str, typer.Option("--device", help="auto, cuda or sim (the CPU simulator).")] = "auto",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Clients have to send the token in this file.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Programs at once; by default three to a GPU, or half the cores.")
    ] = None,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Judges programs for trainers over HTTP until it is stopped (docs/learning.md)."""
    from stitchcuda.tools.device.device import resolve_target
    from stitchcuda.training.reward_service import serve as service

    service.serve(
        tasks, store, resolve_target(device), port=port, host=host, token_file=token_file, workers=workers,
        tell=lambda line: print(line, flush=True),
    )  # fmt: skip
