"""`stitchcuda train sft`, `grpo`, `value` and `ppo`: run a stage of training on one node, or print its plan.

`--json` prints one JSON object on stdout; lines of progress go to stderr. Without the extra `training` they say how to get it.

Where to look next: `training/stages/config.py` (the TOML file), `training/stages/sft.py`, `training/stages/grpo.py`,
`training/stages/value.py`, `training/stages/ppo.py`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stitchcuda import remedies
from stitchcuda.cli.console import FORM, AsJson, Debug, report_errors, tell
from stitchcuda.errors import Unavailable

if TYPE_CHECKING:
    from stitchcuda.training.stages.config import Stage
    from stitchcuda.training.stages.stage_plan import StagePlan
    from stitchcuda.training.stages.stage_run import RunSummary

app = typer.Typer(**FORM)
_STOPPED = "interrupted: --resume goes on from the last save point"

Config = Annotated[Path | None, typer.Argument(metavar="[CONFIG]", help="A TOML file with a table for the stage.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder, or with --resume the one to go on in.")]
Preset = Annotated[str | None, typer.Option("--preset", metavar="NAME", help="Published numbers; the file's values hold.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last save point in --out.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and write nothing.")]


@app.command()
@report_errors(interrupted=_STOPPED)
def sft(
    out: Out, config: Config = None, preset: Preset = None, resume: Resume = False, dry_run: DryRun = False,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Fine-tunes on talks and programs that ended well. Exit code 0: it is finished."""
    from stitchcuda.training.stages.config import SftStage, read_stage

    stage = read_stage(SftStage, config, preset)
    require_packages()
    from stitchcuda.training.stages.sft import plan_sft, train_sft

    return _run(stage, out, plan_sft, train_sft, resume=resume, dry_run=dry_run, as_json=as_json)


@app.command()
@report_errors(interrupted=_STOPPED)
def grpo(
    out: Out, config: Config = None, preset: Preset = None, resume: Resume = False, dry_run: DryRun = False,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Trains both skills by GRPO with the reward service. Exit code 0: it is finished; with --dry-run 1: the service cannot be
    used."""
    from stitchcuda.training.stages.config import GrpoStage, read_stage

    stage = read_stage(GrpoStage, config, preset)
    require_packages()
    from stitchcuda.training.stages.grpo import plan_grpo, train_grpo

    return _run(stage, out, plan_grpo, train_grpo, resume=resume, dry_run=dry_run, as_json=as_json)


@app.command()
@report_errors(interrupted=_STOPPED)
def value(
    out: Out, config: Config = None, preset: Preset = None, resume: Resume = False, dry_run: DryRun = False,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Trains a critic on answers that are there, before PPO. Exit code 0: it is finished."""
    from stitchcuda.training.stages.config import ValueStage, read_stage

    stage = read_stage(ValueStage, config, preset)
    require_packages()
    from stitchcuda.training.stages.value import plan_value, train_value

    return _run(stage, out, plan_value, train_value, resume=resume, dry_run=dry_run, as_json=as_json)


@app.command()
@report_errors(interrupted=_STOPPED)
def ppo(
    out: Out, config: Config = None, preset: Preset = None, resume: Resume = False, dry_run: DryRun = False,
    agentic: Annotated[bool, typer.Option("--agentic", help="Episodes with tools, by the table [agentic].")] = False,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Trains by PPO with a critic and the reward service, on answers of one turn. Exit code 0: it is finished; with --dry-run
    1: the service cannot be used."""
    from stitchcuda.training.stages.config import AgenticStage, PpoStage, read_stage

    stage = read_stage(AgenticStage, config, preset) if agentic else read_stage(PpoStage, config, preset)
    require_packages()
    from stitchcuda.training.stages.ppo import plan_ppo, train_ppo

    return _run(stage, out, plan_ppo, train_ppo, resume=resume, dry_run=dry_run, as_json=as_json)


def _run(
    stage: Stage, out: Path, plan: Callable[[Stage, Path], StagePlan], train: Callable[..., RunSummary], *, resume: bool,
    dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Prints a stage's plan, or runs it; returns the exit code."""
    if dry_run:
        return _show_plan(plan(stage, out), as_json)
    return _show_summary(train(stage, out, resume=resume, tell=tell), out, stage.table, as_json)


def require_packages() -> None:
    """Raises `Unavailable` without the extra `training`."""
    missing = [name for name in ("trl", "peft", "accelerate", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"training needs {', '.join(missing)}: {remedies.extra('training')}")


def _show_plan(plan: StagePlan, as_json: bool) -> int:
    from stitchcuda.training.stages.stage_plan import plan_lines

    print(plan.model_dump_json() if as_json else "\n".join(plan_lines(plan)))
    return 1 if plan.service.get("wrong") else 0


def _show_summary(summary: RunSummary, out: Path, table: str, as_json: bool) -> int:
    from stitchcuda.training.stages.curves import write_curves
    from stitchcuda.training.stages.stage_run import StageRun

    folder = StageRun(out)
    write_curves(folder, table, summary)
    folder.finish(summary)
    if as_json:
        print(summary.model_dump_json())
    else:
        print(f"{out / summary.result}  {summary.updates:,} updates, SHA-256 {summary.sha256[:16]}…; {out / 'curves.html'}")
    return 0
