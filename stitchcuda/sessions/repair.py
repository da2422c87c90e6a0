"""Repairs a session before it goes on: goes back to the last step at which nothing was missing or damaged.

What it rests on is known here for archives too.

Nothing is thrown away: a ledger that is cut and a checkpoint file that cannot be read stay beside the new ones. What was not
damaged is not done again: attempts that the ledger has are taken over, replies come from the transcript.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stitchcuda.counts import counted
from stitchcuda.errors import Damaged
from stitchcuda.state import Attempt, Call, Digest, State, Work, lineage
from stitchcuda.store import SessionRecord, Store, Workspace, remember, writing
from stitchcuda.store.checkpoints import Checkpoints, after, open_checkpoints
from stitchcuda.store.lines import aside
from stitchcuda.store.serializer import FILE
from stitchcuda.store.session_snapshot import standing
from stitchcuda.store.store import IntactRecords

if TYPE_CHECKING:
    from stitchcuda.store.postgres_checkpoints import PostgresCheckpoints


def mend(home: Workspace, record: SessionRecord) -> tuple[str, ...]:
    """What was found and done, a sentence each; none where all was whole. It stays in the transcript. For the session's owner.

    Raises Damaged where nothing can be gone on from: the reference is lost.
    """
    seen = CheckedArtefacts(home.store)
    said = [*_reference(home, record)]
    if not seen.has(record.source):
        raise Damaged(f"the source of session {record.name!r}'s reference is damaged: start it again with optimize")
    found = home.store.whole(record.name)
    kept, lost = kept_of(seen, found)
    said += [*found.damage, *lost]
    if found.damage or kept != found:
        with writing(home.folder(record.name)):
            home.store.cut(record.name, kept)
    said += _checkpoints(home, record.name, kept.attempts, seen)
    remember(home.store, record.name, said)
    return tuple(said)


class CheckedArtefacts:
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


def kept_of(seen: CheckedArtefacts, found: IntactRecords) -> tuple[IntactRecords, list[str]]:
    """Attempts whose program, evidence and review are whole, as far as their parents are, and calls; and what is lost. A call
    whose reply is lost stays as one that was paid for and not answered."""
    whole: dict[str, Attempt] = {}
    said = []
    for number, attempt in enumerate(found.attempts, 1):
        lacks = (
            "program" if not (seen.tree(attempt.program) and seen.tree(attempt.base))
            else "evidence" if not seen.has(attempt.evidence) else "" if seen.has(attempt.review) else "review"
        )  # fmt: skip
        if lacks:
            said.append(f"the {lacks} of attempt {number} ({attempt.id[:8]}) is missing or damaged")
        elif attempt.parent is None or attempt.parent in whole:
            whole[attempt.id] = attempt
    if lost := len(found.attempts) - len(whole):
        said.append(f"{counted(lost, 'attempt')} that stood on what is lost {'is' if lost == 1 else 'are'} made again")
    calls: list[Call] = []
    for call in found.calls:
        if seen.has(call.reply):
            calls.append(call)
            continue
        said.append(f"the reply to {call.id} is missing or damaged, and is asked for again where it is needed")
        if call.model:
            calls.append(call.model_copy(update={"id": f"{call.id}#lost", "reply": None, "outcome": "its reply was lost"}))
    return IntactRecords(tuple(whole.values()), tuple(calls), found.damage), said


def _checkpoints(home: Workspace, name: str, attempts: tuple[Attempt, ...], seen: CheckedArtefacts) -> Iterator[str]:
    """Back to the last checkpoint that stands on what is whole."""
    path = home.folder(name) / FILE
    there = path.exists() or home.database is not None
    try:
        with home.told(), open_checkpoints(home, name) as saver:
            if isinstance(saver, Checkpoints):
                saver.look()
            newest = saver.newest(name)
            if newest is not None:
                after(newest)
                yield from _back(saver, name, newest, attempts, seen)
            elif attempts:
                yield f"the checkpoints of session {name!r} {'hold nothing' if there else 'are missing'}: {_again(attempts)}"
    except Damaged as error:
        if home.database is not None:
            raise
        free = aside(path)
        with writing(path):
            for part in ("", "-wal", "-shm"):
                if (file := Path(f"{path}{part}")).exists():
                    os.rename(file, Path(f"{free}{part}"))
        yield f"{error}, and is kept as {free.name}: {_again(attempts)}"


def _back(
    saver: Checkpoints | PostgresCheckpoints, name: str, newest: str, attempts: tuple[Attempt, ...], seen: CheckedArtefacts
) -> Iterator[str]:
    known = {attempt.id: attempt for attempt in attempts}
    why = ""
    for place in (newest, *sorted(set(saver.milestones(name).values()) - {newest}, reverse=True), ""):
        if not place:
            saver.back_to(name, "")
            yield f"{why}: {_again(attempts)}"
            break
        try:
            state = standing(saver, name, place).state
            lacks = lack_of(state, known, seen)
        except Damaged:
            lacks = f"a checkpoint of session {name!r} is not what was written"
        why = why or lacks
        if lacks:
            continue
        if place != newest:
            saver.back_to(name, place)
            number = len(lineage(state.get("head"), known))
            left = f", and takes over {counted(len(known) - number, 'attempt')} from its ledger" if len(known) > number else ""
            yield f"{why}: session {name!r} goes on after {f'attempt {number}' if number else 'its baseline'}{left}"
        break


def lack_of(state: State, known: dict[str, Attempt], seen: CheckedArtefacts) -> str:
    """What a state names that is not whole; "" where all is."""
    head = state.get("head")
    if head and head not in known:
        return f"the ledger lacks attempt {head[:8]}"
    baseline = state.get("baseline")
    if baseline and not (seen.has(baseline.capture) and seen.has(baseline.regions) and seen.tree(state.get("first"))):
        return "what was captured of the reference is missing or damaged"
    if not (seen.has(state.get("plan")) and all(map(seen.has, state.get("plans", ())))):
        return "a plan is missing or damaged"
    if not seen.has(state.get("lessons")):
        return "what a plan was shown is missing or damaged"
    under_way: tuple[Work | None, ...] = (state.get("work"), *(state.get("drafts") or ()), *state.get("beside", ()))
    for work in filter(None, under_way):
        if not (seen.tree(work.program) and seen.has(work.docs) and seen.has(work.lessons)):
            return f"the draft under way ({work.task.id} #{work.ordinal}) is missing or damaged"
    return "" if seen.tree(state.get("program")) else "the program is missing or damaged"


def _again(attempts: tuple[Attempt, ...]) -> str:
    taken = f" and takes over {counted(len(attempts), 'attempt')} from its ledger" if attempts else ""
    return f"it starts again{taken}"
