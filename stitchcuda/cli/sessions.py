"""The commands for existing sessions: diff, fork, replay, rm, export, import. Everything is decided in the room `sessions/`.

Where to look next: `sessions/fork.py`, `sessions/archive.py` and their like, `cli/app.py` (`optimize`, `resume`, `show`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stitchcuda.cli.console import AsJson, Checkpoint, Debug, Place, place, print_table, report_errors
from stitchcuda.counts import counted

Name = Annotated[str, typer.Argument(metavar="SESSION", help="The session's name (see: stitchcuda sessions).")]
To = Annotated[str | None, typer.Option("--to", metavar="NAME", help="Names the new session.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    for command in (diff, fork, replay):
        app.command()(command)
    app.command("rm")(remove)
    app.command("export")(export)
    app.command("import")(import_)


@report_errors()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A session, or SESSION@N: as it was after attempt N; 0: the start.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Shows what two sessions were asked for, what they came to, and the difference of their programs."""
    from stitchcuda.cli.summary import comparison_line, comparison_table
    from stitchcuda.sessions.compare import compare

    found = compare(a, b, workspace=place(workspace, checkpoint))
    if as_json:
        print(found.model_dump_json())
        return
    print_table(comparison_table(found))
    print(comparison_line(found))
    for text in found.files.values():
        print(text, end="")


@report_errors()
def fork(
    session: Name,
    at: Annotated[
        str | None, typer.Option("--at", metavar="N", help="The attempt to go on from, by number; 0: the start.")
    ] = None,
    to: To = None,
    model: Annotated[str | None, typer.Option("--model", help="Another model, for all roles without one of their own.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="Its OpenAI-compatible server.")] = None,
    goal: Annotated[float | None, typer.Option("--goal", help="Another goal.")] = None,
    budget_usd: Annotated[float | None, typer.Option("--budget-usd", min=0, help="Another budget.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", min=1, help="Most programs to try.")] = None,
    workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Makes a new session that goes on from an attempt of another one; `resume` runs it."""
    from stitchcuda.sessions.fork import fork as forked

    given = {"model": model, "base_url": base_url, "goal": goal, "budget_usd": budget_usd, "max_attempts": max_attempts}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    home = place(workspace, checkpoint)
    made = forked(session, at, to=to, workspace=home, settings=changes)
    if as_json:
        print(made.outcome().model_dump_json())
    else:
        print(f"{made.name}: forked from {session}, {counted(len(made.attempts()), 'attempt')} taken over")
        print(f"next:    stitchcuda resume {made.name}{home.option}")


@report_errors()
def replay(
    session: Name,
    to: To = None,
    device: Annotated[str | None, typer.Option("--device", help="Run the tools on auto, cuda or sim.")] = None,
    workspace: Place = None, checkpoint: Checkpoint = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="One line per event, also in a terminal.")] = False,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Runs a session again by the replies in its record and says whether it came to the same. Exit code 1 where it did not."""
    from stitchcuda.sessions.progress import watch
    from stitchcuda.sessions.replay import replay as replayed

    with watch(plain=quiet or as_json) as view:
        found = replayed(session, to=to, device=device, workspace=place(workspace, checkpoint), on_event=view)
    if as_json:
        print(found.model_dump_json())
    else:
        what = f"{found.attempts} of {counted(found.of, 'attempt')}"
        print(f"{found.session}: the same as {session} ({what})" if found.same else f"{found.session}: {found.parts}")
    return 0 if found.same else 1


@report_errors()
def remove(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION...", help="Sessions to remove.")],
    workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Removes sessions for good, and what only they have used."""
    from stitchcuda.sessions.remove import remove as removed

    swept = removed(sessions, workspace=place(workspace, checkpoint))
    if as_json:
        print(swept.model_dump_json())
    elif swept.waits_for:
        print(f"removed; what nothing else uses goes with a later rm, since {swept.waits_for}")
    else:
        print(f"removed, with {counted(swept.artefacts, 'file')} that nothing else uses ({swept.bytes / 1e3:,.0f} kB)")


@report_errors()
def export(
    session: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: SESSION.stitch.tar.gz here.")
    ] = None,
    workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Writes a session as one file, for another workspace or a colleague."""
    import json

    from stitchcuda.sessions.archive import export as exported

    path = exported(session, output, workspace=place(workspace, checkpoint))
    size = path.stat().st_size
    print(json.dumps({"archive": str(path), "bytes": size}) if as_json else f"{path} ({size / 1e3:,.0f} kB)")


@report_errors()
def import_(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="What `stitchcuda export` has written.")],
    to: To = None,
    workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Adds the session of an archive to the workspace. It asks the models and servers that its record names: they are shown."""
    from stitchcuda.sessions.archive import import_ as imported

    home = place(workspace, checkpoint, create=True)
    made = imported(archive, to=to, workspace=home)
    settings = made.record.settings
    models = dict.fromkeys((settings.model, *(model for models in settings.roles.values() for model in models)))
    where = f" at {settings.base_url}" if settings.base_url else ""
    text = f"{made.name}: {made.status}, {counted(len(made.attempts()), 'attempt')}; asks {', '.join(models)}{where}"
    print(text, file=sys.stderr if as_json else sys.stdout)
    print(made.outcome().model_dump_json() if as_json else f"next:    stitchcuda show {made.name}{home.option}")
