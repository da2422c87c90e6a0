"""Defines the main commands: optimize, resume, show, sessions, verify, profile and doctor. Every decision is made below it.

`--json` prints exactly one JSON object on stdout; all else goes to stderr. Exit codes: 0 accepted or nothing to do, 1
ended without (or refused), 2 bad input or unavailable, 3 parked, 130 interrupted, 143 by SIGTERM, 129 by SIGHUP.

Where to look next: `sessions/session.py` (what is called), `cli/summary.py` (what is printed), `cli/console.py` (options).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from stitchcuda.cli import agent, bench, docs, memory, tasks, train
from stitchcuda.cli import report as report_commands
from stitchcuda.cli import sessions as session_commands
from stitchcuda.cli.console import FORM, AsJson, Checkpoint, Debug, Place, complain, place, print_table, report_errors
from stitchcuda.cli.model_flags import choose_model, model_options, models_by_role
from stitchcuda.cli.options import (
    ATTEMPTS,
    USD,
    Device,
    EffortOption,
    GpuMemory,
    GpuSeconds,
    Minutes,
    PolicyOption,
    PrecisionOption,
    Quiet,
    Tokens,
)
from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Approval

app = typer.Typer(**FORM, help="Turns a PyTorch program into a faster, verified, end-to-end GPU program.")

session_commands.add_to(app)
app.command()(report_commands.report)
app.add_typer(agent.app, name="agent")
app.add_typer(bench.app, name="bench")
app.add_typer(docs.app, name="docs")
app.add_typer(memory.app, name="memory")
app.add_typer(tasks.app, name="tasks")
app.add_typer(train.app, name="train")

Reference = Annotated[Path, typer.Argument(metavar="REF", help="A file with Model, get_inputs() and get_init_inputs().")]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="The session's name (see: stitchcuda sessions).")]


@app.command()
@report_errors()
def optimize(
    reference: Reference,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="builtin, openai:NAME, azure:, anthropic:, google:NAME, mailbox:DIR, or react:openai:NAME (an agent with "
            "tools). Again for a role: coder=openai:NAME.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--model-option", help="KEY=VALUE for the chat model, such as temperature=0.7.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="An OpenAI-compatible server of your own.")] = None,
    device: Device = "auto",
    predict_for: Annotated[
        str | None,
        typer.Option("--predict-for", metavar="GPU", help="What the simulator's predictions are for: h200, h100, a100, l4, …"),
    ] = None,
    goal: Annotated[float | None, typer.Option("--goal", help="Stop at this speed-up, such as 1.5.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Names the session.")] = None,
    workspace: Place = None, checkpoint: Checkpoint = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="A chat model starts from nothing, not from the built-in engineer's program.")
    ] = False,
    candidates: Annotated[int, typer.Option("--candidates", min=1, help="Drafts a step; the best goes on.")] = 1,
    approve: Annotated[
        list[str] | None, typer.Option("--approve", metavar="plan|code", help="Park until you have seen it; again for both.")
    ] = None,
    budget_usd: Annotated[float, USD] = 5.0,
    max_tokens: Tokens = None, max_gpu_s: GpuSeconds = None,
    max_attempts: Annotated[int, ATTEMPTS] = 30,
    max_minutes: Minutes = None, gpu_memory_gb: GpuMemory = None,
    baselines: Annotated[bool, typer.Option("--baselines", help="Also time a CUDA graph and torch.compile (minutes).")] = False,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Also look for memory errors with compute-sanitizer.")] = False,
    policy: PolicyOption = "stitched", precision: PrecisionOption = "reference", effort: EffortOption = "medium",
    as_json: AsJson = False, quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Plans, writes and verifies CUDA for a PyTorch program, task by task."""
    from stitchcuda.sessions import session as sessions
    from stitchcuda.sessions.progress import watch

    named, roles = models_by_role(model or [])
    chosen, why = choose_model(named, base_url)
    if not is_there(reference, "reference"):
        raise BadInput(f"there is no file {reference}: give the path of a Python file with Model and get_inputs()")
    if reference.is_dir():
        raise BadInput(f"{reference} is a folder: give the path of a Python file with Model and get_inputs()")
    with watch(plain=quiet or as_json) as view:
        view.say(f"device: {describe_device(device, predict_for)}; engineer: {why}")
        done = sessions.optimize(
            reference, model=chosen, roles=roles, options=model_options(option or []), base_url=base_url,
            from_scratch=from_scratch, candidates=candidates, approve=cast(list[Approval], approve or []), device=device,
            predict_for=predict_for, goal=goal, session=session, workspace=place(workspace, checkpoint, create=True),
            budget_usd=budget_usd, max_tokens=max_tokens, max_gpu_s=max_gpu_s, max_attempts=max_attempts,
            max_minutes=max_minutes, gpu_memory_gb=gpu_memory_gb, time_baselines=baselines, sanitize=sanitize,
            policy=policy, precision=precision, effort=effort, on_event=view, progress=False,
        )  # fmt: skip
    return finish(done, as_json)


@app.command()
@report_errors()
def resume(
    session: Name,
    device: Annotated[
        str | None, typer.Option("--device", help="Go on with auto, cuda or sim, or elsewhere: only read replies.")
    ] = None,
    workspace: Place = None, checkpoint: Checkpoint = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for whoever runs it; take over when that ends or dies.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Go on with the plan or drafts that wait for your word.")] = False,
    edit: Annotated[
        list[Path] | None, typer.Option("--edit", metavar="PATH", help="Go on with this plan's file or draft's folder instead.")
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Ask for another plan, with this for the planner.")] = None,
    budget_usd: Annotated[float | None, USD] = None,
    max_tokens: Tokens = None, max_gpu_s: GpuSeconds = None,
    max_attempts: Annotated[int | None, ATTEMPTS] = None,
    max_minutes: Minutes = None,
    as_json: AsJson = False, quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Goes on with a session where it stopped, with other budgets if they are given, and with your word if it waits for one."""
    from stitchcuda.graph.approval import answers_from_options
    from stitchcuda.sessions import session as sessions
    from stitchcuda.sessions.progress import watch

    home = place(workspace, checkpoint)
    answer = None
    if accept or edit or comment:
        waiting = sessions.Session.open(session, home).waiting
        answer = answers_from_options(waiting, accept=accept, edited=edit or (), comment=comment)
    with watch(plain=quiet or as_json) as view:
        done = sessions.resume(
            session, answer=answer, workspace=home, wait=wait, device=device, budget_usd=budget_usd, max_tokens=max_tokens,
            max_gpu_s=max_gpu_s, max_attempts=max_attempts, max_minutes=max_minutes, on_event=view, progress=False,
        )  # fmt: skip
    return finish(done, as_json)


@app.command()
@report_errors()
def sessions(workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """Lists the workspace's sessions."""
    from stitchcuda.cli.summary import sessions_tables
    from stitchcuda.sessions.session import outcomes

    found, damaged = outcomes(place(workspace, checkpoint))
    if as_json:
        print(json.dumps({"sessions": [outcome.model_dump(mode="json") for _, outcome in found], "damaged": damaged}))
        return
    for table in sessions_tables(found, damaged):
        print_table(table)


@app.command()
@report_errors()
def show(
    session: Name,
    workspace: Place = None, checkpoint: Checkpoint = None,
    everything: Annotated[bool, typer.Option("--all", help="Every task and attempt, not the latest alone.")] = False,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Shows a session's tasks, attempts, routes and errors."""
    from stitchcuda.cli.summary import session_tables, summary
    from stitchcuda.sessions.session import Session

    found = Session.open(session, place(workspace, checkpoint))
    with found.read_once():
        if as_json:
            print(found.outcome().model_dump_json())
            return
        for table in session_tables(found, everything=everything):
            print_table(table)
        print(summary(found, shown=True))


@app.command()
@report_errors(interrupted="interrupted: nothing was judged")
def verify(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A program's folder, or a file with ModelNew.")],
    reference: Annotated[Path, typer.Option("--reference", help="The PyTorch program that it must agree with.")],
    device: Device = "auto", policy: PolicyOption = "stitched", precision: PrecisionOption = "reference",
    gpu_memory_gb: GpuMemory = None, as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Judges a program against its reference. Exit code 0: accepted, 1: refused, 2: could not judge."""
    from stitchcuda.cli.summary import verdict_lines
    from stitchcuda.tools.device.device import resolve_target
    from stitchcuda.verify.api import verify as judge

    for path, what in ((program, "program"), (reference, "reference")):
        if not is_there(path, what):
            form = "a file or a program's folder" if what == "program" else "its file"
            raise BadInput(f"there is no {what} {path}: give the path of {form}")
    target = resolve_target(device)
    verdict = judge(
        program, reference, target=target, policy=policy, precision=precision, gpu_memory_gb=gpu_memory_gb
    )  # fmt: skip
    if as_json:
        print(verdict.model_dump_json())
    else:
        print("\n".join(verdict_lines(verdict)))
    return 0 if verdict.accepted else 1


@app.command()
@report_errors(interrupted="interrupted: nothing was profiled")
def profile(
    subject: Annotated[Path, typer.Argument(metavar="REF_OR_PROGRAM", help="A reference, or a program (file or folder).")],
    reference: Annotated[Path | None, typer.Option("--reference", help="The reference of a program: both are shown.")] = None,
    counters: Annotated[bool, typer.Option("--counters", help="Also read hardware counters of the longest kernels.")] = False,
    device: Device = "auto",
    precision: PrecisionOption = "reference",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Shows where the time of a call goes: regions, kernels, gaps, host. Needs a GPU."""
    from stitchcuda.compiler.capture.op_graph import OpGraph
    from stitchcuda.state import Settings
    from stitchcuda.tools.device.device import device_facts, resolve_target
    from stitchcuda.tools.profile import profile_report
    from stitchcuda.verify.api import builds_folder
    from stitchcuda.verify.client import Judge

    for path in filter(None, (subject, reference)):
        if not is_there(path, "file"):
            raise BadInput(f"there is no {path}: give the path of a reference, or of a program and --reference")
    if reference is None and is_program(subject):
        raise BadInput(f"{subject} is a program: add --reference REF, the file that it was made from")
    if resolve_target(device) != "cuda":
        raise Unavailable("a profile needs an NVIDIA GPU; the simulator has no time to show")
    program = subject if reference else None
    settings, facts = Settings(target="cuda", precision=precision), device_facts("cuda", measure=True)
    with Judge(reference or subject, settings, cache=builds_folder(), arch=facts.arch) as judge:
        graph = OpGraph.model_validate_json(judge.baseline().capture)
        report = profile_report.profile(
            judge, graph, program, name=subject.name, device=facts, precision=precision, counters=counters
        )
    print(report.model_dump_json() if as_json else profile_report.text(report))


@app.command()
@report_errors()
def doctor(workspace: Place = None, as_json: AsJson = False, debug: Debug = False) -> int:
    """Says what this machine can do, and what to do about the rest. Exit code 2 when something needed is missing."""
    from stitchcuda.cli.summary import checks_table
    from stitchcuda.engineers.agents.agent_presets import PRESETS
    from stitchcuda.tools.doctor.agents import check_agents
    from stitchcuda.tools.doctor.doctor import REQUIRED, examine
    from stitchcuda.tools.doctor.finding import run_check

    checks = [*examine(workspace), *run_check("agents", lambda: check_agents(PRESETS))]
    if as_json:
        print(json.dumps({"checks": [check.model_dump() for check in checks]}))
    else:
        print_table(checks_table(checks))
    return 0 if all(check.ok for check in checks if check.name in REQUIRED) else 2


def is_there(path: Path, what: str) -> bool:
    """Whether the file or folder exists. Raises `BadInput` if that cannot be found out, and for pipes and devices."""
    try:
        there = path.exists()
        plain = path.is_file() or path.is_dir()
    except OSError as error:
        raise BadInput(f"the {what} {path} cannot be looked at ({error.strerror}): give another path") from error
    if there and not plain:
        raise BadInput(f"the {what} {path} is neither a file nor a folder: give the path of one")
    return there


def is_program(path: Path) -> bool:
    """Whether the path is a program, not a reference: a folder, or a file that defines ModelNew. Raises `BadInput`."""
    try:
        return path.is_dir() or "class ModelNew" in path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"the file {path} cannot be read ({error.strerror}): give one that can") from error


def describe_device(device: str, predict_for: str | None = None) -> str:
    """What programs will run on, in words for people. Raises BadInput or Unavailable for a device that cannot be used."""
    from stitchcuda.tools.device.device import device_facts, resolve_target
    from stitchcuda.tools.device.nvidia_smi import first_gpu

    target = resolve_target(device)
    if target == "cuda":
        return f"{device_facts(target).name} (programs are timed against eager there)"
    missing = first_gpu()[1] if shutil.which("nvidia-smi") else "no NVIDIA driver found"
    reason = "as asked" if device == "sim" else missing
    gpu = device_facts(target, predict_for=predict_for).name
    return f"simulator ({reason}: programs are checked for correctness, speed-ups are predictions for {gpu})"


def finish(session: Any, as_json: bool) -> int:
    """Prints a session's result and returns the exit code."""
    from stitchcuda.cli.summary import summary

    with session.read_once():
        outcome = session.outcome()
        print(outcome.model_dump_json() if as_json else summary(session))
    if outcome.accepted or outcome.status == "nothing_to_do":
        return 0
    if outcome.status == "parked":
        return 3
    return 1


def main() -> None:
    """The command line. A wrong option or argument is one sentence too, and an object with --json."""
    try:
        sys.exit(app(standalone_mode=False))
    except Exception as error:
        # typer has its own copy of click or uses the installed one: usage errors of both have this method.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        text = str(format_message()).strip()
        if text.startswith("Usage:"):      # no command at all: the help is the answer
            print(text, file=sys.stderr)
        else:
            command = getattr(getattr(error, "ctx", None), "command_path", None) or "stitchcuda"
            complain(f"{' '.join(text.split()).rstrip('.')}; see {command} --help", "--json" in sys.argv)
        sys.exit(StitchError.exit_code)
