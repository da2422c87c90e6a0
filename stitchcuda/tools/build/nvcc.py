"""Builds a program's CUDA with nvcc: an object per source, cached by content, and a shared library for tvm-ffi or torch.

Without a GPU only cubins are made, which gives nvcc's errors and ptxas' report in well under a second per file. Nothing is
loaded or run, and torch is not imported. Compilers run in the sandbox and write to a folder of their own; their results are
moved into the cache with a digest. Errors are cached too, if they name a line of the source.
Where to look next: `tools/device/toolkit.py` (which nvcc), `tools/build/bindings.py` (linked against what),
`tools/build/nearest_names.py` (names that do not exist), `tools/build/extension_build.py` (torch's headers),
`verify/program/builder_worker.py` (the caller).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command, digest_seal, limits
from stitchcuda.simulator.includes import find_foreign_include, inside
from stitchcuda.state import BuildResult, KernelUsage, Record
from stitchcuda.tools.build import (
    architecture,
    bindings,
    code_fingerprint,
    compiler_log,
    compilers,
    libraries,
    passes,
    program_sources,
    sass,
    tvm_front,
)  # fmt: skip
from stitchcuda.tools.build.bindings import Binding
from stitchcuda.tools.build.extension_build import compile_with_front, front_sources
from stitchcuda.tools.build.libraries import Libraries
from stitchcuda.tools.build.nearest_names import with_nearest
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.device.toolkit import Toolkit

_HEAVY = "<tvm/ffi/"                       # an include so large that nvcc's passes are worth running side by side
_SECONDS = 300.0                           # for one source; the slowest so far, with CUTLASS' templates, takes half of it
_BLAMES_SOURCE = re.compile(r"(\(\d+\)|:\d+:\d+): (fatal )?error")
NO_SOURCE = "the program has no CUDA source"
WHEN_LOADED = "its CUDA is inline or a torch extension, and is built when it is loaded"
NOTHING_TO_BUILD = (NO_SOURCE, WHEN_LOADED)     # reasons in `skipped` that lie in the program and not in the machine
_ABSENT = re.compile(r"fatal error: .*: No such file|cannot open source file")    # files that may be installed later


class Library(Record):
    """A linked library, or the compilers' errors when `path` is None."""

    path: Path | None
    log: str = ""
    kernels: tuple[KernelUsage, ...] = ()
    cached: bool = False
    seconds: float = 0.0


class _Object(Record):
    """A compiled or linked file, or the compiler's errors when `path` is None."""

    path: Path | None
    log: str = ""                          # as the compiler printed it
    cached: bool = False


class _Entry(Record):
    """The cached outcome of a compilation, a JSON file beside the object."""

    ok: bool
    log: str


def build(program: Path, *, arch: str, cache: Path, link: bool, machine: bool = False) -> BuildResult:
    """Builds every CUDA source of a program folder for `arch` ("sm_90a"). Compiler errors are in the result's `log`.

    `link=False` makes cubins only; `link=True` makes the libraries that the program loads. Torch extensions are left out.
    Without a toolkit, or without other CUDA sources in files of their own, the result is `ok` with the reason in `skipped`.
    `machine`: adds a line on each kernel's machine code, and the fingerprint of the sources. Raises `Unavailable` where nothing
    can be built or cached, `BadInput` for an `arch` that does not exist.
    """
    started = time.monotonic()
    program, cache = program.resolve(), cache.resolve()
    root = program if program.is_dir() else program.parent
    sources = program_sources.sources(program)
    if (strange := next((path for path in sources if not program_sources.is_plain(path.relative_to(root))), None)) is not None:
        why = f"{str(strange.relative_to(root))[:300]!r} is no name for a source file: use letters, digits and _ . + - @ = ,"
        return BuildResult(ok=False, log=f"error: {why}")
    if (strange := next((path for path in sources if not path.is_file() or not inside(path, (root,))), None)) is not None:
        why = f"{strange.relative_to(root)}:1: error: no plain file of the program; a program is built from its own sources"
        return BuildResult(ok=False, log=why)
    groups = program_sources.groups(sources, root)
    cuda = [path for group in groups for path in group if path.suffix == ".cu"]
    if not cuda:
        return BuildResult(ok=True, skipped=nothing_to_build(program, sources))
    kit = toolkit.find_toolkit()
    if kit is None:
        return BuildResult(ok=True, skipped=toolkit.missing())
    parts: Sequence[Library | _Object]
    if link:
        parts = made = [library(group, arch=arch, cache=cache, root=root) for group in groups]
        known = tuple(usage for part in made for usage in part.kernels)
        log = "\n".join(part.log for part in made if part.log)
    else:
        place, found = _with_libraries(_Place(kit, arch, cache, root, bindings.tvm()), cuda)
        with _writing(cache):
            parts = _compile_all(lambda source: _cuda(source, place, cubin=True), cuda)
        known = tuple(usage for part in parts if part.path is not None for usage in compiler_log.kernel_usage(part.log))
        failed = "\n".join(part.log for part in parts if part.path is None)
        log = _explain(failed, place, found) if failed else ""
    ok = all(part.path is not None for part in parts)
    binaries = [part.path for part in parts if part.path is not None]
    kernels, notes = sass.with_machine_code(known, binaries) if machine else (known, ())
    return BuildResult(
        ok=ok,
        seconds=time.monotonic() - started,
        cached=all(part.cached for part in parts),
        log=log,
        kernels=kernels,
        notes=notes,
        code=code_fingerprint.fingerprint(root) if ok and machine else "",
    )


def nothing_to_build(program: Path, sources: Sequence[Path]) -> str:
    """Says why none of a program's sources, all of which are given, is built before it is loaded."""
    later = any(path.suffix == ".cu" for path in sources) or program_sources.has_inline(program)
    return WHEN_LOADED if later else NO_SOURCE


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
    cuda_includes: Sequence[Path] = (),
    binding: Binding | None = None,
) -> Library:
    """Builds one shared library from CUDA and C++ sources, linked against `binding` (tvm-ffi if None) and the CUDA runtime.

    `root` is the program's folder: its headers are part of the cache key, and errors show paths relative to it. `cuda_includes`
    are for CUDA sources alone, so that C++ sources beside rewritten CUDA are not compiled again. Compiler errors are a result
    without a `path`. Raises `Unavailable` without a toolkit, or where nothing can be written to the cache.
    """
    started = time.monotonic()
    root, sources = root.absolute(), [source.absolute() for source in sources]
    kit = toolkit.find_toolkit()
    if kit is None:
        raise Unavailable(toolkit.missing())
    included = tuple(folder for folder in includes if not (folder / "cuda_runtime_api.h").exists())
    plain = _Place(kit, arch, cache.resolve(), root, binding or bindings.tvm(), included)
    place, found = _with_libraries(plain, sources, ldflags)
    wider = replace(place, includes=(*included, *cuda_includes))
    with _writing(plain.cache):
        ours = front_sources((*sources, *_own_headers(sources, plain)), plain.binding.torch, plain.cache)

    def compiled(source: Path) -> _Object:
        if source.suffix == ".cu":
            return _cuda(source, wider, cubin=False, extra=tuple(cuda_flags))
        if source in ours:                 # without the program's flags, so that all extensions share one object
            return _cxx(source, replace(plain, root=source.parent, binding=bindings.torch("stitchcuda_front"), includes=()))
        return _cxx(source, place, extra=tuple(cflags))

    with _writing(plain.cache):
        objects = _compile_all(compiled, [*sorted(sources), *ours])
    failed = "\n".join(part.log for part in objects if part.path is None)
    if failed or any(part.path is None for part in objects):
        return Library(path=None, log=_explain(failed, place, found), seconds=time.monotonic() - started)
    binaries = [part.path for part in objects if part.path is not None]
    if unlinked := libraries.explain_unlinked(found, binaries):
        return Library(path=None, log=f"error: linking failed\n{unlinked}", seconds=time.monotonic() - started)
    with _writing(plain.cache):
        linked = _link(binaries, place, found.ldflags(ldflags))
    failed = "" if linked.path is not None else f"error: linking failed\n{linked.log}"
    return Library(
        path=linked.path,
        log=compiler_log.trim(failed, root, place.elsewhere),
        kernels=tuple(usage for part in objects for usage in compiler_log.kernel_usage(part.log)),
        cached=linked.cached and all(part.cached for part in objects),
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _writing(cache: Path) -> Iterator[None]:
    """Raises `Unavailable` in place of an OSError that means that the cache is full or cannot be written to."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full and not (isinstance(error.filename, str | Path) and Path(error.filename).is_relative_to(cache)):
            raise
        remedy = "make room there, or choose another folder"
        raise Unavailable(f"cannot write to the cache {cache}: {error.strerror}; {remedy}") from error


@dataclass(frozen=True)
class _Place:
    """The settings that all sources of one build share."""

    kit: Toolkit
    arch: str
    cache: Path
    root: Path
    binding: Binding
    includes: tuple[Path, ...] = ()

    @property
    def elsewhere(self) -> tuple[Path, ...]:
        return (*self.binding.folders, self.kit.nvcc.parent.parent)

    def readable(self, source: Path) -> tuple[Path, ...]:
        """Returns the folders that a compiler may read: the program, all headers, and the source's own folder."""
        folders = (self.root, source.parent, *self.includes, *self.elsewhere, self.kit.home, *self.kit.includes)
        return tuple(dict.fromkeys(folder for folder in folders if folder.exists()))


def _with_libraries(place: _Place, sources: Sequence[Path], ldflags: Sequence[str] = ()) -> tuple[_Place, Libraries]:
    """Returns the place with those of NVIDIA's libraries added that the sources, or the program's headers, include."""
    included = libraries.included_headers((*sources, *_own_headers(sources, place)))
    found = libraries.find(included, libraries.places(place.kit), ldflags=ldflags)
    return replace(place, binding=libraries.extend(place.binding, found)), found


def _own_headers(sources: Sequence[Path], place: _Place) -> set[Path]:
    """The program's headers that its sources include."""
    return {header for source in sources for header in program_sources.headers(source, place.root, place.includes)}


def _explain(log: str, place: _Place, found: Libraries) -> str:
    """Returns a log's errors, with the nearest names for unknown ones and remedies for missing libraries."""
    errors = with_nearest(compiler_log.trim(log, place.root, place.elsewhere), (*place.kit.includes, *found.includes))
    return libraries.explain_missing(errors, found, libraries.places(place.kit))


def _cuda(source: Path, place: _Place, *, cubin: bool, extra: tuple[str, ...] = ()) -> _Object:
    target = architecture.flags(place.kit, place.arch, cubin=cubin)
    flags = (*bindings.with_defaults(place.binding.cuda_flags, extra), "-Xcompiler", "-fPIC", *target, "-Xptxas", "-v")
    order = (str(place.kit.nvcc), *flags, *_includes(place), "-cubin" if cubin else "-c", str(source))
    tool = f"nvcc {place.kit.version} {compilers.version_of('gcc')}"
    return _compile(source, order, ".cubin" if cubin else ".o", tool, place)


def _cxx(source: Path, place: _Place, *, extra: tuple[str, ...] = ()) -> _Object:
    compiler = os.environ.get("CXX", "g++")
    cuda = tuple(part for folder in place.kit.includes for part in ("-isystem", str(folder)))
    flags = ("-fPIC", *bindings.with_defaults(place.binding.cxx_flags, extra))
    order = (compiler, *flags, *cuda, *_includes(place), "-c", str(source))
    return _compile(source, order, ".o", f"{compiler} {compilers.version_of(compiler)}", place)


def _includes(place: _Place) -> tuple[str, ...]:
    return (*(f"-I{folder}" for folder in place.includes), *place.binding.includes)


def _compile(source: Path, order: tuple[str, ...], suffix: str, tool: str, place: _Place) -> _Object:
    """Runs the compiler, unless the same text was compiled before with the same tool and flags."""
    root, headers = place.root, program_sources.headers(source, place.root, place.includes)
    named = (tool, place.binding.version, *order[1:-1])
    key = _key(named, source, headers, root)
    made = (place.cache / "objects" / key[:2] / key).with_suffix(suffix)
    if (known := _cached(made)) is not None:
        return known
    readable = place.readable(source)
    for file in (source, *headers):
        error = find_foreign_include(file.read_text("utf-8", "replace"), file, readable, _relative(str(file), root))
        if error is not None:
            return _Object(path=None, log=error)
    made.parent.mkdir(parents=True, exist_ok=True)
    with compilers.file_lock(made), tempfile.TemporaryDirectory(dir=made.parent, prefix="building-") as scratch:
        if (known := _cached(made)) is not None:    # another process has compiled it while this one waited
            return known
        temporary = Path(scratch) / f"made{suffix}"
        finished = None
        within = functools.partial(_run, readable=readable, scratch=Path(scratch))
        if place.binding.torch is not None and suffix == ".o":
            finished = compile_with_front(order, headers, place.binding.torch, temporary, within)
        elif place.binding.torch is None:
            finished = _with_tvm_front(order, headers, temporary, within)
        if finished is None:
            finished = _run((*order, "-o", str(temporary)), root, readable, Path(scratch))
        if finished.timed_out:
            return _Object(path=None, log=f"{source}:1: error: the compiler did not finish within {_SECONDS:.0f} s")
        if _key(named, source, program_sources.headers(source, root, place.includes), root) != key:
            return _Object(path=None, log=f"{source}:1: error: the program's files changed while they were compiled")
        ok = finished.code == 0 and temporary.exists()
        log = finished.output
        if not ok:
            log = compiler_log.locate(log, source, lambda: _ptx(order, root, Path(scratch), within))
        log = _relative(log, root)
        if ok:
            digest_seal.put(temporary, made)
        if ok or (_BLAMES_SOURCE.search(log) and not _ABSENT.search(log)):
            # If the compiler was killed, found no file or ran out of disk, it names no line of the source: not cached.
            note = Path(scratch) / "log.json"
            note.write_text(_Entry(ok=ok, log=log).model_dump_json())
            os.replace(note, made.with_suffix(".json"))
    log = log or f"{source}:1: error: the compiler ended with {limits.signal_name(finished.code)}"
    return _Object(path=made if ok else None, log=log)


def _with_tvm_front(order: tuple[str, ...], headers: Sequence[Path], made: Path, run: passes.Run) -> command.Finished | None:
    """Compiles a source that includes tvm-ffi's headers, at first with the light one; None for one that includes none."""
    source = Path(order[-1])
    texts = [file.read_text("utf-8", "replace") for file in (source, *headers)]

    def compiled(order: tuple[str, ...], name: str) -> command.Finished | None:
        if source.suffix != ".cu" or made.suffix != ".o":
            return run((*order, "-o", str(made)), made.parent)
        (halves := made.parent / name).mkdir()
        return passes.compile_object(order, made, halves, run)

    light = tvm_front.light_order(order, texts)
    if light is not None and (found := compiled(light, "light")) is not None and found.code == 0:
        return found
    return compiled(order, "whole") if any(_HEAVY in text for text in texts) else None


def _ptx(order: tuple[str, ...], root: Path, scratch: Path, run: passes.Run) -> str:
    """Makes the PTX that ptxas refused once more, since nvcc keeps none; "" if that fails."""
    made = scratch / "refused.ptx"
    wanted = (*("-ptx" if word in ("-c", "-cubin") else word for word in order), "-o", str(made))
    run(wanted, root)
    return made.read_text("utf-8", "replace") if made.is_file() else ""


def _cached(made: Path) -> _Object | None:
    """Returns the outcome of an earlier compilation; None if there is none, or if it is damaged."""
    try:
        entry = _Entry.model_validate_json(made.with_suffix(".json").read_bytes(), strict=True)
    except (OSError, ValueError):
        return None
    if entry.ok and digest_seal.state(made) != "intact":
        return None
    return _Object(path=made if entry.ok else None, log=entry.log, cached=True)


def _key(parts: Sequence[str], source: Path, headers: Sequence[Path], root: Path) -> str:
    """Returns the digest of everything that decides about a compilation's result, except for where the program lies."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(os.fsencode(part.replace(str(root), "")) + b"\0")
    for file in (source, *headers):
        home = root if file.is_relative_to(root) else source.parent
        digest.update(os.fsencode(os.path.relpath(file, home)) + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _link(objects: list[Path], place: _Place, ldflags: tuple[str, ...]) -> _Object:
    home = place.kit.home
    runtime = next((home / name for name in ("lib64", "lib") if (home / name / "libcudart.so").exists()), home)
    flags = ("-shared", *place.binding.link, f"-L{runtime}", "-lcudart", f"-Wl,-rpath,{runtime.resolve()}", *ldflags)
    digest = hashlib.sha256("\0".join([*(path.stem for path in objects), *flags, place.binding.version]).encode()).hexdigest()
    made = place.cache / "libraries" / digest[:2] / f"{digest}.so"
    if digest_seal.state(made) == "intact":
        return _Object(path=made, cached=True)
    made.parent.mkdir(parents=True, exist_ok=True)
    with compilers.file_lock(made), tempfile.TemporaryDirectory(dir=made.parent, prefix="linking-") as scratch:
        if digest_seal.state(made) == "intact":
            return _Object(path=made, cached=True)
        temporary = Path(scratch) / made.name
        order = (os.environ.get("CXX", "g++"), *map(str, objects), *flags, "-o", str(temporary))
        readable = (*(path.parent for path in objects), *place.elsewhere, home, runtime.resolve())
        finished = _run(order, Path(scratch), readable, Path(scratch))
        if finished.code != 0:
            return _Object(path=None, log=finished.output)
        digest_seal.put(temporary, made)
    return _Object(path=made)


def _run(order: Sequence[str], cwd: Path, readable: Sequence[Path], scratch: Path) -> command.Finished:
    environment = limits.clean_environment({"TMPDIR": str(scratch)})
    with compilers.slot():
        return command.run(order, seconds=_SECONDS, cwd=cwd, env=environment, read=readable, write=(scratch,))


def _compile_all(make: Callable[[Path], _Object], sources: Sequence[Path]) -> list[_Object]:
    """Compiles all sources at once. If a CUDA source fails, only those are returned: nobody waits for the C++ bindings.

    Compilations of bindings that have started go on, and their objects are cached for the next attempt.
    """
    pool = ThreadPoolExecutor(max(1, min(len(sources), os.cpu_count() or 1)))
    try:
        made = {source: pool.submit(make, source) for source in sorted(sources, key=lambda source: source.suffix != ".cu")}
        cuda = [part.result() for source, part in made.items() if source.suffix == ".cu"]
        return cuda if any(part.path is None for part in cuda) else [made[source].result() for source in sources]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _relative(log: str, root: Path) -> str:
    """Makes paths relative to the program, so that a cached log fits any copy of it."""
    for folder in (root, root.resolve()):
        log = log.replace(f"{folder}/", "")
    return log
