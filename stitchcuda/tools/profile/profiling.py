"""Chooses how to profile on this machine: Nsight Systems, else CUPTI, else CUDA events; Nsight Compute for counters.

CUPTI is read through torch.profiler inside the process; CUDA events give the time of a call and nothing more. Each profile says
why nothing better was possible. The judge runs all calls, in processes of their own, and those of a program in the sandbox.
Where to look next: `tools/profile/nsys_command.py`, `tools/profile/ncu_command.py`, `tools/profile/sanitizer.py` (the tools),
`tools/profile/system_profile.py`, `tools/profile/kernel_profile.py` (the records), `tools/profile/nsys.py`,
`tools/profile/ncu.py` (for a session).
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox.command import Finished, run
from stitchcuda.state import Record
from stitchcuda.tools.build.kernel_names import base_name, in_sources
from stitchcuda.tools.profile import ncu_command, ncu_report, nsys_command, nsys_export, sanitizer
from stitchcuda.tools.profile.cupti_trace import read_trace
from stitchcuda.tools.profile.kernel_profile import KernelProfile
from stitchcuda.tools.profile.report_reader import read_apart
from stitchcuda.tools.profile.runner import Runner
from stitchcuda.tools.profile.sanitizer import TOOLS, Sanitized
from stitchcuda.tools.profile.sanitizer_log import Tool
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.tools.profile.untrusted_file import open_foreign

CALLS, WARM = 5, 5                         # profiled calls, and warm-up calls before them
_SECONDS = 300.0                           # for one profiled process
_SANITIZING_S = 120.0                      # for one of four tools; most take 5 to 20 s, but some kernels hang under one
_MOST_BYTES = 10_000                       # of the file with the events' times


def system_profile(judge: Runner, program: Path | None) -> SystemProfile:
    """Measures where the time of a call goes, of the reference (None) or of a program that was judged correct.

    Raises `Unavailable` without a GPU; and with all reasons if not even events work.
    """
    if judge.target != "cuda":
        raise Unavailable("no GPU: a profile needs one, and programs run on the simulator here")
    why: list[str] = []
    for source, profile in (("nsys", _by_nsys), ("CUPTI", _by_cupti), ("events", _by_events)):
        with _folder() as folder:
            try:
                return profile(judge, program, folder, "; ".join(why))
            except Unavailable as reason:
                why.append(f"{source}: {reason}")
    raise Unavailable("; ".join(why))


class CountedKernels(Record):
    """Nsight Compute's profiles of one program's kernels."""

    kernels: tuple[KernelProfile, ...] = ()
    skipped: str = ""                      # why there are none
    notes: tuple[str, ...] = ()


def kernel_profiles(judge: Runner, program: Path | None, system: SystemProfile) -> CountedKernels:
    """Reads the counters of the kernels that take the most time in `system`, in one call."""
    kernels = system.by_name()
    chosen = ncu_command.choose(kernels)
    if not chosen:
        return CountedKernels(skipped="the system profile names no kernel to look at")
    if said := ncu_report.missing():
        return CountedKernels(skipped=said)
    with _folder() as folder:
        try:
            done = ncu_command.profile([], chosen, folder, run=_ProfiledCalls(judge, program, folder, how="ncu", calls=1))
            if done.skipped:
                return CountedKernels(skipped=done.skipped)
            shares = {kernel.name: kernel.share for kernel in kernels}
            origins = {kernel.name: kernel.origin for kernel in kernels}
            reports = [read_apart(report, shares=shares, origins=origins, root=program) for report in done.reports]
        except Unavailable as reason:
            return CountedKernels(skipped=str(reason))
    found = sorted((kernel for report in reports for kernel in report), key=lambda kernel: -(kernel.share or 0.0))
    missed = [f"no counters of {name}: other kernels used up the limit of launches" for name in done.missed]
    if len(found) < len(done.kernels):     # NVIDIA's reader leaves out, without a word, what it cannot parse
        lost = set(done.kernels) - {base_name(kernel.name) for kernel in found}
        missed += [f"no counters of {name}: its report is damaged; profile the kernels again" for name in sorted(lost)]
    return CountedKernels(kernels=tuple(found), notes=(*done.notes, *missed))


def sanitized(judge: Runner, program: Path, tools: Sequence[Tool] = TOOLS) -> tuple[Sanitized, ...]:
    """Runs compute-sanitizer's tools on one call of a program (a folder) and returns their findings in its own kernels."""
    found: list[Sanitized] = []
    kernels = [base_name(name) for name in in_sources(program)]
    if not kernels:
        return tuple(Sanitized(tool=tool, skipped="the program has no kernel of its own") for tool in tools)
    for tool in tools:
        with _folder() as folder:
            calls = _ProfiledCalls(judge, program, folder, how="plain", calls=1, warm=0, seconds=_SANITIZING_S)
            try:
                pool = max((result.pool for result in found), default=0)
                found.append(sanitizer.sanitize([], tool, run=calls, kernels=kernels, root=program, pool=pool))
            except Unavailable as reason:
                found.append(Sanitized(tool=tool, skipped=str(reason)))
    return tuple(found)


class _ProfiledCalls:
    """A `Launch`: has the judge call the reference or program behind a profiler's command line, which lacks the program.

    `kernels`, known after a run: the names of the program's own kernels.
    """

    def __init__(self, judge: Runner, program: Path | None, folder: Path, **settings: Any) -> None:
        """`settings`: arguments of `Runner.run_under`, in place of those below."""
        self._judge, self._program, self._folder = judge, program, folder
        self._settings: dict[str, Any] = {"calls": CALLS, "warm": WARM, "seconds": _SECONDS} | settings
        self.kernels: tuple[str, ...] = ()

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> Finished:
        done, self.kernels = self._judge.run_under(
            self._program, command, self._folder, environment=environment, **self._settings
        )
        return done


def _by_nsys(judge: Runner, program: Path | None, folder: Path, why: str) -> SystemProfile:
    nsys = nsys_command.find_nsys()
    if nsys is None:
        raise Unavailable("it is not on this machine; install NVIDIA's nsight-systems")
    calls, report = _ProfiledCalls(judge, program, folder, how="nsys"), folder / "report"
    done = calls(nsys_command.under(nsys, report), {})
    exported = nsys_command.exported(nsys, nsys_command.recorded(done, report), run)
    with _reading("the recording"):
        return nsys_export.read_export(exported, own=calls.kernels)


def _by_cupti(judge: Runner, program: Path | None, folder: Path, why: str) -> SystemProfile:
    calls = _ProfiledCalls(judge, program, folder, how="cupti")
    _check_success(calls([], {}))
    with _reading("the trace"):
        return read_trace(folder / "trace.json", own=calls.kernels, why=why)


def _by_events(judge: Runner, program: Path | None, folder: Path, why: str) -> SystemProfile:
    _check_success(_ProfiledCalls(judge, program, folder, how="events")([], {}))
    with _reading("the times of the events"):
        with open_foreign(folder / "events.json", _MOST_BYTES) as file:
            times = [float(took) for took in json.loads(file.read(_MOST_BYTES))["ms"]]
        if not all(0 < took < math.inf for took in times):
            raise ValueError("a time is none")
        return SystemProfile(source="events", why=why, calls=len(times), span_ms=median(times))


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turns every error into `Unavailable`: a program's process could have written the file, and the next source is used."""
    try:
        yield
    except Unavailable:
        raise
    except Exception as error:
        raise Unavailable(f"{what} cannot be read ({type(error).__name__}: {str(error)[:200]})") from error


def _check_success(done: Finished) -> None:
    if done.timed_out:
        raise Unavailable(f"the call did not end within {done.seconds:.0f} s")
    if done.code != 0:
        said = [line for line in done.output.splitlines() if line.strip()]
        raise Unavailable(f"the call ended with code {done.code}: {said[-1][:300] if said else 'it said nothing'}")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stitchcuda-profile-") as name:
        yield Path(name)
