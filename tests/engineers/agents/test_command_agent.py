"""A coding agent's command in the sandbox: what it can do, what it cannot, and how each bad one ends.

The agents are small Python scripts. Each says on stdout what it could do.
"""

from __future__ import annotations

import http.server
import json
import os
import shlex
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents import command_agent
from stitchcuda.engineers.agents.agent_command import read_agent_command
from stitchcuda.engineers.agents.command_agent import NETWORK, PROMPT, TRANSCRIPT, CommandAgent
from stitchcuda.engineers.agents.tools import AgentTools
from stitchcuda.state import Settings
from tests.sandbox.prison import gone as are_gone

ASSIGNMENT = cast("Assignment", None)      # these workbenches do not look at it


class Bench:
    """A workbench whose socket answers every line with "judged"."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stopped = False
        self._listener: socket.socket | None = None

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        if self._listener is None:
            (self.folder / ".workbench").mkdir(parents=True)
            self._listener = listener(self.folder / ".workbench" / "socket")
            threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def gone(self) -> str:
        return "" if self.folder.is_dir() else "its folder was removed"

    def stop(self) -> None:
        self.stopped = True
        if self._listener is not None:
            self._listener.close()

    @staticmethod
    def _serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(b"judged\n")


def listener(path: Path) -> socket.socket:
    """Listens at a path that may be longer than a socket's address."""
    made = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    made.listen()
    return made


class Session:
    """A session's folder with one agent that runs `code`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "session"
        self.folder.mkdir()
        self._script = folder / "agent.py"
        self.agent: CommandAgent | None = None

    def start(self, code: str, *arguments: str, **options: Any) -> CommandAgent:
        self._script.write_text(textwrap.dedent(code))
        words = [sys.executable, str(self._script), *arguments]
        options = {"read": str(self._script), **options}
        command = read_agent_command(Settings(model=f"agent:{shlex.join(words)}", options=options), self.folder)
        self.agent = CommandAgent(command, Bench(self.folder / "workbench"), self.folder)
        self.agent.start(AgentTools(), ASSIGNMENT)
        return self.agent

    def run(self, code: str, *arguments: str, seconds: float = 30, **options: Any) -> str:
        """Runs an agent until it is gone, and returns why."""
        return self.wait(self.start(code, *arguments, **options), seconds)

    @staticmethod
    def wait(agent: CommandAgent, seconds: float = 30) -> str:
        until = time.monotonic() + seconds
        while not (why := agent.gone()):
            assert time.monotonic() < until, "the agent does not end"
            time.sleep(0.02)
        return why

    def wait_for(self, name: str) -> str:
        """Waits for a file in the workbench."""
        until = time.monotonic() + 20
        path = self.folder / "workbench" / name
        while not path.exists() or not path.read_text():
            assert time.monotonic() < until, self.transcript
            time.sleep(0.02)
        return path.read_text()

    @property
    def transcript(self) -> str:
        return (self.folder / TRANSCRIPT).read_text(errors="replace")

    @property
    def said(self) -> dict[str, Any]:
        """What the agent printed as its last line."""
        return dict(json.loads(self.transcript.splitlines()[-1]))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(tmp_path)
    yield made
    if made.agent is not None:
        made.agent.stop()


@pytest.fixture
def server() -> Iterator[str]:
    """A web server on this machine's loopback, as HOST:PORT."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"page {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{made.server_address[1]}"
        made.shutdown()


TRY = """
    import json, os, socket, sys, urllib.request
    def tried(do):
        try:
            return do()
        except OSError as error:
            return type(error).__name__
    said = {}
    def say():
        print(json.dumps(said), flush=True)
"""


def test_it_works_in_its_folder(session: Session, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", "sk-of-the-agent")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    why = session.run(TRY + """
    said["prompt"] = open(sys.argv[1]).read()
    said["folder"] = [os.getcwd(), sys.argv[2]]
    open("made", "w").write("x"); open(os.environ["HOME"] + "/made", "w"); open(os.environ["TMPDIR"] + "/made", "w")
    with socket.socket(socket.AF_UNIX) as bench:
        bench.connect(".workbench/socket"); bench.sendall(b"check"); said["socket"] = bench.recv(100).decode()
    url = f"http://{sys.argv[3]}/a?b=c"
    said["direct"] = urllib.request.urlopen(url).read().decode()
    proxies = {"http": os.environ["HTTP_PROXY"]}
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
    said["proxy"] = urllib.request.build_opener(urllib.request.ProxyHandler(proxies)).open(url).read().decode()
    with socket.create_connection(("127.0.0.1", 3128)) as tunnel:
        tunnel.sendall(f"CONNECT {sys.argv[3]} HTTP/1.1\\r\\n\\r\\n".encode())
        said["tunnel"] = tunnel.recv(100).decode().split()[1]
        tunnel.sendall(b"GET /t HTTP/1.0\\r\\n\\r\\n"); tunnel.shutdown(socket.SHUT_WR)
        said["tunnelled"] = b"".join(iter(lambda: tunnel.recv(1000), b"")).decode()[-7:]
    said["child"] = os.waitstatus_to_exitcode(os.system("exit 3"))
    said["keys"] = sorted(name for name in os.environ if "KEY" in name)
    said["pids"] = len([name for name in os.listdir("/proc") if name.isdigit()])
    say()
    """, "{prompt_file}", "{workdir}", server, env="AGENT_KEY", endpoints=server)  # fmt: skip
    assert why.startswith("agent:python ended; its output ends with:"), session.transcript
    said, folder = session.said, session.folder / "workbench"
    assert "Read SKILL.md" in said["prompt"]
    assert "worked in this folder before" not in said["prompt"]
    assert said["folder"] == [str(folder), str(folder)]
    assert (folder / "made").exists()
    assert said["socket"] == "judged\n"
    assert (said["direct"], said["proxy"], said["tunnel"]) == ("page /a?b=c", "page /a?b=c", "200")
    assert said["tunnelled"] == "page /t"
    assert said["child"] == 3
    assert said["keys"] == ["AGENT_KEY"]
    assert said["pids"] <= 3, "only its own processes"
    assert not (session.folder / NETWORK).exists()


def test_it_reaches_nothing_else(session: Session, server: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / ".workbench"
    other.mkdir(parents=True)
    (other / "secret").write_text("secret")
    nameless = socket.socket(socket.AF_UNIX)
    nameless.bind(f"\0{tmp_path.name}-agent")
    nameless.listen()
    before = sorted(tmp_path.rglob("*"))
    with listener(other / "socket"), nameless:
        session.run(TRY + """
    other, server, nameless, transcript = sys.argv[1:]
    host, port = server.split(":")
    def connect(family, address):
        with socket.socket(family) as made:
            made.settimeout(5); made.connect(address); return "connected"
    def over_proxy(request):
        with socket.create_connection(("127.0.0.1", 3128), 5) as made:
            made.sendall(request); return made.recv(100).split()[1].decode()
    said["write"] = [tried(lambda place=place: open(place, "w") and "written") for place in
                     (other + "/new", "/etc/new", "/usr/new", os.path.expanduser("~root/new"))]
    tried(lambda: open(transcript, "w").write("overwritten"))  # a file of this name in its own /tmp, at most
    said["read"] = [tried(lambda place=place: open(place).read()) for place in
                    (other + "/secret", "/etc/shadow", "/etc/hostname", "/proc/1/environ")]
    said["see"] = tried(lambda: os.listdir(other))
    os.symlink(other, "link")
    said["link"] = tried(lambda: open("link/secret").read())
    said["sockets"] = [tried(lambda: connect(socket.AF_UNIX, other + "/socket")),
                       tried(lambda: connect(socket.AF_UNIX, "\\0" + nameless)),
                       tried(lambda: connect(socket.AF_INET, (host, int(port)))),
                       tried(lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))]
    said["proxy"] = [over_proxy(f"CONNECT {server} HTTP/1.1\\r\\n\\r\\n".encode()),
                     over_proxy(f"GET http://{server}/ HTTP/1.1\\r\\n\\r\\n".encode()),
                     over_proxy(b"CONNECT allowed.example:444 HTTP/1.1\\r\\n\\r\\n"),
                     over_proxy(b"GET /etc/passwd HTTP/1.1\\r\\n\\r\\n"), over_proxy(b"\\x16\\x03 \\xff\\r\\n\\r\\n")]
    tried(lambda: os.kill(1, 9))
    say()
    """, str(other), server, f"{tmp_path.name}-agent", str(session.folder / TRANSCRIPT),
            endpoints="allowed.example:443")  # fmt: skip
    said = session.said
    assert set(said["write"]) <= {"PermissionError", "FileNotFoundError", "OSError"}
    assert "overwritten" not in session.transcript
    assert set(said["read"]) <= {"PermissionError", "FileNotFoundError"}
    assert said["see"] in ("PermissionError", "FileNotFoundError")
    assert said["link"] in ("PermissionError", "FileNotFoundError")
    assert "connected" not in said["sockets"]
    assert said["proxy"] == ["403"] * 5
    refused = (session.folder / NETWORK).read_text()
    assert server in refused
    assert "allowed.example:444" in refused
    assert f"it may not reach {server}, allowed.example:444" in cast("CommandAgent", session.agent).gone()
    mine = [path for path in tmp_path.rglob("*") if "session" not in path.parts]
    assert sorted(mine) == [tmp_path / "agent.py", *(path for path in before if "session" not in path.parts), other / "socket"]
    assert (other / "secret").read_text() == "secret"


def processes_with(token: str) -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if token.encode() in command:
                found.add(int(name))
    return found


STUBBORN = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("daemon", "w").write("works")
            time.sleep(600)
        os._exit(0)
    open("ready", "w").write("works")
    while sys.argv[1] != "leave" or not os.path.exists("daemon"):
        time.sleep(0.01)
"""


def test_stop_ends_it_with_all_that_it_started(session: Session) -> None:
    agent = session.start(STUBBORN, "stay", "token-of-stop")
    session.wait_for("ready")
    session.wait_for("daemon")
    there = processes_with("token-of-stop")
    assert len(there) >= 2
    assert agent.gone() == ""
    started = time.monotonic()
    agent.stop()
    assert time.monotonic() - started < 5
    assert are_gone(there)
    assert agent.gone() == "agent:python was stopped"
    agent.stop()
    agent.start(AgentTools(), ASSIGNMENT)
    assert processes_with("token-of-stop") == set()


def test_what_it_leaves_behind_ends_with_it(session: Session) -> None:
    agent = session.start(STUBBORN, "leave", "token-of-leaving")
    assert session.wait(agent) == "agent:python ended"
    session.wait_for("daemon")
    assert are_gone(processes_with("token-of-leaving"))


def test_it_ends_at_its_time_limit(session: Session) -> None:
    why = session.run(STUBBORN, "stay", minutes=0.02)
    assert why == "agent:python was stopped at its time limit of 0.02 minutes"


@pytest.mark.parametrize(
    ("code", "options", "expected"),
    [
        ("import os\nwhile True:\n    os.fork()", {"processes": 60}, "it started more than 60 processes and threads"),
        (
            "file = open('b', 'wb')\nwhile True:\n    file.write(bytes(1 << 20))",
            {"disk_gb": 0.05}, "ended with exit code 1|it wrote more than 0.05 GiB",
        ),
        (
            "import os, time\nfor i in range(40):\n    open(os.path.expanduser(f'~/{i}'), 'wb').write(bytes(1 << 23))\n"
            "time.sleep(60)",
            {"disk_gb": 0.05}, "it wrote more than 0.05 GiB",
        ),
        ("import time\nheld = b'x' * (400 << 20)\ntime.sleep(60)", {"memory_gb": 0.2}, "it used more memory than 0.2 GiB"),
    ],
    ids=["fork bomb", "one large file", "many files", "memory"],
)  # fmt: skip
def test_excess_ends_it(session: Session, code: str, options: dict[str, float], expected: str) -> None:
    why = session.run(code, "token-of-excess", **options)
    assert any(text in why for text in expected.split("|")), why
    assert are_gone(processes_with("token-of-excess"))


def test_one_that_fills_the_disk_leaves_room_for_the_session(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_agent, "is_scarce", lambda folder: True)
    why = session.run("""
    import os, time
    for i in range(40):
        open(os.path.expanduser(f"~/{i}"), "wb").write(bytes(1 << 23))
    time.sleep(60)
    """, disk_gb=0.05)
    assert "or the disk is full" in why
    assert not any((session.folder / name).exists() for name in ("agent-home", "agent-tmp", "workbench"))


def test_a_flood_of_output_is_cut(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_agent, "_MOST_TRANSCRIPT", 1 << 20)
    why = session.run("""
    import sys
    print("first")
    for _ in range(100):
        sys.stdout.write("x" * (1 << 20))
    print("\\nlast words")
    """)
    assert why.endswith("last words")
    text = session.transcript
    assert len(text) < (1 << 20) + (1 << 15)
    assert "\nfirst\n" in text
    assert "bytes of output dropped" in text
    assert text.endswith("last words\n")


def test_how_it_ended_is_told(session: Session) -> None:
    why = session.run("import sys\nprint('no such model')\nsys.exit(7)")
    assert why == "agent:python ended with exit code 7; its output ends with: no such model"


def test_it_is_started_once_and_told_what_went_before(session: Session) -> None:
    code = "print('PROMPT', 'worked in this folder before' in open('PROMPT.md').read())"
    session.run(code)
    assert session.agent is not None
    session.agent.start(AgentTools(), ASSIGNMENT)
    assert session.transcript.count("PROMPT") == 1
    session.agent.stop()
    again = CommandAgent(session.agent._command, Bench(session.folder / "again"), session.folder)
    again.start(AgentTools(), ASSIGNMENT)
    session.wait(again)
    again.stop()
    assert [line for line in session.transcript.splitlines() if line.startswith("PROMPT")] == ["PROMPT False", "PROMPT True"]


def test_links_that_it_left_are_not_followed(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent of an earlier run put links to the user's files where a later run writes."""
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / ".credentials.json").write_text("token")
    (home / "kept").write_text("kept")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "claude").write_text("#!/bin/sh\ncat ~/.claude/.credentials.json; echo; echo x > ~/.claude/.credentials.json\n")
    (tools / "claude").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (session.folder / "workbench").mkdir()
    (session.folder / "workbench" / PROMPT).symlink_to(home / "kept")
    (session.folder / "agent-home").symlink_to(home)
    (session.folder / "agent-tmp").mkdir()
    (session.folder / "agent-tmp" / "deep").symlink_to(home)
    command = read_agent_command(Settings(model="agent:claude"), session.folder)
    agent = CommandAgent(command, Bench(session.folder / "workbench"), session.folder)
    agent.start(AgentTools(), ASSIGNMENT)
    why = session.wait(agent)
    agent.stop()
    assert "token" in session.transcript, why
    assert (home / "kept").read_text() == "kept"
    assert (home / ".claude" / ".credentials.json").read_text() == "token"
    assert sorted(path.name for path in home.rglob("*")) == [".claude", ".credentials.json", "kept"]
