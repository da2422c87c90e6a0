"""Finds a CUDA toolkit: that of CUDA_HOME, CUDA_PATH, the PATH or /usr/local/cuda, else NVIDIA's pip wheels.

The wheels keep their libraries in `lib/` under versioned names, but linkers and tvm-ffi look for `lib64/libcudart.so` under
`CUDA_HOME`: for wheels, `home` is therefore a folder of links in the user's cache. It compiles nothing.
Where to look next: `tools/build/nvcc.py` (which compiles).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import site
import sys
from pathlib import Path

from stitchcuda import remedies
from stitchcuda.errors import Unavailable
from stitchcuda.state import Record
from stitchcuda.tools.device.probe_command import run_probe

_WRITABLE = "set XDG_CACHE_HOME to a folder you may write to"
_ANSWER_S = 20.0                           # for nvcc to print its version from a cold disk


class Toolkit(Record):
    """A usable nvcc with its headers and runtime library."""

    nvcc: Path
    home: Path                             # a folder that serves as CUDA_HOME: bin, include, lib64/libcudart.so
    version: str                           # "13.0.88"
    source: str                            # "system" or "wheels"
    includes: tuple[Path, ...]


def find_toolkit() -> Toolkit | None:
    """Returns the toolkit that builds use, or None; `missing()` then says why. Searches once per PATH, CUDA_HOME, CUDA_PATH."""
    return _found()[0]


def missing() -> str:
    """Returns why there is no toolkit, one sentence with the remedy; "" when there is one."""
    toolkit, looked, remedy = _found()
    return "" if toolkit else f"no CUDA toolkit ({'; '.join(looked)}); {remedy}"


def user_cache() -> Path:
    """Returns the user's cache folder for what can be made again. Raises `Unavailable` for a user without a home."""
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise Unavailable(f"this user has no home for a cache; {_WRITABLE}") from error
    return Path(root) / "stitchcuda"


def runtime_cache() -> Path:
    """Returns the folder of the simulator's own libraries for all workspaces: STITCHCUDA_RUNTIME_CACHE, else in the cache.

    For a user without a home, as in some containers, a folder that cannot be written to: each workspace then builds its own.
    """
    try:
        return Path(os.environ.get("STITCHCUDA_RUNTIME_CACHE") or user_cache() / "runtime").expanduser().absolute()
    except (RuntimeError, Unavailable):
        return Path(os.devnull) / "runtime"


def _found() -> tuple[Toolkit | None, tuple[str, ...], str]:
    return _search(os.environ.get("PATH", ""), os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""))


@functools.lru_cache(maxsize=8)
def _search(path: str, cuda_home: str, cuda_path: str) -> tuple[Toolkit | None, tuple[str, ...], str]:
    """Returns (toolkit, (), ""); without one (None, a reason for each place that was looked at, the remedy)."""
    looked: list[str] = []
    remedy = f"install one with: {remedies.extra('toolkit')}"
    if shutil.which("g++", path=path) is None:
        return None, ("nvcc needs the host compiler g++, which is not on the PATH",), "install g++ first"
    on_path = shutil.which("nvcc", path=path)
    candidates = [("CUDA_HOME", Path(home) / "bin" / "nvcc") for home in (cuda_home, cuda_path) if home]
    candidates += [("PATH", Path(on_path))] if on_path else []
    candidates += [("/usr/local/cuda", Path("/usr/local/cuda/bin/nvcc"))]
    for where, nvcc in candidates:
        try:
            if not nvcc.is_file():
                looked.append(f"no nvcc in {where}")
                continue
            return _system(nvcc), (), ""
        except (OSError, Unavailable) as error:
            looked.append(f"{nvcc}: {error}")
    try:
        toolkit = _wheels()
    except (OSError, Unavailable) as error:
        return None, (*looked, f"NVIDIA's wheels cannot be linked to in the cache: {error}"), _WRITABLE
    if toolkit is None:
        looked.append("no nvcc among the Python packages")
    return toolkit, tuple(looked), remedy


def _system(nvcc: Path) -> Toolkit:
    """Returns the toolkit around this nvcc. Raises `Unavailable` with the reason why it cannot be used."""
    version, why = _version(nvcc)
    home = None if why else _home(nvcc)
    if home is None:
        raise Unavailable(why or "it has no headers")
    includes = tuple(folder for folder in (home / "include", home / "targets/x86_64-linux/include") if folder.is_dir())
    return Toolkit(nvcc=nvcc, home=home, version=version, source="system", includes=includes)


def _wheels() -> Toolkit | None:
    """Returns the toolkit of NVIDIA's wheels, `nvidia/cu13` or another major beside Python's packages, if it is there."""
    roots = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path) if folder]
    spec = importlib.util.find_spec("nvidia")
    if spec is not None and spec.submodule_search_locations:
        roots += [Path(folder).parent for folder in spec.submodule_search_locations]
    for root in dict.fromkeys(roots):
        for folder in sorted((root / "nvidia").glob("cu[0-9]*"), reverse=True):
            nvcc = folder / "bin" / "nvcc"
            version = _version(nvcc)[0] if nvcc.is_file() else ""
            runtime = sorted((folder / "lib").glob("libcudart.so.*"))
            if version and runtime and (folder / "include" / "cuda_runtime.h").is_file():
                home = _overlay(folder, runtime[-1], version)
                return Toolkit(nvcc=nvcc, home=home, version=version, source="wheels", includes=(folder / "include",))
    return None


def _overlay(folder: Path, runtime: Path, version: str) -> Path:
    """Makes the folder that serves as CUDA_HOME: `lib64/libcudart.so`, and links to the wheel's other folders.

    Links are renamed into place, so that processes may make it at the same time.
    """
    home = user_cache() / "toolkit" / f"{version}-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    links = {
        home / "bin": folder / "bin",
        home / "include": folder / "include",
        home / "nvvm": folder / "nvvm",
        home / "lib64" / "libcudart.so": runtime,
        home / "lib64" / runtime.name: runtime,
        home / "lib64" / "libcudadevrt.a": folder / "lib" / "libcudadevrt.a",
        home / "lib64" / "libcudart_static.a": folder / "lib" / "libcudart_static.a",
    }
    (home / "lib64").mkdir(parents=True, exist_ok=True)
    for link, to in links.items():
        if to.exists() and not (link.is_symlink() and Path(os.readlink(link)) == to):
            temporary = link.with_name(f".{link.name}.{os.getpid()}")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(to)
            os.replace(temporary, link)
    return home


def _home(nvcc: Path) -> Path | None:
    """Returns the toolkit's root, None if it has no headers. If nvcc is a wrapper, its dry run prints the root as TOP."""
    guess = nvcc.resolve().parent.parent
    if (guess / "include" / "cuda_runtime.h").is_file():
        return guess
    dry = run_probe(nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", seconds=_ANSWER_S)
    found = re.search(r"^#\$ TOP=(.+)$", dry.err + dry.out, re.MULTILINE)
    top = Path(found.group(1).strip()).resolve() if found else guess
    return top if (top / "include" / "cuda_runtime.h").is_file() else None


def _version(nvcc: Path) -> tuple[str, str]:
    """Returns nvcc's version and ""; or "" and the reason."""
    answer = run_probe(nvcc, "--version", seconds=_ANSWER_S)
    found = re.search(r"V(\d+\.\d+\.\d+)", answer.out)
    if not answer.ok or found is None:
        return "", answer.why or f"it tells no version ({' '.join(answer.text.split())[:100] or 'no output'})"
    return found.group(1), ""
