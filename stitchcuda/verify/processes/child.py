"""Watches one supervised child process for the judge: its sandbox protections, its output, how it ended; and kills it.

All facts come from the child's supervisor, never from the child. Where to look next: `verify/processes/forkserver.py` (who
starts children), `verify/processes/worker.py` (who sends them requests), `sandbox/supervisor.py` (the supervisor).
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from stitchcuda.sandbox.protections import Protections
from stitchcuda.verify.messages.request import Answer, plain, read
from stitchcuda.verify.messages.wire import Channel

_PACKET = 1 << 18
_GRACE_S = 5.0                             # how long a supervisor may take to answer
_KILLED = -9


class ProcessEnd(NamedTuple):
    """How a child ended. `code`: its exit status, negative for a signal. `reason`: why the supervisor killed it ("memory",
    "disk", "processes", "output"), "lost" if the supervisor itself was killed, else ""."""

    code: int
    reason: str
    output: str                            # the last 64 KiB that it printed
    dropped: int                           # bytes that it printed before those


@dataclass(frozen=True)
class SupervisorReport(Answer):
    """What a supervisor tells of its child: the protections in force, what it printed up to now (`output`), or how it ended.

    As a packet it is a line of JSON and then what was printed, which may be no text.
    """

    protections: Protections | None = None
    output: bool = False
    code: int | None = None
    reason: str = ""                       # as `sandbox/supervisor.py`'s `End` has it
    dropped: int = 0                       # bytes of output that were not kept
    text: str = ""

    def packet(self, printed: bytes = b"") -> bytes:
        return json.dumps(plain(self)).encode() + b"\n" + printed

    @staticmethod
    def read(packet: bytes) -> SupervisorReport:
        head, _, printed = packet.partition(b"\n")
        return replace(read(SupervisorReport, json.loads(head)), text=printed.decode("utf-8", "replace"))


class Child:
    """One child process. `pid` is its supervisor's. `reap` waits until that has ended, with everything below it."""

    def __init__(self, pid: int, channel: Channel, control: socket.socket, reap: Callable[[int], None]) -> None:
        self.pid = pid
        self.channel = channel
        self._control = control
        self._reap = reap
        self._protections: Protections | None = None
        self._ended: ProcessEnd | None = None
        self._lost = False                 # the supervisor ended without a message

    @property
    def protections(self) -> Protections:
        """The protections in force for it. Waits until it has entered its sandbox; empty if it never did."""
        while self._protections is None and self._ended is None and self._receive(_GRACE_S) is not None:
            pass
        return self._protections or Protections()

    def output(self) -> str:
        """The last 64 KiB that it printed, up to now."""
        if self._ended is None and self._send(b"output"):
            while self._ended is None and (received := self._receive(_GRACE_S)) is not None:
                if received.output:
                    return received.text
        return self._ended.output if self._ended is not None else ""

    def end(self, seconds: float = 0.0) -> ProcessEnd:
        """Waits `seconds` for it to end by itself, then kills it and everything below it. Returns how it ended."""
        deadline = time.monotonic() + seconds
        while self._ended is None and self._receive(max(0.0, deadline - time.monotonic())) is not None:
            pass
        if self._ended is None and self._send(b"kill"):
            while self._ended is None and self._receive(_GRACE_S) is not None:
                pass
        reap, self._reap = self._reap, lambda pid: None
        if self._ended is None:            # the supervisor itself was killed, or does not answer
            self._ended = ProcessEnd(_KILLED, "lost" if self._lost else "", "", 0)
        self._control.close()
        reap(self.pid)
        return self._ended

    def kill(self) -> None:
        """Has it killed soon. Any thread may call it; `end` must follow."""
        self._send(b"kill")

    def _send(self, what: bytes) -> bool:
        try:
            self._control.send(what)
        except OSError:
            return False
        return True

    def _receive(self, seconds: float) -> SupervisorReport | None:
        """Receives a report of the supervisor and keeps its facts. None if there is none in time or the supervisor is gone."""
        if not select.select([self._control], [], [], seconds)[0]:
            return None
        try:
            packet = self._control.recv(_PACKET)
        except ConnectionResetError:       # it ended with a message of ours unread; its own last ones are still there
            packet = self._control.recv(_PACKET)
        if not packet:
            self._lost = True
            return None
        report = SupervisorReport.read(packet)
        if report.protections is not None:
            self._protections = report.protections
        if report.code is not None:
            reason = report.reason if report.reason in _REASONS else ""
            self._ended = ProcessEnd(report.code, reason, report.text, report.dropped)
        return report


_REASONS = ("memory", "disk", "processes", "output")  # for any other reason the judge itself had it killed
