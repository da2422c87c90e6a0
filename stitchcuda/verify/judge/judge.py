"""The judge process: owns seeds, expected outputs, bounds and the verdict; started by `verify/client.py`, one per session.

It has no CUDA context and runs nothing but comparisons: the reference runs in its own worker, every program in a fresh one.
It speaks JSON lines on the descriptors it was started with and ends, taking everything with it, when they close.
Where to look next: `verify/judge/judge_resources.py` (what it has), `verify/judge/examination.py` and
`verify/judge/parallel_checks.py` (correctness), `verify/judge/interleaved_timing.py`, `verify/judge/profiled_run.py`.
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
    """One reference, and what is asked about it and its programs."""

    def __init__(self, order: dict[str, Any], nursery: ForkServer) -> None:
        self.room = JudgeResources(order, nursery)
        self.examination = Examination(self.room)
        self.panel = ParallelChecks(self.room, self.examination)
        self.clocking = InterleavedTiming(self.room)

    def baseline(self, message: dict[str, Any]) -> dict[str, Any]:
        constants = self.room.scratch / "constants.safetensors"
        answer = self.room.ask("baseline", seed=secrets.randbits(31), constants=str(constants))
        return {name: value for name, value in answer.items() if name != "ok"}

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        """Judge one program; `fresh` draws parameters and input sets that no program has seen."""
        seeds, fresh = int(message["seeds"]), bool(message["fresh"])
        return self.examination.check(message["program"], seeds, fresh=fresh).model_dump(mode="json")

    def check_many(self, message: dict[str, Any]) -> dict[str, Any]:
        """Judge several programs on the exam that this session's programs sit, at once."""
        results = self.panel.check(message["programs"], int(message["seeds"]))
        return {"results": [result.model_dump(mode="json") for result in results]}

    def time(self, message: dict[str, Any]) -> dict[str, Any]:
        """Reference, previous program and program in one interleaving; `twice` for a winner, each time in new workers."""
        self._need_gpu("timing")
        twice = bool(message["twice"])
        return self.clocking.time(message["program"], message["previous"], twice=twice).model_dump(mode="json")

    def rehearse(self, message: dict[str, Any]) -> dict[str, Any]:
        """The reference, or a program, called in a process of its own under another command
        (`verify/judge/profiled_run.py`)."""
        self.room.the_reference()              # which takes turns on the GPU, and must be fit to be called
        with contextlib.ExitStack() as stack:
            stack.callback(self.room.errands.quiet)
            rehearsal = ProfiledRun(message, self.room.target, self.room.settings.precision, self.room.limits)
            if message["program"]:
                try:
                    shared = shared_folders(self.room.cache, self.room.home.place)
                    worker, exam, trial = self.room.ready(stack, message["program"])
                    with self.room.turn(worker):   # libraries are often ordered at the first call only
                        trial.call(exam.sets[0], same_addresses=False)
                    stack.enter_context(rehearsal.of_program(self.room.scratch, shared, worker, exam, trial))
                except WorkerFailed as failure:
                    raise Unavailable(f"the program could not be rehearsed: {failure}") from failure
            else:
                rehearsal.of_reference(Path(self.room.path), secrets.randbits(31))
            self.room.errands.quiet()
            with self.room.turn(alone=True):
                return rehearsal.run()._asdict() | {"kernels": rehearsal.kernels}

    def _need_gpu(self, what: str) -> None:
        if self.room.target != "cuda":
            raise Unavailable(f"{what} needs a GPU; this session runs on the simulator")


def main() -> None:
    """Serve one client until its end of the pipe closes."""
    requests, answers = take_over_stdio()
    nursery = ForkServer()                    # before any secret exists, and before any thread
    host_memory.keep_freed()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    order = json.loads(requests.readline())
    die_with(requests, Path(order["scratch"]))
    process = JudgeProcess(order, nursery)
    handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "baseline": process.baseline,
        "check": process.check,
        "check_many": process.check_many,
        "time": process.time,
        "rehearse": process.rehearse,
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
                room = f"{error.strerror} in {order['scratch']}: free some there, or set TMPDIR to a folder with more"
                answer = {"unavailable": f"there is no room to judge in ({room})"}
        except Exception:
            answer = {"defect": traceback.format_exc()}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
