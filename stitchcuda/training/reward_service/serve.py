"""Starts the reward service and serves until it is stopped. Needs the extra `service`.

Where to look next: `training/reward_service/app.py` (HTTP), `verify/pool.py` (who judges), `cli/train.py` (the command).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from stitchcuda import remedies
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import Settings, Target
from stitchcuda.store.token_file import read_token
from stitchcuda.tools.device.device import device_facts
from stitchcuda.tools.device.nvidia_smi import visible_gpus
from stitchcuda.training.reward_service.job_store import JobStore
from stitchcuda.training.reward_service.jobs import RewardJobs
from stitchcuda.training.reward_service.known_rewards import REWARDS
from stitchcuda.training.reward_service.metrics import Metrics
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.verify.pool import VerifierPool
from stitchcuda.version import VERSION

_HERE = ("127.0.0.1", "localhost", "::1")
_ENDING_S = 3                              # for clients that wait, when the server is stopped


def serve(
    tasks: Path, store: Path, target: Target, *, port: int, host: str = "127.0.0.1", token_file: Path | None = None,
    workers: int | None = None, tell: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Serves until a signal ends it. `port`: 0 takes a free one. `tell` gets the address. Raises `BadInput`, `Unavailable`."""
    try:
        import uvicorn

        from stitchcuda.training.reward_service.app import MOST_CONNECTIONS, RewardService, app
    except ImportError as error:
        raise Unavailable(f"the reward service needs uvicorn and Starlette: {remedies.extra('service')}") from error
    token = read_token(token_file) if token_file else None
    if host not in _HERE and token is None:
        raise BadInput(f"the address {host} may be reached from elsewhere: give --token-file, or leave --host out")
    known = read_tasks(tasks)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot listen on port {port} of {host} ({error}): give another --port") from error
    with listening:
        jobs_store, metrics = JobStore(store, environment_of(target)), Metrics()
        try:
            pool = VerifierPool(at_once=workers, gpus=visible_gpus() if target == "cuda" else (), target=target)
            jobs = RewardJobs(jobs_store, pool, REWARDS, target, metrics)
            service = RewardService(jobs_store, jobs, known, REWARDS, metrics, token)
            made = app(service, ["*"] if host not in _HERE else [*_HERE, "[::1]"])
            server = uvicorn.Server(uvicorn.Config(
                made, log_level="warning", timeout_graceful_shutdown=_ENDING_S, limit_concurrency=MOST_CONNECTIONS
            ))  # fmt: skip
            jobs.failed = lambda: setattr(server, "should_exit", True)
            shown = f"[{host}]" if ":" in host else host
            what = f"{counted(len(known), 'task')}, {counted(pool.at_once, 'program')} at once, {store}"
            tell(f"http://{shown}:{listening.getsockname()[1]}: {what}")
            try:
                server.run(sockets=[listening])
            finally:
                jobs.close()
            if jobs.failure is not None:
                raise Unavailable(f"the reward service cannot go on ({jobs.failure}): mend that and start it again")
        finally:
            jobs_store.close()


def environment_of(target: Target) -> str:
    """What an answer holds for: device and versions."""
    import importlib.metadata

    facts, settings = device_facts(target), Settings(target=target)
    device = f"{facts.name}, driver {facts.driver}" if target == "cuda" else "simulator"
    torch = facts.torch or importlib.metadata.version("torch")
    return f"{device}, torch {torch}, stitchcuda {VERSION}, {settings.policy}, {settings.precision}"
