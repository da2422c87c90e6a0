"""Reads the SQLite file that `nsys export` makes of a recording, with SQL, into a `SystemProfile`.

A table exists only if something was recorded for it, and columns differ between versions: a missing optional one gives None, a
missing needed one raises. The schema is Nsight Systems' "SQLite Schema Reference"; it fits files of 2024 to 2026. The file may
have been damaged by the program: every value's type is checked. Nothing is written or started.
Where to look next: `tools/profile/timeline.py` (makes the profile), `tools/profile/graph_captures.py` (nodes of CUDA graphs),
`tools/profile/nsys_command.py` (makes the file).
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.errors import Unavailable
from stitchcuda.tools.build.kernel_names import base_name, classify, demangled
from stitchcuda.tools.profile.graph_captures import Node, captures
from stitchcuda.tools.profile.ranges import CALL_RANGE
from stitchcuda.tools.profile.system_profile import Origin, SystemProfile
from stitchcuda.tools.profile.timeline import ApiCall, DeviceWork, GraphCapture, Range, Recording, profile_of, recording_of
from stitchcuda.tools.profile.untrusted_file import open_foreign

_MAGIC, _HEAD = b"SQLite format 3\0", 100  # what a file begins with, bytes of its header (sqlite.org/fileformat.html)
_KERNEL, _GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME, _NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_COPY, _SET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_NODE, _CREATION = "CUDA_GRAPH_NODE_EVENTS", "Graph Node Creation"
_PUSH_POP = 59                             # NvtxPushPopRange in ENUM_NSYS_EVENT_TYPE
_PROCESS = 24                              # a global id is: hardware, virtual machine, 24 bits of process, 24 bits of thread
_WARNING = 2                               # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
_WORRYING = re.compile(r"CUPTI_ERROR|No CUDA events|dropped|\blost\b|missing|might not|not (been )?(supported|collected)", re.I)
_OF_CUDA = re.compile(r"CUDA|CUPTI|buffer|event")
_API_VERSION = re.compile(r"_v\d+(?=_|$)")
_DAMAGED = "is cut short or damaged: export the recording again"
_ODD = (sqlite3.Error, TypeError, ValueError, AttributeError, OverflowError)  # what reading a damaged file may raise
_WORDS = {"text", "value", "label"}        # columns that hold text; all others hold integers
# CUpti_ActivityMemcpyKind, for files without ENUM_CUDA_MEMCPY_OPER
_KINDS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer"}


def read_export(path: Path, *, own: Iterable[str] = ()) -> SystemProfile:
    """Returns the profile of the calls in a recording: its ranges `CALL_RANGE` and `TRACED_RANGE` (`tools/profile/ranges.py`).

    Ranges of regions outside of these calls say where CUDA graphs were captured; nothing else there counts. `own`: the
    program's kernels, by full or by base name. Raises `Unavailable`, with what to do, for a file that is missing, damaged or no
    export, and for one in which no kernel or no call was recorded.
    """
    with _File(path) as file:
        try:
            recording = _recording(file, frozenset(own))
            profile = profile_of(recording, notes=file.worries())
        except _ODD as error:
            raise Unavailable(f"{path} {_DAMAGED} ({str(error)[:200]})") from error
        if not recording.work:
            raise Unavailable(f"{path}: no kernel was recorded{file.excuse()}; was it recorded with --trace=cuda on a GPU?")
        if not recording.calls:
            remedy = "put one around each call, and record with --trace=cuda,nvtx"
            raise Unavailable(f'{path}: no range "{CALL_RANGE}" was recorded: {remedy}')
        if not profile.kernels:
            number = len(recording.calls)
            raise Unavailable(f'{path}: nothing was launched in any range "{CALL_RANGE}", of which there are {number}')
    return profile


class _File:
    """An export, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_foreign(path) as file:
            head, size = file.read(_HEAD), os.fstat(file.fileno()).st_size
        if not head:
            raise Unavailable(f"{path} is empty: export the recording again")
        if not head.startswith(_MAGIC):
            raise Unavailable(f"{path} is no SQLite file: make one of the recording with nsys export --type=sqlite")
        # SQLite itself reads a last page that is cut short as if zeros followed.
        if size < int.from_bytes(head[16:18], "big") * int.from_bytes(head[28:32], "big"):
            raise Unavailable(f"{path} {_DAMAGED} ({size} bytes are left)")
        # Immutable: a reader leaves no files beside it, and may read where it must not write.
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            if (said := next(self._ask("PRAGMA quick_check(1)"))[0]) != "ok":
                raise ValueError(" ".join(said.split()))
            names = [name for (name,) in self._ask("SELECT name FROM sqlite_master WHERE type = 'table'")]
            self._columns = {name: {row[1] for row in self._ask(f'PRAGMA table_info("{name}")')} for name in names}
            self.texts: dict[int, str] = dict(self.rows("StringIds", "id", "value"))
        except _ODD as error:
            self._connection.close()
            raise Unavailable(f"{path} {_DAMAGED} ({str(error)[:200]})") from error

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self._columns.get(table, set())

    def rows(self, table: str, *columns: str, optional: tuple[str, ...] = ()) -> Iterator[Any]:
        """Yields a table's rows with `columns` and `optional`, None for an optional one that is missing; none without a table.

        Raises `Unavailable` for a missing column, ValueError for a value of another type than its column's, except None.
        """
        here = self._columns.get(table)
        if here is None:
            return iter(())
        if lacking := [column for column in columns if column not in here]:
            unknown = "this version of Nsight Systems is not known here"
            raise Unavailable(f"{self.path}: {table} has no {', '.join(lacking)}: {unknown}")
        chosen = [*(f'"{column}"' for column in columns), *(f'"{name}"' if name in here else "NULL" for name in optional)]
        kinds = [str if column in _WORDS else int for column in (*columns, *optional)]
        return self._checked(table, kinds, self._ask(f'SELECT {", ".join(chosen)} FROM "{table}"'))

    def _checked(self, table: str, kinds: Sequence[type], rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            if any(value is not None and type(value) is not kind for value, kind in zip(row, kinds, strict=True)):
                raise ValueError(f"{table} holds a value of another kind than its column's")
            yield row

    def worries(self) -> list[str]:
        """Returns nsys' own warnings about lost or missing kernels."""
        rows = self.rows("DIAGNOSTIC_EVENT", "severity", "text")
        warnings = dict.fromkeys(" ".join(text.split())[:200] for severity, text in rows if severity >= _WARNING)
        return [f"nsys says: {text}" for text in warnings if _WORRYING.search(text) and _OF_CUDA.search(text)]

    def excuse(self) -> str:
        return f" ({'; '.join(self.worries()[:2])})" if self.worries() else ""

    def _ask(self, query: str) -> Iterator[Any]:
        return self._connection.execute(query)


def _recording(file: _File, own: frozenset[str]) -> Recording:
    captured = _captured(file)
    work = [*_kernels(file, own, captured), *_graphs(file), *_copies(file, captured)]
    return recording_of(list(_ranges(file)), list(_api(file)), work)


def _in_order(table: str, start: int, end: int) -> None:
    """Raises TypeError or ValueError for times that cannot be."""
    if end < start:
        raise ValueError(f"something in {table} ends before it begins")


def _ranges(file: _File) -> Iterator[Range]:
    """Yields the ranges that were pushed and popped; one that is still open has no end and is left out."""
    for start, end, kind, text, text_id, thread in file.rows(
        _NVTX, "start", "end", optional=("eventType", "text", "textId", "globalTid")
    ):
        name = text or file.texts.get(text_id, "")
        if name and end is not None and end >= start and kind in (_PUSH_POP, None):
            yield Range(name, start, end, (thread or 0) >> _PROCESS, thread or 0)


def _api(file: _File) -> Iterator[ApiCall]:
    """Yields runtime and driver calls, which are in one table."""
    for start, end, name, correlation, thread in file.rows(
        _RUNTIME, "start", "end", "nameId", "correlationId", optional=("globalTid",)
    ):
        _in_order(_RUNTIME, start, end)
        plain = _API_VERSION.sub("", file.texts.get(name, "(unknown)"))
        yield ApiCall(plain, start, end, (thread or 0) >> _PROCESS, thread or 0, correlation)


def _captured(file: _File) -> dict[Node, GraphCapture]:
    """Returns when nodes of CUDA graphs were captured; {} if a column is missing: without `originalGraphNodeId` the time at
    which a clone was made would be taken for that of its capture."""
    created: dict[Node, GraphCapture] = {}
    originals: dict[Node, Node] = {}
    columns = ("start", "nameId", "globalTid", "graphNodeId", "originalGraphNodeId")
    for start, name, thread, node, original in file.rows(_NODE, *columns) if file.has(_NODE, *columns) else ():
        process = (thread or 0) >> _PROCESS
        if node and original:
            originals.setdefault((process, node), (process, original))
        elif node and start is not None and file.texts.get(name) == _CREATION:
            created.setdefault((process, node), GraphCapture(thread or 0, start))
    return captures(created, originals)


def _kernels(file: _File, own: frozenset[str], captured: Mapping[Node, GraphCapture]) -> Iterator[DeviceWork]:
    # An older file has names in nsys's own spelling only, which differs from that of full names in `own`.
    loosely = own | {base_name(name) for name in own}
    kinds: dict[tuple[int, int | None], tuple[str, Origin]] = {}
    for start, end, device, stream, correlation, spelled, context, global_id, mangled, node, graph in file.rows(
        _KERNEL, "start", "end", "deviceId", "streamId", "correlationId", "demangledName",
        optional=("contextId", "globalPid", "mangledName", "graphNodeId", "graphId"),
    ):  # fmt: skip
        _in_order(_KERNEL, start, end)
        if (spelled, mangled) not in kinds:
            symbol = file.texts.get(mangled, "") if mangled is not None else ""
            name = demangled(symbol) if symbol else file.texts.get(spelled, "(unknown)")
            name = name.replace("<unnamed>", "(anonymous namespace)")
            origin: Any = classify(name, own if symbol else loosely)
            kinds[spelled, mangled] = (name, origin)
        name, origin = kinds[spelled, mangled]
        process, where = (global_id or 0) >> _PROCESS, (device, context or 0, stream)
        yield DeviceWork(
            "kernel", name, origin, start, end, process, where, correlation, bool(node or graph),
            captured=captured.get((process, node)),
        )  # fmt: skip


def _graphs(file: _File) -> Iterator[DeviceWork]:
    """Yields launches of CUDA graphs that were recorded as a whole."""
    for start, end, device, stream, correlation, context, process, graph in file.rows(
        _GRAPH, "start", "end", "deviceId", "streamId", "correlationId", optional=("contextId", "globalPid", "graphId")
    ):
        _in_order(_GRAPH, start, end)
        name = f"CUDA graph {graph}, as a whole"
        where = (device, context or 0, stream)
        yield DeviceWork("graph", name, "graph", start, end, (process or 0) >> _PROCESS, where, correlation, True)


def _copies(file: _File, captured: Mapping[Node, GraphCapture]) -> Iterator[DeviceWork]:
    kinds = _KINDS | {kind: label for kind, label in file.rows("ENUM_CUDA_MEMCPY_OPER", "id", optional=("label",)) if label}
    for table in (_COPY, _SET):
        for start, end, device, stream, correlation, size, context, global_id, kind, node in file.rows(
            table, "start", "end", "deviceId", "streamId", "correlationId", "bytes",
            optional=("contextId", "globalPid", "copyKind", "graphNodeId"),
        ):  # fmt: skip
            _in_order(table, start, end)
            name = "memset" if table == _SET else f"copy {kinds.get(kind, f'kind {kind}')}"
            process, where = (global_id or 0) >> _PROCESS, (device, context or 0, stream)
            yield DeviceWork(
                "copy", name, "copy", start, end, process, where, correlation, bool(node), size, captured.get((process, node))
            )
