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
import select
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from stitchcuda.errors import BadInput, Unavailable, UnusableReference
from stitchcuda.sandbox.removal import remove
from stitchcuda.verify.inputs.reference_requests import CaptureReference
from stitchcuda.verify.judge.examination import Examination
from stitchcuda.verify.judge.interleaved_timing import InterleavedTiming
from stitchcuda.verify.judge.judge_resources import JudgeResources
from stitchcuda.verify.judge.parallel_checks import ParallelChecks
from stitchcuda.verify.judge.profiled_run import ProfiledRun
from stitchcuda.verify.messages import judge_requests
from stitchcuda.verify.messages.request import Request, read
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.builder_worker import shared_folders


class JudgeProcess:
    """Answers requests about one reference and its programs."""

    def __init__(self, start: judge_requests.JudgeStart, forkserver: ForkServer) -> None:
        self.resources = JudgeResources(start, forkserver)
        self.examination = Examination(self.resources)
        self.parallel = ParallelChecks(self.resources, self.examination)
        self.timing = InterleavedTiming(self.resources)

    def answer(self, request: Request[Any]) -> Any:
        """Returns the record that answers a request."""
        match request:
            case judge_requests.RunReference():
                return self.run_reference()
            case judge_requests.CheckProgram():
                return self.examination.check(request.program, request.seeds, fresh=request.fresh)
            case judge_requests.CheckPrograms():
                return judge_requests.CheckResults(self.parallel.check(request.programs, request.seeds))
            case judge_requests.TimeProgram():
                if self.resources.target != "cuda":
                    raise Unavailable("timing needs a GPU; this session runs on the simulator")
                return self.timing.time(request.program, request.previous, twice=request.twice)
            case judge_requests.RunUnder():
                return self.run_under(request)
        raise AssertionError(request)

    def run_reference(self) -> judge_requests.ReferenceFacts:
        constants = self.resources.scratch / "constants.safetensors"
        return self.resources.ask(CaptureReference(secrets.randbits(31), str(constants)))

    def run_under(self, request: judge_requests.RunUnder) -> judge_requests.RanUnder:
        """Calls the reference, or a program, in a process of its own under another command (`verify/judge/profiled_run.py`)."""
        self.resources.reference_worker()              # a turn on the GPU needs one, and it must be callable
        with contextlib.ExitStack() as stack:
            stack.callback(self.resources.background.quiet)
            profiled = ProfiledRun(request, self.resources.target, self.resources.settings.precision, self.resources.limits)
            if request.program:
                try:
                    shared = shared_folders(self.resources.cache, self.resources.home.place)
                    worker, secret_inputs, trial = self.resources.load_program(stack, request.program)
                    # A program may build its libraries in its first call only.
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
                return judge_requests.RanUnder(profiled.run(), profiled.kernels)


def _take_over_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Returns private copies of stdin and stdout. Then stdin is /dev/null and stdout the log, so that a print is no answer."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def _die_with(requests: BinaryIO, scratch: Path) -> None:
    """Ends this process at once, even in the middle of a check, when the client is gone, and removes `scratch`. The workers end
    with their parent."""

    def watch() -> None:
        poll = select.poll()
        poll.register(requests.fileno(), select.POLLHUP)
        while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            time.sleep(0.05)
        remove(scratch)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serves one client until its end of the pipe closes."""
    requests, answers = _take_over_stdio()
    forkserver = ForkServer()                    # before any secret or thread exists: its children inherit neither
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    start = judge_requests.JudgeStart.model_validate(json.loads(requests.readline()))
    _die_with(requests, start.scratch)
    process = JudgeProcess(start, forkserver)
    for asked in requests:
        reply = _reply(process, json.loads(asked)).model_copy(update={"last": forkserver.lost})
        line = json.dumps(reply.model_dump(mode="json"))  # pydantic itself writes no half of a surrogate pair
        answers.write(line.encode() + b"\n")
        answers.flush()


def _reply(process: JudgeProcess, fields: dict[str, Any]) -> judge_requests.JudgeReply[Any]:
    try:
        request: Request[Any] = read(judge_requests.QUESTIONS[fields.pop("do")], fields)
        return judge_requests.JudgeReply(answer=process.answer(request))
    except BadInput as error:
        unusable = isinstance(error, UnusableReference)
        return judge_requests.JudgeReply(failed="unusable_reference" if unusable else "bad_input", why=str(error))
    except Unavailable as error:
        return judge_requests.JudgeReply(failed="unavailable", why=str(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f"{error.strerror} in {process.resources.scratch}: free some there, or set TMPDIR to a folder with more"
            return judge_requests.JudgeReply(failed="unavailable", why=f"there is no room to judge in ({where})")
        return judge_requests.JudgeReply(failed="defect", why=traceback.format_exc())


if __name__ == "__main__":
    main()
