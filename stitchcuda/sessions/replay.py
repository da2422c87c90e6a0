"""Replays a session from its recorded replies in a new session, and compares the attempts and the program of the two.

No model is called and nobody is waited for: where the record ends, the replay ends. Tools run again: programs are built,
checked and timed on this machine.

Where to look next: `engineers/recorded_chat.py` (the recorded replies), `sessions/compare.py` (compares any two sessions).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from stitchcuda.engineers.recorded_chat import Unrecorded
from stitchcuda.engineers.selection import Engineers, engineers_for
from stitchcuda.errors import StitchError
from stitchcuda.nodes.context import Event, SessionTools
from stitchcuda.sessions.session import Place, Session, new_session
from stitchcuda.state import Attempt, Record
from stitchcuda.store import Workspace
from stitchcuda.store.store import REPAIR


class Replayed(Record):
    """The result of a replay."""

    session: str                           # name of the new session
    attempts: int                          # number of attempts in the replay
    of: int                                # number of attempts in the record
    same: bool                             # each attempt's program, verdict and route are the same, and the last program
    parts: str = ""                        # the first difference, one sentence; "" if there is none


def replay(
    name: str, *, to: str | None = None, device: str | None = None, engineer: Engineers | None = None,
    tools: SessionTools | None = None, workspace: Place = None, on_event: Callable[[Event], None] | None = None,
) -> Replayed:  # fmt: skip
    """Runs the session again as `to` (default: `NAME-replay-` and a number).

    `engineer` replaces the recorded replies, `tools` those of this machine. Raises what `Session.run` raises.
    """
    home = Workspace.at(workspace, create=False)
    source = Session(home, home.record(name))
    record = source.record.anew(to or f"{name}-replay-", source.record.settings)
    with home.store.adding():
        before, final, calls = source.attempts(), source.state(), home.store.calls(name)
        with new_session(home, record, (), [call for call in calls.values() if not call.id.startswith(REPAIR)]) as made:
            pass
    if engineer is None:
        engineer = engineers_for(record.settings, store=home.store, session=made.name, root=home.root, recorded=True)

    def listen(event: Event) -> None:
        begins = event["kind"] == "node" and event["phase"] == "start" and event["node"] not in ("baseline", "report")
        if begins and not final.get("report") and len(made.attempts()) >= len(before):
            raise _Over
        if on_event is not None:
            on_event(event)

    ended = ""
    try:
        made.run(device=device, engineer=engineer, tools=tools, on_event=listen)
    except _Over:
        pass
    except Unrecorded as error:
        ended = str(error)
    except StitchError:
        if not made.state().get("baseline"):
            home.discard(made.name)        # it failed before the first attempt
        raise
    now = made.attempts()
    parts = _describe_difference(before, now, ended)
    if not parts and final.get("report") and final.get("program") != made.state().get("program"):
        parts = "all attempts are the same, the programs are not"
    return Replayed(session=made.name, attempts=len(now), of=len(before), same=not parts, parts=parts)


class _Over(BaseException):
    """The replay has reached the end of a record without a report. Like Ctrl-C it is no failure: the new session is parked."""


def _describe_difference(before: tuple[Attempt, ...], now: tuple[Attempt, ...], ended: str) -> str:
    """The first difference of two records, one sentence; "" if they are the same. `ended`: why the replay ended early."""
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
                why = " (a kernel of another version may differ in comments)" if what == "has the program" else ""
                return f"attempt {number} {what} {is_}, in the record {was}{why}"
    return ""
