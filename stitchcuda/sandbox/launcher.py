"""Runs one command in the sandbox, as a process of its own that starts quickly because it has no site-packages.

`sandbox/command.py` starts it and writes the order as one line of JSON to its stdin. That pipe stays open: when it closes, the
command and all processes below it end. The answer on stdout is one line of JSON, then the command's output. For
`sandbox/background.py` stdin is a socket, on which it returns the sockets that listen in the command's network.
Where to look next: `sandbox/supervisor.py` (makes the child and watches it).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

_LOWER = 10                                # of 19: the priority of a command that sees no GPU
_HEAD, _TAIL = 4 << 20, 1 << 16            # bytes of output that are kept: compilers print the cause first
_LAST = 1 << 14                            # of an output that has a file of its own


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from stitchcuda.sandbox.policy import read_launch
    from stitchcuda.sandbox.protections import Protections
    from stitchcuda.sandbox.supervisor import LoggedOutput, Output, Supervisor

    launch = read_launch(_line(0))
    reports: list[Protections] = []
    logged = LoggedOutput(launch.transcript, launch.transcript_bytes, _LAST) if launch.transcript else None
    supervisor = Supervisor(
        launch.policy,
        launch.bounds,
        without=frozenset(launch.without),
        control=0,
        entered=lambda names: _return_listeners(launch.ports, alone="network" in names),
        report=reports.append,
        output=logged or Output(_HEAD, _TAIL),
        seconds=launch.seconds,
    )

    def become() -> NoReturn:
        if launch.policy is None or not launch.policy.gpu:  # such as a compiler: a program that is being timed comes first
            os.nice(_LOWER)
        try:
            os.chdir(launch.cwd)
            os.execvpe(launch.command[0], launch.command, launch.environment)
        except OSError as error:
            os.write(2, f"{launch.command[0]}: {error.strerror}\n".encode())
            os._exit(127)

    end = supervisor.run(become)
    if logged is not None:
        logged.close()
    answer = json.dumps((end.code, end.reason, end.seconds, reports[-1:])).encode() + b"\n" + end.output
    while answer:
        answer = answer[os.write(1, answer) :]


def _return_listeners(ports: Sequence[int], *, alone: bool) -> None:
    """Listens at these ports of the network that the child will have, and gives the sockets to the parent, who answers there:
    a socket stays in the network that it was made in, whoever holds it. Gives none if the child is not `alone` there."""
    if not ports:
        return
    listeners = [socket.create_server(("127.0.0.1", port), backlog=64) for port in ports] if alone else []
    with socket.socket(fileno=os.dup(0)) as parent:
        socket.send_fds(parent, [b"\n"], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()


def _line(descriptor: int) -> bytes:
    """Reads the first line. After it only the end of the pipe is waited for."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            sys.exit(0)                    # the parent has ended
        line += piece
    return line


if __name__ == "__main__":
    main()
