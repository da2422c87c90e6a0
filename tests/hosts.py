"""Hosts that share nothing but a database: processes with folders, a home, a name and, where root may, a network of their own.

Each host's network reaches the server by a cable of its own (a veth pair), which can be pulled out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.memory.postgres_server import Server, programs

ROOT = Path(__file__).resolve().parent.parent
LEASE_S = 2.0
DEADLINE_S = LEASE_S + 10                  # within which another host has taken over
NAMES = ("east", "west")


class Process:
    """A process on a host. What it prints is read from a file: it may be stopped while it prints."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        number = len(list(folder.glob("out*")))
        self._out, self._errors = folder / f"out{number}", folder / f"errors{number}"
        with self._out.open("w") as out, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                start_new_session=True,
            )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def until(self, line: str, *, times: int = 1, deadline_s: float = 60.0) -> float:
        """Waits until it has printed a line that begins so; the seconds that took."""
        started = time.monotonic()
        while sum(one.startswith(line) for one in self.lines) < times:
            late = time.monotonic() > started + deadline_s
            assert not late, f"no {line!r} after {deadline_s:g} s: {self.lines[-3:]} {self.errors}"
            assert self.running or line in self._out.read_text(), f"ended without {line!r}: {self.errors}"
            time.sleep(0.02)
        return time.monotonic() - started

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Waits for its end: the exit code."""
        return self._process.wait(timeout=60)

    def close(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()


class Host:
    """A machine of its own, as far as this one lets us."""

    def __init__(self, name: str, folder: Path, url: str, prefix: list[str], cable: Callable[[bool], None] | None) -> None:
        self.name, self.folder, self.url, self._prefix, self.cable = name, folder, url, prefix, cable
        self._processes: list[Process] = []
        for part in ("home", "tmp"):
            (folder / part).mkdir(parents=True)

    def start(self, *arguments: str, module: str = "tests.graph.tiny_process", **more: str) -> Process:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STITCHCUDA_")}
        ours = {
            "HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": str(ROOT),
            "STITCHCUDA_WORKSPACE": str(self.folder / "workspace"), "STITCHCUDA_CHECKPOINT": self.url,
            "STITCHCUDA_LEASE_S": str(LEASE_S), "STITCHCUDA_DOCS": "off",
            "STITCHCUDA_RUNTIME_CACHE": os.environ["STITCHCUDA_RUNTIME_CACHE"],
        }  # fmt: skip
        command = [*self._prefix, sys.executable, "-m", module, *arguments]
        process = Process(command, self.folder, kept | ours | more)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.close()


@contextmanager
def networks() -> Iterator[dict[str, tuple[str, str, list[str], str]]]:
    """By a host's name: the server's address for it, its own, the command that enters it, and its cable; empty where this
    machine does not let us."""
    with ExitStack() as stack:
        found = {}
        try:
            for number, name in enumerate(NAMES):
                space, cable = f"stitch-{os.getpid()}-{name}", f"st{os.getpid() % 10**7}{name[0]}"
                server, own = (f"10.213.{os.getpid() % 250}.{4 * number + end}" for end in (1, 2))
                _ip("netns", "add", space)
                stack.callback(_ip, "netns", "delete", space)
                _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
                stack.callback(_ip, "link", "delete", cable)
                _ip("addr", "add", f"{server}/30", "dev", cable)
                _ip("link", "set", cable, "up")
                for inside in (["addr", "add", f"{own}/30", "dev", "eth0"], ["link", "set", "lo", "up"],
                               ["link", "set", "eth0", "up"]):
                    _ip("-n", space, *inside)
                named = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]
                subprocess.run([*named, "true"], check=True, capture_output=True)
                found[name] = (server, own, ["nsenter", f"--net=/var/run/netns/{space}", *named], cable)
        except (OSError, subprocess.CalledProcessError):
            found = {}
        yield found


@contextmanager
def a_server() -> Iterator[tuple[Server, dict[str, tuple[str, str, list[str], str]]] | None]:
    """A server that hosts reach, and their networks; None where there is no server."""
    place = programs()
    if place is None:
        yield None
        return
    with networks() as found, Server(place, {server: own for server, own, _, _ in found.values()}) as server:
        yield server, found


def host(name: str, folder: Path, server: Server, found: dict[str, tuple[str, str, list[str], str]]) -> Host:
    if name not in found:
        return Host(name, folder / name, server.url, [], None)
    address, _, prefix, cable = found[name]
    plug = lambda plugged: _ip("link", "set", cable, "up" if plugged else "down")  # noqa: E731
    return Host(name, folder / name, server.url.replace("127.0.0.1", address), prefix, plug)


def _ip(*arguments: str) -> None:
    if not shutil.which("ip") or os.geteuid() != 0:
        raise PermissionError("networks are root's")
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
