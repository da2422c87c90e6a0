"""A session as one file, to be carried to another workspace or another kind of store: `export` writes it, `import_` reads it.

    session.json  ledger.jsonl  transcript.jsonl  checkpoints.sqlite  artefacts/SHA-256  files/report.md …

A gzipped tar file. Everything in it is checked before anything is added: names, digests, checksums, and how much there is of it
all. It holds what models were told and answered, and no key.
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
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

from stitchcuda.errors import BadInput, Damaged
from stitchcuda.graph.checkpoints import FILE, Checkpoints, carry, open_checkpoints
from stitchcuda.keeping.sweeping import reached
from stitchcuda.lines import Lines
from stitchcuda.session import Place, Session
from stitchcuda.state import Attempt, Call
from stitchcuda.workspace import SessionRecord, Workspace, get_tree, write_atomically

SUFFIX = ".stitch.tar.gz"
MOST = 1 << 30                             # bytes that any archive may unpack to
EXPANDS = 100                              # times its own size that a larger one may
_FILES = ("report.md", "report.html")
_NAMES = re.compile(
    r"session\.json|ledger\.jsonl|transcript\.jsonl|checkpoints\.sqlite|artefacts/[0-9a-f]{64}|files/report\.(md|html)"
)
_REFERENCE = re.compile(r"[^\W.][^/\x00-\x1f]{0,100}\.(py|pkl)")


def export(name: str, path: Path | None = None, *, workspace: Place = None) -> Path:
    """Writes the session to `path` (default: `NAME.stitch.tar.gz` here) and returns it. A running session is written as it
    stands.

    Raises Unavailable where an artefact that it needs is missing or damaged: an archive is whole.
    """
    home = Workspace.of(workspace, create=False)
    record = home.record(name).model_copy(update={"reference_path": ""})  # a path of this machine
    target = path or Path(f"{name}{SUFFIX}")
    with tempfile.TemporaryDirectory(prefix="stitchcuda-export-") as place:
        folder = Path(place)
        with home.told(), open_checkpoints(home, name, reading=True) as saver, Checkpoints(folder) as copy:
            carry(saver, name, copy, name)
        attempts, calls = home.store.attempts(name).values(), home.store.calls(name).values()
        if attempts:
            _lines(folder / "ledger.jsonl", Attempt, "attempt").replace(attempts)
        if calls:
            _lines(folder / "transcript.jsonl", Call, "call").replace(calls)
        packed = io.BytesIO()
        # Without times and owners: the same session gives the same bytes.
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as squeezed, tarfile.open(fileobj=squeezed, mode="w") as tar:
            _add(tar, "session.json", record.model_dump_json(indent=1).encode())
            for file in ("ledger.jsonl", "transcript.jsonl", FILE):
                if (folder / file).exists():
                    _add(tar, file, (folder / file).read_bytes())
            for file in _FILES:
                if (home.folder(name) / file).is_file():
                    _add(tar, f"files/{file}", (home.folder(name) / file).read_bytes())
            for one in attempts:
                get_tree(home.store, one.program), home.store.get(one.evidence), home.store.get(one.review)
            for digest in sorted(reached(home, [name])):
                _add(tar, f"artefacts/{digest}", home.store.get(digest))
    write_atomically(target, packed.getvalue())
    return target


def import_(path: Path, *, to: str | None = None, workspace: Place = None) -> Session:
    """Adds the session of an archive, as `to` or by its own name. Raises BadInput for a name that is taken and for what is no
    whole archive; nothing is added then."""
    with tempfile.TemporaryDirectory(prefix="stitchcuda-import-") as place:
        folder = Path(place)
        record = _unpacked(path, folder)
        home = Workspace.of(workspace)
        home.check_free(to or record.name)
        with home.store.adding():
            for artefact in sorted((folder / "artefacts").iterdir()):
                home.store.put(artefact.read_bytes())
            named = {"name": to, "origin": record.root} if to else {}
            made = Session(home, home.create(record.model_copy(update=named)))
            try:
                with home.store.owning(made.name):
                    for attempt in _lines(folder / "ledger.jsonl", Attempt, "attempt").records().values():
                        home.store.append(made.name, attempt)
                    for call in _lines(folder / "transcript.jsonl", Call, "call").records().values():
                        home.store.record(made.name, call)
                    with home.told(), Checkpoints(folder) as saver, open_checkpoints(home, made.name) as copy:
                        carry(saver, record.name, copy, made.name)
                    for file in (folder / "files").iterdir():
                        write_atomically(made.folder / file.name, file.read_bytes())
            except BaseException:
                home.discard(made.name)
                raise
    return made


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    tar.addfile(entry, io.BytesIO(data))


def _unpacked(path: Path, folder: Path) -> SessionRecord:
    """The archive's files below `folder`, checked, and its record."""
    for part in ("artefacts", "files"):
        (folder / part).mkdir()
    try:
        with gzip.open(path) as squeezed:
            whole: Any = _Bounded(squeezed, max(MOST, EXPANDS * path.stat().st_size))
            with tarfile.open(fileobj=whole, mode="r|") as tar:
                for entry in tar:
                    _unpack(tar, entry, folder)
            while whole.read(1 << 20):     # to its end, where gzip has its own checksum
                pass
        record = SessionRecord.model_validate_json((folder / "session.json").read_bytes())
        attempts = _lines(folder / "ledger.jsonl", Attempt, "attempt").records()
        _lines(folder / "transcript.jsonl", Call, "call").records()
        _check_tables(folder / FILE)
        with Checkpoints(folder) as saver:
            saver.look()
    except _Foreign as error:
        raise BadInput(f"{path} is no exported session: {error}") from error
    except FileNotFoundError as error:
        missing = "there is no such file" if error.filename == str(path) else f"it has no {Path(str(error.filename)).name}"
        raise BadInput(f"{path} is no exported session: {missing}") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, Damaged, sqlite3.Error) as error:
        why = _first(error).replace(f"{folder}/", "")
        raise BadInput(f"{path} is no exported session, or not all of it ({why}): export it again") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInput(f"{path} cannot be read ({why}): give a file that `stitchcuda export` has written") from error
    if not _REFERENCE.fullmatch(record.reference_name):
        raise BadInput(f"{path} is no exported session: its reference cannot be named {record.reference_name!r}")
    named = {record.reference, record.source, *(part for one in attempts.values() for part in (one.program, one.evidence))}
    if lacking := sorted(digest for digest in named if not (folder / "artefacts" / digest).is_file()):
        raise BadInput(f"{path} is no whole session: it lacks the artefact {lacking[0]}; export it again")
    return record.model_copy(update={"reference_path": ""})


class _Foreign(Exception):
    """What does not belong into an archive of ours."""


class _Bounded:
    """What is unpacked, up to a limit: a small file may hold any number of zeros."""

    def __init__(self, file: gzip.GzipFile, most: int) -> None:
        self._file, self._left = file, most

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _Foreign("it is far larger unpacked than packed")
        return data


def _unpack(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """One file of the archive."""
    if not entry.isreg() or not _NAMES.fullmatch(entry.name):
        raise _Foreign(f"{entry.name!r} does not belong into one")
    target = folder.joinpath(*PurePosixPath(entry.name).parts)
    if target.exists():
        raise _Foreign(f"{entry.name!r} is in it twice")
    found = hashlib.sha256()
    data = tar.extractfile(entry)
    assert data is not None
    with target.open("wb") as file:
        while piece := data.read(1 << 20):
            found.update(piece)
            file.write(piece)
    if target.parent.name == "artefacts" and found.hexdigest() != target.name:
        raise _Foreign(f"the artefact {target.name} is not what its name says; export it again")


def _check_tables(path: Path) -> None:
    """Nothing but tables of ours: views and triggers would act while they are read."""
    path.stat()
    with closing(sqlite3.connect(path)) as connection:
        for kind, name in connection.execute("SELECT type, name FROM sqlite_master"):
            if kind != "table" and not name.startswith("sqlite_autoindex_"):
                raise _Foreign(f"its checkpoints have a {kind} {name!r}")


def _lines(path: Path, kind: Any, field: str) -> Any:
    return Lines(path, kind, field, lambda one: one.id)


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]
