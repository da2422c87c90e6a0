"""Runs all checks of `stitchcuda doctor`, one for each thing that a user may have to mend, each with a remedy.

It only looks: nothing is installed, no setting is changed, no key is shown or sent; what a trial of the simulator builds
stays in the user's cache. The simulator and the sandbox are really tried, and torch where there is a GPU; elsewhere torch's
version is read from its files, so this stays quick. `stitchcuda doctor` prints what it finds.
Where to look next: `tools/doctor/cuda.py` (driver, versions, GPU), `tools/doctor/profilers.py`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from stitchcuda import remedies
from stitchcuda.sandbox import command
from stitchcuda.sandbox.protections import PROTECTIONS, WITHOUT
from stitchcuda.tools.device.toolkit import Toolkit, find_toolkit, missing, user_cache
from stitchcuda.tools.doctor import cuda
from stitchcuda.tools.doctor.finding import Check, major_minor, output_of, run_check
from stitchcuda.tools.doctor.profilers import PROC, check_profilers

__all__ = ["REQUIRED", "Check", "examine"]

REQUIRED = ("torch", "g++", "toolkit", "nvcc", "tvm-ffi", "simulator", "workspace")
"""What optimize needs on any machine; the rest makes it measure, profile or chat."""

ROOM = 2 * 1024**3                         # bytes that a session's artefacts and builds may take
TRIAL_S = 120.0                            # for building and running one kernel on the simulator; 2 cores take a few seconds
COMPILE_S = 60.0                           # for an empty kernel on a cold disk; usually a second is enough
NVCC = (12, 0)                             # the oldest that knows sm_90a
GCC = 9                                    # the oldest g++ with the C++17 library that nvcc 13's headers want
KEYS = ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")


def examine(workspace: Path | None = None, proc: Path = PROC) -> list[Check]:
    """Runs all checks, in the order in which a newcomer would fix them. Takes a few seconds: the simulator compiles.

    Checks that need a GPU are left out where there is none. `workspace`: the folder to check, else the session's default.
    `proc`: the mount point of /proc, for tests.
    """
    place = workspace or Path(os.environ.get("STITCHCUDA_WORKSPACE") or ".stitchcuda")
    another = "choose another folder with --workspace or STITCHCUDA_WORKSPACE"
    driver, gpu = cuda.check_gpu()
    return [
        *run_check("torch", _torch),
        *run_check("g++", _compiler),
        *run_check("toolkit", _toolkit),
        *run_check("tvm-ffi", _tvm_ffi),
        *run_check("simulator", _simulator),
        *run_check("workspace", lambda: _folder("workspace", place, another)),
        *run_check("cache", lambda: _folder("cache", user_cache(), "set XDG_CACHE_HOME to another folder")),
        *gpu,
        *run_check("versions", lambda: cuda.check_versions(driver)),
        *check_profilers(driver, proc),
        *run_check("sandbox", _sandbox),
        _keys(),
    ]


def _torch() -> Check:
    found = cuda.find_torch()
    if found is None:
        return Check(name="torch", ok=False, detail="not installed, or not whole", remedy=remedies.install("torch>=2.8"))
    build = f"built for CUDA {found.cuda}" if found.cuda else "CPU build"
    return Check(name="torch", ok=True, detail=f"{found.version}, {build}; Python {sys.version.split()[0]}")


def _compiler() -> Check:
    wanted = os.environ.get("CXX") or "g++"
    compiler = shutil.which(wanted)
    remedy = f"install g++ {GCC} or newer (Debian and Ubuntu: apt install g++)"
    if wanted != "g++":
        remedy = "set CXX to the name or path of one C++ compiler, without options or a second program, or unset it"
    if compiler is None:
        detail = "not found" if wanted == "g++" else f"CXX names no program: {wanted}"
        return Check(name="g++", ok=False, detail=detail, remedy=remedy)
    ok, version = output_of(compiler, "-dumpfullversion", "-dumpversion")
    major = version.split(".")[0]
    if not ok or not major.isdecimal():
        detail = f"{compiler} tells no version: {' '.join(version.split())[:100] or 'no output'}"
        return Check(name="g++", ok=False, detail=detail, remedy=remedy)
    if int(major) < GCC:
        return Check(name="g++", ok=False, detail=f"{compiler} {version}: too old", remedy=remedy)
    return Check(name="g++", ok=True, detail=f"{version} ({compiler})")


def _toolkit() -> list[Check]:
    toolkit = find_toolkit()
    if toolkit is None:
        why, _, remedy = missing().rpartition("; ")
        return [Check(name="toolkit", ok=False, detail=why, remedy=remedy or why)]
    origin = "NVIDIA's wheels" if toolkit.source == "wheels" else "on this system"
    return [Check(name="toolkit", ok=True, detail=f"{origin}: {toolkit.nvcc}"), *run_check("nvcc", lambda: _nvcc(toolkit))]


def _nvcc(toolkit: Toolkit) -> Check:
    """Checks whether nvcc is new enough and compiles an empty kernel for its own default target."""
    oldest = f"{NVCC[0]}.{NVCC[1]}"
    if (major_minor(toolkit.version) or (0, 0)) < NVCC:
        remedy = f"set CUDA_HOME to a toolkit of CUDA {oldest} or newer"
        return Check(name="nvcc", ok=False, detail=f"{toolkit.version}: too old, {oldest} is the oldest", remedy=remedy)
    with tempfile.TemporaryDirectory() as scratch:
        source, cubin = Path(scratch, "empty.cu"), Path(scratch, "empty.cubin")
        source.write_text("__global__ void empty() {}\n")
        ok, text = output_of(toolkit.nvcc, "-std=c++17", "-cubin", "-o", cubin, source, seconds=COMPILE_S)
        if not ok or not cubin.is_file():
            remedy = "repair the toolkit, or set CUDA_HOME to another one; if TMPDIR's folder is full, set it to another"
            detail = f"{toolkit.version} does not compile an empty kernel: {' '.join(text.split())[:200] or 'no output'}"
            return Check(name="nvcc", ok=False, detail=detail, remedy=remedy)
    return Check(name="nvcc", ok=True, detail=toolkit.version)


def _tvm_ffi() -> Check:
    """Checks for tvm-ffi, through which programs bind their CUDA, and for the ninja that it builds with."""
    lacking = [name for name in ("tvm_ffi", "ninja") if importlib.util.find_spec(name) is None]
    if "ninja" in lacking and shutil.which("ninja") is not None:
        lacking.remove("ninja")
    detail = f"not installed: {', '.join(lacking)}" if lacking else "installed, with ninja"
    remedy = remedies.install("apache-tvm-ffi[cpp]") if lacking else ""
    return Check(name="tvm-ffi", ok=not lacking, detail=detail, remedy=remedy)


def _simulator() -> Check:
    ok, text = output_of(sys.executable, "-m", "stitchcuda.tools.doctor.simulator_trial", seconds=TRIAL_S)
    if ok:
        return Check(name="simulator", ok=True, detail=f"a kernel was built and run on the CPU in {text} s")
    whole, why = output_of(sys.executable, "-c", "import torch", seconds=TRIAL_S)
    if not whole:
        detail = f"torch cannot be imported: {(why.splitlines() or ['no output'])[-1][:200]}"
        return Check(name="simulator", ok=False, detail=detail, remedy=remedies.install("--force-reinstall", "torch>=2.8"))
    remedy = "fix what else is not ok first; else set TMPDIR to a folder with room that is not mounted noexec"
    return Check(name="simulator", ok=False, detail=text[-300:], remedy=remedy)


def _folder(name: str, folder: Path, remedy: str) -> Check:
    """Checks whether a folder, or its nearest parent that exists, can be written to and has `ROOM`."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    try:
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(b"x" * 4096)
        free = shutil.disk_usage(place).free
    except OSError as error:
        detail = f"{folder}: {(error.strerror or str(error)).lower()}"
        return Check(name=name, ok=False, detail=detail, remedy=remedy)
    remedy = f"free {ROOM / 1e9:.0f} GB, or {remedy}" if free < ROOM else ""
    return Check(name=name, ok=free >= ROOM, detail=f"{folder}, {free / 1e9:.1f} GB free", remedy=remedy)


def _sandbox() -> list[Check]:
    """Starts a sandboxed child, which reports the protections in force. Each protection that is denied gets a line.

    Where no child can be started, one line says so for all of them.
    """
    found = command.available()
    denied = dict(found.denied)
    reasons = set(denied.values())
    if not found.on and len(reasons) == 1 and WITHOUT not in (why := reasons.pop()):
        detail = f"no child can be made: {why.strip().splitlines()[-1][-200:]}"
        remedy = f"no program is judged like this: mount /proc, and let this user start {sys.executable} and set its own limits"
        return [Check(name="sandbox", ok=False, detail=detail, remedy=remedy)]
    held = f"{len(found.on)} of {len(PROTECTIONS)} protections in force"
    missing = "programs are still judged, with less around them; what is denied follows"
    checks = [Check(name="sandbox", ok=not denied, detail=held, remedy=missing if denied else "")]
    for protection in PROTECTIONS.values():
        if protection.name not in found.on:
            why = denied.get(protection.name, "not granted")
            remedy = f"unset {WITHOUT}" if WITHOUT in why else protection.remedy
            checks.append(Check(name=f"sandbox: {protection.name}", ok=False, detail=why, remedy=remedy))
    return checks


def _keys() -> Check:
    """Lists the names of the chat models' keys that are set."""
    names = [name for name in KEYS if os.environ.get(name, "").strip()]
    if names:
        return Check(name="keys", ok=True, detail=f"set: {', '.join(names)}")
    remedy = "nothing to do: the built-in engineer needs no key; for a chat model set OPENAI_API_KEY or --base-url"
    return Check(name="keys", ok=False, detail=f"none of {', '.join(KEYS)}", remedy=remedy)
