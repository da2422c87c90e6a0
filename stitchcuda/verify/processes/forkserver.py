"""Forks worker processes on request from a process that has torch imported but holds no secret and no CUDA context.

A fresh Python with torch takes seconds to start, a fork milliseconds. The judge forks the forkserver before it knows a secret,
so a worker cannot find an expected output in inherited memory. The forkserver never runs a tensor operation, because a thread
pool or a CUDA context would not survive a fork. Between it and each worker stands a supervisor, also a fork, which sandboxes a
program's worker, enforces its limits and reports how it ended.
Where to look next: `verify/processes/child.py` (the judge's handle on a child), `sandbox/supervisor.py` (the supervisor).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import files, kernel, limits
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.policy import Policy
from stitchcuda.sandbox.protections import disabled_protections
from stitchcuda.sandbox.supervisor import Supervisor
from stitchcuda.state import Target
from stitchcuda.verify.integrity import tampering
from stitchcuda.verify.messages.request import Answer, Done, Request, answer_type, plain, read
from stitchcuda.verify.messages.wire import Channel, ChannelClosed
from stitchcuda.verify.processes.child import Child, SupervisorReport

STRICT = True
"""Whether program workers are sandboxed fully: they read only named files, write only to their scratch folder and start no
process. Else they only have no network."""

_PRELOADED = ("torch", "torch.utils.cpp_extension", "tvm_ffi.cpp", "safetensors.torch")
# A worker's first TorchDispatchMode and torch.export import these, for over a second. The reference's worker is forked earlier.
_LATER = ("torch._dynamo", "torch.export")
_PACKET = 1 << 18
_GRACE_S = 5.0                             # how long a supervisor may take to end everything below it
_HOSTILE = ("program",)
_Answer = TypeVar("_Answer")
_WORKERS = {
    "reference": "stitchcuda.verify.reference.reference_worker",
    "program": "stitchcuda.verify.program.program_worker",
    "builder": "stitchcuda.verify.program.builder_worker",
}


@dataclass(frozen=True)
class Spawned(Answer):
    """`pid`: of the worker's supervisor."""

    pid: int


@dataclass(frozen=True)
class Spawn(Request[Spawned]):
    """Has the forkserver fork a worker and its supervisor. The worker's end of its channel and of its supervisor's socket come
    along as descriptors. `keys`: of the channel, in hexadecimal, sending first; emptied before a program can look."""

    kind: str
    scratch: Path
    target: Target
    limits: Limits
    policy: Policy | None                  # None: the worker is trusted
    without: list[str]                     # short names of protections to leave out
    keys: list[str]


@dataclass(frozen=True)
class Reap(Request[Done]):
    """Has the forkserver wait until a supervisor has ended, and kill what it left behind."""

    pid: int


class ForkServer:
    """The judge's handle on the forkserver process, which is forked here. Any thread may call `spawn` and `reap`.

    `lost`: it was killed, so that no worker can be started any more.
    """

    def __init__(self) -> None:
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # counting devices must not initialise CUDA
        for name in (*_PRELOADED, *_WORKERS.values()):
            importlib.import_module(name)
        # Packets keep an order and the file descriptors that come with it together.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _serve(theirs)
            os._exit(0)
        theirs.close()
        self._sock = ours
        self.lost = False
        self._lock = threading.Lock()      # held from an order until its answer
        kernel.prctl(kernel.DUMPABLE, 0)   # no other process of this user can read the judge's memory

    def spawn(
        self, kind: str, scratch: Path, *, target: Target, bounds: Limits, read: Sequence[Path] = (), strict: bool | None = None
    ) -> Child:
        """Starts a worker whose scratch folder is `scratch`.

        `kind`: a key of `_WORKERS`. `target`: "sim" or "cuda". `bounds`: its limits. `read`: what a program's worker may read
        besides the system's and Python's files. `strict`: replaces `STRICT`. Raises `Unavailable` if the forkserver is gone.
        """
        ours, theirs = socket.socketpair()
        control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        policy = _policy(kind, scratch, target, read, STRICT if strict is None else strict)
        key, its_key = secrets.token_bytes(32), secrets.token_bytes(32)
        keys = [its_key.hex(), key.hex()]
        order = Spawn(kind, scratch, target, bounds, policy, without=sorted(disabled_protections()), keys=keys)
        try:
            pid = self._request(order, theirs.fileno(), its_control.fileno()).pid
        except BaseException:
            ours.close()
            control.close()
            raise
        finally:
            theirs.close()
            its_control.close()
        return Child(pid, Channel(ours, (key, its_key), takes=kind == "reference"), control, self.reap)

    def reap(self, pid: int) -> None:
        """Waits until a supervisor has ended, kills it after `_GRACE_S`, and kills the processes that it left behind."""
        self._request(Reap(pid))

    def _request(self, request: Request[_Answer], *descriptors: int) -> _Answer:
        """Sends a request and returns the answer. No program can end the forkserver: if it is gone, somebody killed it."""
        answer = b""
        with self._lock, contextlib.suppress(OSError):
            fields = {"do": type(request).__name__, **plain(request)}
            socket.send_fds(self._sock, [json.dumps(fields).encode()], descriptors)
            answer = self._sock.recv(_PACKET)
        if not answer:
            self.lost = True
            raise Unavailable("the process that makes workers was killed while they were needed; run the command again")
        return read(answer_type(request), json.loads(answer))

    def close(self) -> None:
        """Ends the forkserver and everything below it."""
        self._sock.close()                 # it then ends its children and itself
        _end(self.pid)


def _policy(kind: str, scratch: Path, target: str, read: Sequence[Path], strict: bool) -> Policy | None:
    if kind not in _HOSTILE:
        return None
    if not strict:
        return Policy(write=("/",), spawn=True, gpu=target == "cuda")
    return Policy(read=tuple(str(place) for place in read), write=(str(scratch),), gpu=target == "cuda")


def _serve(sock: socket.socket) -> None:
    """The forkserver's loop: forks supervisors until the judge closes its end, then ends them all."""
    limits.die_with_parent()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.prctl(kernel.SUBREAPER, 1)      # the children of a killed supervisor become children of this process
    kernel.prctl(kernel.DUMPABLE, 0)
    roots = files.python_files()
    supervisors: set[int] = set()
    complete = False
    gc.freeze()
    while True:
        packet, fds, _, _ = socket.recv_fds(sock, _PACKET, 2, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            break
        fields = json.loads(packet)
        if fields.pop("do") == "Reap":
            left = read(Reap, fields).pid
            _end(left)
            supervisors.discard(left)
            _end_strays(supervisors)
            sock.send(json.dumps(plain(Done())).encode())
            continue
        order = read(Spawn, fields)
        packet, fields = b"", {}           # the worker inherits this frame, and must not find the keys in it
        if not complete and order.kind != "reference":
            complete = _import_later()
        pid = os.fork()
        if pid == 0:
            sock.close()
            _supervise(order, fds[0], fds[1], roots)
        supervisors.add(pid)
        for descriptor in fds:
            os.close(descriptor)
        sock.send(json.dumps(plain(Spawned(pid))).encode())
        complete = complete or _import_later()  # meanwhile the reference's worker loads
    for pid in supervisors:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)   # a supervisor first ends all processes below it
    for pid in supervisors:
        _end(pid)
    _end_strays(set())


def _import_later() -> bool:
    for name in _LATER:
        importlib.import_module(name)
    tampering.seal()
    gc.freeze()
    return True


def _end(pid: int) -> None:
    """Waits for a child of this process to end, and kills it with its group after `_GRACE_S`."""
    if not _wait_for_end(pid, _GRACE_S):
        limits.kill_group(pid)
        _wait_for_end(pid, _GRACE_S)


def _wait_for_end(pid: int, seconds: float) -> bool:
    """Waits for a child of this process to end and reaps it. False if it still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def _end_strays(supervisors: set[int]) -> None:
    """Kills children of this process that it did not fork: a supervisor that was killed could not end them."""
    while strays := [pid for pid in _children() if pid not in supervisors]:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in strays:                 # again and again: process 1 of a namespace ends only after the others are reaped
            _wait_for_end(pid, 0.002)


def _children() -> list[int]:
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parent = Path(f"/proc/{name}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1]
                found += [int(name)] if int(parent) == me else []
    return found


def _supervise(order: Spawn, channel: int, control: int, roots: list[str]) -> NoReturn:
    """Turns this fork into the supervisor of one worker. `control`: its socket to the judge's `Child`. Never returns."""
    code = 1
    try:
        os.setsid()
        judge = socket.socket(fileno=control)
        policy = order.policy
        if policy is not None and not policy.all_files:
            policy = policy._replace(read=(*policy.read, *roots))
        bounds = limits.bounds_of(order.limits, address=order.target == "sim")

        def read_control() -> str:
            try:
                asked = judge.recv(_PACKET)
            except ConnectionResetError:   # the judge ended with an answer of ours unread
                return "orphaned"
            if asked == b"output":
                judge.send(SupervisorReport(output=True).packet(supervisor.output.kept()))
            return "" if asked == b"output" else "asked" if asked else "orphaned"

        supervisor = Supervisor(
            policy,
            bounds,
            without=frozenset(order.without),
            control=control,
            read_control=read_control,
            report=lambda protections: judge.sendall(SupervisorReport(protections=protections).packet()),
        )
        end = supervisor.run(lambda: _become_worker(order, socket.socket(fileno=channel)), keep=(channel,))
        with contextlib.suppress(OSError): # the judge may be gone
            judge.send(SupervisorReport(code=end.code, reason=end.reason, dropped=end.dropped).packet(end.output))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become_worker(order: Spawn, sock: socket.socket) -> NoReturn:
    """Turns this fork into a worker. Never returns."""
    code = 1
    try:
        scratch = order.scratch
        os.chdir(scratch)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        faulthandler.enable(sys.stderr, all_threads=False)
        environment = limits.clean_environment({"HOME": str(scratch), "TMPDIR": str(scratch), "XDG_CACHE_HOME": str(scratch)})
        if order.target == "sim":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.clear()
        os.environ.update(environment)
        if order.kind == "reference":
            kernel.prctl(kernel.DUMPABLE, 0)
        if order.kind in _HOSTILE:
            _rename()
        worker = importlib.import_module(_WORKERS[order.kind])
        key, its_key = order.keys          # deleted below: only inside the channel's hash objects do they live on
        order.keys.clear()
        channel = Channel(sock, (bytes.fromhex(key), bytes.fromhex(its_key)), takes=True)
        del key, its_key
        worker.main(channel, scratch, order.target)
        code = 0
    except (ChannelClosed, KeyboardInterrupt):
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _rename() -> None:
    """Hides the judge's command line: in sys.argv and in /proc it becomes that of a plain Python."""
    sys.argv[:], sys.orig_argv[:] = [""], [sys.executable]
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end:
            name = os.fsencode(sys.executable)[: end - start - 1]
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, name, len(name))
