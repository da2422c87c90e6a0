"""Runs a command in the sandbox while its caller does something else: a coding agent, which works for hours.

Its output goes to a file as it comes. It ends by itself, at its time limit, when it passes another limit, when it is stopped,
or when this process ends; after each of these no process of it is left. Only `stop` waits for it.
Where to look next: `sandbox/command.py` (commands that are waited for), `sandbox/launcher.py` (the process in between),
`sandbox/proxy.py` (who answers at the ports of the command's network).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import files
from stitchcuda.sandbox import limits as bounding
from stitchcuda.sandbox.command import GRACE_S, LAUNCHER, CommandEnd, read_answer
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.policy import Launch, Policy
from stitchcuda.sandbox.protections import disabled_protections

_START_S = 30.0                            # for a launcher to make the sandbox, on a busy machine
_MOST_PORTS = 16


class BackgroundCommand:
    """One command. `confined`: in the sandbox; else it is the user's own, and only time, memory and processes are limited.

    `read` and `write`: as for `command.run`; all of `write` exists. `needs`: short names of protections without which it is not
    run. `ports`: of its loopback network, at which whoever accepts from `listeners`, in this order, answers; () where the
    command could not be started. `transcript`: the file that its output is appended to, up to `transcript_bytes`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        cwd: Path,
        env: Mapping[str, str],
        read: Sequence[Path | str],
        write: Sequence[Path],
        limits: Limits,
        transcript: Path,
        transcript_bytes: int,
        needs: Sequence[str] = (),
        ports: Sequence[int] = (),
        confined: bool = True,
    ) -> None:
        policy = Policy(
            read=tuple(os.fspath(place) for place in (*files.python_folders(), *read)),
            write=tuple(os.fspath(place) for place in write),
            spawn=True, loopback=True, local=True, needs=tuple(needs),
        )  # fmt: skip
        launch = Launch(
            list(command), os.fspath(cwd), dict(env), policy if confined else None,
            bounding.bounds_of(limits, address=False), seconds, sorted(disabled_protections()),
            tuple(ports)[:_MOST_PORTS] if confined else (), os.fspath(transcript), transcript_bytes,
        )  # fmt: skip
        self.listeners: tuple[socket.socket, ...] = ()
        self._end: CommandEnd | None = None
        self._control, its_control = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        # The kernel ends a launcher with the thread that started it, so that thread lives as long as the command.
        self._thread = threading.Thread(target=self._run, args=(launch, its_control), name="background-command", daemon=True)
        self._thread.start()
        self._started.wait()

    def ended(self) -> CommandEnd | None:
        """Returns how it ended; None while it runs. `output` is then the end of its output."""
        return self._end

    def stop(self) -> None:
        """Ends it with all that it started, and waits until that is done."""
        with contextlib.suppress(OSError):  # it has ended
            self._control.shutdown(socket.SHUT_RDWR)  # its launcher ends everything below it, then itself
        self._thread.join(GRACE_S)
        if self._thread.is_alive() and self._process is not None:
            bounding.kill_group(self._process.pid)
            self._thread.join(GRACE_S)
        if self._thread.is_alive():
            raise Unavailable("a command in the sandbox cannot be ended: its processes do not answer the kernel's kill")

    def _run(self, launch: Launch, its_control: socket.socket) -> None:
        try:
            self._process = process = self._launch(its_control)
            self._give(launch)
            self._started.set()
            answer, complaint = process.communicate()
            self._end = read_answer(answer, complaint.decode("utf-8", "replace"), process.returncode)
        except (OSError, RuntimeError, ValueError) as error:
            if self._process is not None:
                bounding.kill_group(self._process.pid)  # all below it end with it
                self._process.wait()
            self._end = CommandEnd(-1, "launcher", str(error).encode(), 0.0, None)
        finally:
            self._started.set()

    def _launch(self, its_control: socket.socket) -> subprocess.Popen[bytes]:
        with its_control:
            return subprocess.Popen(
                LAUNCHER, env={}, stdin=its_control.fileno(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip

    def _give(self, launch: Launch) -> None:
        """Tells the launcher what to run, and takes the sockets that listen in the command's network."""
        self._control.sendall(json.dumps(launch).encode() + b"\n")
        if launch.ports:
            self._control.settimeout(_START_S)
            _, descriptors, _, _ = socket.recv_fds(self._control, 1, _MOST_PORTS)
            self.listeners = tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)
