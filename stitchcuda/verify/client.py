"""Starts a judge process and asks it for baselines, checks and timings, from the main process. Imports no torch.

A reference that cannot be used is raised as `BadInput`; whatever a program does comes back as a `CheckResult`. An interrupt, or
a judge that does not answer in time, ends the judge and every worker below it.
Where to look next: `verify/judge/judge.py` (the other end), `verify/api.py` (policies).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from stitchcuda.errors import BadInput, Unavailable, UnusableReference
from stitchcuda.sandbox import limits
from stitchcuda.sandbox.command import Finished
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import CheckResult, Settings, TimingResult
from stitchcuda.tools.device import device
from stitchcuda.tools.device.toolkit import runtime_cache
from stitchcuda.tools.profile.runner import HowCalled
from stitchcuda.verify.messages import judge_requests
from stitchcuda.verify.messages.request import Request, answer_type, plain

_GRACE_S = 30.0                            # beyond the judge's own limits, before it counts as hung
_ENDING_S = 5.0                            # for the workers of a killed judge to end; then its files are left behind
_Answer = TypeVar("_Answer")
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


class Judge:
    """One judge process for one reference; a context manager. It must not be used by several threads at once."""

    def __init__(
        self,
        reference: Path, settings: Settings, *, cache: Path, arch: str | None = None, bounds: Limits | None = None,
        gpu: str | None = None,
    ) -> None:  # fmt: skip
        """`cache`: the folder for builds. `arch`: such as "sm_90a"; None: that of this machine's GPU. `gpu`: the only one that
        its workers see, as in CUDA_VISIBLE_DEVICES; None: those that this process sees."""
        self.target = settings.target
        self._process: subprocess.Popen[bytes] | None = None
        self._bounds = bounds or Limits()
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES") if gpu is None else gpu
        self._scratch = limits.make_scratch(self._bounds)
        start = judge_requests.JudgeStart(
            reference=reference.resolve(), settings=settings, limits=self._bounds, scratch=self._scratch, cache=cache.resolve(),
            runtime=runtime_cache(), arch=arch or device.device_facts(settings.target).arch,
        )  # fmt: skip
        self._buffer = b""
        self._start()
        self._send(json.dumps(start.model_dump(mode="json")), "starting")

    def baseline(self) -> judge_requests.ReferenceFacts:
        """Runs the reference once: captures its graph and times it on a GPU. Raises `BadInput` if it cannot be used."""
        return self._ask(judge_requests.RunReference(), self._bounds.baseline_s, "running the reference")

    def check(self, program: Path, *, seeds: int) -> CheckResult:
        """Judges a program on `seeds` secret input sets, which are drawn once and used for all programs of this judge."""
        return self._check(program, seeds, fresh=False)

    def check_many(self, programs: Sequence[Path], *, seeds: int) -> list[CheckResult]:
        """Judges several programs as `check` does, as many at once as cores and memory hold. Returns results in the order of
        the programs; none depends on another program."""
        asked = judge_requests.CheckPrograms(tuple(str(program.resolve()) for program in programs), seeds)
        return self._ask(asked, 2 * max(1, len(programs)) * self._bounds.check_s, "judging several programs").results

    def verify_final(self, program: Path, *, seeds: int) -> CheckResult:
        """Judges a program on parameters and inputs that were never used before, with more checks: is each kernel needed?"""
        return self._check(program, seeds, fresh=True)

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult:
        """Times reference, previous program and program, interleaved. Raises `Unavailable` without a GPU.

        `twice`: once more in new processes; the slower figures count, and if they are far apart a third timing decides.
        """
        asked = judge_requests.TimeProgram(str(program.resolve()), str(previous.resolve()), twice)
        return self._ask(asked, (3 if twice else 1) * self._bounds.check_s, "timing")

    def run_under(
        self,
        program: Path | None,
        under: Sequence[str],
        out: Path,
        *,
        how: HowCalled,
        calls: int,
        warm: int,
        seconds: float = 600.0,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[Finished, tuple[str, ...]]:
        """Calls a program that was judged correct (None: the reference) in a process of its own, started by `under`.

        `under`: such as a profiler's command line, which may write the folder `out`. `how`: one of those in
        `verify/program/profiled_process.py`. `environment`: variables to add. Returns how the process ended, and the full names
        of the program's own kernels. Raises `Unavailable` for a program that cannot be loaded.
        """
        asked = judge_requests.RunUnder(
            program=str(program.resolve()) if program else "", under=tuple(under), out=out.resolve(), how=how, calls=calls,
            warm=warm, seconds=seconds, environment=dict(environment or {}), visible=self._visible,
        )  # fmt: skip
        ran = self._ask(asked, 2 * self._bounds.check_s, "profiling")
        return ran.finished, ran.kernels

    def is_alive(self) -> bool:
        """Whether the judge can be asked."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kills the judge and all workers. Any thread may call it; the one that waits for an answer gets `Unavailable`."""
        if (process := self._process) is not None:
            limits.kill_group(process.pid)

    def close(self) -> None:
        """Ends the judge and all workers, and removes their files. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            limits.kill_group(process.pid)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        deadline = time.monotonic() + _ENDING_S
        remove(self._scratch)
        while self._scratch.exists() and time.monotonic() < deadline:
            time.sleep(0.02)               # workers end after the judge, one by one; until then they may write
            remove(self._scratch)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_scratch"):      # else an interrupt came before there was anything to end
            self.close()

    def _start(self) -> None:
        """Starts the process, which imports torch while the caller goes on."""
        visible = {} if self._visible is None else {"CUDA_VISIBLE_DEVICES": self._visible}
        with open(self._scratch / "judge.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stitchcuda.verify.judge.judge"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._scratch,
                # Workers and judge share the cores: a thread pool that spins while it waits slows the others down.
                env=limits.clean_environment({"PYTHONPATH": _import_path(), "OMP_WAIT_POLICY": "PASSIVE", **visible}),
                start_new_session=True,
            )

    def _check(self, program: Path, seeds: int, *, fresh: bool) -> CheckResult:
        asked = judge_requests.CheckProgram(str(program.resolve()), seeds, fresh)
        return self._ask(asked, self._bounds.check_s, "judging a program")

    def _ask(self, request: Request[_Answer], seconds: float, doing: str) -> _Answer:
        if self._process is None:
            raise Unavailable("the judge is closed")
        try:
            self._send(json.dumps({"do": type(request).__name__, **plain(request)}), doing)
            line = self._receive(seconds + self._bounds.start_s + _GRACE_S, doing)
        except BaseException:
            self.close()                   # after an interrupt no worker may run on, and no answer may stay unread
            raise
        reply = judge_requests.JudgeReply[answer_type(request)].model_validate(json.loads(line))  # type: ignore[misc]
        if reply.last:                     # it can start no workers any more
            self.close()
        if reply.failed == "unusable_reference":
            raise UnusableReference(reply.why)
        if reply.failed == "bad_input":
            raise BadInput(reply.why)
        if reply.failed == "unavailable":
            raise Unavailable(reply.why)
        if reply.failed:
            raise RuntimeError(f"the judge failed:\n{reply.why}")
        answer: _Answer = reply.answer
        return answer

    def _send(self, line: str, doing: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._why_ended(doing) from error

    def _receive(self, seconds: float, doing: str) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                why = "use smaller inputs; if the reference is quick, this is a defect in stitchcuda, please report it"
                raise Unavailable(f"{doing} took longer than {seconds:.0f} s and was stopped: {why}")
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._why_ended(doing)
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _why_ended(self, doing: str) -> Exception:
        """Returns the error for a judge that ended: `Unavailable` if somebody killed it, else a defect of ours."""
        assert self._process is not None
        code = self._process.wait()
        name = limits.signal_name(code)
        if code in _FROM_OUTSIDE:
            return Unavailable(f"the judge was killed ({name}) while {doing}; run the command again")
        return RuntimeError(f"the judge ended with {name} while {doing}: {self._log()}")

    def _log(self) -> str:
        log = self._scratch / "judge.log"
        return log.read_text(errors="replace")[-4000:].strip() if log.exists() else ""


def _import_path() -> str:
    """Returns a PYTHONPATH with which the child imports this very package."""
    here = str(Path(__file__).resolve().parents[2])
    rest = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([here, rest]) if rest else here
