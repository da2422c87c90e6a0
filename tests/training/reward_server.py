"""The reward service with a scripted pool in place of verifiers, served by uvicorn: `with serving(folder, pool) as server`."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from stitchcuda.training.reward_service.app import MOST_CONNECTIONS, RewardService, app
from stitchcuda.training.reward_service.client import RewardClient
from stitchcuda.training.reward_service.job_store import JobStore
from stitchcuda.training.reward_service.jobs import RewardJobs
from stitchcuda.training.reward_service.known_rewards import REWARDS
from stitchcuda.training.reward_service.metrics import Metrics
from stitchcuda.training.reward_service.records import RewardFunction
from stitchcuda.verify.api import Verdict

TASK = "class Model: ...\n"
GOOD = Verdict(accepted=True, tier="simulated", within_bound=True)
End = Verdict | BaseException


def program(name: str) -> str:
    """The text of a program that the pool knows by its name."""
    return f"# {name}\nclass ModelNew: ...\n"


@dataclass
class ScriptedPool:
    """Ends each program as the script for its name says, one entry a try (the last one stays); accepts all others."""

    script: Mapping[str, Sequence[End]] = field(default_factory=dict)
    at_once: int = 4
    most_open: int = 4
    held: bool = False                     # True: nothing ends until `release`
    judged: list[str] = field(default_factory=list)
    waiting: list[tuple[str, Future[Verdict]]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def submit(self, program: Path, reference: Path) -> Future[Verdict]:
        path = program / "model_new.py" if program.is_dir() else program
        name = path.read_text().partition("\n")[0].removeprefix("# ")
        future: Future[Verdict] = Future()
        with self.lock:
            self.waiting.append((name, future))
        if not self.held:
            threading.Thread(target=self.release).start()
        return future

    def release(self) -> None:
        """Ends all that wait."""
        while True:
            with self.lock:
                if not self.waiting:
                    return
                name, future = self.waiting.pop()
                self.judged.append(name)
                ends = self.script.get(name, [GOOD])
                end = ends[min(self.judged.count(name), len(ends)) - 1]
            future.set_result(end) if isinstance(end, Verdict) else future.set_exception(end)

    def close(self) -> None:
        with self.lock:
            for _, future in self.waiting:
                future.cancel()


@dataclass
class Served:
    """A running service."""

    url: str
    pool: ScriptedPool
    service: RewardService
    token: str | None

    @property
    def client(self) -> RewardClient:
        return RewardClient(self.url, self.token, patience_s=20.0)

    def ask(self, path: str, body: object = None, *, token: str | None = None, **headers: str) -> tuple[int, Any]:
        """The code and the JSON (or text) of one request. `body`: bytes are sent as they are."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if token := token or self.token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"} | headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                code, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            code, text = error.code, error.read().decode()
        return code, json.loads(text) if text.startswith("{") else text


@contextmanager
def serving(
    folder: Path, pool: ScriptedPool, *, token: str | None = None, most_waiting: int = 2000,
    rewards: Mapping[str, RewardFunction] = REWARDS,
) -> Iterator[Served]:  # fmt: skip
    store, metrics = JobStore(folder, "scripted", most_waiting=most_waiting), Metrics()
    jobs = RewardJobs(store, pool, rewards, "sim", metrics, pause_s=0.0)
    service = RewardService(store, jobs, {"relu": TASK}, rewards, metrics, token)
    server = uvicorn.Server(uvicorn.Config(
        app(service, ["127.0.0.1"]), log_level="error", timeout_graceful_shutdown=1, limit_concurrency=MOST_CONNECTIONS
    ))  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", pool, service, token)
        finally:
            server.should_exit = True
            thread.join()
            jobs.close()
            store.close()
