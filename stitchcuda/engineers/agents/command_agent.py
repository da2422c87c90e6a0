"""A coding agent's command line that works in a workbench: it is started once, in the sandbox, and ends with the session.

It sees the system, its own installation, the configuration and keys that its command was given, the workbench's folder, and an
empty home. It reaches the workbench's socket and its endpoints. Its output is kept as a transcript, and so is what the network
refused it. No verdict depends on it: it hands programs in through the workbench, as a person does.
Where to look next: `engineers/agents/agent_command.py` (what it is given), `sandbox/background.py` (the process),
`sandbox/proxy.py` (its network), `engineers/prompts/agent_prompt.md.j2` (what it is told).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.agent_command import NEEDS, AgentCommand
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.engineers.prompt_values import render_prompt
from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import limits as bounding
from stitchcuda.sandbox.background import BackgroundCommand
from stitchcuda.sandbox.command import CommandEnd
from stitchcuda.sandbox.limits import signal_name
from stitchcuda.sandbox.proxy import PORT, Proxy, local_ports
from stitchcuda.sandbox.removal import clear
from stitchcuda.sandbox.watch import is_scarce
from stitchcuda.store.session_record import now

PROMPT = "PROMPT.md"
TRANSCRIPT = "agent-output.txt"            # in the session's folder
NETWORK = "agent-network.txt"
_MOST_TRANSCRIPT = 64 << 20
_SHOWN = 600                               # characters of its output that are told when it has ended
_CERTIFICATES = (
    "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
    "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted",
)  # fmt: skip


class AgentBench(Protocol):
    """The folder that the agent works in, as `engineers/agents/workbench.py` makes it."""

    folder: Path

    def start(self, tools: AgentTools, assignment: Assignment) -> None: ...

    def gone(self) -> str: ...

    def stop(self) -> None: ...


class CommandAgent:
    """Implements `Agent`. `session`: the session's folder, where the transcript and the agent's home lie."""

    def __init__(self, command: AgentCommand, workbench: AgentBench, session: Path) -> None:
        self.name = f"agent:{command.name}"
        self._command, self._workbench, self._session = command, workbench, session
        self._home, self._scratch = session / "agent-home", session / "agent-tmp"
        self._deadline = time.monotonic() + 60 * command.minutes
        self._running: BackgroundCommand | None = None
        self._proxy: Proxy | None = None
        self._stopped = False

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        if self._running is None:          # an earlier one may have filled the disk with them
            clear(self._home)
            clear(self._scratch)
        self._workbench.start(tools, assignment)
        if self._running is None and not self._stopped:
            try:
                self._launch()
            except OSError as error:
                raise Unavailable(f"{self.name} cannot be started ({error.strerror or error}): {self._session}") from error

    def gone(self) -> str:
        if self._running is None:
            return f"{self.name} was not started" if self._stopped else ""
        end = self._running.ended()
        if end is None:
            return self._workbench.gone()
        if end.reason == "disk" and is_scarce(self._session):
            for place in (self._home, self._scratch, self._workbench.folder):
                clear(place)               # the session needs room for its last check
        return self._describe(end)

    def stop(self) -> None:
        self._stopped = True
        if self._running is not None:
            self._running.stop()
        if self._proxy is not None:
            self._proxy.close()
        self._workbench.stop()

    def _launch(self) -> None:
        """Starts the command. What an earlier one left at the places written here is removed first, and never followed."""
        asked, folder = self._command, self._workbench.folder
        prompt, home, scratch = folder / PROMPT, self._home, self._scratch
        transcript = self._session / TRANSCRIPT
        _write_new(prompt, render_prompt("agent_prompt", {"again": transcript.exists()}))  # it was started before
        for place in (home, scratch):
            clear(place)
            place.mkdir(mode=0o700)
        for path in asked.config:
            link = home / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path.home() / path)
        words = [word.replace("{workdir}", str(folder)).replace("{prompt_file}", str(prompt)) for word in asked.words]
        with transcript.open("a", encoding="utf-8") as file:
            file.write(f"--- {now()} {' '.join(words)}\n")
        self._running = BackgroundCommand(
            words,
            seconds=max(1.0, self._deadline - time.monotonic()),
            cwd=folder,
            env=self._environment(home, scratch),
            read=[*asked.read, *(str(Path.home() / path) for path in asked.config), *_CERTIFICATES],
            write=[folder, home, scratch],
            limits=asked.limits,
            transcript=transcript,
            transcript_bytes=_MOST_TRANSCRIPT,
            needs=NEEDS,
            ports=[PORT, *local_ports(asked.endpoints)],
            confined=asked.confined,
        )
        if self._running.listeners:
            self._proxy = Proxy(self._running.listeners, asked.endpoints, self._note)

    def _environment(self, home: Path, scratch: Path) -> dict[str, str]:
        given = bounding.clean_environment({"HOME": str(home), "TMPDIR": str(scratch)})
        if self._command.confined:
            proxy, direct = f"http://127.0.0.1:{PORT}", "localhost,127.0.0.1,::1"
            for name, value in (("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", direct)):
                given |= {name: value, name.lower(): value}
            given |= {"NODE_USE_ENV_PROXY": "1", "IS_SANDBOX": "1"}  # the latter lets Claude Code work as root
        return given | dict(self._command.variables)

    def _note(self, text: str) -> None:
        with (self._session / NETWORK).open("a", encoding="utf-8") as file:
            file.write(f"{now()} {text}\n")

    def _describe(self, end: CommandEnd) -> str:
        limits = self._command.limits
        why = {
            "time": f"was stopped at its time limit of {self._command.minutes:g} minutes",
            "memory": f"was stopped: it used more memory than {limits.memory_gib:g} GiB, or the machine has none left",
            "disk": f"was stopped: it wrote more than {limits.disk_gib:g} GiB or too many files, or the disk is full",
            "processes": f"was stopped: it started more than {limits.tasks} processes and threads",
            "output": f"was stopped: it printed more than {limits.output_gib:g} GiB",
            "asked": "was stopped", "orphaned": "was stopped", "launcher": "could not be run",
        }.get(end.reason, f"ended with {signal_name(end.code)}" if end.code else "ended")  # fmt: skip
        told = [f"{self.name} {why}"]
        if self._proxy is not None and self._proxy.refused:
            told.append(f"it may not reach {', '.join(sorted(self._proxy.refused)[:3])}")
        if last := " ".join(end.output.decode("utf-8", "replace").split())[-_SHOWN:]:
            told.append(f"its output ends with: {last}")
        return "; ".join(told)


def _write_new(path: Path, text: str) -> None:
    """Writes a file into a folder that an agent has written to: nothing that it left there is followed."""
    clear(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w", encoding="utf-8") as file:
        file.write(text)
