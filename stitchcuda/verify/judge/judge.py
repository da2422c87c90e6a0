"""Runs the judge process: owns seeds, error bounds and the verdict. `verify/client.py` starts it.

It has no CUDA context and touches no tensor: the reference runs, and is compared with, in a worker process of its own, each
program in a fresh one.
Requests and answers are JSON lines on its stdin and stdout; when these close it ends, and all its workers with it.
Where to look next: `verify/judge/examination.py` and `verify/judge/parallel_checks.py` (correctness),
`verify/judge/interleaved_timing.py` (times), `verify/judge/profiled_run.py` (under a profiler),
`verify/judge/judge_resources.py` (workers, secret inputs, turns on the GPU).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.verify.inputs.reference_requests import CaptureReference
from stitchcuda.verify.judge.examination import Examination
from stitchcuda.verify.judge.interleaved_timing import InterleavedTiming
from stitchcuda.verify.judge.judge_resources import JudgeResources
from stitchcuda.verify.judge.parallel_checks import ParallelChecks
from stitchcuda.verify.judge.profiled_run import ProfiledRun
from stitchcuda.verify.messages import host_memory
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.processes.judge_pipes import die_with, take_over_stdio
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.builder_worker import shared_folders


class JudgeProcess:
    """Answers requests about one reference and its programs. A method takes a request's fields and returns its result."""

    def __init__(self, order: dict[str, Any], forkserver: ForkServer) -> None:
        self.resources = JudgeResources(order, forkserver)
        self.examination = Examination(self.resources)
        self.parallel = ParallelChecks(self.resources, self.examination)
        self.timing = InterleavedTiming(self.resources)

    def baseline(self, message: dict[str, Any]) -> dict[str, Any]:
        constants = self.resources.scratch / "constants.safetensors"
        return vars(self.resources.ask(CaptureReference(secrets.randbits(31), str(constants))))

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        """Judge one program; `fresh` draws parameters and input sets that no program has seen."""
        seeds, fresh = int(message["seeds"]), bool(message["fresh"])
        return self.examination.check(message["program"], seeds, fresh=fresh).model_dump(mode="json")

    def check_many(self, message: dict[str, Any]) -> dict[str, Any]:
        """Judge several programs at once, on the input sets that all programs of this session get."""
        results = self.parallel.check(message["programs"], int(message["seeds"]))
        return {"results": [result.model_dump(mode="json") for result in results]}

    def time(self, message: dict[str, Any]) -> dict[str, Any]:
        """Reference, previous program and program in one interleaving; `twice` for a winner, each time in new workers."""
        self._need_gpu("timing")
        twice = bool(message["twice"])
        return self.timing.time(message["program"], message["previous"], twice=twice).model_dump(mode="json")

    def run_under(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call the reference, or a program, in a process of its own under another command (`verify/judge/profiled_run.py`)."""
        self.resources.reference_worker()              # a turn on the GPU needs one, and it must be callable
        with contextlib.ExitStack() as stack:
            stack.callback(self.resources.background.quiet)
            profiled = ProfiledRun(message, self.resources.target, self.resources.settings.precision, self.resources.limits)
            if message["program"]:
                try:
                    shared = shared_folders(self.resources.cache, self.resources.home.place)
                    worker, secret_inputs, trial = self.resources.load_program(stack, message["program"])
                    with self.resources.turn(worker):   # a program may build its libraries in its first call only
                        trial.call(secret_inputs.sets[0], same_addresses=False)
                    prepared = profiled.prepared_program(
                        self.resources.scratch, shared, worker, secret_inputs, trial, self.resources.ask
                    )
                    stack.enter_context(prepared)
                except WorkerFailed as failure:
                    raise Unavailable(f"the program could not be run: {failure}") from failure
            else:
                profiled.prepare_reference(Path(self.resources.path), secrets.randbits(31))
            self.resources.background.quiet()
            with self.resources.turn(alone=True):
                return profiled.run()._asdict() | {"kernels": profiled.kernels}

    def _need_gpu(self, what: str) -> None:
        if self.resources.target != "cuda":
            raise Unavailable(f"{what} needs a GPU; this session runs on the simulator")


def main() -> None:
    """Serve one client until its end of the pipe closes."""
    requests, answers = take_over_stdio()
    forkserver = ForkServer()                    # before any secret or thread exists: its children inherit neither
    host_memory.keep_freed()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    order = json.loads(requests.readline())
    die_with(requests, Path(order["scratch"]))
    process = JudgeProcess(order, forkserver)
    handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "baseline": process.baseline,
        "check": process.check,
        "check_many": process.check_many,
        "time": process.time,
        "rehearse": process.run_under,
    }
    for line in requests:
        message = json.loads(line)
        try:
            answer: dict[str, Any] = {"result": handlers[message["do"]](message)}
        except BadInput as error:
            answer = {"bad_input": str(error)}
        except Unavailable as error:
            answer = {"unavailable": str(error)}
        except OSError as error:
            answer = {"defect": traceback.format_exc()}
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                where = f"{error.strerror} in {order['scratch']}: free some there, or set TMPDIR to a folder with more"
                answer = {"unavailable": f"there is no room to judge in ({where})"}
        except Exception:
            answer = {"defect": traceback.format_exc()}
        answers.write(json.dumps(answer | {"last": forkserver.lost}).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
