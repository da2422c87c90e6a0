"""`stitchcuda report`: writes a session's HTML report, or the page that compares two sessions.

Parses, calls, writes, prints; what is shown is decided in `report/` and gathered in `report/report_facts.py`. `--json` prints
one JSON object on stdout. `cli/app.py` mounts `report`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stitchcuda.cli.console import AsJson, Debug, Kept, Place, place, run
from stitchcuda.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from stitchcuda.store import Workspace

Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Default: report.html in the session's folder of the workspace.")
]


def report(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's name (see: stitchcuda sessions).")],
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="Another session: both are set side by side.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Also show it in the browser.")] = False,
    output: Output = None,
    workspace: Place = None,
    checkpoint: Kept = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Writes a session's report, or a comparison of two, as one HTML file that opens offline."""

    def work() -> None:
        path = written(session, other, output, place(workspace, checkpoint))
        print(json.dumps({"report": str(path)}) if as_json else path)
        if open_:
            show(path)

    run(work, debug, as_json)


def written(session: str, other: str | None, output: Path | None, workspace: Workspace) -> Path:
    """Writes the page and returns its absolute path. Raises BadInput for a session or a place that cannot be."""
    from stitchcuda.report.page import comparison_page, session_page
    from stitchcuda.report.report_facts import findings_of
    from stitchcuda.sessions.session import Session
    from stitchcuda.store import write_atomically

    if output is not None and output.is_dir():
        raise BadInput(f"--output {output} is a folder: name a file, such as {output / 'report.html'}")
    first = Session.open(session, workspace)
    if other is None:
        page, name = session_page(findings_of(first)), "report.html"
    else:
        second = Session.open(other, workspace)
        page = comparison_page(findings_of(first), findings_of(second), first.home.store)
        name = f"comparison-{second.name}.html"
    path = output.expanduser().absolute() if output else first.folder / name
    try:
        write_atomically(path, page)
    except (BadInput, Unavailable) as error:
        why = str(error).partition(": ")[0]
        raise type(error)(f"{why}: name another file with --output") from error
    path.chmod(0o644)                      # a temporary file is its owner's alone; a report is to be shown around
    return path


def show(path: Path) -> None:
    """Opens the file in the browser; where there is none, says so: the file is written all the same."""
    import webbrowser

    if not webbrowser.open(path.as_uri()):
        print(f"no browser could be opened: the report is {path}", file=sys.stderr)
