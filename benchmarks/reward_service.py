"""Gives the reward service jobs of many clients, kills it in the middle, and looks at every answer.

    python benchmarks/reward_service.py                          # 200 jobs of 16 clients: calm, then with kills
    python benchmarks/reward_service.py --jobs 60 --to table.md
    python benchmarks/reward_service.py --corpus attacks         # no attack's reward above that of what does not build

Jobs are programs of tests/integrity (honest ones and attacks) and honest ones that were made not to build. They are judged
twice, each time by a new server with a new store: undisturbed, and with kill -9 of the server, of a judge, and twice of a
process below a judge. Prints a table, and exits 1 where a job was not answered, or answered twice, or the two runs differ in
state, kind, reward, tier or what was compared. Builds are in the cache in the second run, so its times say little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from stitchcuda.training.reward_service.client import RewardClient  # noqa: E402
from tests.integrity.corpus import Entry, entries  # noqa: E402
from tests.integrity.remains import below  # noqa: E402

TOKEN = "a-token-of-the-benchmark"
BROKEN = "does not build"
SAME = ("state", "kind", "reward", "tier", "compiled", "correct", "reward_schema", "task")
Answers = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """A program, and what it is: an honest one, an attack, or one that does not build."""

    name: str
    kind: str
    task: str
    program: str | dict[str, str]


@dataclass
class Server:
    """The service as its own process; `start` after `kill` goes on with the same store and port."""

    folder: Path
    tasks: Path
    device: str
    port: int
    process: subprocess.Popen[str] | None = None
    lives: int = 0

    def start(self) -> None:
        (self.folder / "token").write_text(TOKEN)
        options = {"tasks": self.tasks, "device": self.device, "store": self.folder / "store", "port": self.port,
                   "token-file": self.folder / "token"}  # fmt: skip
        command = [sys.executable, "-m", "stitchcuda", "train", "reward", "serve"]
        command += [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("http://"), said
        self.lives += 1

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def kill_judge(self) -> bool:
        """Kills a judge. False if there is none now."""
        return _kill(self._judges())

    def kill_below_judge(self) -> bool:
        """Kills a process below a judge that has none below itself: a worker, or a compiler."""
        return _kill([pid for judge in self._judges() for pid in below(judge) if not below(pid)])

    def _judges(self) -> list[int]:
        assert self.process is not None
        found = []
        for pid in below(self.process.pid):
            with suppress(OSError):
                if b"stitchcuda.verify.judge.judge" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found


@dataclass
class Run:
    """The answers to all jobs, and what was done meanwhile."""

    answers: Answers
    seconds: float
    kills: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def _kill(pids: Sequence[int]) -> bool:
    for pid in random.sample(list(pids), len(pids)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def jobs_of(kind: str, device: str, chosen: Callable[[list[Entry]], list[Entry]] = lambda all: all) -> list[Job]:
    """Jobs of one corpus whose trick shows on the device."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for entry in chosen([entry for entry in entries(kind) if entry.on(device)]):
            program = entry.program(Path(folder))
            texts: str | dict[str, str] = (
                {str(file.relative_to(program)): file.read_text() for file in program.rglob("*") if _is_text(file)}
                if program.is_dir() else program.read_text()
            )  # fmt: skip
            made.append(Job(entry.name, kind, task_of(entry), texts))
    return made


def _is_text(file: Path) -> bool:
    return file.is_file() and file.suffix in (".py", ".cu", ".cuh", ".cc", ".cpp", ".h", ".json")


def broken(honest: Sequence[Job], count: int) -> list[Job]:
    """As many programs that do not build, made of honest ones."""
    kernels = [job for job in honest if isinstance(job.program, str) and "__global__" in job.program]
    made = []
    for number in range(count):
        job = kernels[number % len(kernels)]
        assert isinstance(job.program, str)
        text = job.program.replace("__global__", f"__global__ no_such_type_{number}", 1)
        made.append(Job(f"{BROKEN} {number}", BROKEN, job.task, text))
    return made


def task_of(entry: Entry) -> str:
    return f"{entry.reference.parent.name}/{entry.reference.stem}"


def mixture(count: int, device: str, seed: int) -> list[Job]:
    """Two fifths honest, two fifths attacks, a fifth that does not build, all of the eight references that most of the corpora
    share: a trainer asks many programs of a few tasks. Of attacks on the machine none, since these take long by design."""
    draw = random.Random(seed)
    honest = jobs_of("honest", device)
    attacks = jobs_of("attacks", device, lambda found: [entry for entry in found if not entry.row.startswith("S")])
    tried = Counter(job.task for job in attacks)
    tasks = {task for task, _ in Counter({job.task: tried[job.task] for job in honest}).most_common(8)}
    parts = [[job for job in part if job.task in tasks and isinstance(job.program, str)] for part in (honest, attacks)]
    chosen = [job for part in parts for job in several(part, 2 * count // 5, draw)]
    chosen += broken(parts[0], count - len(chosen))
    draw.shuffle(chosen)
    return chosen


def several(jobs: Sequence[Job], count: int, draw: random.Random) -> list[Job]:
    """So many of these jobs; if there are too few, also copies with another comment, which are other programs."""
    copies = -(-count // len(jobs))
    all_jobs = [
        Job(f"{job.name} {copy}", job.kind, job.task, f"{job.program}\n# copy {copy}\n") if copy else job
        for copy in range(copies) for job in jobs
    ]  # fmt: skip
    return draw.sample(all_jobs, count)


def write_tasks(file: Path) -> None:
    found = {task_of(entry): entry.reference for kind in ("honest", "attacks") for entry in entries(kind)}
    file.write_text("".join(json.dumps({"name": name, "source": path.read_text()}) + "\n" for name, path in found.items()))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(device: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="stitchcuda-rewards-") as name:
        write_tasks(Path(name) / "tasks.jsonl")
        server = Server(Path(name), Path(name) / "tasks.jsonl", device, free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop()


def run(server: Server, jobs: Sequence[Job], clients: int, kill: bool) -> Run:
    """Has all jobs judged, each client's at once."""
    answers: Answers = {}
    done, lock = threading.Condition(), threading.Lock()
    started = time.monotonic()

    def ask(client: RewardClient, job: Job) -> None:
        try:
            answer = client.judge(job.task, job.program)
        except Exception as error:
            answer = {"state": f"{type(error).__name__}: {error}", "id": None}
        with lock:
            answers[job.name] = answer
        with done:
            done.notify_all()
        said = f"{answer['state']} {answer.get('kind', '')}"
        took = time.monotonic() - started
        print(f"{len(answers):4d}/{len(jobs)} {took:6.0f} s  {job.kind:14s} {job.name:40s} {said}", flush=True)

    asking = [RewardClient(f"http://127.0.0.1:{server.port}", TOKEN) for _ in range(clients)]
    result = Run(answers, 0.0)
    with ThreadPoolExecutor(len(jobs)) as threads:
        for number, job in enumerate(jobs):
            threads.submit(ask, asking[number % clients], job)
        if kill:
            _disturb(server, len(jobs), answers, done, result.kills)
    result.seconds = time.monotonic() - started
    result.faults += _faults(server, jobs, answers)
    return result


def _disturb(server: Server, count: int, answers: Answers, done: threading.Condition, kills: list[str]) -> None:
    steps: list[tuple[float, str, Callable[[], bool]]] = [
        (0.2, "a process below a judge", server.kill_below_judge), (0.35, "the server", lambda: False),
        (0.6, "a judge", server.kill_judge), (0.8, "a process below a judge", server.kill_below_judge),
    ]  # fmt: skip
    for share, what, act in steps:
        with done:
            done.wait_for(lambda: len(answers) >= share * count)  # noqa: B023
        if what == "the server":
            server.kill()
            time.sleep(2)
            server.start()
        else:
            while not act():
                time.sleep(0.05)
        kills.append(f"{what} after {len(answers)} answers")
        print(f"killed {kills[-1]}", flush=True)


def _faults(server: Server, jobs: Sequence[Job], answers: Answers) -> list[str]:
    """What is wrong: jobs without an answer, answers that changed, jobs in the store that nobody asked for."""
    client = RewardClient(f"http://127.0.0.1:{server.port}", TOKEN)
    faults = [f"{name}: {answer['state']}" for name, answer in answers.items() if not answer["id"]]
    for job in jobs:
        if answers.get(job.name, {}).get("state") == "infra_error":
            continue                       # asked again it would be judged again
        again = client.judge(job.task, job.program)  # a duplicate: it has to be the same answer
        if job.name in answers and again != answers[job.name]:
            faults.append(f"{job.name}: asked again, the answer is another one")
    with sqlite3.connect(server.folder / "store" / "jobs.sqlite") as store:
        (kept,) = store.execute("SELECT count(*) FROM jobs WHERE state = 'finished'").fetchone()
        (all_,) = store.execute("SELECT count(*) FROM jobs").fetchone()
    if not kept == all_ == len(jobs) == len({answer["id"] for answer in answers.values()}):
        faults.append(f"{len(jobs)} jobs, {all_} in the store, {kept} finished there")
    return faults


def row(name: str, found: Run) -> str:
    answers = list(found.answers.values())
    states = Counter(" ".join(filter(None, (answer["state"], answer.get("kind")))) for answer in answers)
    seconds = {part: [answer["seconds"][part] for answer in answers if "seconds" in answer] for part in
               ("queued", "built", "checked", "timed")}  # fmt: skip
    told = ", ".join(f"{count} {state}" for state, count in states.most_common())
    middle = " | ".join(f"{statistics.median(values):.1f} / {max(values):.1f}" for values in seconds.values())
    tries = sum(answer.get("tries", 0) for answer in answers)
    return (f"| {name} | {len(answers)} | {found.seconds:.0f} | {60 * len(answers) / found.seconds:.1f} | {middle} | {tries} | "
            f"{told} |")  # fmt: skip


def compare(calm: Run, killed: Run) -> list[str]:
    return [
        f"{name}: {part} {calm.answers[name].get(part)} and {killed.answers[name].get(part)}"
        for name in calm.answers for part in SAME if calm.answers[name].get(part) != killed.answers[name].get(part)
    ]  # fmt: skip


def attacks(server: Server, clients: int, only: str) -> tuple[list[str], list[str]]:
    """Every attack's reward against that of a program that does not build. Returns lines to print, and what is wrong."""
    jobs = [job for job in jobs_of("attacks", server.device) if re.search(only, job.name)]
    jobs += broken(jobs_of("honest", server.device), 1)
    found = run(server, jobs, clients, kill=False)
    kinds = {job.name: job.kind for job in jobs}
    fails = next(answer["reward"] for name, answer in found.answers.items() if kinds[name] == BROKEN)
    above = [f"{name}: {answer['reward']}" for name, answer in found.answers.items()
             if answer.get("reward") is not None and answer["reward"] > fails]  # fmt: skip
    without = [name for name, answer in found.answers.items() if answer.get("reward") is None]
    lines = [
        *HEADING, row("attacks", found), "", f"A program that does not build gets {fails}; attacks above it: {len(above)}.",
        f"Without a reward: {', '.join(without) or 'none'}.",
    ]  # fmt: skip
    return lines, found.faults + above


HEADING = (
    "| run | jobs | seconds | jobs a minute | s queued (median / most) | built | checked | timed | tries again | answers |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--corpus", choices=("mixture", "attacks"), default="mixture")
    parser.add_argument("--only", default="", help="with --corpus attacks: a regular expression for names")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the table to this file too")
    asked = parser.parse_args()
    random.seed(asked.seed)
    if asked.corpus == "attacks":
        with serving(asked.device) as server:
            lines, wrong = attacks(server, asked.clients, asked.only)
    else:
        jobs, runs = mixture(asked.jobs, asked.device, asked.seed), []
        for kill in (False, True):
            with serving(asked.device) as server:
                runs.append(run(server, jobs, asked.clients, kill))
        calm, killed = runs
        differing = compare(calm, killed)
        wrong = calm.faults + killed.faults + differing
        lines = [
            *HEADING, row("calm", calm), row("with kills", killed), "",
            f"Killed: {'; '.join(killed.kills)}.",
            f"{len(jobs)} jobs of {asked.clients} clients; answers that differ between the runs: {len(differing)}.",
        ]  # fmt: skip
    command = " ".join(["python", "benchmarks/reward_service.py", *sys.argv[1:]])
    where = f"`{command}`, {date.today()}, {asked.device}, {os.cpu_count()} cores."
    text = "\n".join([where, "", *lines, *(f"WRONG: {fault}" for fault in wrong), ""])
    print(text)
    if asked.to:
        asked.to.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
