"""Runs a compiler or another tool in the sandbox, and kills it with everything it started when its time is over.

It starts `sandbox/launcher.py`, which makes the sandbox and runs the command. It never runs a program's own code: workers do.
Where to look next: `sandbox/launcher.py` (the process in between), `sandbox/policy.py` (what is allowed).
"""

from __future__ import annotations

import functools
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import files
from stitchcuda.sandbox import limits as bounding
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.policy import Launch, Policy
from stitchcuda.sandbox.protections import NAMES, Protections, disabled_protections, protections_of
from stitchcuda.sandbox.watch import is_scarce

LAUNCHER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")))
GRACE_S = 10.0                             # beyond the time limit, for the launcher to kill and answer
_PROBE_S = 20.0
_EXCESSES = ("memory", "disk", "processes")  # reasons why the launcher stops a command


class Finished(NamedTuple):
    """How a command ended: exit code (negative: signal), stdout and stderr together, wall-clock seconds. `timed_out`: it was
    killed at its time limit."""

    code: int
    output: str
    seconds: float
    timed_out: bool = False


class CommandEnd(NamedTuple):
    """How a launcher says that its command ended. `protections`: those in force; None if it ended before it had them."""

    code: int
    reason: str                            # as `sandbox/supervisor.py`'s `End` has it
    output: bytes
    seconds: float
    protections: Protections | None


class Run(Protocol):
    """A function that runs a command as `run` or `unconfined` does, for tools whose caller decides which."""

    def __call__(
        self,
        command: Sequence[str],
        /,
        *,
        seconds: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> Finished: ...


def run(
    command: Sequence[str],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    limits: Limits | None = None,
    gpu: bool = False,
    loopback: bool = False,
) -> Finished:
    """Runs `command` in the sandbox: without network, and without sight of other processes.

    `seconds`: its time limit. `cwd`: by default the first folder of `write`. `env`: by default a clean environment. `read`:
    places it may read beyond the system's and Python's. `write`: the only places it may write. `gpu`: it sees the GPU's device
    files. `loopback`: its processes may speak TCP with each other, as profilers do. A command that does not exist ends with
    code 127. Raises `Unavailable` if it was stopped because a file system that it writes to is full.
    """
    visible: list[Path | str] = [*folders_of_command(command[0], env), *read]
    end = _launch(list(command), seconds, cwd, env, visible, list(write), limits, gpu=gpu, loopback=loopback)
    text = end.output.decode("utf-8", "replace")
    if end.reason == "disk" and (full := next((place for place in write if is_scarce(place)), None)):
        raise Unavailable(f"no space left to build in {full.parent}: free some there, or choose another folder")
    if end.reason in _EXCESSES:
        text += f"\nstopped: more {end.reason} than it may use\n"
    return Finished(end.code, text, end.seconds, end.reason == "time")


def unconfined(
    command: Sequence[str],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
) -> Finished:
    """Runs a command of the user's own as `run` does, but without a sandbox: `read` and `write` have no effect."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, late = process.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        bounding.kill_group(process.pid)
        output, late = process.communicate()[0], True
    except BaseException:
        bounding.kill_group(process.pid)
        raise
    code = -signal.SIGKILL if late else process.returncode
    return Finished(code, output.decode("utf-8", "replace"), time.monotonic() - started, late)


def available() -> Protections:
    """Returns the protections that this machine grants, found by starting a child once. Raises what
    `disabled_protections` does."""
    return _available(tuple(sorted(disabled_protections())))


@functools.lru_cache(maxsize=8)
def _available(without: tuple[str, ...]) -> Protections:
    try:
        end = _launch(["true"], _PROBE_S, None, None, [], [], None)
    except (OSError, RuntimeError) as error:
        return Protections((), tuple((name, f"no child could be made: {error}") for name in NAMES.values()))
    if end.protections is None:
        why = end.output.decode("utf-8", "replace").strip() or f"the child ended with {end.code}"
        return Protections((), tuple((name, why) for name in NAMES.values()))
    return end.protections


def _launch(
    command: list[str],
    seconds: float,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    read: Sequence[Path | str],
    write: Sequence[Path],
    limits: Limits | None,
    *,
    gpu: bool = False,
    loopback: bool = False,
) -> CommandEnd:
    policy = Policy(
        read=tuple(os.fspath(place) for place in (*files.python_folders(), *read)),
        write=tuple(os.fspath(place) for place in write), spawn=True, gpu=gpu, loopback=loopback,
    )  # fmt: skip
    environment = dict(env) if env is not None else bounding.clean_environment()
    if write:
        environment.setdefault("TMPDIR", os.fspath(write[0]))
    launch = Launch(
        command, os.fspath(cwd or (write[0] if write else "/")), environment, policy,
        bounding.bounds_of(limits or Limits(), address=False), seconds, sorted(disabled_protections()),
    )  # fmt: skip
    process = subprocess.Popen(
        LAUNCHER, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(launch).encode() + b"\n")
        process.stdin.flush()
        answer, complaint = _communicate(process, seconds + GRACE_S)
    except BaseException:
        process.stdin.close()              # the launcher ends everything below it, then itself
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            bounding.kill_group(process.pid)
            process.wait()
        raise
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return read_answer(answer, complaint, process.returncode)


def read_answer(answer: bytes, complaint: str, code: int) -> CommandEnd:
    """Reads what a launcher printed before it ended with `code`. Raises `RuntimeError` if that is no answer."""
    head, _, output = answer.partition(b"\n")
    if not head:
        raise RuntimeError(f"the sandbox's launcher ended with {bounding.signal_name(code)}: {complaint[-2000:]}")
    code, reason, took, reported = json.loads(head)
    return CommandEnd(code, reason, output, took, protections_of(reported[0]) if reported else None)


def _communicate(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, str]:
    """Returns everything on stdout and stderr. stdin stays open, since closing it would end the command."""
    deadline = time.monotonic() + seconds
    pieces: dict[Any, list[bytes]] = {process.stdout: [], process.stderr: []}
    with selectors.DefaultSelector() as selector:
        for pipe in pieces:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, seconds)
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 1 << 18)
                pieces[key.fileobj].append(piece)
                if not piece:
                    selector.unregister(key.fileobj)
    process.wait()
    return b"".join(pieces[process.stdout]), b"".join(pieces[process.stderr]).decode("utf-8", "replace")


def folders_of_command(name: str, env: Mapping[str, str] | None) -> list[str]:
    """Returns the folders of a command, found and real: `/opt/x` for `/opt/x/bin/cc`, since `lib` lies beside `bin`. Never
    returns a folder that holds the user's home, or `~/.local`, where programs keep keys too."""
    found = shutil.which(name, path=(env or os.environ).get("PATH"))
    if found is None:
        return []
    places = []
    for path in (found, os.path.realpath(found)):
        folder = os.path.dirname(path)
        above = os.path.dirname(folder)
        home = os.path.expanduser("~")
        whole = os.path.basename(folder) == "bin" and not f"{home}/.local/".startswith(f"{above.rstrip('/')}/")
        places.append(above if whole else folder)
    return places
