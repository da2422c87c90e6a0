"""`stitchcuda train`: makes data sets from sessions, scores programs by rewards, serves rewards, runs stages of training on one
node, evaluates and exports what came of them, and writes runs of verl.

`--json` prints one JSON object on stdout; lines of progress go to stderr.

Where to look next: `training/data.py`, `training/scoring.py`, `training/reward_service/serve.py` (what the commands call),
`cli/training_stages.py` (the stages), `cli/training_results.py` (evaluation and export), `cli/verl_run.py` (runs of verl).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stitchcuda.cli import training_results, training_stages
from stitchcuda.cli.console import FORM, AsJson, Checkpoint, Debug, Place, complain, place, report_errors, tell
from stitchcuda.cli.model_flags import model_options
from stitchcuda.cli.options import Device, GpuMemory, PolicyOption, PrecisionOption
from stitchcuda.cli.verl_run import verl
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, ReplyPending
from stitchcuda.state import Settings

if TYPE_CHECKING:
    from stitchcuda.engineers.chat import Chat
    from stitchcuda.training.rewards import Skill
    from stitchcuda.training.scoring import Scored

app = typer.Typer(**FORM, help="Makes data sets from sessions, scores programs by rewards, and trains models.")
reward = typer.Typer(**FORM, help="Scores programs by the rewards that training uses.")
app.add_typer(reward, name="reward")
app.command()(verl)
app.add_typer(training_stages.app)
app.add_typer(training_results.app)


@app.command()
@report_errors(interrupted="interrupted: the folder has no manifest.json and is incomplete")
def data(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION...", help="Names of sessions (see: stitchcuda sessions).")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    workspace: Place = None, checkpoint: Checkpoint = None,
    form: Annotated[
        list[str] | None, typer.Option("--form", help="jsonl, trl or verl (parquet); again for several. Default: jsonl, trl.")
    ] = None,
    held_out: Annotated[
        list[Path] | None, typer.Option("--held-out", metavar="PATH", help="References never to train on; again for several.")
    ] = None,
    test_percent: Annotated[int, typer.Option("--test-percent", min=0, max=100, help="Clusters for testing.")] = 10,
    licence: Annotated[str, typer.Option("--licence", help="For the manifest: under which the references are.")] = "not stated",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Makes data sets of sessions: both skills, talks, states with returns; split by structure and checked for leaks."""
    from stitchcuda.training.data import FORMS, Form, make_data

    if unknown := sorted(set(form or ()) - set(FORMS)):
        raise BadInput(f"--form {unknown[0]!r} is not known: give {', '.join(FORMS)}")
    made = make_data(
        sessions, place(workspace, checkpoint), out, forms=cast(list[Form], form or ["jsonl", "trl"]), licence=licence,
        test_percent=test_percent, held_out=held_out or (), tell=tell,
    )  # fmt: skip
    if as_json:
        print(made.model_dump_json())
        return
    for file in made.files:
        print(f"{out / file.path}  {counted(file.rows, 'row')}")
    print(f"left out: {counted(made.duplicates, 'duplicate')}, {counted(made.leaks, 'row')} that show a test reference")
    if not any(session.split == "test" for session in made.sessions):
        print("no session is in the test split: give more of them, or a larger --test-percent")


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
    device: Device = "auto",
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Also time a CUDA graph and torch.compile, on a GPU.")
    ] = True,
    policy: PolicyOption = "stitched",
    precision: PrecisionOption = "reference",
    gpu_memory_gb: GpuMemory = None,
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


@reward.command()
@report_errors(interrupted="stopped: jobs without an answer go on when the server is started again")
def serve(
    tasks: Annotated[Path, typer.Option("--tasks", metavar="PATH", help="A .jsonl file, a folder of references, or one.")],
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="The folder for the queue and the answers.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = 8711,
    host: Annotated[str, typer.Option("--host", help="The address to listen on; others than this machine's need a token.")]
    = "127.0.0.1",
    device: Device = "auto",
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
        parts = ", ".join(
            f"{name} {part:.3g}" if isinstance(part, float) else f"{name}: {part}" for name, part in found.parts.items()
        )
        value = f"no score ({found.no_score})" if found.value is None else f"{found.value:.4f}"
        lines.append(f"{found.name}  {value}{f'  [{parts}]' if parts else ''}")
    return lines
