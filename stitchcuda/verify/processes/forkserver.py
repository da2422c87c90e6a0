"""Where workers are born: a process that has torch imported, holds no secret and no CUDA context, and forks on request.

A fresh Python with torch takes seconds to start, a fork milliseconds. The judge forks the nursery before it knows anything
worth hiding, so a worker cannot find an expected output in memory it inherited. The nursery never runs a tensor operation:
a thread pool or a CUDA context would not survive the fork. Between nursery and worker stands a supervisor, a fork too, which
shuts a program's worker in. Where to look next: `verify/processes/child.py` (the judge's end), `sandbox/supervisor.py`.
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
from pathlib import Path
from typing import Any, NoReturn

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import files, kernel, limits
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.policy import Policy, policy_of
from stitchcuda.sandbox.protections import disabled_protections
from stitchcuda.sandbox.supervisor import Supervisor
from stitchcuda.verify.integrity import tampering
from stitchcuda.verify.messages.wire import Channel, ChannelClosed
from stitchcuda.verify.processes.child import Child

STRICT = True
"""Shut programs in fully: they read what is named, write their scratch and start nothing. Else they only lack the network."""

_PRELOADED = ("torch", "torch.utils.cpp_extension", "tvm_ffi.cpp", "safetensors.torch")
# What a worker's first TorchDispatchMode, and torch.export, would import for over a second; a reference's worker needs it late.
_LATER = ("torch._dynamo", "torch.export")
_PACKET = 1 << 18
_GRACE_S = 5.0                             # for a supervisor to end everything below it
_HOSTILE = ("program",)
_WORKERS = {
    "reference": "stitchcuda.verify.reference.reference_worker",
    "program": "stitchcuda.verify.program.program_worker",
    "builder": "stitchcuda.verify.program.builder_worker",
}


class ForkServer:
    """The judge's handle on the nursery process."""

    def __init__(self) -> None:
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # counting devices must not initialise CUDA
        for name in (*_PRELOADED, *_WORKERS.values()):
            importlib.import_module(name)
        # Packets, so that an order and the descriptor that comes with it cannot be torn apart.
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
        self._turn = threading.Lock()      # of those who ask and wait
        kernel.prctl(kernel.DUMPABLE, 0)   # no other process of this user reads the judge's memory

    def spawn(
        self, kind: str, scratch: Path, *, target: str, bounds: Limits, read: Sequence[Path] = (), strict: bool | None = None
    ) -> Child:
        """A fresh worker that works in `scratch`. A program's may read `read`, the system's files and Python's."""
        ours, theirs = socket.socketpair()
        control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        policy = _policy(kind, scratch, target, read, STRICT if strict is None else strict)
        key, its_key = secrets.token_bytes(32), secrets.token_bytes(32)
        order = {
            "do": "spawn",
            "kind": kind,
            "scratch": str(scratch),
            "target": target,
            "limits": bounds.model_dump(),
            "policy": None if policy is None else policy._asdict(),
            "without": sorted(disabled_protections()),
            "keys": [its_key.hex(), key.hex()],
        }
        try:
            pid = int(self._asked(order, theirs.fileno(), its_control.fileno()))
        except BaseException:
            ours.close()
            control.close()
            raise
        finally:
            theirs.close()
            its_control.close()
        return Child(pid, Channel(ours, (key, its_key)), control, self.reap)

    def reap(self, pid: int) -> None:
        """Wait until a supervisor is gone, kill it if it does not go, and with it whatever it left behind."""
        self._asked({"do": "reap", "pid": pid})

    def _asked(self, order: dict[str, Any], *descriptors: int) -> bytes:
        """Its answer. Nothing that a program does ends it: when it is gone, somebody killed it."""
        answer = b""
        with self._turn, contextlib.suppress(OSError):
            socket.send_fds(self._sock, [json.dumps(order).encode()], descriptors)
            answer = self._sock.recv(_PACKET)
        if not answer:
            raise Unavailable("the process that makes workers was killed while they were needed; run the command again")
        return answer

    def close(self) -> None:
        """End the nursery and everything below it."""
        self._sock.close()                 # it ends its children, then itself
        if not _gone(self.pid, _GRACE_S):
            limits.kill_group(self.pid)
            os.waitpid(self.pid, 0)


def _policy(kind: str, scratch: Path, target: str, read: Sequence[Path], strict: bool) -> Policy | None:
    if kind not in _HOSTILE:
        return None
    if not strict:
        return Policy(write=("/",), spawn=True, gpu=target == "cuda")
    return Policy(read=tuple(str(place) for place in read), write=(str(scratch),), gpu=target == "cuda")


def _serve(sock: socket.socket) -> None:
    limits.die_with_parent()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.prctl(kernel.SUBREAPER, 1)      # what a killed supervisor leaves behind comes here
    kernel.prctl(kernel.DUMPABLE, 0)
    roots = files.python_files()
    supervisors: set[int] = set()
    complete = False
    gc.freeze()
    while True:
        packet, fds, _, _ = socket.recv_fds(sock, _PACKET, 2, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            break
        order = json.loads(packet)
        if order["do"] == "reap":
            if not _gone(order["pid"], _GRACE_S):
                limits.kill_group(order["pid"])
                _gone(order["pid"], _GRACE_S)
            supervisors.discard(order["pid"])
            _end_strays(supervisors)
            sock.send(b"gone")
            continue
        if not complete and order["kind"] != "reference":
            complete = _completed()
        pid = os.fork()
        if pid == 0:
            sock.close()
            _supervise(order, fds[0], fds[1], roots)
        supervisors.add(pid)
        for descriptor in fds:
            os.close(descriptor)
        sock.send(str(pid).encode())
        complete = complete or _completed()  # while the reference's worker loads
    for pid in supervisors:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)   # a supervisor that is asked ends all below it first
    for pid in supervisors:
        if not _gone(pid, _GRACE_S):
            limits.kill_group(pid)
    _end_strays(set())


def _completed() -> bool:
    for name in _LATER:
        importlib.import_module(name)
    tampering.seal()
    gc.freeze()
    return True


def _gone(pid: int, seconds: float) -> bool:
    """Whether a child of this process has ended, and is reaped, within the time."""
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
    """Kill children of this process that it did not make: a supervisor that was killed could not end them."""
    while strays := [pid for pid in _children() if pid not in supervisors]:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in strays:                 # in any order: process 1 of a namespace ends after the others are reaped
            _gone(pid, 0.002)


def _children() -> list[int]:
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parent = Path(f"/proc/{name}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1]
                found += [int(name)] if int(parent) == me else []
    return found


def _supervise(order: dict[str, Any], channel: int, control: int, roots: list[str]) -> NoReturn:
    """Turn this fork into the supervisor of one worker."""
    code = 1
    try:
        os.setsid()
        line = socket.socket(fileno=control)
        policy = None if order["policy"] is None else policy_of(order["policy"])
        if policy is not None and not policy.all_files:
            policy = policy._replace(read=(*policy.read, *roots))
        bounds = limits.bounds_of(Limits(**order["limits"]), address=order["target"] == "sim")

        def read_control() -> str:
            try:
                asked = line.recv(_PACKET)
            except ConnectionResetError:   # the judge ended with an answer of ours unread
                return "orphaned"
            if asked == b"output":
                line.send(json.dumps({"output": True}).encode() + b"\n" + supervisor.output.kept())
            return "" if asked == b"output" else "asked" if asked else "orphaned"

        supervisor = Supervisor(
            policy,
            bounds,
            without=frozenset(order["without"]),
            control=control,
            read_control=read_control,
            report=lambda protections: line.sendall(json.dumps({"protections": protections}).encode() + b"\n"),
        )
        end = supervisor.run(lambda: _become(order, socket.socket(fileno=channel)), keep=(channel,))
        header = {"code": end.code, "reason": end.reason, "dropped": end.dropped, "seconds": end.seconds}
        with contextlib.suppress(OSError): # the judge may be gone
            line.send(json.dumps({"end": header}).encode() + b"\n" + end.output)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become(order: dict[str, Any], sock: socket.socket) -> NoReturn:
    """Turn this fork into a worker. Never returns."""
    code = 1
    try:
        scratch = Path(order["scratch"])
        os.chdir(scratch)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        faulthandler.enable(sys.stderr, all_threads=False)
        environment = limits.clean_environment({"HOME": str(scratch), "TMPDIR": str(scratch), "XDG_CACHE_HOME": str(scratch)})
        if order["target"] == "sim":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.clear()
        os.environ.update(environment)
        if order["kind"] == "reference":
            kernel.prctl(kernel.DUMPABLE, 0)
        if order["kind"] in _HOSTILE:
            _rename()
        worker = importlib.import_module(_WORKERS[order["kind"]])
        key, its_key = order.pop("keys")   # a channel keeps what they sign with, and nothing else is left of them
        channel = Channel(sock, (bytes.fromhex(key), bytes.fromhex(its_key)))
        del key, its_key
        worker.main(channel, scratch, order["target"])
        code = 0
    except (ChannelClosed, KeyboardInterrupt):
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _rename() -> None:
    """Forget whose fork this is: its arguments become those of a plain Python, in Python and for /proc."""
    sys.argv[:], sys.orig_argv[:] = [""], [sys.executable]
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end:
            name = os.fsencode(sys.executable)[: end - start - 1]
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, name, len(name))
