"""Builds a program's CUDA: objects per source, content-addressed, never built twice; one shared library through tvm-ffi.

Without a GPU only cubins are made: nvcc's verdict and ptxas' report in well under a second per file. Nothing is loaded or
run, and torch is not imported. Concurrent builders agree: every file appears by renaming. Where to look next: `toolkit.py`
(which nvcc), `compiler_log.py` (what it said), `interceptor.py` (who builds in the worker).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.state import BuildResult, KernelUsage, Record
from stitchcuda.sandbox import limits
from stitchcuda.tools import compiler_log, toolkit
from stitchcuda.tools.toolkit import Toolkit

_SECONDS = 300.0                           # for one source; the slowest seen, CUTLASS-sized templates, takes half of it
_HEADERS = (".h", ".hpp", ".cuh", ".inl", ".inc")
_CXX = (".cc", ".cpp", ".cxx", ".c++")
# tvm-ffi's own defaults and what generated programs add to them; a flag given twice must not make another object
_CXX_FLAGS = ("-std=c++17", "-fPIC", "-O2")
_CUDA_FLAGS = ("-Xcompiler", "-fPIC", "-std=c++17", "-O3", "-lineinfo")


class Library(Record):
    """A linked library, or the compilers' errors when `path` is None."""

    path: Path | None
    log: str = ""
    kernels: tuple[KernelUsage, ...] = ()
    cached: bool = False
    seconds: float = 0.0

_BLAMES_SOURCE = re.compile(r"(\(\d+\)|:\d+:\d+): (fatal )?error")


class _Object(Record):
    path: Path | None
    log: str = ""                          # raw
    cached: bool = False


def build(program: Path, *, arch: str, cache: Path, link: bool) -> BuildResult:
    """Build every CUDA source of a program folder for `arch` ("sm_90a"). Compiler errors are a result, not an exception.

    `link=False` makes cubins only; `link=True` makes the library that the program loads. Without a toolkit, or without any
    CUDA source in files of its own, the result says so in `skipped`.
    """
    started = time.monotonic()
    root = program if program.is_dir() else program.parent
    sources = sorted(path for path in root.rglob("*") if path.suffix in (".cu", *_CXX)) if program.is_dir() else []
    cuda = [path for path in sources if path.suffix == ".cu"]
    if not cuda:
        inline = "its CUDA is inline and is built when it is loaded"
        return BuildResult(ok=True, skipped=inline if _has_inline(program) else "the program has no CUDA source")
    kit = toolkit.find_toolkit()
    if kit is None:
        return BuildResult(ok=True, skipped=toolkit.missing())
    if link:
        made = [library(group, arch=arch, cache=cache, root=root) for group in _groups(sources)]
        return BuildResult(
            ok=all(one.path is not None for one in made),
            seconds=time.monotonic() - started,
            cached=all(one.cached for one in made),
            log="\n".join(one.log for one in made if one.log),
            kernels=tuple(usage for one in made for usage in one.kernels),
        )
    objects = _together(lambda source: _cuda(source, kit, arch, cache, root, cubin=True), cuda)
    failed = "\n".join(one.log for one in objects if one.path is None)
    return BuildResult(
        ok=not failed and all(one.path is not None for one in objects),
        seconds=time.monotonic() - started,
        cached=all(one.cached for one in objects),
        log=compiler_log.trimmed(failed, root, _foreign(kit)) if failed else "",
        kernels=tuple(usage for one in objects if one.path is not None for usage in compiler_log.usage(one.log)),
    )


def library(
    sources: Sequence[Path],
    *,
    arch: str,
    cache: Path,
    root: Path,
    cflags: Sequence[str] = (),
    cuda_flags: Sequence[str] = (),
    ldflags: Sequence[str] = (),
    includes: Sequence[Path] = (),
) -> Library:
    """One shared library from CUDA and C++ sources, linked against tvm-ffi and the CUDA runtime.

    `root` is the program's folder: its headers count as sources, and errors show paths relative to it.
    Raises `Unavailable` without a toolkit.
    """
    started = time.monotonic()
    kit = toolkit.find_toolkit()
    if kit is None:
        raise Unavailable(toolkit.missing())
    paths = tuple(f"-I{folder}" for folder in includes if not (folder / "cuda_runtime_api.h").exists())

    def compiled(source: Path) -> _Object:
        if source.suffix == ".cu":
            return _cuda(source, kit, arch, cache, root, cubin=False, extra=(*cuda_flags, *paths))
        return _cxx(source, kit, cache, root, extra=(*cflags, *paths))

    objects = _together(compiled, sorted(sources))
    failed = "\n".join(one.log for one in objects if one.path is None)
    if failed or any(one.path is None for one in objects):
        return Library(path=None, log=compiler_log.trimmed(failed, root, _foreign(kit)), seconds=time.monotonic() - started)
    linked = _link([one.path for one in objects if one.path is not None], kit, cache, tuple(ldflags))
    said = "" if linked.path is not None else f"error: linking failed\n{linked.log}"
    return Library(
        path=linked.path,
        log=compiler_log.trimmed(said, root, _foreign(kit)),
        kernels=tuple(usage for one in objects for usage in compiler_log.usage(one.log)),
        cached=linked.cached and all(one.cached for one in objects),
        seconds=time.monotonic() - started,
    )


def _groups(sources: Sequence[Path]) -> list[list[Path]]:
    """What belongs in one library: NAME.cu with NAME_binding.cc, as programs load them; else everything together."""
    groups = {path.with_suffix(""): [path] for path in sources if path.suffix == ".cu"}
    for path in sources:
        if path.suffix != ".cu":
            owner = path.with_name(path.stem.removesuffix("_binding"))
            if owner not in groups:
                return [list(sources)]
            groups[owner].append(path)
    return list(groups.values())


def _cuda(
    source: Path, kit: Toolkit, arch: str, cache: Path, root: Path, *, cubin: bool, extra: tuple[str, ...] = ()
) -> _Object:
    number = arch.removeprefix("sm_")
    target = (f"-gencode=arch=compute_{number},code=sm_{number}",) if not cubin else (f"-arch=sm_{number}",)
    further = (flag for flag in extra if flag not in _CUDA_FLAGS)
    flags = (*_CUDA_FLAGS, *target, "-Xptxas", "-v", *_tvm_includes(), *further)
    command = (str(kit.nvcc), *flags, "-cubin" if cubin else "-c", str(source))
    return _made(source, command, ".cubin" if cubin else ".o", f"nvcc {kit.version} {_host_compiler()}", cache, root)


def _cxx(source: Path, kit: Toolkit, cache: Path, root: Path, *, extra: tuple[str, ...] = ()) -> _Object:
    compiler = os.environ.get("CXX", "g++")
    cuda = tuple(part for folder in kit.includes for part in ("-isystem", str(folder)))
    further = (flag for flag in extra if flag not in _CXX_FLAGS)
    command = (compiler, *_CXX_FLAGS, *_tvm_includes(), *cuda, *further, "-c", str(source))
    return _made(source, command, ".o", f"{compiler} {_host_compiler()}", cache, root)


def _made(source: Path, command: tuple[str, ...], suffix: str, tool: str, cache: Path, root: Path) -> _Object:
    """Run the compiler unless the same text was compiled before with the same tool and flags."""
    digest = hashlib.sha256()
    for part in (tool, _tvm_version(), *command[1:-1], source.name):
        digest.update(part.encode() + b"\0")
    digest.update(source.read_bytes())
    for header in _headers(source, root):
        digest.update(header.name.encode() + b"\0" + header.read_bytes())
    stem = cache / "objects" / digest.hexdigest()[:2] / digest.hexdigest()
    made, log = stem.with_suffix(suffix), stem.with_suffix(".json")
    if log.exists():
        entry = json.loads(log.read_text())
        if not entry["ok"] or made.exists():
            return _Object(path=made if entry["ok"] else None, log=entry["log"], cached=True)
    stem.parent.mkdir(parents=True, exist_ok=True)
    temporary = stem.with_suffix(f".{os.getpid()}.{threading.get_ident()}{suffix}")
    finished = limits.run((*command, "-o", str(temporary)), seconds=_SECONDS, cwd=root)
    if finished.timed_out:
        temporary.unlink(missing_ok=True)
        return _Object(path=None, log=f"{source}:1: error: the compiler did not finish within {_SECONDS:.0f} s")
    ok = finished.code == 0 and temporary.exists()
    if ok:
        os.replace(temporary, made)
    temporary.unlink(missing_ok=True)
    if ok or _BLAMES_SOURCE.search(finished.output):
        # A compiler that was killed, found no file or ran out of disk names no line of the source; that is not remembered.
        entry = {"ok": ok, "log": _relative(finished.output, root)}
        note = stem.with_suffix(f".{os.getpid()}.{threading.get_ident()}.json")
        note.write_text(json.dumps(entry))
        os.replace(note, log)
    said = finished.output or f"{source}:1: error: the compiler ended with {limits.signal_name(finished.code)}"
    return _Object(path=made if ok else None, log=_relative(said, root))


def _link(objects: list[Path], kit: Toolkit, cache: Path, ldflags: tuple[str, ...]) -> _Object:
    libraries = _tvm() / "lib"
    runtime = next((kit.home / name for name in ("lib64", "lib") if (kit.home / name / "libcudart.so").exists()), kit.home)
    flags = ("-shared", f"-L{libraries}", "-ltvm_ffi", f"-L{runtime}", "-lcudart", f"-Wl,-rpath,{runtime.resolve()}", *ldflags)
    digest = hashlib.sha256("\0".join([*(path.stem for path in objects), *flags, _tvm_version()]).encode()).hexdigest()
    made = cache / "libraries" / digest[:2] / f"{digest}.so"
    if made.exists():
        return _Object(path=made, cached=True)
    made.parent.mkdir(parents=True, exist_ok=True)
    temporary = made.with_suffix(f".{os.getpid()}.tmp")
    command = (os.environ.get("CXX", "g++"), *map(str, objects), *flags, "-o", str(temporary))
    finished = limits.run(command, seconds=_SECONDS)
    if finished.code != 0:
        temporary.unlink(missing_ok=True)
        return _Object(path=None, log=finished.output)
    os.replace(temporary, made)
    return _Object(path=made)


def _together(make: object, sources: Iterable[Path]) -> list[_Object]:
    listed = list(sources)
    if not listed:
        return []
    with ThreadPoolExecutor(min(len(listed), os.cpu_count() or 1)) as pool:
        return list(pool.map(make, listed))  # type: ignore[arg-type]


def _headers(source: Path, root: Path) -> list[Path]:
    inside = source.is_relative_to(root)
    folders = [root] if inside else [source.parent]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in _HEADERS and path.is_file())


def _relative(log: str, root: Path) -> str:
    """Paths as the program's author knows them; also what makes a remembered log true for another copy of the program."""
    for folder in (root, root.resolve()):
        log = log.replace(f"{folder}/", "")
    return log


def _has_inline(program: Path) -> bool:
    files = [program] if program.is_file() else list(program.glob("*.py"))
    return any("__global__" in file.read_text(errors="replace") for file in files)


def _foreign(kit: Toolkit) -> tuple[Path, ...]:
    return (_tvm(), kit.nvcc.parent.parent)


@functools.cache
def _tvm() -> Path:
    """tvm-ffi's folder, found without importing it: the import would bring torch along."""
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("the package apache-tvm-ffi is not installed; install it with: pip install 'apache-tvm-ffi[cpp]'")
    return Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def _tvm_version() -> str:
    return importlib.metadata.version("apache-tvm-ffi")


def _tvm_includes() -> tuple[str, ...]:
    return (f"-I{_tvm() / 'include'}",)


@functools.cache
def _host_compiler() -> str:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise Unavailable("no C++ compiler g++ on the PATH; install it with your system's package manager")
    return limits.run((compiler, "-dumpfullversion"), seconds=30).output.strip()
