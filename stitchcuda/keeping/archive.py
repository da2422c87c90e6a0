"""A session as one file, to be carried to another workspace or another kind of store: `export` writes it, `import_` reads it.

    session.json  ledger.jsonl  transcript.jsonl  checkpoints.sqlite  artefacts/SHA-256  files/report.md …

A gzipped tar file. Everything in it is checked before anything is added: names, digests, checksums. It holds what models were
told and answered, and no key. """

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from stitchcuda.errors import BadInput, Damaged
from stitchcuda.graph.checkpoints import FILE, Checkpoints, carry, open_checkpoints
from stitchcuda.keeping.sweeping import reached
from stitchcuda.lines import Lines
from stitchcuda.session import Place, Session
from stitchcuda.state import Attempt, Call
from stitchcuda.workspace import SessionRecord, Workspace, write_atomically

SUFFIX = ".stitch.tar.gz"
_FILES = ("report.md", "report.html")
_NAMES = re.compile(
    r"session\.json|ledger\.jsonl|transcript\.jsonl|checkpoints\.sqlite|artefacts/[0-9a-f]{64}|files/report\.(md|html)"
)


def export(name: str, path: Path | None = None, *, workspace: Place = None) -> Path:
    """Writes the session to `path` (default: `NAME.stitch.tar.gz` here) and returns it. A running session is written as it
    stands.

    Raises Unavailable where an artefact that it needs is missing or damaged: an archive is whole.
    """
    home = Workspace.of(workspace, create=False)
    record = home.record(name)
    target = path or Path(f"{name}{SUFFIX}")
    with tempfile.TemporaryDirectory(prefix="stitchcuda-export-") as place:
        folder = Path(place)
        with home.told(), open_checkpoints(home, name) as saver, Checkpoints(folder) as copy:
            carry(saver, name, copy, name)
        ledger = Lines(folder / "ledger.jsonl", Attempt, "attempt", lambda one: one.id)
        for attempt in home.store.attempts(name).values():
            ledger.append(attempt)
        transcript = Lines(folder / "transcript.jsonl", Call, "call", lambda one: one.id)
        for call in home.store.calls(name).values():
            transcript.append(call)
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
        with home.store.adding():
            for artefact in sorted((folder / "artefacts").iterdir()):
                home.store.put(artefact.read_bytes())
            made = Session(home, home.create(record.model_copy(update={"name": to or record.name})))
            try:
                with home.store.owning(made.name):
                    for attempt in _lines(folder / "ledger.jsonl", Attempt, "attempt").values():
                        home.store.append(made.name, attempt)
                    for call in _lines(folder / "transcript.jsonl", Call, "call").values():
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
        with tarfile.open(path, "r:gz") as tar:
            for entry, data in _entries(tar, path):
                file = folder.joinpath(*PurePosixPath(entry.name).parts)
                if file.parent.name == "artefacts" and hashlib.sha256(data).hexdigest() != file.name:
                    raise BadInput(f"{path} is damaged: the artefact {file.name} is not what its name says; export it again")
                file.write_bytes(data)
        record = SessionRecord.model_validate_json((folder / "session.json").read_bytes())
        _lines(folder / "ledger.jsonl", Attempt, "attempt")
        _lines(folder / "transcript.jsonl", Call, "call")
        with Checkpoints(folder) as saver:
            saver.look()
    except FileNotFoundError as error:
        missing = "there is no such file" if error.filename == str(path) else f"it has no {Path(str(error.filename)).name}"
        raise BadInput(f"{path} is no exported session: {missing}") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValidationError, Damaged, sqlite3.Error) as error:
        raise BadInput(f"{path} is no exported session, or not all of it ({_first(error)}): export it again") from error
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"{path} cannot be read ({why}): give a file that `stitchcuda export` has written") from error
    if PurePosixPath(record.reference_name).name != record.reference_name:
        raise BadInput(f"{path} is no exported session: its reference cannot be named {record.reference_name!r}")
    if not (folder / "artefacts" / record.reference).exists():
        raise BadInput(f"{path} is no whole session: its reference is not in it; export it again")
    return record


def _entries(tar: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for entry in tar:
        if not entry.isreg() or not _NAMES.fullmatch(entry.name):
            raise BadInput(f"{path} is no exported session: {entry.name!r} does not belong into one")
        file = tar.extractfile(entry)
        assert file is not None
        yield entry, file.read()


def _lines(path: Path, kind: Any, field: str) -> Any:
    return Lines(path, kind, field, lambda one: one.id).records()


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]
