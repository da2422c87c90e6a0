"""What this machine can do: one check for each thing that StitchCUDA may need, with a remedy where it is missing.

It only looks: nothing is installed, no setting is changed, no key is sent anywhere; what a trial of the simulator builds of
ours stays in the user's cache. The simulator and the sandbox are really tried, and torch where there is a GPU; elsewhere it is
asked for its version through its files, so this stays quick. `stitchcuda doctor` prints what it finds.
Where to look next: `tools/doctor/cuda.py` (driver, versions, GPU), `tools/doctor/profilers.py`.
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

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command
from stitchcuda.sandbox.protections import NAMES, REMEDIES, WITHOUT
from stitchcuda.simulator import library_cache
from stitchcuda.tools.device.toolkit import Toolkit, find_toolkit, missing, runtime_cache, user_cache
from stitchcuda.tools.doctor import cuda
from stitchcuda.tools.doctor.finding import Check, numbers, said, tried
from stitchcuda.tools.doctor.profilers import PROC, profilers

__all__ = ["REQUIRED", "Check", "examine"]

REQUIRED = ("python", "torch", "g++", "toolkit", "nvcc", "tvm-ffi", "simulator", "workspace")
"""What optimize needs on any machine; the rest makes it measure, profile or chat."""

ROOM = 2 * 1024**3  # bytes: a session's artefacts and builds, generously
TRIAL_S = 120.0  # for building and running one kernel on the simulator; 2 cores take a few seconds
COMPILE_S = 60.0  # for an empty kernel on a cold disk; it takes a second
NVCC = (12, 0)  # the oldest that knows sm_90a
GCC = 9  # the oldest g++ with the C++17 library that nvcc 13's headers want


def examine(workspace: Path | None = None, proc: Path = PROC) -> list[Check]:
    """All checks, in the order in which a newcomer would fix them. Takes a few seconds: the simulator compiles.

    What only a GPU makes meaningful is left out where there is none. `proc` is where the kernel's and the driver's files are.
    """
    place = workspace or Path(os.environ.get("STITCHCUDA_WORKSPACE") or ".stitchcuda")
    driver, gpu = cuda.look()
    return [
        *tried("python", _python),
        *tried("torch", _torch),
        *tried("g++", _compiler),
        *tried("toolkit", _toolkit),
        *tried("tvm-ffi", _tvm_ffi),
        *tried("simulator", _simulator),
        *tried("workspace", lambda: _workspace(place)),
        *tried("cache", _cache),
        *tried("runtime", lambda: _runtime(runtime_cache())),
        *gpu,
        *tried("versions", lambda: cuda.fits(driver)),
        *profilers(driver, proc),
        *tried("sandbox", _sandbox),
        *tried("endpoint", _endpoint),
    ]


def _python() -> Check:
    import platform

    return Check(name="python", ok=True, detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch() -> Check:
    found = cuda.find_torch()
    if found is None:
        return Check(name="torch", ok=False, detail="not installed, or not whole", remedy='pip install "torch>=2.8"')
    build = f"built for CUDA {found.cuda}" if found.cuda else "CPU build"
    return Check(name="torch", ok=True, detail=f"{found.version}, {build}")


def _compiler() -> Check:
    wanted = os.environ.get("CXX") or "g++"
    compiler = shutil.which(wanted)
    if compiler is None and wanted != "g++":
        remedy = "set CXX to the name or path of one program, without options or a second program, or unset it"
        return Check(name="g++", ok=False, detail=f"CXX names no program: {wanted}", remedy=remedy)
    remedy = "install g++ (Debian and Ubuntu: apt install g++)" if wanted == "g++" else "set CXX to a C++ compiler, or unset it"
    if compiler is None:
        return Check(name="g++", ok=False, detail="not found", remedy=remedy)
    ok, version = said(compiler, "-dumpfullversion", "-dumpversion")
    if not ok or not version.split(".")[0].isdecimal():
        detail = f"{compiler} tells no version: {' '.join(version.split())[:100] or 'no output'}"
        return Check(name="g++", ok=False, detail=detail, remedy=remedy)
    if int(version.split(".")[0]) < GCC:
        return Check(name="g++", ok=False, detail=f"{compiler} {version}: too old", remedy=f"install g++ {GCC} or newer")
    return Check(name="g++", ok=True, detail=f"{version} ({compiler})")


def _toolkit() -> list[Check]:
    toolkit = find_toolkit()
    if toolkit is None:
        why, _, remedy = missing().rpartition("; ")
        return [Check(name="toolkit", ok=False, detail=why, remedy=remedy or why)]
    origin = "NVIDIA's wheels" if toolkit.source == "wheels" else "on this system"
    return [Check(name="toolkit", ok=True, detail=f"{origin}: {toolkit.nvcc}"), *tried("nvcc", lambda: _nvcc(toolkit))]


def _nvcc(toolkit: Toolkit) -> Check:
    """Whether it is new enough and compiles a kernel that does nothing, for its own default target."""
    oldest = f"{NVCC[0]}.{NVCC[1]}"
    if (numbers(toolkit.version) or (0, 0)) < NVCC:
        remedy = f"set CUDA_HOME to a toolkit of CUDA {oldest} or newer"
        return Check(name="nvcc", ok=False, detail=f"{toolkit.version}: too old, {oldest} is the oldest", remedy=remedy)
    with tempfile.TemporaryDirectory() as scratch:
        source, cubin = Path(scratch, "empty.cu"), Path(scratch, "empty.cubin")
        source.write_text("__global__ void empty() {}\n")
        ok, text = said(toolkit.nvcc, "-std=c++17", "-cubin", "-o", cubin, source, seconds=COMPILE_S)
        if not ok or not cubin.is_file():
            remedy = "repair the toolkit, or set CUDA_HOME to another one; if TMPDIR's folder is full, set it to another"
            detail = f"{toolkit.version} does not compile an empty kernel: {' '.join(text.split())[:200] or 'no output'}"
            return Check(name="nvcc", ok=False, detail=detail, remedy=remedy)
    return Check(name="nvcc", ok=True, detail=toolkit.version)


def _tvm_ffi() -> Check:
    """What programs bind their CUDA through, and the ninja that it builds with."""
    remedy = 'pip install "apache-tvm-ffi[cpp]"'
    if importlib.util.find_spec("tvm_ffi") is None:
        return Check(name="tvm-ffi", ok=False, detail="not installed", remedy=remedy)
    try:
        version = importlib.metadata.version("apache-tvm-ffi")
    except importlib.metadata.PackageNotFoundError:
        return Check(name="tvm-ffi", ok=False, detail="not whole: its package's metadata is gone", remedy=remedy)
    if importlib.util.find_spec("ninja") is None and shutil.which("ninja") is None:
        detail = f"{version}, without ninja: programs do not build outside of stitchcuda"
        return Check(name="tvm-ffi", ok=False, detail=detail, remedy=remedy)
    return Check(name="tvm-ffi", ok=True, detail=version)


def _simulator() -> Check:
    _current()
    ok, text = said(sys.executable, "-m", "stitchcuda.tools.doctor.simulator_trial", seconds=TRIAL_S)
    if not ok:
        whole, why = said(sys.executable, "-c", "import torch", seconds=TRIAL_S)
        if not whole:
            detail = f"torch cannot be imported: {(why.splitlines() or ['no output'])[-1][:200]}"
            return Check(name="simulator", ok=False, detail=detail, remedy='pip install --force-reinstall "torch>=2.8"')
        remedy = "fix what else is not ok first; else set TMPDIR to a folder with room that is not mounted noexec"
        return Check(name="simulator", ok=False, detail=text[-300:], remedy=remedy)
    return Check(name="simulator", ok=True, detail=f"a kernel was built and run on the CPU in {text} s")


def _workspace(folder: Path) -> Check:
    return _folder("workspace", folder, "choose another folder with --workspace or STITCHCUDA_WORKSPACE")


def _cache() -> Check:
    """What can be made again: builds, the toolkit's links, the simulator's libraries."""
    return _folder("cache", user_cache(), "set XDG_CACHE_HOME to another folder")


def _folder(name: str, folder: Path, remedy: str) -> Check:
    """Whether a folder, which need not be there, can be written and has room."""
    try:
        free = shutil.disk_usage(_written(folder)).free
    except OSError as error:
        return Check(name=name, ok=False, detail=f"{folder}: {_why(error)}", remedy=remedy)
    detail = f"{folder}, {free / 1e9:.1f} GB free"
    if free < ROOM:
        return Check(name=name, ok=False, detail=detail, remedy=f"free {ROOM / 1e9:.0f} GB, or {remedy}")
    return Check(name=name, ok=True, detail=detail)


def _written(folder: Path) -> Path:
    """The folder, or the nearest above it that is there, after a file was written there and removed. Raises `OSError`."""
    place = folder if folder.is_absolute() else _current() / folder
    while not os.path.lexists(place):
        place = place.parent
    with tempfile.NamedTemporaryFile(dir=place) as file:
        file.write(b"x" * 4096)
        file.flush()
    return place


def _current() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise Unavailable("the current folder is gone; cd to one that is there") from error


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _runtime(folder: Path) -> Check:
    """Where the simulator's own libraries are kept between workspaces; without it each workspace builds its own."""
    why = library_cache.objection(folder)
    if not why:
        try:
            _written(folder)
        except OSError as error:
            why = f"{folder}: {_why(error)}"
    if why:
        remedy = "mend that, or set STITCHCUDA_RUNTIME_CACHE to another folder; else each workspace builds its own, in 10 s"
        return Check(name="runtime", ok=False, detail=f"the simulator's libraries cannot be kept: {why}", remedy=remedy)
    kept = sum(path.is_dir() for path in folder.glob("[!.]*"))
    return Check(name="runtime", ok=True, detail=f"the simulator's libraries are kept in {folder}, versions there: {kept}")


def _sandbox() -> list[Check]:
    """What a program would really be shut in by: a child is made and says what it got. Each protection denied has a line.

    Where no child can be made, one line says so for all of them.
    """
    found = command.available()
    denied = dict(found.denied)
    reasons = set(denied.values())
    if not found.on and len(reasons) == 1 and WITHOUT not in (why := reasons.pop()):
        detail = f"no child can be made: {why.strip().splitlines()[-1][-200:]}"
        remedy = f"no program is judged like this: mount /proc, and let this user start {sys.executable} and set its own limits"
        return [Check(name="sandbox", ok=False, detail=detail, remedy=remedy)]
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
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host = None
    if not host:
        detail = "OPENAI_BASE_URL is no address"  # it may hold a password, so it is not shown
        return Check(name="endpoint", ok=False, detail=detail, remedy="correct it, such as http://localhost:8000/v1")
    where = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        socket.create_connection((host, port), timeout=3).close()
    except (OSError, ValueError) as error:
        detail = f"OPENAI_BASE_URL {where} does not answer ({error})"
        return Check(name="endpoint", ok=False, detail=detail, remedy="start that server, or correct OPENAI_BASE_URL")
    return Check(name="endpoint", ok=True, detail=f"{where} listens, {'with OPENAI_API_KEY' if key else 'without a key'}")
