"""Forks a session: makes a new one that starts from an attempt of another, with other settings if they are given.

The new session takes over the attempts up to that one and the calls of models until then, nothing later. The graph's state
comes from the checkpoint that was kept for the attempt. The forked session stays as it is.

Where to look next: `store/checkpoints.py` (`milestones`, copying), `sessions/replay.py` (another way to make a session anew).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from stitchcuda.engineers.selection import check_models
from stitchcuda.errors import BadInput
from stitchcuda.graph.graph import build_graph, thread
from stitchcuda.graph.opening import check_settings, relative_folders
from stitchcuda.sessions.session import Place, Session, new_session
from stitchcuda.state import Attempt, Call, State
from stitchcuda.store import Workspace
from stitchcuda.store.checkpoints import continue_ids_after, copy_checkpoints, open_checkpoints
from stitchcuda.store.session_snapshot import with_tuples


def fork(
    name: str, at: int | str | None = None, *, to: str | None = None, workspace: Place = None,
    settings: dict[str, Any] | None = None,
) -> Session:  # fmt: skip
    """Makes the new session and returns it. It has not run yet: `resume` it.

    `at` is an attempt's number in the record (1 is the first), the beginning of its id, or 0 for the start; by default the
    last. `to` names the new session (default: `NAME-fork-` and a number), `settings` are those of `state.Settings` that change.
    Raises BadInput for an attempt that the record does not have.
    """
    home = Workspace.at(workspace, create=False)
    with home.store.adding():              # artefacts stay, even if the forked session is removed meanwhile
        source = Session(home, home.record(name))
        walk = source.attempts()
        number = _number(name, walk, at)
        changed = check_settings(source.record.settings.model_dump() | (settings or {}))
        check_models(changed)
        changed = relative_folders(changed, home.root) if settings and "model" in settings else changed
        record = source.record.anew(to or f"{name}-fork-", changed)
        place, values = _state_at(source, walk[number - 1]) if number else ("", None)
        calls = calls_until(tuple(home.store.calls(name).values()), walk[:number])
        home.record(name)                  # raises if the session was removed while it was read
        with new_session(home, record, walk[:number], calls) as made:
            if values is not None:
                with open_checkpoints(home, name, reading=True) as theirs, open_checkpoints(home, made.name) as saver:
                    copy_checkpoints(theirs, name, saver, made.name, before=place)
                    continue_ids_after(place)
                    build_graph(saver).update_state(thread(made.name), _state_for(values, made), as_node="verifier")
    return made


def calls_until(calls: Sequence[Call], walk: Sequence[Attempt]) -> tuple[Call, ...]:
    """The calls of a transcript up to the last one that concerns one of these attempts (a call's id names its attempt)."""
    about = {attempt.id[:16] for attempt in walk}
    last = max((at for at, call in enumerate(calls) if any(part in about for part in call.id.split("-"))), default=-1)
    return tuple(calls[: last + 1])


def _number(name: str, walk: Sequence[Attempt], at: int | str | None) -> int:
    """The number in the walk that `at` means (see `fork`): 1 for the first attempt, 0 for the start. Raises BadInput."""
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
    """The id of the checkpoint that was kept for an attempt, and the state in it, right after the verdict. Raises BadInput."""
    with open_checkpoints(source.home, source.name, reading=True) as saver:
        checkpoint = saver.milestones(source.name).get(attempt.id)
        if checkpoint is None:
            why = "another candidate of its step went on" if attempt.beside else "its checkpoint is not there any more"
            raise BadInput(f"session {source.name!r} cannot be forked at attempt {attempt.id[:8]} ({why}): choose another one")
        config = thread(source.name)
        config["configurable"]["checkpoint_id"] = checkpoint
        return checkpoint, with_tuples(build_graph(saver).get_state(config).values)


def _state_for(values: State, made: Session) -> State:
    """The state for the new session. If the old one had ended there, the routes decide again, by the new settings."""
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
