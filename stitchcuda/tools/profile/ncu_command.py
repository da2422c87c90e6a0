"""Runs Nsight Compute on one command: finds it, composes the call, and says in a sentence why there are no counters.

At most `_MOST_KERNELS` kernels are profiled, none under `_LEAST_SHARE` of the device time. The program must call
cudaProfilerStart and cudaProfilerStop around what is to be profiled. A function runs the command: no sandbox is known here.
Where to look next: `tools/profile/ncu_report.py` (reads the report), `tools/profile/profiling.py` (the caller).
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from stitchcuda.sandbox.command import Finished
from stitchcuda.state import Record
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.tools.profile import ncu_figures
from stitchcuda.tools.profile.runner import Launch

SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",       # its rules find uncoalesced accesses and bank conflicts
    "ComputeWorkloadAnalysis",
    "Occupancy",
    "LaunchStats",
    "SchedulerStats",
    "WarpStateStats",
    "SourceCounters",
)
_MOST_KERNELS = 3
_LEAST_SHARE = 0.05                        # of the device time; a rewrite cannot gain more than a kernel takes
_NO_KERNELS = ("copy", "graph")            # origins of work that ncu cannot profile
_MOST_LAUNCHES = 12                        # for an ncu without filter modes: each is replayed some 40 times for these sections
_FILTER = "--filter-mode"                  # since 2023.2
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/nsight-compute-*")
_PROFILED = re.compile(r'^==PROF== Profiling "([^"]+)"', re.MULTILINE)
_ERROR = re.compile(r"^==(?:ERROR|WARNING)== (.+)$", re.MULTILINE)

COUNTERS_DENIED = (
    "the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM): run as root or with CAP_SYS_ADMIN (since "
    "driver 565 CAP_PERFMON is enough); in a container, start it with --cap-add=SYS_ADMIN; or for all users put the line "
    "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into a file of /etc/modprobe.d on the host and restart it"
)
"""As NVIDIA documents it: developer.nvidia.com/ERR_NVGPUCTRPERM."""

_REMEDIES = (
    (r"ERR_NVGPUCTRPERM", COUNTERS_DENIED),
    (r"driver is not compatible with Nsight Compute",
     "this Nsight Compute does not work with the installed driver: update the driver, or use the Nsight Compute of a CUDA "
     "toolkit no newer than it"),
    (r"driver resource was unavailable",
     "another tool is reading the GPU's counters: pause it (for DCGM: dcgmi profile --pause) and try again"),
    (r"Failed to (?:create|open|acquire).{0,40}lock",
     "Nsight Compute's lock file belongs to another user: remove nsight-compute-lock from the folder for temporary files, or "
     "set TMPDIR to one of your own"),
    (r"not supported on device",
     "this Nsight Compute does not know the GPU: install the one of a newer CUDA toolkit"),
    (r"(?:Windows Subsystem for Linux|\bWSL\b)",
     "counters cannot be read here under WSL: profile on a machine that runs Linux itself"),
    (r"No section files found|Failed to load .{0,40}section",
     "Nsight Compute's section files are missing: install it as a whole"),
)  # fmt: skip


class TimedKernel(Protocol):
    """The facts about a kernel that `choose` needs; a system profile's records have them."""

    @property
    def name(self) -> str: ...             # demangled

    @property
    def ms(self) -> float: ...             # all launches of one call together

    @property
    def launches(self) -> float: ...       # in one call

    @property
    def origin(self) -> str: ...           # own, vendor, framework


class ChosenKernel(Record):
    """A function whose kernels are to be profiled."""

    name: str                              # of its longest kernel, demangled
    ms: float = 0.0
    launches: float = 1.0
    origin: str = ""


class Profiled(Record):
    """The reports of one or two runs of ncu, or why there are none."""

    reports: tuple[Path, ...] = ()
    skipped: str = ""
    kernels: tuple[str, ...] = ()          # base names that were profiled
    missed: tuple[str, ...] = ()           # base names that were not, though they were chosen
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def find_ncu(places: Sequence[str] = _PLACES) -> Path | None:
    """Finds Nsight Compute's command: on the PATH, else the newest where NVIDIA's installers put it. Runs nothing."""
    return find_tool("ncu", places)


def find_tool(name: str, places: Sequence[str]) -> Path | None:
    """Finds an executable on the PATH, else in `places`: folders in which `*` stands for anything, the newest version first."""
    if (on_path := shutil.which(name)) is not None:
        return Path(on_path)
    for place in places:
        found = sorted(Path("/").glob(place.lstrip("/")), key=_version, reverse=True)
        for folder in found:
            if os.access(folder / name, os.X_OK) and (folder / name).is_file():
                return folder / name
    return None


def choose(kernels: Sequence[TimedKernel], most: int = _MOST_KERNELS) -> tuple[ChosenKernel, ...]:
    """Chooses the kernels to profile: at most `most`, the longest first, none under 5 % of the device time.

    Kernels of the same base name count as one, since ncu's filter cannot tell them apart. Copies and whole graphs only count as
    device time. The program's longest own kernel is always among them, since a rewrite can change that.
    """
    groups: dict[str, list[TimedKernel]] = {}
    for kernel in kernels:
        if kernel.origin not in _NO_KERNELS and re.fullmatch(r"[\w$]+", name := base_name(kernel.name)):
            groups.setdefault(name, []).append(kernel)
    ranked = []
    for group in groups.values():
        longest = max(group, key=lambda kernel: kernel.ms)
        took, launches = sum(kernel.ms for kernel in group), sum(kernel.launches for kernel in group)
        ranked.append(ChosenKernel(name=longest.name, ms=took, launches=launches, origin=longest.origin))
    ranked.sort(key=lambda kernel: -kernel.ms)
    whole = sum(kernel.ms for kernel in kernels)
    chosen = [kernel for kernel in ranked if whole and kernel.ms >= _LEAST_SHARE * whole][:most]
    own = next((kernel for kernel in ranked if kernel.origin == "own"), None)
    if own is not None and own not in chosen:
        chosen = [*chosen[: most - 1], own]
    return tuple(chosen)


def command(
    ncu: Path,
    target: Sequence[str],
    report: Path,
    kernels: Sequence[ChosenKernel],
    *,
    without: Sequence[str] = (),
    filters: bool = True,
) -> tuple[str, ...]:
    """Returns the command that writes `report` for these kernels of `target`: one launch of each grid and block of each.

    Caches are flushed before each pass. Clocks are left as a user of the program has them. `without`: metrics to leave out.
    `filters=False` profiles the first launches, for an ncu that cannot filter them by grid and block.
    """
    metrics = ",".join(name for name in ncu_figures.wanted() if name not in without)
    names = sorted({re.sub(r"\W", ".", base_name(kernel.name)) for kernel in kernels})
    launches = min(_MOST_LAUNCHES, math.ceil(sum(kernel.launches for kernel in kernels)) or _MOST_LAUNCHES)
    some = (_FILTER, "per-launch-config", "--launch-count", "1") if filters else ("--launch-count", str(launches))
    return (
        str(ncu), "--export", str(report), "--force-overwrite", "--target-processes", "all",
        "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all", "--replay-mode", "kernel",
        *(part for section in SECTIONS for part in ("--section", section)),
        "--metrics", metrics, "--apply-rules", "yes", "--import-source", "yes",
        *(("--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(names)})$") if names else ()),
        *some, *target,
    )  # fmt: skip


def profile(
    target: Sequence[str],
    kernels: Sequence[ChosenKernel],
    folder: Path,
    *,
    run: Launch,
    ncu: Path | None = None,
) -> Profiled:
    """Profiles these kernels in one run of `target` and writes the reports to `folder`. Raises nothing if ncu fails.

    A second run profiles the kernels that the limit of launches left out of the first. Options and metrics that this ncu does
    not know are left out and the run is repeated.
    """
    ncu = ncu or find_ncu()
    if ncu is None:
        why = "Nsight Compute (ncu) is neither on the PATH nor where NVIDIA installs it; it comes with the CUDA toolkit"
        return Profiled(skipped=why)
    reports: list[Path] = []
    seen: list[str] = []
    without: tuple[str, ...] = ()
    filters = True
    notes: list[str] = []
    spent, why = 0.0, ""
    left = list(kernels)
    for number in range(2):
        report = folder / f"kernels-{number}.ncu-rep"
        report.unlink(missing_ok=True)
        for _ in range(3):
            finished = run(command(ncu, target, report, left, without=without, filters=filters), {})
            spent += finished.seconds
            if _PROFILED.search(finished.output):
                break
            if filters and _FILTER in finished.output:
                filters = False
                notes.append(f"this ncu does not know {_FILTER}: the first {_MOST_LAUNCHES} launches were profiled")
            elif not without and (without := _unknown_metrics(finished.output)):
                notes.append(f"this ncu does not know {', '.join(without)}")
            else:
                break
        why = explain(finished, report)
        if why:
            break
        reports.append(report)
        seen += [base_name(name) for name in _PROFILED.findall(finished.output)]
        left = [kernel for kernel in kernels if base_name(kernel.name) not in seen]
        if not left:
            break
    if reports and why:
        notes.append(why)
    return Profiled(
        reports=tuple(reports),
        skipped="" if reports else why,
        kernels=tuple(dict.fromkeys(seen)),
        missed=tuple(dict.fromkeys(base_name(kernel.name) for kernel in left)) if reports else (),
        notes=tuple(notes),
        seconds=spent,
    )


def explain(finished: Finished, report: Path) -> str:
    """Returns why a run gave no report, with the remedy; "" if it gave one."""
    if report.is_file() and _PROFILED.search(finished.output) and "Failed to profile" not in finished.output:
        return ""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, finished.output, re.IGNORECASE):
            return remedy
    if finished.timed_out:
        return f"Nsight Compute did not finish within its {finished.seconds:.0f} s: choose fewer kernels, or give it more time"
    if "No kernels were profiled" in finished.output and finished.code == 0:
        return "none of the chosen kernels was launched between cudaProfilerStart and cudaProfilerStop"
    errors = " ".join(_ERROR.findall(finished.output)[:3]) or finished.output.strip()[-400:] or "without a word"
    return f"Nsight Compute ended with {finished.code}: {errors}"


def _unknown_metrics(output: str) -> tuple[str, ...]:
    """Returns the metrics whose names occur in ncu's errors and warnings, whose wording differs between versions."""
    complaints = " ".join(_ERROR.findall(output))
    return tuple(name for name in ncu_figures.wanted() if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", complaints))


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(folder)))
