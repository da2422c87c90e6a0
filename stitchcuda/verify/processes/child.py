"""The judge's handle on one supervised child: its channel, what holds it, how it ended, all in its supervisor's words.

Where to look next: `verify/processes/forkserver.py` (who makes them), `verify/processes/worker.py` (who asks them things).
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
_GRACE_S = 5.0                             # for a supervisor to answer
_KILLED = -9


class ProcessEnd(NamedTuple):
    """`code` is negative for a signal. `reason` says why the supervisor killed it ("memory", "disk", "processes", "output"),
    that the supervisor itself was killed ("lost"), or is empty."""

    code: int
    reason: str
    output: str                            # the last 64 KiB that it printed
    dropped: int                           # bytes printed before those


class Child:
    """One child, from its birth to its end. `pid` is its supervisor's: who dies with it is gone entirely."""

    def __init__(self, pid: int, channel: Channel, control: socket.socket, reap: Callable[[int], None]) -> None:
        self.pid = pid
        self.channel = channel
        self._control = control
        self._reap = reap
        self._protections: Protections | None = None
        self._ended: ProcessEnd | None = None
        self._lost = False                 # the supervisor went without a word

    @property
    def protections(self) -> Protections:
        """What is in force for it; waits until it has entered its sandbox. Empty if it never did."""
        while self._protections is None and self._ended is None and self._next(_GRACE_S):
            pass
        return self._protections or Protections()

    def output(self) -> str:
        """The last that it printed, up to now."""
        if self._ended is None and self._say(b"output"):
            while self._ended is None and (message := self._next(_GRACE_S)):
                if "output" in message:
                    return str(message["text"])
        return self._ended.output if self._ended is not None else ""

    def end(self, seconds: float = 0.0) -> ProcessEnd:
        """How it ended. It may take `seconds` to end by itself, then it and everything below it is killed."""
        deadline = time.monotonic() + seconds
        while self._ended is None and self._next(max(0.0, deadline - time.monotonic())):
            pass
        if self._ended is None and self._say(b"kill"):
            while self._ended is None and self._next(_GRACE_S):
                pass
        reap, self._reap = self._reap, lambda pid: None
        if self._ended is None:            # the supervisor itself was killed, or does not answer
            self._ended = ProcessEnd(_KILLED, "lost" if self._lost else "", "", 0)
        self._control.close()
        reap(self.pid)
        return self._ended

    def kill(self) -> None:
        """Have it killed, from any thread; its owner still calls `end`."""
        self._say(b"kill")

    def _say(self, what: bytes) -> bool:
        try:
            self._control.send(what)
        except OSError:
            return False
        return True

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """One message of the supervisor, taken note of; None when there is none in time or it is gone."""
        if not select.select([self._control], [], [], seconds)[0]:
            return None
        try:
            packet = self._control.recv(_PACKET)
        except ConnectionResetError:       # it went with a word of ours unread; its own last ones come after this
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


_REASONS = ("memory", "disk", "processes", "output")  # the others are the judge's own doing
