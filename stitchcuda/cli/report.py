"""`stitchcuda report`: writes a session's HTML report, or the page that compares two sessions.

What is shown is decided in the room `report/`. `--json` prints one JSON object on stdout.

Where to look next: `report/report_facts.py` (what is read), `report/page.py` (what is written), `cli/console.py` (options).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stitchcuda.cli.console import AsJson, Checkpoint, Debug, Place, place, report_errors
from stitchcuda.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from stitchcuda.store import Workspace

Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Default: report.html in the session's folder of the workspace.")
]


@report_errors()
def report(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's name (see: stitchcuda sessions).")],
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="Another session: both are set side by side.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Also show it in the browser.")] = False,
    output: Output = None,
    workspace: Place = None, checkpoint: Checkpoint = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Writes a session's report, or a comparison of two, as one HTML file that opens offline."""
    path = write_report(session, other, output, place(workspace, checkpoint))
    print(json.dumps({"report": str(path)}) if as_json else path)
    if open_:
        open_in_browser(path)


def write_report(session: str, other: str | None, output: Path | None, workspace: Workspace) -> Path:
    """Writes the report of `session`, or its comparison with `other`, and returns the file's absolute path.

    `output`: by default a file in the session's folder. Raises BadInput for an unknown session or a path that cannot be
    written.
    """
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
    path.chmod(0o644)                      # the default is its owner only; a report is to be shown to others
    return path


def open_in_browser(path: Path) -> None:
    """Opens the file in the browser, or prints that there is none."""
    import webbrowser

    if not webbrowser.open(path.as_uri()):
        print(f"no browser could be opened: the report is {path}", file=sys.stderr)
