"""Exports a session as one file, and imports it into another workspace or another kind of store.

    session.json  ledger.jsonl  transcript.jsonl  checkpoints.sqlite  artefacts/SHA-256  files/report.md

The file is a gzipped tar. Before anything is added to a workspace all of it is checked: names, digests, checksums, total size
(at most `MOST` bytes, or `EXPANDS` times the file's size), and that nothing which the session rests on is missing. It holds the
requests to models and their replies, but no API key.

Where to look next: `sessions/repair.py` (`CheckedArtefacts`, what a session rests on), `sessions/remove.py` (which artefacts).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from stitchcuda.errors import BadInput, Damaged, Unavailable
from stitchcuda.sessions.remove import find_referenced
from stitchcuda.sessions.repair import CheckedArtefacts, find_missing, keep_intact
from stitchcuda.sessions.session import Place, Session, new_session
from stitchcuda.state import Attempt, Call
from stitchcuda.store import FolderStore, SessionRecord, Workspace, write_atomically
from stitchcuda.store.checkpoints import Checkpoints, copy_checkpoints, open_checkpoints
from stitchcuda.store.lines import Lines
from stitchcuda.store.serializer import FILE, explain_damage
from stitchcuda.store.session_snapshot import read_snapshot
from stitchcuda.store.store import IntactRecords

SUFFIX = ".stitch.tar.gz"
MOST = 1 << 30                             # bytes that any archive may unpack to
EXPANDS = 100                              # an archive may unpack to so many times its own size, if that is more than MOST
_NAMES = re.compile(
    r"session\.json|ledger\.jsonl|transcript\.jsonl|checkpoints\.sqlite|artefacts/[0-9a-f]{64}|files/report\.(md|html)"
)
_LARGE = "it is far larger unpacked than packed"
_REFERENCE = re.compile(r"[^\W.][^/\x00-\x1f]{0,100}\.(py|pkl)")


def export(name: str, path: Path | None = None, *, workspace: Place = None) -> Path:
    """Writes the session to `path` (default: `NAME.stitch.tar.gz` here) and returns the path. A running session is written as
    it is now.

    Raises Unavailable if something that the session rests on is missing or damaged, BadInput for a path that cannot be written.
    """
    home = Workspace.at(workspace, create=False)
    record = home.record(name).model_copy(update={"reference_path": ""})  # a path of this machine
    target = path or Path(f"{name}{SUFFIX}")
    if target.is_dir():
        raise BadInput(f"{target} is a folder: name a file with -o, such as {target / f'{name}{SUFFIX}'}")
    if not target.parent.is_dir():
        raise BadInput(f"cannot write {target} (there is no folder {target.parent}): make it, or name another file with -o")
    with tempfile.TemporaryDirectory(prefix="stitchcuda-export-") as place:
        folder = Path(place)
        with open_checkpoints(home, name, reading=True) as saver, Checkpoints(folder) as copy:
            copy_checkpoints(saver, name, copy, name)
        attempts, calls = home.store.attempts(name), home.store.calls(name)
        seen = CheckedArtefacts(home.store)
        if missing := _find_missing(folder, record, attempts, calls, seen):
            how = "resume it, which goes on from what is, then export it"
            raise Unavailable(f"session {name!r} is not whole ({missing}): {how}")
        if attempts:
            Lines(folder / "ledger.jsonl", Attempt, "attempt").replace(attempts.values())
        if calls:
            Lines(folder / "transcript.jsonl", Call, "call").replace(calls.values())
        packed = io.BytesIO()
        # Without times and owners: the same session gives the same bytes.
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as squeezed, tarfile.open(fileobj=squeezed, mode="w") as tar:
            _add(tar, "session.json", record.model_dump_json(indent=1).encode())
            for file in ("ledger.jsonl", "transcript.jsonl", FILE):
                if (folder / file).exists():
                    _add(tar, file, (folder / file).read_bytes())
            if (report := home.folder(name) / "report.md").is_file():  # the HTML page can be made again
                _add(tar, "files/report.md", report.read_bytes())
            for digest in sorted(find_referenced(home, [name], seen)):
                _add(tar, f"artefacts/{digest}", seen.read(digest) or home.store.get(digest))  # raises for a damaged artefact
    try:
        write_atomically(target, packed.getvalue())
    except (BadInput, Unavailable) as error:
        raise type(error)(str(error).replace("--workspace", "-o")) from error
    return target


def import_(path: Path, *, to: str | None = None, workspace: Place = None) -> Session:
    """Adds the session of an archive, under the name `to` (default: its own), and returns it.

    Raises BadInput for a name that is taken and for a file that is not a complete archive; nothing is added then.
    """
    with tempfile.TemporaryDirectory(prefix="stitchcuda-import-") as place:
        folder = Path(place)
        record = _unpack(path, folder)
        home = Workspace.at(workspace)
        home.check_free(to or record.name)
        with home.store.adding():
            archived = FolderStore(folder)
            for digest in sorted(digest for digest, _ in archived.artefacts()):
                home.store.put(archived.get(digest))
            named = {"name": to, "origin": record.root} if to else {}
            attempts, calls = _read_records(folder)
            with new_session(home, record.model_copy(update=named), attempts.values(), calls.values()) as made:
                with Checkpoints(folder) as saver, open_checkpoints(home, made.name) as copy:
                    copy_checkpoints(saver, record.name, copy, made.name)
                for file in (folder / "files").iterdir():
                    write_atomically(made.folder / file.name, file.read_bytes())
    return made


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    tar.addfile(entry, io.BytesIO(data))


def _read_records(folder: Path) -> tuple[Mapping[str, Attempt], Mapping[str, Call]]:
    ledger, transcript = Lines(folder / "ledger.jsonl", Attempt, "attempt"), Lines(folder / "transcript.jsonl", Call, "call")
    return ledger.records(), transcript.records()


def _unpack(path: Path, folder: Path) -> SessionRecord:
    """Writes the archive's files below `folder`, checks them, and returns the session's record. Raises BadInput."""
    for part in ("artefacts", "files"):
        (folder / part).mkdir()
    try:
        most = max(MOST, EXPANDS * path.stat().st_size)
        with gzip.open(path) as squeezed:
            bounded: Any = _Bounded(squeezed, most)
            with tarfile.open(fileobj=bounded, mode="r|") as tar:
                for entry in tar:
                    most -= _unpack_file(tar, entry, folder, most)
            while bounded.read(1 << 20):   # to the end, where gzip checks its own checksum
                pass
        record = SessionRecord.model_validate_json((folder / "session.json").read_bytes())
        if not _REFERENCE.fullmatch(record.reference_name):
            raise _Foreign(f"its reference cannot be named {record.reference_name!r}")
        attempts, calls = _read_records(folder)
        _check_tables(folder / FILE)
        if missing := _find_missing(folder, record, attempts, calls, CheckedArtefacts(FolderStore(folder))):
            raise Damaged(missing)
    except _Foreign as error:
        raise BadInput(f"{path} is no exported session: {error}") from error
    except FileNotFoundError as error:
        why = "there is no such file" if error.filename == str(path) else f"it has no {Path(str(error.filename)).name}"
        raise BadInput(f"{path} is no exported session: {why}") from error
    except ValidationError as error:
        first = error.errors()[0]
        why = f"session.json: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise BadInput(f"{path} is not as it was exported ({why}): export it again") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, Damaged, sqlite3.Error) as error:
        why = _first_line(error).replace(f"{folder}/", "").partition(": restore")[0]
        raise BadInput(f"{path} is no exported session, or not all of it ({why}): export it again") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInput(f"{path} cannot be read ({why}): give a file that `stitchcuda export` has written") from error
    return record.model_copy(update={"reference_path": ""})


def _find_missing(
    folder: Path, record: SessionRecord, attempts: Mapping[str, Attempt], calls: Mapping[str, Call], seen: CheckedArtefacts
) -> str:
    """A sentence on the first thing that resuming the session would miss; "" if nothing is missing.

    Its checkpoints lie in `folder`, its artefacts in the store of `seen`. Raises Damaged for checkpoints that cannot be read.
    """
    with Checkpoints(folder) as saver:
        saver.check_file()
        threads = {str(saved.config["configurable"]["thread_id"]) for saved in saver.list(None)}  # reads each of them
        state = read_snapshot(saver, record.name).state
    if other := sorted(threads - {record.name}):
        return f"its record is of session {record.name!r}, its checkpoints are of session {other[0]!r}"
    if attempts and not threads:
        return "it has attempts, and its checkpoints hold nothing"
    if not (seen.has(record.reference) and seen.has(record.source)):
        return "the reference is missing or damaged"
    try:
        _, lost = keep_intact(seen, IntactRecords(tuple(attempts.values()), tuple(calls.values())))
        return lost[0] if lost else find_missing(state, dict(attempts), seen)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged("the list of a program's files is not what was written") from error


class _Foreign(Exception):
    """The archive has something that `export` never writes."""


class _Bounded:
    """Reads an unpacked stream up to a limit of `most` bytes: a small file may unpack to any number of zeros."""

    def __init__(self, file: gzip.GzipFile, most: int) -> None:
        self._file, self._left = file, most

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _Foreign(_LARGE)
        return data


def _unpack_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, most: int) -> int:
    """Writes one file of the archive, of at most `most` bytes, below `folder`; returns its size. Sparse files are refused: they
    hold any number of bytes in a few, and what is written is counted in case tarfile does not notice one."""
    if not entry.isreg() or entry.issparse() or not _NAMES.fullmatch(entry.name):
        raise _Foreign(f"{entry.name!r} does not belong into one")
    target = folder.joinpath(*PurePosixPath(entry.name).parts)
    if target.parent.name == "artefacts":  # as a workspace has them
        target = target.parent / target.name[:2] / target.name[2:]
        target.parent.mkdir(exist_ok=True)
    if target.exists():
        raise _Foreign(f"{entry.name!r} is in it twice")
    found = hashlib.sha256()
    data = tar.extractfile(entry)
    assert data is not None
    size = 0
    with target.open("wb") as file:
        while piece := data.read(1 << 20):
            size += len(piece)
            if size > most:
                raise _Foreign(_LARGE)
            found.update(piece)
            file.write(piece)
    if entry.name.startswith("artefacts/") and found.hexdigest() != (digest := PurePosixPath(entry.name).name):
        raise _Foreign(f"the artefact {digest} is not what its name says; export it again")
    return size


def _check_tables(path: Path) -> None:
    """Refuses a checkpoint file with anything but tables: views and triggers would act while they are read."""
    path.stat()
    with explain_damage(path), closing(sqlite3.connect(path)) as connection:
        for kind, name in connection.execute("SELECT type, name FROM sqlite_master"):
            if kind != "table" and not name.startswith("sqlite_autoindex_"):
                raise _Foreign(f"its checkpoints have a {kind} {name!r}")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]
