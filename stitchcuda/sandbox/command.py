"""Runs one compiler or another tool in the sandbox: killable with everything it started, its output in one piece.

It never runs a program's own code: that is a worker's part. Where to look next: `sandbox/launcher.py` (the process in between).
"""

from __future__ import annotations

import functools
import json
import os
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
from stitchcuda.sandbox.policy import Policy
from stitchcuda.sandbox.protections import NAMES, Protections, left_out, protections_of
from stitchcuda.sandbox.watch import is_scarce

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_GRACE_S = 10.0                            # for the launcher to notice, kill and answer
_PROBE_S = 20.0
_EXCESSES = ("memory", "disk", "processes")


class Finished(NamedTuple):
    """A command's end. `timed_out`: it was killed at its limit."""

    code: int
    output: str
    seconds: float
    timed_out: bool = False


class Run(Protocol):
    """As much of `run` as a tool needs that is told how to run its command: in the sandbox, or as another's process."""

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
    """Run `command`, which may read `read` beyond the system's own folders and Python's, and write `write` and nothing else.

    It sees no network and no other process. A clean environment unless `env` is given, a time limit in `seconds`, stdout and
    stderr together. Without `cwd` it works in the first folder of `write`. A command that does not exist ends with code 127.
    `gpu`: it sees the GPU's device files. `loopback`: its processes may speak TCP with each other, as profilers do.
    Raises `Unavailable` where it was stopped because a file system that it writes to is full.
    """
    visible: list[Path | str] = [*_of_command(command[0], env), *read]
    answer, output = _launch(list(command), seconds, cwd, env, visible, list(write), limits, gpu=gpu, loopback=loopback)
    text = output.decode("utf-8", "replace")
    if answer["reason"] == "disk" and (full := next((place for place in write if is_scarce(place)), None)):
        raise Unavailable(f"no space left to build in {full.parent}: free some there, or choose another folder")
    if answer["reason"] in _EXCESSES:
        text += f"\nstopped: more {answer['reason']} than it may use\n"
    return Finished(answer["code"], text, answer["seconds"], answer["reason"] == "time")


def unconfined(
    command: Sequence[str],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
) -> Finished:
    """A command of the user's own: as `run`, but without a sandbox, so that `read` and `write` bind nobody."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, late = process.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        bounding.kill_group(process.pid)
        said, late = process.communicate()[0], True
    except BaseException:
        bounding.kill_group(process.pid)
        raise
    code = -signal.SIGKILL if late else process.returncode
    return Finished(code, said.decode("utf-8", "replace"), time.monotonic() - started, late)


def available() -> Protections:
    """What this machine grants a child, found by making one; kept for this process' life. Raises only what `left_out` does."""
    return _available(tuple(sorted(left_out())))


@functools.lru_cache(maxsize=8)
def _available(without: tuple[str, ...]) -> Protections:
    try:
        answer, output = _launch(["true"], _PROBE_S, None, None, [], [], None)
    except (OSError, RuntimeError) as error:
        return Protections((), tuple((name, f"no child could be made: {error}") for name in NAMES.values()))
    if not answer["protections"]:
        why = output.decode("utf-8", "replace").strip() or f"the child ended with {answer['code']}"
        return Protections((), tuple((name, why) for name in NAMES.values()))
    return protections_of(answer["protections"][0])


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
) -> tuple[dict[str, Any], bytes]:
    policy = Policy(
        read=tuple(os.fspath(place) for place in (*files.prefixes(), *read)),
        write=tuple(os.fspath(place) for place in write),
        spawn=True,
        gpu=gpu,
        loopback=loopback,
    )
    environment = dict(env) if env is not None else bounding.clean_environment()
    if write:
        environment.setdefault("TMPDIR", os.fspath(write[0]))
    order = {
        "command": command,
        "cwd": os.fspath(cwd or (write[0] if write else "/")),
        "env": environment,
        "policy": policy._asdict(),
        "bounds": bounding.bounds_of(limits or Limits(), address=False)._asdict(),
        "seconds": seconds,
        "without": sorted(left_out()),
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", _LAUNCHER],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        answer, complaint = _communicate(process, seconds + _GRACE_S)
    except BaseException:
        process.stdin.close()              # the launcher ends everything below it, then itself
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            bounding.kill_group(process.pid)
            process.wait()
        raise
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    head, _, output = answer.partition(b"\n")
    if not head:
        raise RuntimeError(f"the sandbox's launcher ended with {bounding.signal_name(process.returncode)}: {complaint[-2000:]}")
    header: dict[str, Any] = json.loads(head)
    return header, output


def _communicate(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, str]:
    """Everything on stdout and stderr, with stdin left open."""
    import selectors

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


def _of_command(name: str, env: Mapping[str, str] | None) -> list[str]:
    """The folder that a command outside of the system's folders lies in, with its neighbours (`bin` has `lib` beside it)."""
    found = shutil.which(name, path=(env or os.environ).get("PATH"))
    if found is None:
        return []
    places = []
    for path in (found, os.path.realpath(found)):
        folder = os.path.dirname(path)
        above = os.path.dirname(folder)
        home = os.path.expanduser("~")
        whole = os.path.basename(folder) == "bin" and not f"{home}/".startswith(f"{above.rstrip('/')}/")
        places.append(above if whole else folder)
    return places
