"""The parent of one sandboxed child: makes it, keeps the end of its output, watches what it uses, kills it with all below it.

It is trusted and runs nothing foreign. It ends when the child ends, when it is told to, when its own parent dies or when the
other end of `control` closes; after each of these nothing of the child is left. Killed itself, it takes the child along: the
kernel ends a process namespace with its process 1, and without a namespace the child asked to die with its parent.
Where to look next: `sandbox/enforce.py`, `sandbox/watch.py`; `sandbox/launcher.py` and `verify/processes/forkserver.py` are who
starts supervisors.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from stitchcuda.sandbox import enforce, files, kernel, namespaces
from stitchcuda.sandbox.policy import Bounds, Policy
from stitchcuda.sandbox.protections import ProtectionLog
from stitchcuda.sandbox.watch import Watch

_TICK_MS = 100
_CHUNK = 1 << 18
_KEPT_CAPABILITIES = 1 << 5 | 1 << 19      # CAP_KILL, CAP_SYS_PTRACE: to look at and end a child that hides


class End(NamedTuple):
    """How a child ended. `code` is negative for a signal; `reason` says why it was killed, "" when nobody killed it."""

    code: int
    reason: str                            # "memory", "disk", "processes", "output", "time", "asked", "orphaned", ""
    output: bytes
    dropped: int                           # bytes of output that were not kept
    seconds: float


class Output:
    """The beginning and the end of a stream, whatever its length."""

    def __init__(self, head: int, tail: int) -> None:
        self._head, self._tail = head, tail
        self._first, self._last = bytearray(), bytearray()
        self.dropped = 0

    def add(self, chunk: bytes) -> None:
        room = self._head - len(self._first)
        if room > 0:
            self._first += chunk[:room]
            chunk = chunk[room:]
        self._last += chunk
        if (over := len(self._last) - self._tail) > self._tail:  # seldom, so that a flood costs one copy per tail
            self._forget(over)

    def kept(self) -> bytes:
        self._forget(max(0, len(self._last) - self._tail))
        middle = f"\n... {self.dropped} bytes of output dropped ...\n".encode() if self.dropped and self._first else b""
        return bytes(self._first) + middle + bytes(self._last)

    def _forget(self, count: int) -> None:
        del self._last[:count]
        self.dropped += count


class _Orphaned(Exception):
    pass


_ENDING = (signal.SIGTERM,)


class Supervisor:
    """One child's life. `control`: a descriptor whose closing ends the child; messages on it go to `hear`."""

    def __init__(
        self,
        policy: Policy | None,
        bounds: Bounds,
        *,
        without: frozenset[str],
        control: int,
        hear: Callable[[], str] = lambda: "asked",
        tell: Callable[[dict[str, object]], None] = lambda protections: None,
        output: Output | None = None,
        seconds: float | None = None,
    ) -> None:
        self._policy = policy
        self._bounds = bounds
        self._layers = ProtectionLog(without)
        self._control = control
        self._hear = hear
        self._tell = tell
        self.output = output or Output(0, 1 << 16)
        self._seconds = seconds
        self._child = 0
        self._code: int | None = None

    def run(self, become: Callable[[], NoReturn], *, keep: Sequence[int] = ()) -> End:
        """Make the child, which runs `become` with the descriptors `keep`, and stay until it and all below it are gone."""
        started = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until there is something to end
        signal.signal(signal.SIGTERM, _orphaned)
        kernel.prctl(kernel.DEATH_SIGNAL, signal.SIGTERM)
        watch = Watch(self._bounds, files.writable(self._policy) if self._policy and not self._policy.all_files else ())
        enforce.outside(self._policy, self._layers)
        keeper = namespaces.keeper(self._layers)
        printed, its_output = os.pipe2(os.O_CLOEXEC)
        status, its_status = os.pipe2(os.O_CLOEXEC)
        self._child = os.fork()
        if self._child == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            _begin(self._policy, self._bounds, self._layers, become, its_output, its_status, keep)
        reason = ""
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            for descriptor in (its_output, its_status, *keep):
                os.close(descriptor)
            if self._policy is not None:
                kernel.prctl(kernel.DUMPABLE, 0)
                with contextlib.suppress(OSError):   # without a user namespace it never held any
                    kernel.set_capabilities(_KEPT_CAPABILITIES)
            reason = self._stay(watch, printed, status, started)
        except _Orphaned:
            reason = "orphaned"
        finally:
            _deaf()
            self._end_all(watch, keeper)
        self._drain(printed)
        code = -signal.SIGKILL if self._code is None else self._code
        return End(code, reason, self.output.kept(), self.output.dropped, time.monotonic() - started)

    def _stay(self, watch: Watch, printed: int, status: int, started: float) -> str:
        """Until the child ends or has to: the reason."""
        child = os.pidfd_open(self._child)
        poll = select.poll()
        for descriptor in (printed, status, self._control, child):
            poll.register(descriptor, select.POLLIN)
        os.set_blocking(printed, False)
        said = b""
        looked = started
        watching = self._layers.wants("watch")
        while True:
            for descriptor, _ in poll.poll(_TICK_MS):
                if descriptor == child:
                    _, waited = os.waitpid(self._child, 0)
                    self._code = os.waitstatus_to_exitcode(waited)
                    os.close(child)
                    if not said:
                        said = self._hear_child(status)
                    return ""
                if descriptor == printed:
                    if not self._read(printed):
                        poll.unregister(printed)
                    if self._bounds.output and self.output.dropped > self._bounds.output:
                        return "output"
                if descriptor == status:
                    said = self._hear_child(status)
                    poll.unregister(status)
                    if "proc" in json.loads(said or b'{"on": []}')["on"]:
                        watch.look_inside()
                if descriptor == self._control and (reason := self._hear()):
                    return reason
            now = time.monotonic()
            if self._seconds is not None and now - started > self._seconds:
                return "time"
            if watching and now - looked > _TICK_MS / 1000:
                looked = now
                if reason := watch.excess():
                    return reason

    def _hear_child(self, status: int) -> bytes:
        said = os.read(status, 1 << 16)
        if said:
            self._tell(json.loads(said))
        return said

    def _read(self, printed: int) -> bool:
        """One piece of output; False at its end."""
        try:
            chunk = os.read(printed, _CHUNK)
        except BlockingIOError:
            return True
        self.output.add(chunk)
        return bool(chunk)

    def _drain(self, printed: int) -> None:
        """What was still in the pipe; everybody who could write is gone."""
        os.set_blocking(printed, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(printed, _CHUNK):
                self.output.add(chunk)

    def _end_all(self, watch: Watch, keeper: tuple[int, int] | None) -> None:
        """Kill and reap until nothing is below this process."""
        while True:
            doomed = [keeper[0], self._child] if keeper is not None else watch.below()
            for pid in doomed:
                if pid != self._child or self._code is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            try:
                while True:
                    pid, waited = os.waitpid(-1, 0 if keeper is not None else os.WNOHANG)
                    if pid == self._child:
                        self._code = os.waitstatus_to_exitcode(waited)
                    if pid == 0:
                        time.sleep(0.002)
                        break
            except ChildProcessError:
                return


def _begin(
    policy: Policy | None,
    bounds: Bounds,
    layers: ProtectionLog,
    become: Callable[[], NoReturn],
    output: int,
    status: int,
    keep: Sequence[int],
) -> NoReturn:
    """The child's first steps, still trusted."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        close_others({status, *keep})
        enforce.inside(policy, bounds, layers)
        if layers.wants("watch"):
            layers.on.append("watch")
        else:
            layers.deny("watch", "")
        os.write(status, json.dumps(layers.plain()).encode())
        os.close(status)
        become()
    except BaseException as error:         # whatever it is, this fork must not go on as its parent
        os.write(2, f"the sandbox could not be entered: {error}\n".encode())
    finally:
        os._exit(126)


def close_others(keep: set[int]) -> None:
    """Close every descriptor but stdio and these."""
    last = 3
    for descriptor in sorted(keep):
        os.closerange(last, descriptor)
        last = max(last, descriptor + 1)
    os.closerange(last, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _deaf() -> None:
    """From now on no SIGTERM is heard; one that comes at this moment raises before it is so."""
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        with contextlib.suppress(_Orphaned):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _orphaned(number: int, frame: object) -> None:
    raise _Orphaned
