"""What this machine can do: one check for each thing that StitchCUDA may need, with a remedy where it is missing.

It only looks: nothing is installed, no setting is changed, no key is sent anywhere; what a trial of the simulator builds of
ours stays in the user's cache. The simulator and the sandbox are really tried, and torch where there is a GPU; elsewhere it is
asked for its version through its files, so this stays quick. `stitchcuda doctor` prints what it finds.
Where to look next: `doctor_cuda.py` (driver, versions, GPU), `doctor_profilers.py`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from stitchcuda.sandbox import command
from stitchcuda.sandbox.protections import NAMES, REMEDIES, WITHOUT
from stitchcuda.simulator import homes
from stitchcuda.tools.doctoring import doctor_cuda
from stitchcuda.tools.doctoring.doctor_check import Check, said
from stitchcuda.tools.doctoring.doctor_profilers import PROC, profilers
from stitchcuda.tools.machine.toolkit import find_toolkit, missing, runtime_cache, user_cache

__all__ = ["REQUIRED", "Check", "examine"]

REQUIRED = ("python", "torch", "g++", "toolkit", "tvm-ffi", "simulator", "workspace")
"""What optimize needs on any machine; the rest makes it measure, profile or chat."""

ROOM = 2 * 1024**3  # bytes: a session's artefacts and builds, generously
TRIAL_S = 120.0  # for building and running one kernel on the simulator; 2 cores take a few seconds
GCC = 9  # the oldest g++ with the C++17 library that nvcc 13's headers want


def examine(workspace: Path | None = None, proc: Path = PROC) -> list[Check]:
    """All checks, in the order in which a newcomer would fix them. Takes a few seconds: the simulator compiles.

    What only a GPU makes meaningful is left out where there is none. `proc` is where the kernel's and the driver's files are.
    """
    driver, gpu = doctor_cuda.look()
    return [
        _python(),
        _torch(),
        _compiler(),
        *_toolkit(),
        _tvm_ffi(),
        _simulator(),
        _workspace(workspace or Path(os.environ.get("STITCHCUDA_WORKSPACE") or ".stitchcuda")),
        _cache(),
        _runtime(runtime_cache()),
        *gpu,
        *doctor_cuda.fits(driver),
        *profilers(driver, proc),
        *_sandbox(),
        _endpoint(),
    ]


def _python() -> Check:
    import platform

    return Check(name="python", ok=True, detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch() -> Check:
    found = doctor_cuda.find_torch()
    if found is None:
        return Check(name="torch", ok=False, detail="not installed, or not whole", remedy='pip install "torch>=2.8"')
    build = f"built for CUDA {found.cuda}" if found.cuda else "CPU build"
    return Check(name="torch", ok=True, detail=f"{found.version}, {build}")


def _compiler() -> Check:
    compiler = os.environ.get("CXX") or shutil.which("g++")
    remedy = "install g++ (Debian and Ubuntu: apt install g++)"
    if compiler is None:
        return Check(name="g++", ok=False, detail="not found", remedy=remedy)
    ok, version = said(compiler, "-dumpfullversion", "-dumpversion")
    major = int(version.split(".")[0]) if ok and version.split(".")[0].isdigit() else 0
    if major < GCC:
        return Check(name="g++", ok=False, detail=f"{compiler} {version}: too old", remedy=f"install g++ {GCC} or newer")
    return Check(name="g++", ok=True, detail=f"{version} ({compiler})")


def _toolkit() -> list[Check]:
    toolkit = find_toolkit()
    if toolkit is None:
        why, _, remedy = missing().rpartition("; ")
        return [Check(name="toolkit", ok=False, detail=why, remedy=remedy or why)]
    origin = "NVIDIA's wheels" if toolkit.source == "wheels" else "on this system"
    return [
        Check(name="toolkit", ok=True, detail=f"{origin}: {toolkit.nvcc}"),
        Check(name="nvcc", ok=True, detail=toolkit.version),
    ]


def _tvm_ffi() -> Check:
    """What programs bind their CUDA through, and the ninja that it builds with."""
    remedy = 'pip install "apache-tvm-ffi[cpp]"'
    if importlib.util.find_spec("tvm_ffi") is None:
        return Check(name="tvm-ffi", ok=False, detail="not installed", remedy=remedy)
    version = importlib.metadata.version("apache-tvm-ffi")
    if importlib.util.find_spec("ninja") is None and shutil.which("ninja") is None:
        detail = f"{version}, without ninja: programs do not build outside of stitchcuda"
        return Check(name="tvm-ffi", ok=False, detail=detail, remedy=remedy)
    return Check(name="tvm-ffi", ok=True, detail=version)


def _simulator() -> Check:
    ok, text = said(sys.executable, "-m", "stitchcuda.tools.doctoring.probe", seconds=TRIAL_S)
    if not ok:
        return Check(name="simulator", ok=False, detail=text[-300:], remedy="fix g++ and the toolkit above first")
    return Check(name="simulator", ok=True, detail=f"a kernel was built and run on the CPU in {text} s")


def _workspace(folder: Path) -> Check:
    return _folder("workspace", folder, "choose another folder with --workspace or STITCHCUDA_WORKSPACE")


def _cache() -> Check:
    """What can be made again: builds, the toolkit's links, the simulator's libraries."""
    try:
        folder = user_cache()
    except RuntimeError as error:
        return Check(name="cache", ok=False, detail=str(error), remedy="set XDG_CACHE_HOME to a folder you may write to")
    return _folder("cache", folder, "set XDG_CACHE_HOME to another folder")


def _folder(name: str, folder: Path, remedy: str) -> Check:
    """Whether a folder, which need not be there, can be written and has room."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    try:
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        return Check(name=name, ok=False, detail=f"{folder}: {(error.strerror or str(error)).lower()}", remedy=remedy)
    free = shutil.disk_usage(place).free
    detail = f"{folder}, {free / 1e9:.1f} GB free"
    if free < ROOM:
        return Check(name=name, ok=False, detail=detail, remedy=f"free {ROOM / 1e9:.0f} GB, or {remedy}")
    return Check(name=name, ok=True, detail=detail)


def _runtime(folder: Path) -> Check:
    """Where the simulator's own libraries are kept between workspaces; without it each workspace builds its own."""
    if why := homes.objection(folder):
        remedy = "mend that, or set STITCHCUDA_RUNTIME_CACHE to another folder; else each workspace builds its own, in 10 s"
        return Check(name="runtime", ok=False, detail=f"the simulator's libraries cannot be kept: {why}", remedy=remedy)
    kept = sum(path.is_dir() for path in folder.glob("[!.]*"))
    return Check(name="runtime", ok=True, detail=f"the simulator's libraries are kept in {folder}, versions there: {kept}")


def _sandbox() -> list[Check]:
    """What a program would really be shut in by: a child is made and says what it got. Each protection denied has a line."""
    found = command.available()
    denied = dict(found.denied)
    held = f"{len(found.on)} of {len(NAMES)} protections in force"
    missing = "programs are still judged, with less around them; what is denied follows"
    checks = [Check(name="sandbox", ok=not denied, detail=held, remedy=missing if denied else "")]
    for short, name in NAMES.items():
        if name not in found.on:
            why = denied.get(name, "not granted")
            remedy = f"unset {WITHOUT}" if WITHOUT in why else REMEDIES[short]
            checks.append(Check(name=f"sandbox: {name}", ok=False, detail=why, remedy=remedy))
    return checks


def _endpoint() -> Check:
    """A key and, for one's own server, whether something listens there. Nothing is sent."""
    key = bool(os.environ.get("OPENAI_API_KEY", "").strip())
    url = os.environ.get("OPENAI_BASE_URL", "")
    remedy = "nothing to do: the built-in engineer needs no key; for a chat model set OPENAI_API_KEY or --base-url"
    if not url:
        if key:
            return Check(name="endpoint", ok=True, detail="OPENAI_API_KEY is set, for api.openai.com")
        return Check(name="endpoint", ok=False, detail="no OPENAI_API_KEY", remedy=remedy)
    parts = urlsplit(url)
    with_key = "with OPENAI_API_KEY" if key else "without a key"
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=3).close()
    except (OSError, ValueError) as error:
        detail = f"OPENAI_BASE_URL {url} does not answer ({error})"
        return Check(name="endpoint", ok=False, detail=detail, remedy="start that server, or correct OPENAI_BASE_URL")
    return Check(name="endpoint", ok=True, detail=f"{url} listens, {with_key}")
