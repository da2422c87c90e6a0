"""Runs a command that may be broken: without input, within a time limit and a bound of output, and never raises.

A program that hangs or prints without end is killed with all that it started.
Where to look next: `tools/device/nvidia_smi.py`, `tools/device/toolkit.py`, `tools/doctor/finding.py` (which use it).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from pathlib import Path

from stitchcuda.sandbox.limits import kill_group
from stitchcuda.state import Record

MOST = 4 * 1024**2                         # bytes of output; a program that prints more is killed


class CommandOutput(Record):
    """What a program printed. `why` is the reason where it could not be run or did not end by itself."""

    ok: bool                               # it ended with exit code 0
    out: str = ""
    err: str = ""
    why: str = ""

    @property
    def text(self) -> str:
        """The reason, else all output in one piece."""
        return self.why or (self.out + self.err).strip()


def run_probe(*command: str | Path, seconds: float) -> CommandOutput:
    """Runs a command in a process session of its own, for at most `seconds`, and returns what it prints."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        child = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte in a name
        return CommandOutput(ok=False, why=f"it cannot be run ({getattr(error, 'strerror', None) or error})")
    with child:
        try:
            out, err, why = _read(child, time.monotonic() + seconds)
        except subprocess.TimeoutExpired:
            out, err, why = "", "", f"no answer within {seconds:g} s"
        finally:
            if child.returncode is None:
                kill_group(child.pid)
    return CommandOutput(ok=child.returncode == 0 and not why, out=out, err=err, why=why)


def _read(child: subprocess.Popen[bytes], until: float) -> tuple[str, str, str]:
    """Returns (stdout, stderr, ""), or ("", "", why) for more than `MOST` bytes. Raises `TimeoutExpired`."""
    read: dict[object, bytearray] = {child.stdout: bytearray(), child.stderr: bytearray()}
    with selectors.DefaultSelector() as waiting:
        for pipe in read:
            waiting.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
        while waiting.get_map():
            ready = waiting.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(child.args, 0)
            for key, _ in ready:
                piece = os.read(key.fd, 65536)
                read[key.fileobj] += piece
                if not piece:
                    waiting.unregister(key.fileobj)
            if sum(map(len, read.values())) > MOST:
                return "", "", "it prints without end"
    child.wait(max(0.0, until - time.monotonic()))
    out, err = (bytes(text).decode(errors="replace") for text in read.values())
    return out, err, ""
