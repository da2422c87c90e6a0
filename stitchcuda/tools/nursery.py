"""Where workers are born: a process that has torch imported, holds no secret and no CUDA context, and forks on request.

A fresh Python with torch takes seconds to start, a fork milliseconds. The judge forks the nursery before it knows anything
worth hiding, so a worker cannot find an expected output in memory it inherited. The nursery never runs a tensor operation:
a thread pool or a CUDA context would not survive the fork. Where to look next: `worker.py` (the judge's end).
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from stitchcuda.sandbox import limits
from stitchcuda.sandbox.limits import Limits
from stitchcuda.tools.wire import Channel, Closed

# torch._dynamo: what a worker's first TorchDispatchMode, and torch.export, would import for over a second
_PRELOADED = ("torch", "torch._dynamo", "torch.export", "torch.utils.cpp_extension", "tvm_ffi.cpp", "safetensors.torch")
_PACKET = 65_536
_WORKERS = {
    "reference": "stitchcuda.tools.reference_worker",
    "program": "stitchcuda.tools.program_worker",
    "builder": "stitchcuda.tools.builder_worker",
}


class Nursery:
    """The judge's handle on the nursery process. `spawn` returns a worker's pid and the channel to it."""

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

    def spawn(self, kind: str, scratch: Path, *, target: str, bounds: Limits) -> tuple[int, Channel]:
        """A fresh worker that leads its own process group, works in `scratch` and logs to `scratch/log`."""
        ours, theirs = socket.socketpair()
        order = {"do": "spawn", "kind": kind, "scratch": str(scratch), "target": target, "limits": bounds.model_dump()}
        socket.send_fds(self._sock, [json.dumps(order).encode()], [theirs.fileno()])
        theirs.close()
        return int(self._sock.recv(_PACKET)), Channel(ours)

    def wait(self, pid: int) -> int:
        """The worker's return code, negative for a signal; blocks until it is gone, so kill it first."""
        self._sock.send(json.dumps({"do": "wait", "pid": pid}).encode())
        return int(self._sock.recv(_PACKET))

    def close(self) -> None:
        limits.kill_group(self.pid)
        os.waitpid(self.pid, 0)
        self._sock.close()


def _serve(sock: socket.socket) -> None:
    limits.die_with_parent()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    while True:
        packet, fds, _, _ = socket.recv_fds(sock, _PACKET, 1)
        if not packet:
            return
        order = json.loads(packet)
        if order["do"] == "wait":
            sock.send(str(_wait(order["pid"])).encode())
            continue
        pid = os.fork()
        if pid == 0:
            sock.close()
            _become(order, socket.socket(fileno=fds[0]))
        os.close(fds[0])
        sock.send(str(pid).encode())


def _wait(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


def _become(order: dict[str, Any], sock: socket.socket) -> None:
    """Turn this fork into a worker. Never returns."""
    code = 1
    try:
        limits.die_with_parent()
        os.setsid()
        scratch = Path(order["scratch"])
        os.chdir(scratch)
        log = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        _close_others(keep=sock.fileno())
        faulthandler.enable(sys.stderr, all_threads=False)
        environment = limits.clean_environment({"HOME": str(scratch), "TMPDIR": str(scratch), "XDG_CACHE_HOME": str(scratch)})
        if order["target"] == "sim":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.clear()
        os.environ.update(environment)
        limits.apply(Limits(**order["limits"]), bound_memory=order["target"] == "sim")
        worker = importlib.import_module(_WORKERS[order["kind"]])
        worker.main(Channel(sock), scratch, order["target"])
        code = 0
    except (Closed, KeyboardInterrupt):
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _close_others(keep: int) -> None:
    """Close every descriptor but stdio and the channel: the nursery's own socket would let a worker order siblings."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != keep:
            try:
                os.close(int(name))
            except OSError:
                continue                   # the descriptor that listed the folder
