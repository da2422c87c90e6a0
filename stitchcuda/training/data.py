"""Writes data sets for learning of sessions: rows in several forms, split by structure, checked for leaks, with a manifest.

    OUT/jsonl/KIND.SPLIT.jsonl     every column of `DataRow`, one row a line
    OUT/trl/KIND.SPLIT.jsonl       `messages` for TRL's SFTTrainer, and what a row is worth
    OUT/verl/KIND.SPLIT.parquet    skill1, skill2: prompts for RL; rft: `messages` for SFT; needs pyarrow
    OUT/leakage.json               what was looked for in every text of the training split, and what was left out
    OUT/manifest.json              sessions, clusters, splits, versions, licence, and each file's digest; written last

References that are alike in structure are in one split, and a cluster's split depends on its structure alone, so it stays when
sessions are added. A training row that shows a reference of the test split in any field is left out.
Where to look next: `training/session_rows.py` (rows), `training/leakage.py`, `training/clusters.py`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from stitchcuda import remedies
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, Damaged, Unavailable
from stitchcuda.sessions.session import Session
from stitchcuda.state import Digest, Record
from stitchcuda.store import Workspace, write_atomically
from stitchcuda.training.clusters import clusters
from stitchcuda.training.leakage import Leak, TestReferences, read_held_out_sources, texts_of
from stitchcuda.training.session_rows import GAMMA, REWARD, DataRow, Kind, session_rows
from stitchcuda.version import VERSION

Form = Literal["jsonl", "trl", "verl"]
Split = Literal["train", "test"]
FORMS: tuple[Form, ...] = get_args(Form)
KINDS: tuple[Kind, ...] = get_args(Kind)
VERSION_OF_DATA = "stitchcuda-data/1"
_HELD_OUT = "held out: "


class SourceSession(Record):
    """A session that rows were made of."""

    name: str
    root: str
    status: str
    accepted: bool
    reference: Digest
    cluster: str
    split: Split
    rows: dict[Kind, int]


class DataFile(Record):
    """A file of the data set."""

    path: str
    rows: int
    sha256: Digest


class DataManifest(Record):
    """What a data set is made of."""

    version: str = VERSION_OF_DATA
    stitchcuda: str = VERSION
    reward: str = REWARD
    gamma: float = GAMMA
    licence: str
    authors: tuple[str, ...]               # models that wrote what is to be learnt: their terms hold
    test_percent: int
    sessions: tuple[SourceSession, ...]
    held_out: dict[str, str] = Field(default_factory=dict)  # cluster of each held-out file
    files: tuple[DataFile, ...]
    duplicates: int                        # rows left out because the same was there
    leaks: int                             # training rows left out because they show a test reference
    skipped: dict[str, str] = Field(default_factory=dict)  # sessions that cannot be read, and why


def make_data(
    names: Sequence[str], home: Workspace, out: Path, *, forms: Sequence[Form] = ("jsonl", "trl"), licence: str,
    test_percent: int = 10, held_out: Sequence[Path] = (), tell: Callable[[str], None] = print,
) -> DataManifest:  # fmt: skip
    """Makes a data set of sessions in the new or empty folder `out`.

    `test_percent`: how many of a hundred clusters are for testing. `held_out`: files and folders of references whose clusters
    are never trained on. `tell` gets a line for each session. Raises `BadInput` for a folder that holds something, an unknown
    session or an unreadable file, `Unavailable` if pyarrow is missing for verl's form.
    """
    if "verl" in forms and importlib.util.find_spec("pyarrow") is None:
        raise Unavailable(f"verl's parquet files need pyarrow: {remedies.extra('training')}, or leave --form verl out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is there already and not empty: give a new folder")
    records = {name: home.record(name) for name in dict.fromkeys(names)}
    kept_apart = {f"{_HELD_OUT}{path}": text for path, text in read_held_out_sources(held_out, "--held-out").items()}
    rows: dict[str, list[DataRow]] = {}
    sources: dict[str, str] = {}
    skipped: dict[str, str] = {}
    opened: dict[str, Session] = {}
    for number, (name, record) in enumerate(records.items(), 1):
        try:
            session = Session(home, record)
            found = session_rows(session)
            sources[name] = home.store.get(record.source).decode(errors="replace")
        except Damaged as error:
            skipped[name] = str(error)
            tell(f"{number}/{len(records)} {name}: left out ({error})")
            continue
        rows[name], opened[name] = found, session
        tell(f"{number}/{len(records)} {name}: {counted(len(found), 'row')}")
    cluster = clusters(sources | kept_apart)
    never = {cluster[name] for name in kept_apart}
    split: dict[str, Split] = {
        name: "test" if cluster[name] in never or _drawn(cluster[name]) < test_percent else "train" for name in sources
    }
    unique, duplicates = _unique(row for name in rows for row in rows[name])
    tests = TestReferences({name: text for name, text in sources.items() if split[name] == "test"} | kept_apart)
    written, files = write_data_rows(out, unique, cluster=cluster, split=split, tests=tests, forms=forms)
    manifest = DataManifest(
        licence=licence, authors=tuple(sorted({row.author for row in written if row.author})), test_percent=test_percent,
        sessions=tuple(_source(opened[name], cluster[name], split[name], written) for name in sources),
        held_out={name.removeprefix(_HELD_OUT): cluster[name] for name in kept_apart},
        files=files, duplicates=duplicates, leaks=len(unique) - len(written), skipped=skipped,
    )  # fmt: skip
    write_manifest(out, manifest)
    return manifest


def write_data_rows(
    out: Path, rows: Sequence[DataRow], *, cluster: dict[str, str], split: dict[str, Split], tests: TestReferences,
    forms: Sequence[Form],
) -> tuple[list[DataRow], tuple[DataFile, ...]]:  # fmt: skip
    """Writes the rows' files and leakage.json, without training rows that show one of `tests`. Returns the rows that are
    written, and the files. `cluster`, `split`: of each row's `session`. The manifest comes after it."""
    leaks = [
        leak for row in rows if split[row.session] == "train" for leak in tests.leaks(row.id, row.model_dump(mode="json"))
    ]
    leaking = {leak.row for leak in leaks}
    written = [row for row in rows if row.id not in leaking]
    out.mkdir(parents=True, exist_ok=True)
    _write_leakage(out, rows, split, leaks)
    return written, tuple(file for form in forms for file in _write(out, form, written, cluster, split))


def write_manifest(out: Path, manifest: DataManifest) -> None:
    """Writes what makes a folder a data set: the last of its files."""
    write_atomically(out / "manifest.json", manifest.model_dump_json(indent=1).encode())


def _drawn(cluster: str) -> int:
    """A number from 0 to 99 that depends on the cluster alone."""
    return int(hashlib.sha256(cluster.encode()).hexdigest()[:8], 16) % 100


def _unique(rows: Iterable[DataRow]) -> tuple[list[DataRow], int]:
    """The rows without those that repeat another one's messages, as forks and replays do; and how many those are."""
    known: dict[tuple[str, str], DataRow] = {}
    count = 0
    for row in rows:
        count += 1
        known.setdefault((row.kind, json.dumps([turn.content for turn in row.messages])), row)
    return [*known.values()], count - len(known)


def _source(session: Session, cluster: str, split: Split, rows: Sequence[DataRow]) -> SourceSession:
    outcome, record = session.outcome(), session.record
    made = Counter(row.kind for row in rows if row.session == session.name)
    return SourceSession(
        name=session.name, root=record.root, status=outcome.status, accepted=outcome.accepted, reference=record.reference,
        cluster=cluster, split=split, rows={kind: made[kind] for kind in KINDS},
    )  # fmt: skip


def _write_leakage(out: Path, rows: Sequence[DataRow], split: dict[str, Split], leaks: Sequence[Leak]) -> None:
    trained = [row for row in rows if split[row.session] == "train"]
    report = {
        "rows": len(trained),
        "fields": sum(1 for row in trained for _ in texts_of(row.model_dump(mode="json"))),
        "left out": len({leak.row for leak in leaks}),
        "leaks": [leak.model_dump() for leak in leaks],
    }
    write_atomically(out / "leakage.json", json.dumps(report, indent=1).encode())


def _write(
    out: Path, form: Form, rows: Sequence[DataRow], cluster: dict[str, str], split: dict[str, Split]
) -> Iterable[DataFile]:
    """Writes the files of one form; there is none for a kind and split without rows."""
    for kind in KINDS:
        for part in get_args(Split):
            chosen = [row for row in rows if row.kind == kind and split[row.session] == part]
            if not chosen or (form == "verl" and kind == "value"):
                continue
            lines = [_in_form(form, row, cluster[row.session], part, number) for number, row in enumerate(chosen)]
            path = out / form / f"{kind}.{part}.{'parquet' if form == 'verl' else 'jsonl'}"
            path.parent.mkdir(exist_ok=True)
            if form == "verl":
                arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
                parquet.write_table(arrow.Table.from_pylist(lines), path)
            else:
                write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield DataFile(path=path.relative_to(out).as_posix(), rows=len(lines), sha256=digest)


def _in_form(form: Form, row: DataRow, cluster: str, split: Split, number: int) -> dict[str, Any]:
    """A row as a trainer wants it; all rows of a file have the same columns."""
    messages = [turn.model_dump() for turn in row.messages]
    named = {"id": row.id, "cluster": cluster, "split": split}
    if form == "jsonl":
        return row.model_dump(mode="json") | {"cluster": cluster, "split": split}
    if form == "trl" or row.kind == "rft":
        worth = {"reward": row.reward, "credit": row.credit, "outcome": row.outcome}
        return {"messages": messages, "how": row.how, **named, **worth}
    return {
        "data_source": f"stitchcuda/{row.kind}", "prompt": messages[:-1], "ability": "CUDA",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {
            "index": number, "session": row.session, "how": row.how, "reference": row.reference,
            "program": json.dumps(row.program), **named,
        },
    }  # fmt: skip
