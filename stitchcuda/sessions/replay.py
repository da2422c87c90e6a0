"""Replays a session from its recorded replies and compares what comes of it with what the session came to.

Nobody is asked and nobody is waited for: where the record ends, the replay ends. What the tools find is found anew.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from stitchcuda.engineers.recorded_chat import Unrecorded
from stitchcuda.engineers.selection import Engineers, engineers_for
from stitchcuda.errors import StitchError
from stitchcuda.nodes.context import Event, SessionTools
from stitchcuda.sessions.session import Place, Session
from stitchcuda.state import Attempt, Record
from stitchcuda.store import Workspace
from stitchcuda.store.store import MENDED


class Replayed(Record):
    """What came of a replay."""

    session: str                           # the new session
    attempts: int                          # that were made again
    of: int                                # that the record has
    same: bool                             # each attempt's program, verdict and route, and the program it ended with
    parts: str = ""                        # where the two part, one sentence


def replay(
    name: str,
    *,
    to: str | None = None,
    device: str | None = None,
    engineer: Engineers | None = None,
    tools: SessionTools | None = None,
    workspace: Place = None,
    on_event: Callable[[Event], None] | None = None,
) -> Replayed:
    """Runs the session again as `to` (default: `NAME-replay-` and a number).

    `engineer` and `tools` take the place of the record's replies and of what this machine has.
    """
    home = Workspace.at(workspace, create=False)
    source = Session(home, home.record(name))
    record = source.record.anew(to or f"{name}-replay-", source.record.settings)
    with home.store.adding():
        before, came_to, calls = source.attempts(), source.state(), home.store.calls(name)
        made = Session(home, home.create(record))
        with home.store.owning(made.name):
            for call in calls.values():
                if not call.id.startswith(MENDED):  # the other's damage
                    home.store.record(made.name, call)
    if engineer is None:
        engineer = engineers_for(record.settings, store=home.store, session=made.name, root=home.root, recorded=True)

    def heard(event: Event) -> None:
        begins = event["kind"] == "node" and event["phase"] == "start" and event["node"] not in ("baseline", "report")
        if begins and not came_to.get("report") and len(made.attempts()) >= len(before):
            raise _Over
        if on_event is not None:
            on_event(event)

    ended = ""
    try:
        made.run(device=device, engineer=engineer, tools=tools, on_event=heard)
    except _Over:
        pass
    except Unrecorded as error:
        ended = str(error)
    except StitchError:
        if not made.state().get("baseline"):
            home.discard(made.name)        # nothing was made again
        raise
    now = made.attempts()
    parts = _parting(before, now, ended)
    if not parts and came_to.get("report") and came_to.get("program") != made.state().get("program"):
        parts = "all attempts are the same, the programs are not"
    return Replayed(session=made.name, attempts=len(now), of=len(before), same=not parts, parts=parts)


class _Over(BaseException):
    """The session that is replayed had not gone on from here; as Ctrl-C, it is no failure of the new one."""


def _parting(before: tuple[Attempt, ...], now: tuple[Attempt, ...], ended: str) -> str:
    """Where two records part, one sentence; "" where they do not."""
    for number, (first, other) in enumerate(zip_longest(before, now), 1):
        if first is None:
            return f"the replay made more attempts than the record has: {number} is {other.task} #{other.ordinal}"
        if other is None:
            return f"the replay ended after attempt {number - 1} of {len(before)}" + (f": {ended}" if ended else "")
        for what, was, is_ in (
            ("works on", f"{first.task} #{first.ordinal}", f"{other.task} #{other.ordinal}"),
            ("has the program", first.program[:12], other.program[:12]),
            ("is", "correct" if first.correct else "wrong", "correct" if other.correct else "wrong"),
            ("goes on with", first.route, other.route),
        ):
            if was != is_:
                return f"attempt {number} {what} {is_}, in the record {was}"
    return ""
