"""Finds a CUDA toolkit: the machine's own, else NVIDIA's pip wheels. Compiles nothing.

The wheels keep their libraries in `lib/` under versioned names; linkers and tvm-ffi look for `lib64/libcudart.so` under
`CUDA_HOME`, so `home` is an overlay of links in our cache then. Where to look next: `tools/build/nvcc.py`.
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
from stitchcuda.tools.device.probe_command import ask

_WRITABLE = "set XDG_CACHE_HOME to a folder you may write to"
_ANSWER_S = 20.0                           # for nvcc to say its version on a cold disk


class Toolkit(Record):
    """A usable nvcc with its headers and runtime library."""

    nvcc: Path
    home: Path                             # a folder that serves as CUDA_HOME: bin, include, lib64/libcudart.so
    version: str                           # "13.0.88"
    source: str                            # "system" or "wheels"
    includes: tuple[Path, ...]


def find_toolkit() -> Toolkit | None:
    """The toolkit that builds here, or None; `missing()` then says what was looked at. Looks once per environment."""
    return _looked()[0]


def missing() -> str:
    """Why there is no toolkit: one sentence with the remedy, or "" when there is one."""
    toolkit, looked, remedy = _looked()
    return "" if toolkit else f"no CUDA toolkit ({'; '.join(looked)}); {remedy}"


def user_cache() -> Path:
    """The user's cache folder for things that can be made again. Raises `Unavailable` for a user without a home."""
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise Unavailable(f"this user has no home for a cache; {_WRITABLE}") from error
    return Path(root) / "stitchcuda"


def runtime_cache() -> Path:
    """Where the simulator's own libraries are kept for all workspaces: STITCHCUDA_RUNTIME_CACHE, else in the user's cache."""
    try:
        return Path(os.environ.get("STITCHCUDA_RUNTIME_CACHE") or user_cache() / "runtime").expanduser().absolute()
    except (RuntimeError, Unavailable):    # a user without a home, as in some containers: each workspace builds its own
        return Path(os.devnull) / "runtime"


def _looked() -> tuple[Toolkit | None, tuple[str, ...], str]:
    return _search(os.environ.get("PATH", ""), os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""))


@functools.lru_cache(maxsize=8)
def _search(path: str, cuda_home: str, cuda_path: str) -> tuple[Toolkit | None, tuple[str, ...], str]:
    """The toolkit, or where none was found and why, and the remedy."""
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
    """Raises `Unavailable` with the reason why this nvcc is of no use."""
    version, why = _version(nvcc)
    home = None if why else _home(nvcc)
    if home is None:
        raise Unavailable(why or "it has no headers")
    includes = tuple(folder for folder in (home / "include", home / "targets/x86_64-linux/include") if folder.is_dir())
    return Toolkit(nvcc=nvcc, home=home, version=version, source="system", includes=includes)


def _wheels() -> Toolkit | None:
    """nvidia/cu13 (or a later major) in site-packages, with an overlay that linkers understand."""
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
    """`home/lib64/libcudart.so` and links to the wheel's other folders; made by renaming, so that racing makers agree."""
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
    """The toolkit's root: nvcc may be a link or a wrapper script, then nvcc itself knows (TOP in its dry run)."""
    guess = nvcc.resolve().parent.parent
    if (guess / "include" / "cuda_runtime.h").is_file():
        return guess
    said = ask(nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", seconds=_ANSWER_S)
    found = re.search(r"^#\$ TOP=(.+)$", said.err + said.out, re.MULTILINE)
    top = Path(found.group(1).strip()).resolve() if found else guess
    return top if (top / "include" / "cuda_runtime.h").is_file() else None


def _version(nvcc: Path) -> tuple[str, str]:
    """What nvcc says of its version, or "" and the reason."""
    said = ask(nvcc, "--version", seconds=_ANSWER_S)
    found = re.search(r"V(\d+\.\d+\.\d+)", said.out)
    if not said.ok or found is None:
        return "", said.why or f"it tells no version ({' '.join(said.text.split())[:100] or 'no output'})"
    return found.group(1), ""
