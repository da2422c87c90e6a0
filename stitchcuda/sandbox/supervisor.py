"""Starts one sandboxed child, keeps its output, watches what it uses, and kills it with all processes below it.

It is trusted and runs nothing foreign. It ends when the child ends, when it is asked to, when its own parent dies or when the
other end of `control` closes; after each of these no process of the child is left. If it is killed itself, the child dies too:
the kernel ends a process namespace with its process 1, and without a namespace the child asked to die with its parent.
Where to look next: `sandbox/enforce.py` (what protects), `sandbox/watch.py` (what is measured); `sandbox/launcher.py` and
`verify/processes/forkserver.py` (who starts supervisors).
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
from stitchcuda.sandbox.protections import NAMES, ProtectionLog, Protections, protections_of
from stitchcuda.sandbox.watch import Watch

_TICK_MS = 100
_CHUNK = 1 << 18
_KEPT_CAPABILITIES = 1 << 5 | 1 << 19      # CAP_KILL, CAP_SYS_PTRACE: to look at and end a child that hides


class End(NamedTuple):
    """How a child ended. `code`: negative for a signal. `reason`: why it was killed, "" if it was not."""

    code: int
    reason: str                            # "memory", "disk", "processes", "output", "time", "asked", "orphaned", ""
    output: bytes
    dropped: int                           # bytes of output that were not kept
    seconds: float


class Output:
    """Keeps the first `head` bytes and the last `tail` bytes of a stream, and counts the others."""

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


class LoggedOutput(Output):
    """Keeps the last `tail` bytes of a stream, and appends the first `most` bytes to a file as they come."""

    def __init__(self, path: str, most: int, tail: int) -> None:
        super().__init__(0, tail)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._room = max(0, most - os.fstat(self._file).st_size)
        self._beyond = 0                   # bytes that did not fit

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        _write_all(self._file, chunk[: self._room])
        self._beyond += max(0, len(chunk) - self._room)
        self._room = max(0, self._room - len(chunk))

    def close(self) -> None:
        """Appends the end of the stream, if there was no room for all of it."""
        if self._beyond:
            end = self.kept()[-self._beyond :]
            note = f"\n... {self._beyond - len(end)} bytes of output dropped ...\n".encode()
            _write_all(self._file, note + end)
        os.close(self._file)


class _Orphaned(Exception):
    pass


_ENDING = (signal.SIGTERM,)


class Supervisor:
    """Runs one child. `policy`: None if the child is trusted. `without`: protections to leave out, by short name. `control`: a
    descriptor whose closing ends the child; `read_control` reads a message from it and returns a reason to end, or "".
    `entered`: is called in the child's namespaces, before there is a child, with the short names of those in force. `report`:
    gets the protections in force once the child has them. `seconds`: its time limit."""

    def __init__(
        self,
        policy: Policy | None,
        bounds: Bounds,
        *,
        without: frozenset[str],
        control: int,
        read_control: Callable[[], str] = lambda: "asked",
        entered: Callable[[Sequence[str]], None] = lambda names: None,
        report: Callable[[Protections], None] = lambda protections: None,
        output: Output | None = None,
        seconds: float | None = None,
    ) -> None:
        self._policy = policy
        self._bounds = bounds
        self._log = ProtectionLog(without)
        self._control = control
        self._read_control = read_control
        self._entered = entered
        self._report = report
        self.output = output or Output(0, 1 << 16)
        self._seconds = seconds
        self._child = 0
        self._code: int | None = None

    def run(self, become: Callable[[], NoReturn], *, keep: Sequence[int] = ()) -> End:
        """Starts the child, which runs `become` with the descriptors `keep`, and waits until it and all below it are gone."""
        started = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until there is a child to end
        signal.signal(signal.SIGTERM, _raise_orphaned)
        kernel.prctl(kernel.DEATH_SIGNAL, signal.SIGTERM)
        watch = Watch(self._bounds, files.writable(self._policy) if self._policy and not self._policy.all_files else ())
        enforce.prepare_supervisor(self._policy, self._log)
        self._entered(self._log.on)
        keeper = namespaces.start_keeper(self._log)
        printed, its_output = os.pipe2(os.O_CLOEXEC)
        status, its_status = os.pipe2(os.O_CLOEXEC)
        self._child = os.fork()
        if self._child == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            _become_child(self._policy, self._bounds, self._log, become, its_output, its_status, keep)
        reason = ""
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            for descriptor in (its_output, its_status, *keep):
                os.close(descriptor)
            if self._policy is not None:
                kernel.prctl(kernel.DUMPABLE, 0)
                with contextlib.suppress(OSError):   # without a user namespace it never held any
                    kernel.set_capabilities(_KEPT_CAPABILITIES)
            reason = self._wait_for_end(watch, printed, status, started)
        except _Orphaned:
            reason = "orphaned"
        finally:
            try:                           # noqa: SIM105 (entering `suppress` could be interrupted too)
                _ignore_sigterm()
            except _Orphaned:              # it came on the way into the function, and comes only once
                pass
            self._end_all(watch, keeper)
        self._drain(printed)
        code = -signal.SIGKILL if self._code is None else self._code
        return End(code, reason, self.output.kept(), self.output.dropped, time.monotonic() - started)

    def _wait_for_end(self, watch: Watch, printed: int, status: int, started: float) -> str:
        """Waits until the child ends or has to be ended. Returns the reason, "" if it ended by itself."""
        child = os.pidfd_open(self._child)
        poll = select.poll()
        for descriptor in (printed, status, self._control, child):
            poll.register(descriptor, select.POLLIN)
        os.set_blocking(printed, False)
        reported: Protections | None = None
        looked = started
        watching = self._log.wants("watch")
        while True:
            for descriptor, _ in poll.poll(_TICK_MS):
                if descriptor == child:
                    _, waited = os.waitpid(self._child, 0)
                    self._code = os.waitstatus_to_exitcode(waited)
                    os.close(child)
                    if reported is None:
                        self._report_status(status)
                    return ""
                if descriptor == printed:
                    if not self._read(printed):
                        poll.unregister(printed)
                    if self._bounds.output and self.output.dropped > self._bounds.output:
                        return "output"
                if descriptor == status:
                    reported = self._report_status(status)
                    poll.unregister(status)
                    if reported is not None and NAMES["proc"] in reported.on:
                        watch.look_inside()
                if descriptor == self._control and (reason := self._read_control()):
                    return reason
            now = time.monotonic()
            if self._seconds is not None and now - started > self._seconds:
                return "time"
            if watching and now - looked > _TICK_MS / 1000:
                looked = now
                if reason := watch.excess():
                    return reason

    def _report_status(self, status: int) -> Protections | None:
        """Reads and reports the protections in force. None if the child ended before it had them."""
        written = os.read(status, 1 << 16)
        if not written:
            return None
        reported = protections_of(json.loads(written))
        self._report(reported)
        return reported

    def _read(self, printed: int) -> bool:
        """Reads a piece of output. Returns False at its end."""
        try:
            chunk = os.read(printed, _CHUNK)
        except BlockingIOError:
            return True
        self.output.add(chunk)
        return bool(chunk)

    def _drain(self, printed: int) -> None:
        """Reads what is still in the pipe, after all writers are gone."""
        os.set_blocking(printed, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(printed, _CHUNK):
                self.output.add(chunk)

    def _end_all(self, watch: Watch, keeper: tuple[int, int] | None) -> None:
        """Kills and reaps until no process is below this one."""
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


def _become_child(
    policy: Policy | None, bounds: Bounds, log: ProtectionLog, become: Callable[[], NoReturn], output: int, status: int,
    keep: Sequence[int],
) -> NoReturn:  # fmt: skip
    """Confines this fork, which is still trusted, and then runs `become`."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        close_others({status, *keep})
        enforce.confine_child(policy, bounds, log)
        if log.wants("watch"):
            log.on.append("watch")
        else:
            log.deny("watch", "")
        os.write(status, json.dumps(log.found()).encode())
        os.close(status)
        if policy is not None and (lacking := [name for name in policy.needs if name not in log.on]):
            raise PermissionError(f"this machine denies {', '.join(NAMES[name] for name in lacking)}")
        become()
    except BaseException as error:         # whatever failed, this fork must not go on as if it were its parent
        os.write(2, f"the sandbox could not be entered: {error}\n".encode())
    finally:
        os._exit(126)


def close_others(keep: set[int]) -> None:
    """Closes every descriptor but stdio and these."""
    last = 3
    for descriptor in sorted(keep):
        os.closerange(last, descriptor)
        last = max(last, descriptor + 1)
    os.closerange(last, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _ignore_sigterm() -> None:
    """Ignores SIGTERM from now on. One that arrives meanwhile raises `_Orphaned`, which is caught here."""
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        with contextlib.suppress(_Orphaned):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _raise_orphaned(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Orphaned
