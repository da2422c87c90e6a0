"""Works on a benchmark's problems in a Ray cluster, on the GPUs and hosts that it has. Needs the extra `bench`.

Each problem is a task of Ray's, which starts the same process as without Ray. Ray chooses the host and the GPU, and repeats
the task elsewhere if its worker dies; the session then goes on from its last checkpoint. All hosts need the same Python
environment, and the run's folder on a disk that they share. Keys of models and variables STITCHCUDA_* are passed on to them.
Where to look next: `bench/run.py` (who hands out problems), `bench/problem_worker.py` (one problem).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from stitchcuda import remedies
from stitchcuda.bench.problem_worker import Order
from stitchcuda.bench.results import Result
from stitchcuda.bench.run import BESIDE_ON_GPU, in_process
from stitchcuda.errors import Unavailable

LOCAL = "local"
_TRIES_AGAIN = 3                           # of a problem whose worker died


class RayCluster:
    """A context manager. `at_once`: problems that the cluster works on at a time: three to a GPU, or one to a core on the
    simulator."""

    def __init__(self, address: str, *, on_gpu: bool) -> None:
        """`address`: of a cluster, such as "auto" or "ray://HOST:10001"; LOCAL starts one here. Raises `Unavailable`."""
        try:
            import ray
        except ImportError as error:
            raise Unavailable(f"--ray needs Ray, which is not installed: {remedies.extra('bench')}") from error
        passed_on = {name: value for name, value in os.environ.items() if name.startswith("STITCHCUDA_") or "API_KEY" in name}
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(
                address=None if address == LOCAL else address, include_dashboard=False if address == LOCAL else None,
                log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": passed_on} if passed_on else None,
            )  # fmt: skip
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            raise Unavailable(f"no Ray cluster answers at {address} ({text}): start one, or give --ray {LOCAL}") from error
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray has one of its own
        self._ray = ray
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        found = int(resources.get("GPU" if on_gpu else "CPU", 0))
        if not found:
            ray.shutdown()
            raise Unavailable(f"the Ray cluster at {address} has no {'GPU' if on_gpu else 'core'} to work on")
        self.at_once = found * (BESIDE_ON_GPU if on_gpu else 1)
        share = {"num_gpus": round(1 / BESIDE_ON_GPU - 0.005, 2), "num_cpus": 1} if on_gpu else {"num_cpus": 1}
        self._task = ray.remote(_work).options(max_retries=_TRIES_AGAIN, **share)
        self._alone = self._task.options(num_gpus=1) if on_gpu else self._task

    def work(self, order: Order, gpu: str | None, log: Path, stopped: threading.Event) -> Result:
        """Works on an order, on the host and GPU that Ray chooses. `gpu` is not used."""
        exceptions = self._ray.exceptions
        pending = (self._alone if order.alone else self._task).remote(order.model_dump_json(), str(log.resolve()))
        while not self._ray.wait([pending], timeout=0.5)[0]:
            if stopped.is_set():
                self._ray.cancel(pending, force=True)  # its worker dies, and with it the process that it has started
                return _failed(order, "interrupted")
        try:
            return Result.model_validate_json(self._ray.get(pending))
        except (exceptions.RayError, exceptions.RayTaskError) as error:
            return _failed(order, f"its worker in the Ray cluster failed: {' '.join(str(error).split())[-300:]}")

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ray.shutdown()


def _failed(order: Order, why: str) -> Result:
    return Result(id=order.problem, problem=order.problem, end="failed", reasons=(why,))


def _work(order: str, log: str) -> Any:
    """Runs in a worker of the cluster."""
    return in_process(Order.model_validate_json(order), None, Path(log), threading.Event()).model_dump_json()
