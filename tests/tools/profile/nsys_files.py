"""SQLite files as `nsys export` makes them, in the schema of an old and of a current version, with what a test says happened.

Columns and types are those of NVIDIA's "SQLite Schema Reference" and of files that nsys itself has made. Tables appear only
when something is put into them, as nsys does it. Times are given in microseconds from an arbitrary start.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Literal

Version = Literal["2022", "2026"]

START = 155_357_000_000                    # ns; a recording begins somewhere
MAIN, OTHER = 0x1000_64_000065, 0x1000_64_000066  # two threads of process 0x64
STRANGER = 0x1000_C8_0000C9                # a thread of another process
_PROCESS_BITS = ~0xFFFFFF

_GRID = (
    "gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId"
)
_COLUMNS: dict[Version, dict[str, str]] = {
    "2022": {
        "StringIds": "id value",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start end deviceId contextId streamId correlationId globalPid demangledName shortName launchType cacheConfig "
            f"registersPerThread {_GRID} sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            "start end deviceId contextId streamId correlationId globalPid bytes copyKind deprecatedSrcId srcKind dstKind "
            "srcDeviceId srcContextId dstDeviceId dstContextId graphNodeId"
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": (
            "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId memKind"
        ),
        "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId originalGraphNodeId",
        "NVTX_EVENTS": (
            "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value "
            "doubleValue uint32Value int32Value floatValue"
        ),
    },
    "2026": {
        "StringIds": "id value",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName mangledName "
            f"launchType cacheConfig registersPerThread {_GRID} sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig "
            "qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ"
        ),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            "start end deviceId contextId greenContextId streamId correlationId globalPid graphId graphExecId"
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            "start end deviceId contextId greenContextId streamId correlationId globalPid bytes copyKind deprecatedSrcId "
            "srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause graphNodeId virtualAddress "
            "copyCount"
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": (
            "start end deviceId contextId greenContextId streamId correlationId globalPid value bytes graphNodeId memKind"
        ),
        "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId originalGraphNodeId",
        "NVTX_EVENTS": (
            "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value "
            "doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData"
        ),
        "ENUM_CUDA_MEMCPY_OPER": "id name label",
        "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    },
}  # fmt: skip
_TEXTS = {"text", "value", "label", "name", "jsonText"}
_ALWAYS = {"start", "deviceId", "streamId", "nameId", "demangledName", "bytes", "copyKind", "eventType"}  # NOT NULL everywhere


class Export:
    """A file under construction; `close` it before it is read."""

    def __init__(self, path: Path, version: Version) -> None:
        self.path, self.version = path, version
        self._database = sqlite3.connect(path)
        self._tables: set[str] = set()
        self._texts: dict[str, int] = {}
        self._correlation = 100
        if version == "2026":
            for number, label in ((1, "Host-to-Device"), (2, "Device-to-Host"), (8, "Device-to-Device")):
                self.put("ENUM_CUDA_MEMCPY_OPER", id=number, name=f"CUDA_MEMCPY_KIND_{number}", label=label)

    def close(self) -> Path:
        self._database.commit()
        self._database.close()
        return self.path

    def range(self, text: str, start: float, end: float | None, *, thread: int = MAIN, kind: int = 59) -> None:
        """An NVTX range. A current file keeps some texts among its strings: here those of regions."""
        apart = self.version == "2026" and "region" in text
        self.put(
            "NVTX_EVENTS", start=_ns(start), end=None if end is None else _ns(end), eventType=kind, globalTid=thread,
            text=None if apart else text, textId=self.text(text) if apart else None, domainId=0,
        )  # fmt: skip

    def api(self, name: str, start: float, end: float, *, thread: int = MAIN, correlation: int | None = None) -> int:
        """A call of CUDA's API; its correlation."""
        self._correlation += 1
        number = correlation or self._correlation
        self.put(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=_ns(start), end=_ns(end), eventClass=0, globalTid=thread, correlationId=number,
            nameId=self.text(name), returnValue=0,
        )  # fmt: skip
        return number

    def ran(
        self, name: str, start: float, end: float, correlation: int, *, thread: int = MAIN, stream: int = 7,
        symbol: str | None = None, node: int | None = None,
    ) -> None:  # fmt: skip
        """A kernel on the device. `node` is that of its CUDA graph."""
        self.put(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=_ns(start), end=_ns(end), deviceId=0, contextId=1, streamId=stream,
            correlationId=correlation, globalPid=thread & _PROCESS_BITS, demangledName=self.text(name),
            shortName=self.text(name.split("(")[0]), mangledName=self.text(symbol or name), graphNodeId=node,
        )  # fmt: skip

    def kernel(self, name: str, launched: float, start: float, end: float, **more: Any) -> None:
        """A kernel with the call that launched it, which takes 2 microseconds."""
        thread = more.get("thread", MAIN)
        self.ran(name, start, end, self.api("cudaLaunchKernel_v7000", launched, launched + 2, thread=thread), **more)

    def copy(self, kind: int, size: int, launched: float, start: float, end: float) -> None:
        self.copied(kind, size, start, end, self.api("cudaMemcpyAsync_v3020", launched, launched + 1))

    def copied(self, kind: int, size: int, start: float, end: float, correlation: int, *, node: int | None = None) -> None:
        """A copy on the device. `node` is that of its CUDA graph."""
        self.put(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=_ns(start), end=_ns(end), deviceId=0, contextId=1, streamId=7, bytes=size,
            correlationId=correlation, globalPid=MAIN & _PROCESS_BITS, copyKind=kind, graphNodeId=node,
        )  # fmt: skip

    def node(
        self, number: int, at: float, *, of: int | None = None, thread: int = MAIN, name: str = "Graph Node Creation"
    ) -> None:
        """A node of a CUDA graph comes to be, as a clone of the node `of` if that is given."""
        self.put(
            "CUDA_GRAPH_NODE_EVENTS", start=_ns(at), end=_ns(at), eventClass=0, globalTid=thread, nameId=self.text(name),
            graphNodeId=number, originalGraphNodeId=of,
        )  # fmt: skip

    def put(self, table: str, **values: Any) -> None:
        """A row. Columns that this version lacks are left out; an old one has no NULL."""
        columns = _COLUMNS[self.version][table].split()
        if table not in self._tables:
            self._tables.add(table)
            self._database.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {self._type(name)}' for name in columns)})")
        row = [values.get(name) for name in columns]
        if self.version == "2022":         # what is missing is exported as a default value
            row = [("" if name in ("text", "value") else 0) if one is None and name != "end" else one
                   for name, one in zip(columns, row, strict=True)]  # fmt: skip
        self._database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def text(self, value: str) -> int:
        if value not in self._texts:
            self._texts[value] = 1000 + len(self._texts)
            self.put("StringIds", id=self._texts[value], value=value)
        return self._texts[value]

    def _type(self, name: str) -> str:
        if name == "id":
            return "INTEGER NOT NULL PRIMARY KEY"
        return "TEXT" if name in _TEXTS else f"INTEGER{' NOT NULL' * (name in _ALWAYS)}"


def _ns(microseconds: float) -> int:
    return START + round(microseconds * 1000)
