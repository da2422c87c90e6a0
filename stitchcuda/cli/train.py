"""`stitchcuda train`: makes data sets for learning from sessions, and scores programs by rewards. It trains nothing.

`--json` prints one JSON object on stdout; lines of progress go to stderr.

Where to look next: `training/data.py`, `training/scoring.py` (what the commands call), `cli/console.py` (options).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, complain, report_errors
from stitchcuda.cli.model_flags import model_options
from stitchcuda.errors import BadInput, ReplyPending
from stitchcuda.state import Policy, Precision, Settings

if TYPE_CHECKING:
    from stitchcuda.engineers.chat import Chat
    from stitchcuda.training.rewards import Skill
    from stitchcuda.training.scoring import Scored

app = typer.Typer(**FORM, help="Makes data sets for learning from sessions, and scores programs by rewards.")
reward = typer.Typer(**FORM, help="Scores programs by the rewards that training uses.")
app.add_typer(reward, name="reward")


@reward.command()
@report_errors(interrupted="interrupted: nothing was scored")
def score(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A program's folder, or a file with ModelNew.")],
    reference: Annotated[Path, typer.Option("--reference", help="The PyTorch program that it must agree with.")],
    judge: Annotated[
        str | None, typer.Option("--judge", help="The rubric's chat model: openai:NAME, …, or mailbox:DIR. By default none.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--judge-option", help="KEY=VALUE for the judge, such as temperature=0.7.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="An OpenAI-compatible server of your own.")] = None,
    skill: Annotated[int, typer.Option("--skill", min=1, max=2, help="1: written from a task; 2: made from a program.")] = 1,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="A text file: what the author of skill 2 was told of its program.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cuda or sim (the CPU simulator).")] = "auto",
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Also time a CUDA graph and torch.compile, on a GPU.")
    ] = True,
    policy: Annotated[Policy, typer.Option("--policy", help="As for verify.")] = "stitched",
    precision: Annotated[Precision, typer.Option("--precision", help="What the program may compute in.")] = "reference",
    gpu_memory_gb: Annotated[float | None, typer.Option("--gpu-memory-gb", metavar="GB", help="Most of a GPU to use.")] = None,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Judges a program and shows every reward with its parts. Exit code 0: each has a value, 1: some have none, 3: the judge's
    replies are missing."""
    from stitchcuda.tools.device.device import resolve_target
    from stitchcuda.training.scoring import score_program

    for path, what in ((program, "program"), (reference, "reference"), (evidence, "evidence")):
        if path is not None and not path.exists():
            raise BadInput(f"there is no {what} {path}: give its path")
    target = resolve_target(device)
    settings = Settings(
        target=target, policy=policy, precision=precision, gpu_memory_gb=gpu_memory_gb,
        time_baselines=baselines and target == "cuda", model=judge or "builtin", base_url=base_url,
        options=model_options(option or []),
    )  # fmt: skip
    told = evidence.read_text(errors="replace") if evidence else ""
    try:
        scored = score_program(
            program, reference, settings, chat=_judge(settings), skill=cast("Skill", skill), evidence=told
        )  # fmt: skip
    except ReplyPending as pending:
        folder = Path(pending.request).parent
        complain(f"the judge has not answered yet: answer what is in {folder}, then give the same command again", as_json)
        return 3
    print(scored.model_dump_json() if as_json else "\n".join(_lines(scored)))
    return 1 if any(found.value is None for found in scored.rewards) else 0


def _judge(settings: Settings) -> Chat | None:
    """The judge model that the settings name; None for none."""
    from stitchcuda.engineers.selection import check_models, open_chat

    if settings.model == "builtin":
        return None
    check_models(settings)
    if settings.model == "mailbox:":
        raise BadInput("--judge mailbox: names no folder: write it like mailbox:DIR")
    return open_chat(settings.model, settings, Path(), "rubric")


def _lines(scored: Scored) -> list[str]:
    """A program's verdict, rubric and rewards for people."""
    from stitchcuda.cli.summary import verdict_lines
    from stitchcuda.training.rubric_record import SCORES

    judged, rubric = scored.judged, scored.judged.rubric
    lines = verdict_lines(judged.verdict) if judged.verdict else [f"not judged: {judged.why_not_judged}"]
    if rubric is not None and rubric.scores is not None:
        spread = rubric.spread
        named = (f"{name.replace('_', ' ')} {rubric.scores.score(name)} (spread {spread[name]})" for name in SCORES)
        lines.append(f"rubric by {rubric.judge}: {', '.join(named)}")
    elif rubric is not None:
        lines.append(f"rubric: no score ({rubric.no_score})")
    if rubric is not None:
        lines += [f"  veto: {why}" for why in rubric.vetoes]
        lines += [f"  set by facts: {why}" for why in rubric.limited]
    for found in scored.rewards:
        parts = ", ".join(f"{name} {part:.3g}" if isinstance(part, float) else f"{name}: {part}" for name, part in found.parts.items())
        value = f"no score ({found.no_score})" if found.value is None else f"{found.value:.4f}"
        lines.append(f"{found.name}  {value}{f'  [{parts}]' if parts else ''}")
    return lines
