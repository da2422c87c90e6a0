"""Removes sessions, and artefacts that no session refers to any more.

References are found as by a conservative garbage collector: every run of 64 hexadecimal digits in a session's record, ledger,
transcript and checkpoints, and in the artefacts they name, counts as a digest. So no artefact in use is missed, whatever fields
records may get. Nothing is swept while a session runs: it may be about to refer to an artefact.

Where to look next: `store/store.py` (`sweeping`), `sessions/repair.py` (`CheckedArtefacts`), `cli/sessions.py` (`rm`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from stitchcuda.errors import Damaged, StitchError, Unavailable
from stitchcuda.sessions.repair import CheckedArtefacts
from stitchcuda.sessions.session import Place
from stitchcuda.state import Digest, Record
from stitchcuda.store import Workspace
from stitchcuda.store.checkpoints import open_checkpoints

READ = 16 << 20                            # first bytes of an artefact that are searched; plans and profiles are far smaller
_DIGITS = re.compile(rb"[0-9a-f]{64,}")


class RemovedArtefacts(Record):
    """The result of a sweep."""

    artefacts: int = 0                     # how many were removed
    bytes: int = 0
    waits_for: str = ""                    # why nothing was swept: a session runs, or cannot be read; "" if it was


def remove(names: Iterable[str], *, workspace: Place = None) -> RemovedArtefacts:
    """Removes sessions, damaged ones too, and the artefacts that only they used. Before anything is removed it raises BadInput
    for a name that is not there, and SessionBusy for a session that runs."""
    home = Workspace.at(workspace, create=False)
    wanted = list(dict.fromkeys(names))
    known = home.store.names()
    for name in wanted:
        if name not in known:
            home.record(name)              # raises with the names there are
    with ExitStack() as owned:
        for name in wanted:
            owned.enter_context(home.store.owning(name))
        for name in wanted:
            home.discard(name)
    return sweep(home)


def sweep(home: Workspace) -> RemovedArtefacts:
    """Removes artefacts that no session refers to. It removes none while a session runs, or if one cannot be read."""
    running = [f"{name} ({owner})" for name in home.store.names() if (owner := home.store.owner(name))]
    with home.store.sweeping() as alone:
        if running or not alone:
            return RemovedArtefacts(waits_for=f"this runs: {', '.join(running) or 'a session that is being made'}")
        try:
            needed = find_referenced(home, home.store.names())
        except Unavailable as error:
            return RemovedArtefacts(waits_for=str(error))
        removed, freed = 0, 0
        for digest, size in list(home.store.artefacts()):
            if digest not in needed:
                home.store.delete_artefact(digest)
                removed, freed = removed + 1, freed + size
    return RemovedArtefacts(artefacts=removed, bytes=freed)


def find_referenced(home: Workspace, sessions: Iterable[str], seen: CheckedArtefacts | None = None) -> set[Digest]:
    """The artefacts that these sessions refer to, directly or through others; damaged ones too, which a copy may repair.

    `seen`: caches the artefacts that are read. Raises Unavailable if a session cannot be read.
    """
    there = {digest for digest, _ in home.store.artefacts()}
    found: set[Digest] = set()
    todo: set[Digest] = set()
    for name in sessions:
        try:
            todo |= {digest for text in _texts(home, name) for digest in digests(text) if digest in there}
        except StitchError as error:
            raise Unavailable(f"session {name!r} cannot be read, so what it needs is not known: {error}") from error
    while todo:
        digest = todo.pop()
        found.add(digest)
        data = (seen or CheckedArtefacts(home.store)).read(digest) or b""
        todo |= {other for other in digests(data[:READ]) if other in there and other not in found}
    return found


def digests(data: bytes) -> Iterator[Digest]:
    """Every 64 hexadecimal digits in a row. In a longer run each position counts: in binary data a neighbour may look like a
    digit."""
    for run in _DIGITS.findall(data):
        for start in range(len(run) - 63):
            yield run[start : start + 64].decode()


def _texts(home: Workspace, name: str) -> Iterator[bytes]:
    yield home.record(name).model_dump_json().encode()
    for attempt in home.store.attempts(name).values():
        yield attempt.model_dump_json().encode()
    for call in home.store.calls(name).values():
        yield call.model_dump_json().encode()
    with open_checkpoints(home, name, reading=True) as saver:
        if home.store.attempts(name) and saver.newest(name) is None:
            raise Damaged(f"the checkpoints of session {name!r} are missing")
        yield from saver.stored_bytes(name)
