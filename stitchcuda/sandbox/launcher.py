"""Runs one command in the sandbox: a process of its own, started without site-packages so that it costs little.

`sandbox/command.py` starts it, writes the order as one line on its stdin and holds that pipe open: when it closes, the command
and all below it end. The answer on stdout is one line of JSON, then the output. Where to look next: `sandbox/supervisor.py`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

_HEAD, _TAIL = 4 << 20, 1 << 16            # bytes of output kept: compilers say what is wrong first


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from stitchcuda.sandbox.policy import Bounds, policy_of
    from stitchcuda.sandbox.supervisor import Output, Supervisor

    order = json.loads(_line(0))
    told: list[dict[str, object]] = []
    supervisor = Supervisor(
        policy_of(order["policy"]),
        Bounds(**order["bounds"]),
        without=frozenset(order["without"]),
        control=0,
        tell=told.append,
        output=Output(_HEAD, _TAIL),
        seconds=order["seconds"],
    )

    def become() -> NoReturn:
        try:
            os.chdir(order["cwd"])
            os.execvpe(order["command"][0], order["command"], order["env"])
        except OSError as error:
            os.write(2, f"{order['command'][0]}: {error.strerror}\n".encode())
            os._exit(127)

    end = supervisor.run(become)
    header = {"code": end.code, "reason": end.reason, "seconds": end.seconds, "protections": told[-1:]}
    answer = json.dumps(header).encode() + b"\n" + end.output
    while answer:
        answer = answer[os.write(1, answer) :]


def _line(descriptor: int) -> bytes:
    """Up to the first newline, and not a byte more: the rest of this descriptor is for its end."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            sys.exit(0)                    # whoever asked is gone already
        line += piece
    return line


if __name__ == "__main__":
    main()
