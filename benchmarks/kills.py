"""kill -9 at random moments of real sessions: each is resumed, and killed again now and then, until it is done.

    python benchmarks/kills.py                          # 100 kills, sessions in a folder
    python benchmarks/kills.py --kills 50 --postgres    # sessions in PostgreSQL, resumed on another "host" each time
    python benchmarks/kills.py --seed 7 --to kills.md

The sessions are the command line's (`--device sim --model builtin`) on a small reference, in a temporary folder; builds are in
the cache after the first one. Moments are uniform over the time that an undisturbed session takes and a fifth more, start-up
and end included (a session that ends before its moment says how quick the machine is now); only the main process is killed, and
its children have to end by themselves. With --postgres a server of our own is started, two workspace folders that share no file
stand for two hosts, the lease is 2 s, and each process after the first is on the other host, by `resume --wait`.

After each kill: what the session's checkpoints say, its attempts, every artefact against its digest, and `stitchcuda show`. At
the end of each session: program, attempts and state against the undisturbed session, and nobody left over. Prints tables in
Markdown, with --to into a file after every session, and exits 1 where anything differs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pydantic_core import to_jsonable_python  # noqa: E402

from stitchcuda.errors import StitchError  # noqa: E402
from stitchcuda.sessions.session import Session  # noqa: E402
from stitchcuda.state import Attempt  # noqa: E402
from stitchcuda.store import Workspace  # noqa: E402
from tests.memory.postgres_server import Server, programs  # noqa: E402
from tests.sessions.test_kill import REFERENCE  # noqa: E402

LEASE_S = 2.0
AGAIN = 0.8                                # of the processes after a kill are to be killed too
ENDS_S = 60.0                              # for children to end by themselves
MOST_S = 900.0
PR_SET_CHILD_SUBREAPER = 36
BEFORE, AFTER = "before there is a session", "after the report"


class Host(NamedTuple):
    """A workspace folder, with the environment that commands run in there."""

    folder: Path
    environment: dict[str, str]
    url: str | None

    def home(self) -> Workspace:
        return Workspace(self.folder, checkpoint=self.url)


class SessionProcess(NamedTuple):
    """One process of a session."""

    killed: bool
    code: int
    seconds: float
    said: str
    taken_over_s: float | None             # from its start until it owned the session


class StoredSession(NamedTuple):
    """A session as its store has it."""

    place: str                             # the node that comes next
    attempts: dict[str, Attempt]
    state: dict[str, str]                  # each field as JSON, without the session's name
    walk: list[tuple[Any, ...]]


@dataclass
class Tally:
    """What was seen so far."""

    kills: Counter[str] = field(default_factory=Counter)  # by the node that was to come next
    sessions: int = 0
    resumes: int = 0
    anew: int = 0                          # processes that began it again, as the kill came before the session was stored
    same: int = 0                          # sessions with the digest, the attempts and the state of the undisturbed one
    lost: int = 0
    repeated: int = 0
    damaged: int = 0
    shown: int = 0
    left_s: float = 0.0                    # the longest that a child outlived its main process
    left: int = 0
    taken_over_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, metavar="FILE")
    asked = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchcuda-kills-")))
        url = _server(stack) if asked.postgres else None
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever is orphaned becomes ours: nobody is left over unseen
        hosts = [_host(place / name, url) for name in (("east", "west") if url else ("here",))]
        (place / "mlp.py").write_text(REFERENCE)
        run = Run(hosts, place / "mlp.py", random.Random(asked.seed))
        run.undisturbed()
        tally = Tally()
        while tally.kills.total() < asked.kills and len(tally.failures) < 5:
            run.session(tally, asked.kills)
            text = told(tally, run, asked)
            if asked.to:
                asked.to.write_text(text)
        print(text)
    return 1 if tally.failures or tally.kills.total() < asked.kills else 0


def _server(stack: ExitStack) -> str:
    found = programs()
    if found is None:
        sys.exit("this machine has no PostgreSQL server (Debian: apt install postgresql)")
    return stack.enter_context(Server(found)).url


def _host(folder: Path, url: str | None) -> Host:
    more = {"STITCHCUDA_DOCS": "off", "STITCHCUDA_WORKSPACE": str(folder), "PYTHONPATH": str(ROOT)}
    if url:
        more |= {"STITCHCUDA_CHECKPOINT": url, "STITCHCUDA_LEASE_S": str(LEASE_S)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STITCHCUDA_")}
    folder.mkdir()
    return Host(folder, environment | more, url)


class Run:
    """Sessions on these hosts, one after the other."""

    def __init__(self, hosts: list[Host], reference: Path, chance: random.Random) -> None:
        self.hosts, self.chance = hosts, chance
        self.options = [str(reference), "--device", "sim", "--model", "builtin"]
        self.seconds = 0.0                 # of the last undisturbed session
        self.whole = StoredSession("", {}, {}, [])
        self.fields: list[str] = []        # of the state, in which two undisturbed sessions agree

    def undisturbed(self) -> None:
        """Each host builds once; the last session is the one that all others are held against."""
        found = []
        for number, host in enumerate([*self.hosts, self.hosts[0]]):
            ended = self._run(host, ["optimize", *self.options, "--session", f"whole-{number}"])
            if ended.code:
                sys.exit(f"an undisturbed session fails: {ended.said}")
            found.append(_stored(host, f"whole-{number}"))
        left(ENDS_S)
        self.seconds, self.whole = ended.seconds, found[-1]
        self.fields = sorted(name for name, text in found[-1].state.items() if found[0].state.get(name) == text)

    def session(self, tally: Tally, kills: int) -> None:
        """One session, killed at least once, in as many processes as it takes."""
        name, at = f"killed-{tally.sessions}", tally.sessions
        tally.sessions += 1
        before: dict[str, Attempt] = {}
        exists = False
        for number in range(1000):
            host = self.hosts[(at + number) % len(self.hosts)]
            wait = ["--wait"] if host.url else []
            command = ["resume", name, *wait] if exists else ["optimize", *self.options, "--session", name]
            if number:
                tally.resumes += exists
                tally.anew += not exists
            again = tally.kills.total() < kills and (number == 0 or self.chance.random() < AGAIN)
            moment = self.chance.uniform(0, 1.2 * self.seconds) if again else None
            ended = self._run(host, command, moment, name)
            if ended.taken_over_s is not None and number:
                tally.taken_over_s.append(ended.taken_over_s)
            if not ended.killed:
                if number == 0:
                    self.seconds = ended.seconds  # as quick as the machine is now
                break
            exists, before = self._after_kill(host, name, tally, before)
        complaints = [f"exit code {ended.code}: {ended.said}"] if ended.code else self._compared(host, name, tally, before)
        seconds, remaining = left(ENDS_S)
        tally.left_s = max(tally.left_s, seconds)
        tally.left += len(remaining)
        complaints += [f"left over: {process}" for process in remaining]
        tally.same += not complaints
        tally.failures += [f"{name}: {complaint}" for complaint in complaints]

    def _after_kill(self, host: Host, name: str, tally: Tally, before: dict[str, Attempt]) -> tuple[bool, dict[str, Attempt]]:
        """What a kill left: whether the session is there, and its attempts."""
        patient = self.chance.random() < 0.5   # else the next process starts at once, beside children that are still ending
        if patient:
            seconds, remaining = left(ENDS_S)
            tally.left_s = max(tally.left_s, seconds)
            tally.left += len(remaining)
            tally.failures += [f"{name}: left over after a kill: {process}" for process in remaining]
        try:
            home = host.home()
            exists = name in home.store.names()
            stored = _stored(host, name) if exists else None
            damaged = list(_damaged(home))
            home.close()
        except StitchError as error:
            tally.failures.append(f"{name}: cannot be read after a kill: {error}")
            return True, before
        tally.kills[stored.place if stored else BEFORE] += 1
        tally.damaged += len(damaged)
        tally.failures += [f"{name}: {damage}" for damage in damaged]
        found = stored.attempts if stored else {}
        gone = [key for key, attempt in before.items() if found.get(key) != attempt]
        tally.lost += len(gone)
        tally.failures += [f"{name}: attempt {key[:8]} is not what it was before the kill" for key in gone]
        if patient and exists:
            shown = subprocess.run(
                _command(["show", name]), env=host.environment, cwd=host.folder, capture_output=True, text=True, check=False
            )
            tally.shown += 1
            if shown.returncode:
                tally.failures.append(f"{name}: show after a kill: {shown.stderr.strip()}")
        return exists, found

    def _compared(self, host: Host, name: str, tally: Tally, before: dict[str, Attempt]) -> list[str]:
        """Where a finished session is not as the undisturbed one."""
        stored = _stored(host, name)
        complaints = [f"{field} is not what an undisturbed session has" for field in self.fields
                      if stored.state.get(field) != self.whole.state[field]]
        lost = [key for key, attempt in before.items() if stored.attempts.get(key) != attempt]
        missing = Counter(self.whole.walk) - Counter(stored.walk)
        ledger = Counter(_figures(attempt) for attempt in stored.attempts.values())
        repeated = ledger - Counter(self.whole.walk)
        tally.lost += len(lost) + missing.total()
        tally.repeated += repeated.total()
        complaints += [f"attempt {key[:8]} was lost" for key in lost]
        complaints += [f"lost: {figures}" for figures in missing] + [f"once too often: {figures}" for figures in repeated]
        if stored.walk != self.whole.walk:
            complaints.append("its attempts are in another order")
        if stored.place != AFTER:
            complaints.append(f"it is not done: {stored.place}")
        return complaints

    def _run(self, host: Host, command: list[str], moment: float | None = None, name: str = "") -> SessionProcess:
        """Runs a command, killed after `moment` seconds unless it has ended."""
        said = host.folder / "said"
        with said.open("w") as file, ExitStack() as stack:
            token = _watch(stack, host, name)
            owners_before = token()
            started = time.monotonic()
            process = subprocess.Popen(
                _command(command), env=host.environment, cwd=host.folder, stdout=file, stderr=file, start_new_session=True
            )
            taken: float | None = None
            end = started + (MOST_S if moment is None else moment)
            while process.poll() is None and time.monotonic() < end:
                time.sleep(min(0.05, max(0.0, end - time.monotonic())))
                if taken is None and token() != owners_before:
                    taken = time.monotonic() - started
            if process.poll() is None:
                process.kill()
            code = process.wait()
            seconds = time.monotonic() - started
        killed = code == -signal.SIGKILL and moment is not None
        return SessionProcess(killed, code, seconds, " ".join(said.read_text().split())[-600:], taken)


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "stitchcuda", *arguments]


def _watch(stack: ExitStack, host: Host, name: str) -> Callable[[], int]:
    """The number of owners that a session has had; 0 where a folder keeps it."""
    if host.url is None or not name:
        return lambda: 0
    home = host.home()
    stack.callback(home.close)
    assert home.database is not None
    home.store.names()                     # the tables are there
    connection = stack.enter_context(home.database.database.connect())

    def token() -> int:
        row = connection.execute("SELECT token FROM stitchcuda_owner WHERE session = %s", (name,)).fetchone()
        return int(row["token"]) if row else 0

    return token


def _stored(host: Host, name: str) -> StoredSession:
    home = host.home()
    session = Session.open(name, home)
    try:
        latest = next(session.history(), None)
        state = session.state()
        texts = {key: json.dumps(to_jsonable_python(value), sort_keys=True).replace(name, "*") for key, value in state.items()}
        attempts = dict(home.store.attempts(name))
        if latest is None:
            place = "before the first checkpoint"
        else:
            place = " + ".join(dict.fromkeys(latest.next)) or (AFTER if state.get("report") else "between nodes")
        return StoredSession(place, attempts, texts, [_figures(attempt) for attempt in session.attempts()])
    finally:
        home.close()


def _figures(attempt: Attempt) -> tuple[Any, ...]:
    """What an attempt was: its id and evidence are its session's own."""
    return attempt.task, attempt.ordinal, attempt.route, attempt.program, attempt.kept


def _damaged(home: Workspace) -> Iterator[str]:
    for digest, _ in home.store.artefacts():
        try:
            home.store.get(digest)
        except StitchError as error:
            yield str(error)


def left(deadline_s: float) -> tuple[float, list[str]]:
    """Waits until no descendant is left: the seconds it took, and who was still there at the deadline (and is ended now)."""
    started = time.monotonic()
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return time.monotonic() - started, []
        seconds = time.monotonic() - started
        if pid == 0 and seconds > deadline_s:
            break
        if pid == 0:
            time.sleep(0.02)
    ours = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int((place / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                ours.append((int(place.name), (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            continue
    for pid, _ in ours:
        os.kill(pid, signal.SIGKILL)
    return seconds, [f"{pid} {words[:120]}" for pid, words in ours]


def told(tally: Tally, run: Run, asked: argparse.Namespace) -> str:
    kills = tally.kills.total()
    options = f"--kills {asked.kills}{' --postgres' if asked.postgres else ''} --seed {asked.seed}"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    facts: list[tuple[str, object]] = [
        ("kills", kills),
        ("sessions", tally.sessions),
        ("resumes", tally.resumes),
        ("started anew, killed before the session was there", tally.anew),
        ("sessions with the undisturbed one's program, attempts and state", tally.same),
        ("attempts lost", tally.lost),
        ("attempts repeated", tally.repeated),
        ("damaged artefacts", tally.damaged),
        ("`show` after a kill", tally.shown),
        ("processes left over", tally.left),
        ("a child outlived its main process by at most", f"{tally.left_s:.1f} s"),
    ]
    if tally.taken_over_s:
        longest = max(tally.taken_over_s)
        facts.append((f"from a resume's start to its ownership, lease {LEASE_S:g} s", f"at most {longest:.1f} s"))
    facts += [
        ("the last undisturbed session", f"{run.seconds:.1f} s"),
        ("all", f"{time.monotonic() - tally.started:.0f} s"),
    ]
    places = [f"| {place} | {count} |" for place, count in tally.kills.most_common()]
    where = "PostgreSQL, two hosts" if asked.postgres else "a folder, SQLite"
    lines = [
        f"`python benchmarks/kills.py {options}`, {date.today()}, {machine}: {where}", "",
        "| | |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in facts), "",
        "| the kill struck in | kills |", "|---|---|", *places, "",
        f"Of the state were compared: {', '.join(run.fields)}.",
    ]  # fmt: skip
    if tally.failures:
        lines += ["", "Failures:", "", *(f"- {failure}" for failure in tally.failures)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
