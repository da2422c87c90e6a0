"""`stitchcuda train verl`: writes the folder of a run of verl, and prints what to start. It starts nothing itself.

Where to look next: `training/verl_config.py` (what is written), `cli/train.py` (the other commands on training).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from stitchcuda.cli.console import AsJson, Debug, report_errors
from stitchcuda.errors import BadInput

_PATIENCE_S = 2.0


@report_errors(interrupted="interrupted: the folder may be incomplete")
def verl(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="stitchcuda-paper or cuda-agent-paper.")],
    model: Annotated[str, typer.Option("--model", help="A folder with a model, or its name on the hub.")],
    data: Annotated[
        Path, typer.Option("--data", metavar="PATH", help="A data set with the form verl, or tasks as the service has them.")
    ],
    reward_url: Annotated[str, typer.Option("--reward-url", metavar="URL", help="The reward service, as nodes reach it.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder, which all nodes can read.")],
    stage: Annotated[
        str | None, typer.Option("--stage", help="grpo; warmup or agentic. A preset's only stage need not be named.")
    ] = None,
    reward: Annotated[str | None, typer.Option("--reward", help="A reward's name and version. Default: the preset's.")] = None,
    critic: Annotated[
        str | None, typer.Option("--critic", help="A value model to start from. By default the model, where none is needed.")
    ] = None,
    prompts: Annotated[int | None, typer.Option("--prompts", min=1, help="Of a step. Default: the preset's.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Machines.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs of each machine.")] = 8,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Writes a run of verl: its overrides, a script, rows and tools (docs/learning.md)."""
    from stitchcuda.training.reward_service.client import RewardClient, RewardRefused
    from stitchcuda.training.verl_config import VerlRun, find_stage, write_run

    found = find_stage(preset, stage)
    asked, health, notes = reward or found.reward, {}, []
    try:
        health = RewardClient(reward_url, patience_s=_PATIENCE_S).health()
    except (RewardRefused, TimeoutError, ValueError) as error:
        notes = [f"no reward service was found at {reward_url} ({error}); start it before the run"]
    if asked not in health.get("rewards", [asked]):
        raise BadInput(f"{reward_url} knows no reward {asked}: it has {', '.join(health['rewards'])}")
    made = write_run(found, VerlRun(
        model=model, data=data, out=out, reward_url=reward_url, reward=reward, critic=critic, prompts=prompts, nodes=nodes,
        gpus=gpus, target="sim" if str(health.get("environment")).startswith("simulator") else "cuda",
    ))  # fmt: skip
    made = made.model_copy(update={"notes": (*made.notes, *notes)})
    if as_json:
        print(made.model_dump_json())
        return
    print(f"{found.preset}, {found.stage}: {found.about}")
    for name in sorted(path.name for path in out.iterdir()):
        print(out / name)
    for line in made.notes:
        print(f"note: {line}")
    print(f"start: STITCHCUDA_REWARD_TOKEN=… bash {shlex.quote(str(out / 'run.sh'))}")
