"""Runs NVIDIA's compute-sanitizer on one command and returns what it found: memory errors, races, unwritten reads, barriers.

A function runs the command: no sandbox is known here. If a tool cannot run, `skipped` says why.
Where to look next: `tools/profile/sanitizer_log.py` (parses its text), `tools/profile/memory_errors.py` (what is an error).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from stitchcuda.sandbox.command import Finished
from stitchcuda.state import Record
from stitchcuda.tools.profile import sanitizer_log
from stitchcuda.tools.profile.ncu_command import find_tool
from stitchcuda.tools.profile.runner import Launch
from stitchcuda.tools.profile.sanitizer_log import SanitizerFinding, Tool

TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck", "initcheck", "synccheck")

_PLACES = (
    "/usr/local/cuda/bin",
    "/usr/local/cuda/compute-sanitizer",
    "/usr/local/cuda-*/bin",
    "/usr/local/cuda-*/compute-sanitizer",
    "/usr/local/cuda*/extras/compute-sanitizer",
)
_PRINTED = 1000                            # reports that a tool may print; equal ones are merged afterwards
# Tools that must see all kernels: initcheck would take what an unseen kernel writes for unwritten.
_WHOLE = ("initcheck",)
# Environments to try in this order, and what to note. Inside of torch's memory pool, one large allocation, memcheck sees no
# border between tensors; without it nothing can be allocated while a CUDA graph is recorded. CUDA's own pool (cudaMallocAsync)
# does not help: memcheck reports what a graph allocates in it as out of bounds (2025.3).
_POOLS: tuple[tuple[dict[str, str], str], ...] = (
    ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, ""),
    ({}, "the program records CUDA graphs: its tensors lay in torch's memory pool, in which no border between them is seen"),
)
_IN_CAPTURE = re.compile(r"when stream is capturing|cudaErrorStreamCapture")

_REMEDIES = (
    (r"terminated before first instrumented API call", "the program ended before it used CUDA"),
    (r"No attachable process found", "the program did not use CUDA in time, or its processes cannot be followed"),
    (r"(?:Device not supported|not supported on this device|Unsupported device)",
     "this compute-sanitizer does not know the GPU: use the one of a newer CUDA toolkit"),
    (r"(?:driver version is insufficient|incompatible with the (?:installed )?driver)",
     "this compute-sanitizer does not work with the installed driver: update the driver, or use an older CUDA toolkit's"),
    (r"(?:Unable to find injection library|injection library)",
     "compute-sanitizer is not whole here (its injection library is missing): install it again"),
    (r"Debugger is already (?:attached|initialized)", "another debugger or profiler holds the GPU: end it and try again"),
)  # fmt: skip


class Sanitized(Record):
    """The findings of one tool in one run of the command."""

    tool: Tool
    skipped: str = ""                      # why the tool could not run
    findings: tuple[SanitizerFinding, ...] = ()     # equal ones merged, the most frequent first
    errors: int | None = None              # the number in the tool's summary; None without one
    ended: bool = False                    # in time, with exit code 0, a summary, and all reports printed
    note: str = ""                         # what limits the findings, such as that the program itself failed
    pool: int = 0                          # which of `_POOLS` it needed: what to begin with the next time
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether the tool finished and found no error or warning."""
        return not self.skipped and self.ended and all(finding.severity == "info" for finding in self.findings)


def find_sanitizer() -> Path | None:
    """Finds compute-sanitizer on the PATH, else where NVIDIA's installers put it. Runs nothing."""
    return find_tool("compute-sanitizer", _PLACES)


def sanitize(
    target: Sequence[str],
    tool: Tool = "memcheck",
    *,
    run: Launch,
    sanitizer: Path | None = None,
    kernels: Sequence[str] = (),
    root: Path | None = None,
    pool: int = 0,
) -> Sanitized:
    """Runs `target` under one tool and returns its findings. Raises nothing if the tool fails.

    `kernels`: function names (not mangled, no parameters) whose findings are returned; () for all. Paths under `root` become
    relative. `pool`: which of `_POOLS` to begin with. torch's memory pool is switched off; a program that fails without one is
    run again with it.
    """
    sanitizer = sanitizer or find_sanitizer()
    if sanitizer is None:
        why = "compute-sanitizer is neither on the PATH nor where NVIDIA installs it; it comes with the CUDA toolkit"
        return Sanitized(tool=tool, skipped=why)
    order = command(sanitizer, target, tool, kernels)
    for number in range(pool, len(_POOLS)):
        setting, pooled = _POOLS[number]
        finished = run(order, setting)
        if finished.timed_out or not _IN_CAPTURE.search(finished.output):
            break
    findings = tuple(
        finding for finding in sanitizer_log.findings(finished.output, tool, root)
        if tool not in _WHOLE or not kernels or not finding.kernel or any(name in finding.kernel for name in kernels)
    )  # fmt: skip
    errors = sanitizer_log.errors(finished.output)
    why = "" if errors is not None or findings else _explain(finished, tool)
    unprinted = errors is not None and errors > _PRINTED
    note = ""
    if not why and (finished.timed_out or errors is None):
        note = f"{tool} did not come to its end; there may be more"
    elif not why and finished.code != 0:
        note = f"{tool} or the program under it ended with {finished.code}; there may be more"
    elif unprinted:
        note = f"{tool} has {errors} reports and printed {_PRINTED} of them"
    note = "; ".join(filter(None, (note, pooled)))
    return Sanitized(
        tool=tool, skipped=why, findings=findings, errors=errors, note=note, pool=number, seconds=finished.seconds,
        ended=errors is not None and not finished.timed_out and finished.code == 0 and not unprinted,
    )  # fmt: skip


def command(sanitizer: Path, target: Sequence[str], tool: Tool, kernels: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the command. Backtraces of the device show which kernel called a device function; the host's are left out."""
    return (
        str(sanitizer), "--tool", tool, "--target-processes", "all", "--show-backtrace", "device",
        "--print-limit", str(_PRINTED), "--error-exitcode", "0",
        *(("--racecheck-report", "analysis") if tool == "racecheck" else ()),
        *(part for name in kernels if tool not in _WHOLE for part in ("--kernel-name", f"kernel_substring={name}")),
        *target,
    )  # fmt: skip


def _explain(finished: Finished, tool: Tool) -> str:
    if finished.timed_out:
        return f"{tool} did not finish within its {finished.seconds:.0f} s"
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, finished.output, re.IGNORECASE):
            return remedy
    return f"compute-sanitizer ended with {finished.code}: {finished.output.strip()[-400:] or 'without a word'}"
