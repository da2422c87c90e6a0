"""Repairs a session before it goes on: rolls back to the last checkpoint for which nothing is missing or damaged.

No work is lost or repeated without need: a shortened ledger and an unreadable checkpoint file stay beside the new ones,
attempts that the ledger still has are taken over, and replies come from the transcript. What a session rests on is decided in
`keep_intact` and `find_missing`.

Where to look next: `sessions/running.py` (who calls it), `sessions/archive.py` (who checks the same), `store/checkpoints.py`.
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
from stitchcuda.store import SessionRecord, Store, Workspace, record_repairs, writing
from stitchcuda.store.checkpoints import Checkpoints, continue_ids_after, open_checkpoints
from stitchcuda.store.lines import damaged_path
from stitchcuda.store.serializer import FILE
from stitchcuda.store.session_snapshot import read_snapshot
from stitchcuda.store.store import IntactRecords

if TYPE_CHECKING:
    from stitchcuda.store.postgres_checkpoints import PostgresCheckpoints


def repair(home: Workspace, record: SessionRecord) -> tuple[str, ...]:
    """Repairs a session and returns a sentence for each thing found and done; they are noted in its transcript too. For its
    owner.

    Raises Damaged if the reference or its source is lost, without which a session cannot go on.
    """
    seen = CheckedArtefacts(home.store)
    repairs = [*_restore_reference(home, record)]
    if not seen.has(record.source):
        raise Damaged(f"the source of session {record.name!r}'s reference is damaged: start it again with optimize")
    found = home.store.readable_records(record.name)
    kept, lost = keep_intact(seen, found)
    repairs += [*found.damage, *lost]
    if found.damage or kept != found:
        with writing(home.folder(record.name)):
            home.store.replace_records(record.name, kept)
    repairs += _repair_checkpoints(home, record.name, kept.attempts, seen)
    record_repairs(home.store, record.name, repairs)
    return tuple(repairs)


class CheckedArtefacts:
    """Tells which artefacts are intact, and caches their bytes: each is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[Digest, bytes | None] = {}

    def read(self, digest: Digest) -> bytes | None:
        """The artefact's bytes; None if it is missing or damaged."""
        if digest not in self._known:
            try:
                self._known[digest] = self._store.get(digest)
            except Damaged:
                self._known[digest] = None
        return self._known[digest]

    def has(self, digest: Digest | None) -> bool:
        """Whether the artefact is intact; True for None and "", which name none."""
        return not digest or self.read(digest) is not None

    def has_program(self, digest: Digest | None) -> bool:
        """Whether a program is intact: its manifest and all files that it lists."""
        if not digest:
            return True
        manifest = self.read(digest)
        return manifest is not None and all(map(self.has, json.loads(manifest)["files"].values()))


def _restore_reference(home: Workspace, record: SessionRecord) -> Iterator[str]:
    """Restores a damaged artefact of the reference from the copy in the session's folder. Raises Damaged if that differs
    too."""
    try:
        home.store.get(record.reference)
    except Damaged:
        copy = home.folder(record.name) / record.reference_name
        data = copy.read_bytes() if copy.is_file() else b""
        if hashlib.sha256(data).hexdigest() != record.reference:
            raise
        home.store.put(data)
        yield f"the reference was damaged and is restored from {copy}"


def keep_intact(seen: CheckedArtefacts, found: IntactRecords) -> tuple[IntactRecords, list[str]]:
    """The attempts whose program, evidence and review are intact, and whose parents are; and the calls. Also a sentence for
    each that is lost. A call whose reply is lost stays, as one that was paid for and not answered."""
    whole: dict[str, Attempt] = {}
    lost = []
    for number, attempt in enumerate(found.attempts, 1):
        missing = (
            "program" if not (seen.has_program(attempt.program) and seen.has_program(attempt.base))
            else "evidence" if not seen.has(attempt.evidence) else "" if seen.has(attempt.review) else "review"
        )  # fmt: skip
        if missing:
            lost.append(f"the {missing} of attempt {number} ({attempt.id[:8]}) is missing or damaged")
        elif attempt.parent is None or attempt.parent in whole:
            whole[attempt.id] = attempt
    if number := len(found.attempts) - len(whole):
        lost.append(f"{counted(number, 'attempt')} that stood on what is lost {'is' if number == 1 else 'are'} made again")
    calls: list[Call] = []
    for call in found.calls:
        if seen.has(call.reply):
            calls.append(call)
            continue
        lost.append(f"the reply to {call.id} is missing or damaged, and is asked for again where it is needed")
        if call.model:
            calls.append(call.model_copy(update={"id": f"{call.id}#lost", "reply": None, "outcome": "its reply was lost"}))
    return IntactRecords(tuple(whole.values()), tuple(calls), found.damage), lost


def _repair_checkpoints(home: Workspace, name: str, attempts: tuple[Attempt, ...], seen: CheckedArtefacts) -> Iterator[str]:
    """Rolls back to the last intact checkpoint, or moves an unreadable file aside; gives a sentence for what was done."""
    path = home.folder(name) / FILE
    there = path.exists() or home.database is not None
    try:
        with open_checkpoints(home, name) as saver:
            if isinstance(saver, Checkpoints):
                saver.check_file()
            newest = saver.newest(name)
            if newest is not None:
                continue_ids_after(newest)
                yield from _roll_back(saver, name, newest, attempts, seen)
            elif attempts:
                yield f"the checkpoints of session {name!r} {'hold nothing' if there else 'are missing'}: {_again(attempts)}"
    except Damaged as error:
        if home.database is not None:
            raise
        free = damaged_path(path)
        with writing(path):
            for part in ("", "-wal", "-shm"):
                if (file := Path(f"{path}{part}")).exists():
                    os.rename(file, Path(f"{free}{part}"))
        yield f"{error}, and is kept as {free.name}: {_again(attempts)}"


def _roll_back(
    saver: Checkpoints | PostgresCheckpoints, name: str, newest: str, attempts: tuple[Attempt, ...], seen: CheckedArtefacts
) -> Iterator[str]:
    known = {attempt.id: attempt for attempt in attempts}
    why = ""
    for place in (newest, *sorted(set(saver.milestones(name).values()) - {newest}, reverse=True), ""):
        if not place:
            saver.roll_back(name, "")
            yield f"{why}: {_again(attempts)}"
            break
        try:
            state = read_snapshot(saver, name, place).state
            missing = find_missing(state, known, seen)
        except Damaged:
            missing = f"a checkpoint of session {name!r} is not what was written"
        why = why or missing
        if missing:
            continue
        if place != newest:
            saver.roll_back(name, place)
            number = len(lineage(state.get("head"), known))
            left = f", and takes over {counted(len(known) - number, 'attempt')} from its ledger" if len(known) > number else ""
            yield f"{why}: session {name!r} goes on after {f'attempt {number}' if number else 'its baseline'}{left}"
        break


def find_missing(state: State, known: dict[str, Attempt], seen: CheckedArtefacts) -> str:
    """A sentence on the first thing that a state refers to and that is missing or damaged; "" if all is intact. `known`: the
    intact attempts by id."""
    head = state.get("head")
    if head and head not in known:
        return f"the ledger lacks attempt {head[:8]}"
    baseline = state.get("baseline")
    if baseline and not (seen.has(baseline.capture) and seen.has(baseline.regions) and seen.has_program(state.get("first"))):
        return "what was captured of the reference is missing or damaged"
    if not (seen.has(state.get("plan")) and all(map(seen.has, state.get("plans", ())))):
        return "a plan is missing or damaged"
    if not seen.has(state.get("lessons")):
        return "what a plan was shown is missing or damaged"
    under_way: tuple[Work | None, ...] = (state.get("work"), *(state.get("drafts") or ()), *state.get("beside", ()))
    for work in filter(None, under_way):
        if not (seen.has_program(work.program) and seen.has(work.docs) and seen.has(work.lessons)):
            return f"the draft under way ({work.task.id} #{work.ordinal}) is missing or damaged"
    return "" if seen.has_program(state.get("program")) else "the program is missing or damaged"


def _again(attempts: tuple[Attempt, ...]) -> str:
    taken = f" and takes over {counted(len(attempts), 'attempt')} from its ledger" if attempts else ""
    return f"it starts again{taken}"
