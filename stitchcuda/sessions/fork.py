"""Forks a session: a new one that starts from an attempt of another, with other settings if they are given.

The record up to that attempt is the new session's too, and what its models were told and answered until then; nothing that came
later is. The graph's state is taken from the checkpoint that was kept for the attempt. The session that is forked stays as it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from stitchcuda.engineers.selection import check_models
from stitchcuda.errors import BadInput
from stitchcuda.graph.graph import build_graph, thread
from stitchcuda.graph.opening import check_settings, relative_mailboxes
from stitchcuda.sessions.session import Place, Session
from stitchcuda.state import Attempt, Call, State
from stitchcuda.store import Workspace
from stitchcuda.store.checkpoints import after, carry, open_checkpoints
from stitchcuda.store.session_snapshot import with_tuples


def fork(
    name: str,
    at: int | str | None = None,
    *,
    to: str | None = None,
    workspace: Place = None,
    settings: dict[str, Any] | None = None,
) -> Session:
    """The new session, which has not run yet: `resume` it.

    `at` is an attempt's number in the record (1 is the first), the beginning of its id, or 0 for the start; by default the
    last. `to` names the new session (default: `NAME-fork-` and a number), `settings` are those of `state.Settings` that change.
    Raises BadInput for an attempt that the record does not have.
    """
    home = Workspace.at(workspace, create=False)
    with home.store.adding():              # what is taken over stays, even if the session that is forked is removed now
        source = Session(home, home.record(name))
        walk = source.attempts()
        number = _number(name, walk, at)
        asked = check_settings(source.record.settings.model_dump() | (settings or {}))
        check_models(asked)
        asked = relative_mailboxes(asked, home.root) if settings and "model" in settings else asked
        record = source.record.anew(to or f"{name}-fork-", asked)
        place, values = _state_at(source, walk[number - 1]) if number else ("", None)
        calls = until(tuple(home.store.calls(name).values()), walk[:number])
        home.record(name)                  # still there: nothing was read of a half
        made = Session(home, home.create(record))
        try:
            with home.store.owning(made.name):
                for attempt in walk[:number]:
                    home.store.append(made.name, attempt)
                for call in calls:
                    home.store.record(made.name, call)
                if values is not None:
                    with (
                        home.told(),
                        open_checkpoints(home, name, reading=True) as theirs,
                        open_checkpoints(home, made.name) as saver,
                    ):
                        carry(theirs, name, saver, made.name, before=place)
                        after(place)
                        build_graph(saver).update_state(thread(made.name), _to_go_on(values, made), as_node="verifier")
        except BaseException:
            home.discard(made.name)
            raise
    return made


def until(calls: Sequence[Call], walk: Sequence[Attempt]) -> tuple[Call, ...]:
    """Of a transcript, what was said until the last of these attempts had its verdict."""
    about = {attempt.id[:16] for attempt in walk}
    last = max((at for at, call in enumerate(calls) if any(part in about for part in call.id.split("-"))), default=-1)
    return tuple(calls[: last + 1])


def _number(name: str, walk: Sequence[Attempt], at: int | str | None) -> int:
    """Of an attempt in the walk, 1 for the first; 0 for the start."""
    if at is None:
        return len(walk)
    text = str(at).strip().lower()
    if text.isdecimal() and int(text) <= len(walk):
        return int(text)
    found = [number for number, attempt in enumerate(walk, 1) if len(text) >= 4 and attempt.id.startswith(text)]
    if len(found) != 1:
        last = f"give a number from 0 (the start) to {len(walk)}, or an attempt's id" if walk else "it has none yet: give 0"
        raise BadInput(f"session {name!r} has no attempt {at}: {last} (see: stitchcuda show {name})")
    return found[0]


def _state_at(source: Session, attempt: Attempt) -> tuple[str, State]:
    """The checkpoint that was kept for an attempt, and the state right after its verdict."""
    with source.home.told(), open_checkpoints(source.home, source.name, reading=True) as saver:
        checkpoint = saver.milestones(source.name).get(attempt.id)
        if checkpoint is None:
            why = "another candidate of its step went on" if attempt.beside else "its checkpoint is not there any more"
            raise BadInput(f"session {source.name!r} cannot be forked at attempt {attempt.id[:8]} ({why}): choose another one")
        config = thread(source.name)
        config["configurable"]["checkpoint_id"] = checkpoint
        return checkpoint, with_tuples(build_graph(saver).get_state(config).values)


def _to_go_on(values: State, made: Session) -> State:
    """The state for the new session. Where the old one ended, the rules decide anew, by the new settings."""
    was, now = values["settings"], made.record.settings.model_copy(update={"target": values["settings"].target})
    changed: State = {
        "session": made.name, "settings": now, "report": None, "final": None, "baselines": None, "halt": None,
        "stop_reason": None,
    }  # fmt: skip
    if values.get("route") == "done":
        changed |= {"route": "next_task", "work": None}
    if (now.model, now.roles) != (was.model, was.roles):
        changed |= {"stage": "model", "started": values.get("attempts", 0), "unusable": 0, "route": "replan", "work": None}
    return cast(State, values | changed | {"drafts": None})
