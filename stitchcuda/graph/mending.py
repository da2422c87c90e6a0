"""Before a session goes on: what it rests on is looked at, and where something is missing or damaged it goes back to the last
step at which all was whole, and says what was lost.

Nothing is thrown away: a ledger that is cut and a checkpoint file that cannot be read stay beside the new ones. What was not
damaged is not done again: attempts that the ledger has are taken over, replies come from the transcript.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.errors import Damaged
from stitchcuda.graph.checkpoints import FILE, Checkpoints, after, open_checkpoints
from stitchcuda.graph.standing import with_tuples
from stitchcuda.state import Attempt, Digest, State
from stitchcuda.workspace import SessionRecord, Store, Workspace
from stitchcuda.workspace.store import Whole


def mend(home: Workspace, record: SessionRecord) -> tuple[str, ...]:
    """What was found and done, a sentence each; none where all was whole. For the session's owner.

    Raises Damaged where nothing can be gone on from: the reference is lost.
    """
    seen = _Seen(home.store)
    said = [*_reference(home, record)]
    if not seen.has(record.source):
        raise Damaged(f"the source of session {record.name!r}'s reference is damaged: start it again with optimize")
    found = home.store.whole(record.name)
    kept = _kept(seen, found)
    said += found.damage
    lost = len(found.attempts) - len(kept.attempts)
    if lost:
        said.append(f"{_attempts(lost)} of session {record.name!r} cannot be read whole any more and will be made again")
    if lost or found.damage or len(kept.calls) < len(found.calls):
        home.store.cut(record.name, kept)
    said += _checkpoints(home, record.name, kept.attempts, seen)
    return tuple(said)


class _Seen:
    """Which artefacts are whole; each is looked at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[Digest, bytes | None] = {}

    def read(self, digest: Digest) -> bytes | None:
        if digest not in self._known:
            try:
                self._known[digest] = self._store.get(digest)
            except Damaged:
                self._known[digest] = None
        return self._known[digest]

    def has(self, digest: Digest | None) -> bool:
        return not digest or self.read(digest) is not None

    def tree(self, digest: Digest | None) -> bool:
        """A program with all its files."""
        if not digest:
            return True
        manifest = self.read(digest)
        return manifest is not None and all(map(self.has, json.loads(manifest)["files"].values()))


def _reference(home: Workspace, record: SessionRecord) -> Iterator[str]:
    """The reference, from the session's own copy where the artefact is damaged."""
    try:
        home.store.get(record.reference)
    except Damaged:
        copy = home.folder(record.name) / record.reference_name
        data = copy.read_bytes() if copy.is_file() else b""
        if hashlib.sha256(data).hexdigest() != record.reference:
            raise
        home.store.put(data)
        yield f"the reference was damaged and is restored from {copy}"


def _kept(seen: _Seen, found: Whole) -> Whole:
    """Attempts whose program, evidence and review are whole, as far as their parents are; and calls whose replies are."""
    whole: dict[str, Attempt] = {}
    for attempt in found.attempts:
        programs = seen.tree(attempt.program) and seen.tree(attempt.base)
        sound = programs and seen.has(attempt.evidence) and seen.has(attempt.review)
        if sound and (attempt.parent is None or attempt.parent in whole):
            whole[attempt.id] = attempt
    calls = tuple(call for call in found.calls if seen.has(call.reply))
    return Whole(tuple(whole.values()), calls)


def _checkpoints(home: Workspace, name: str, attempts: tuple[Attempt, ...], seen: _Seen) -> Iterator[str]:
    """Back to the last checkpoint that stands on what is whole."""
    path = home.folder(name) / FILE
    there = path.exists() or home.database is not None
    try:
        with home.told(), open_checkpoints(home, name) as saver:
            if isinstance(saver, Checkpoints):
                saver.look()
            try:
                latest = saver.get_tuple({"configurable": {"thread_id": name, "checkpoint_ns": ""}})
            except (ValueError, TypeError, KeyError, EOFError) as error:  # what is stored is not what was written
                if home.database is None:
                    raise sqlite3.DatabaseError(str(error) or type(error).__name__) from error
                saver.back_to(name, "")
                yield f"the checkpoints of session {name!r} cannot be read: {_again(attempts)}"
                return
            if latest is None:
                if attempts:
                    what = "hold nothing" if there else "are missing"
                    yield f"the checkpoints of session {name!r} {what}: {_again(attempts)}"
                return
            after(latest.checkpoint["id"])
            state = with_tuples(latest.checkpoint["channel_values"])
            known = {attempt.id for attempt in attempts}
            head = state.get("head")
            if not _rests(state, seen):
                saver.back_to(name, "")
                yield f"what session {name!r} was planned from is damaged: {_again(attempts)}"
            elif head and head not in known:
                milestones = saver.milestones(name)
                place = max((checkpoint for attempt, checkpoint in milestones.items() if attempt in known), default="")
                saver.back_to(name, place)
                number = sum(milestones.get(attempt.id, "~") <= place for attempt in attempts)
                yield f"session {name!r} goes on after attempt {number}" if place else f"session {name!r}: {_again(attempts)}"
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise                          # a full disk, a folder that may not be written to: told by the session
        number = next(n for n in range(1, 1_000_000) if not _aside(path, n).exists())
        for part in ("", "-wal", "-shm"):
            if (file := Path(f"{path}{part}")).exists():
                os.rename(file, Path(f"{_aside(path, number)}{part}"))
        yield f"{path} is damaged ({error}) and was kept as {_aside(path, number).name}: {_again(attempts)}"


def _rests(state: State, seen: _Seen) -> bool:
    """Whether all that the state itself names is whole."""
    baseline = state.get("baseline")
    named: tuple[Digest | None, ...] = (state.get("plan"), *state.get("plans", ()))
    if baseline:
        named += (baseline.capture, baseline.regions)
    return all(map(seen.has, named)) and seen.tree(state.get("first"))


def _again(attempts: tuple[Attempt, ...]) -> str:
    return f"it starts again and takes over {_attempts(len(attempts))} from its ledger" if attempts else "it starts again"


def _attempts(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.damaged{number}")

