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
from typing import Any, NamedTuple

from stitchcuda.sandbox.protections import Protections, protections_of
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
        while self._protections is None and self._ended is None and self._receive(_GRACE_S):
            pass
        return self._protections or Protections()

    def output(self) -> str:
        """The last 64 KiB that it printed, up to now."""
        if self._ended is None and self._send(b"output"):
            while self._ended is None and (message := self._receive(_GRACE_S)):
                if "output" in message:
                    return str(message["text"])
        return self._ended.output if self._ended is not None else ""

    def end(self, seconds: float = 0.0) -> ProcessEnd:
        """Waits `seconds` for it to end by itself, then kills it and everything below it. Returns how it ended."""
        deadline = time.monotonic() + seconds
        while self._ended is None and self._receive(max(0.0, deadline - time.monotonic())):
            pass
        if self._ended is None and self._send(b"kill"):
            while self._ended is None and self._receive(_GRACE_S):
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

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """Receives a message of the supervisor and keeps its facts. None if there is none in time or the supervisor is gone."""
        if not select.select([self._control], [], [], seconds)[0]:
            return None
        try:
            packet = self._control.recv(_PACKET)
        except ConnectionResetError:       # it ended with a message of ours unread; its own last ones are still there
            packet = self._control.recv(_PACKET)
        if not packet:
            self._lost = True
            return None
        head, _, text = packet.partition(b"\n")
        message: dict[str, Any] = json.loads(head) | {"text": text.decode("utf-8", "replace")}
        if "protections" in message:
            self._protections = protections_of(message["protections"])
        if "end" in message:
            end = message["end"]
            reason = end["reason"] if end["reason"] in _REASONS else ""
            self._ended = ProcessEnd(end["code"], reason, message["text"], end["dropped"])
        return message


_REASONS = ("memory", "disk", "processes", "output")  # for any other reason the judge itself had it killed
