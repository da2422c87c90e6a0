"""Builds a program's CUDA: objects per source, content-addressed, never built twice; one shared library for tvm-ffi or torch.

Without a GPU only cubins are made: nvcc's verdict and ptxas' report in well under a second per file. Nothing is loaded or
run, and torch is not imported. Compilers run in the sandbox and write to a folder of their own; what they made is moved into
the cache sealed. Where to look next: `tools/device/toolkit.py` (which nvcc), `tools/build/bindings.py` (against what),
`tools/build/nearest_names.py` (names that do not exist), `tools/build/extension_build.py` (what torch's headers cost),
`verify/program/builder_worker.py` (for whom).
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
from stitchcuda.simulator.includes import foreign, inside
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
)  # fmt: skip
from stitchcuda.tools.build.bindings import Binding
from stitchcuda.tools.build.extension_build import beside, with_front
from stitchcuda.tools.build.libraries import Libraries
from stitchcuda.tools.build.nearest_names import with_nearest
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.device.toolkit import Toolkit

_HEAVY = "<tvm/ffi/"                       # headers whose two readings by nvcc are worth doing at once
_SECONDS = 300.0                           # for one source; the slowest seen, CUTLASS-sized templates, takes half of it
_BLAMES_SOURCE = re.compile(r"(\(\d+\)|:\d+:\d+): (fatal )?error")
NO_SOURCE = "the program has no CUDA source"
INLINE = "its CUDA is inline and is built when it is loaded"
NOTHING_TO_BUILD = (NO_SOURCE, INLINE)     # what `skipped` says of one program, and not of the machine
_ABSENT = re.compile(r"fatal error: .*: No such file|cannot open source file")    # which may be installed later


class Library(Record):
    """A linked library, or the compilers' errors when `path` is None."""

    path: Path | None
    log: str = ""
    kernels: tuple[KernelUsage, ...] = ()
    cached: bool = False
    seconds: float = 0.0


class _Object(Record):
    path: Path | None
    log: str = ""                          # raw
    cached: bool = False


class _Entry(Record):
    """What is remembered of a compilation, beside its object."""

    ok: bool
    log: str


def build(program: Path, *, arch: str, cache: Path, link: bool, machine: bool = False) -> BuildResult:
    """Build every CUDA source of a program folder for `arch` ("sm_90a"). Compiler errors are a result, not an exception.

    `link=False` makes cubins only; `link=True` makes the library that the program loads. Without a toolkit, or without any
    CUDA source in files of its own, the result says so in `skipped`. `machine`: a line on the machine code of each kernel, and
    the fingerprint of the sources.
    Raises `Unavailable` where nothing can be built or kept, `BadInput` for an `arch` that is none.
    """
    started = time.monotonic()
    program, cache = program.resolve(), cache.resolve()
    root = program if program.is_dir() else program.parent
    sources = program_sources.sources(program)
    if (strange := next((path for path in sources if not program_sources.is_plain(path.relative_to(root))), None)) is not None:
        said = f"{str(strange.relative_to(root))[:300]!r} is no name for a source file: use letters, digits and _ . + - @ = ,"
        return BuildResult(ok=False, log=f"error: {said}")
    if (strange := next((path for path in sources if not path.is_file() or not inside(path, (root,))), None)) is not None:
        said = f"{strange.relative_to(root)}:1: error: no plain file of the program; a program is built from its own sources"
        return BuildResult(ok=False, log=said)
    cuda = [path for path in sources if path.suffix == ".cu"]
    if not cuda:
        return BuildResult(ok=True, skipped=INLINE if program_sources.has_inline(program) else NO_SOURCE)
    kit = toolkit.find_toolkit()
    if kit is None:
        return BuildResult(ok=True, skipped=toolkit.missing())
    parts: Sequence[Library | _Object]
    if link:
        parts = made = [library(group, arch=arch, cache=cache, root=root) for group in program_sources.groups(sources)]
        known = tuple(usage for part in made for usage in part.kernels)
        log = "\n".join(part.log for part in made if part.log)
    else:
        place, found = _with_libraries(_Place(kit, arch, cache, root, bindings.tvm()), cuda)
        with _writing(cache):
            parts = _together(lambda source: _cuda(source, place, cubin=True), cuda)
        known = tuple(usage for part in parts if part.path is not None for usage in compiler_log.usage(part.log))
        failed = "\n".join(part.log for part in parts if part.path is None)
        log = _explained(failed, place, found) if failed else ""
    ok = all(part.path is not None for part in parts)
    kernels, notes = sass.described(known, [part.path for part in parts if part.path is not None]) if machine else (known, ())
    return BuildResult(
        ok=ok,
        seconds=time.monotonic() - started,
        cached=all(part.cached for part in parts),
        log=log,
        kernels=kernels,
        notes=notes,
        code=code_fingerprint.fingerprint(root) if ok and machine else "",
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
    cuda_includes: Sequence[Path] = (),
    binding: Binding | None = None,
) -> Library:
    """One shared library from CUDA and C++ sources, linked against `binding` (tvm-ffi if None) and the CUDA runtime.

    `root` is the program's folder: its headers count as sources, and errors show paths relative to it. `cuda_includes` are for
    CUDA sources alone, so that C++ beside rewritten ones is not compiled again.
    Raises `Unavailable` without a toolkit, or where nothing can be written to the cache.
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
        ours = beside(sources, plain.binding.torch, plain.cache)

    def compiled(source: Path) -> _Object:
        if source.suffix == ".cu":
            return _cuda(source, wider, cubin=False, extra=tuple(cuda_flags))
        if source in ours:                 # the same object for all extensions
            return _cxx(source, replace(plain, root=source.parent, binding=bindings.torch("stitchcuda_front"), includes=()))
        return _cxx(source, place, extra=tuple(cflags))

    with _writing(plain.cache):
        objects = _together(compiled, [*sorted(sources), *ours])
    failed = "\n".join(part.log for part in objects if part.path is None)
    if failed or any(part.path is None for part in objects):
        return Library(path=None, log=_explained(failed, place, found), seconds=time.monotonic() - started)
    binaries = [part.path for part in objects if part.path is not None]
    if unlinked := libraries.unlinked(found, binaries):
        return Library(path=None, log=f"error: linking failed\n{unlinked}", seconds=time.monotonic() - started)
    with _writing(plain.cache):
        linked = _link(binaries, place, found.ldflags(ldflags))
    said = "" if linked.path is not None else f"error: linking failed\n{linked.log}"
    return Library(
        path=linked.path,
        log=compiler_log.trimmed(said, root, place.elsewhere),
        kernels=tuple(usage for part in objects for usage in compiler_log.usage(part.log)),
        cached=linked.cached and all(part.cached for part in objects),
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _writing(cache: Path) -> Iterator[None]:
    """One sentence where the cache cannot take what is made."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full and not (isinstance(error.filename, str | Path) and Path(error.filename).is_relative_to(cache)):
            raise
        said = f"cannot write to the cache {cache}: {error.strerror}; make room there, or choose another folder"
        raise Unavailable(said) from error


@dataclass(frozen=True)
class _Place:
    """What all sources of one build share."""

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
        """The program, and the headers of others; of the cache no more than the source's own folder."""
        folders = (self.root, source.parent, *self.includes, *self.elsewhere, self.kit.home, *self.kit.includes)
        return tuple(dict.fromkeys(folder for folder in folders if folder.exists()))


def _with_libraries(place: _Place, sources: Sequence[Path], ldflags: Sequence[str] = ()) -> tuple[_Place, Libraries]:
    """The place with NVIDIA's libraries that the sources, or the program's headers, include."""
    own = {header for source in sources for header in program_sources.headers(source, place.root, place.includes)}
    found = libraries.find(libraries.included((*sources, *own)), libraries.places(place.kit), ldflags=ldflags)
    return replace(place, binding=libraries.bound(place.binding, found)), found


def _explained(log: str, place: _Place, found: Libraries) -> str:
    said = with_nearest(compiler_log.trimmed(log, place.root, place.elsewhere), (*place.kit.includes, *found.includes))
    return libraries.explained(said, found, libraries.places(place.kit))


def _cuda(source: Path, place: _Place, *, cubin: bool, extra: tuple[str, ...] = ()) -> _Object:
    target = architecture.flags(place.kit, place.arch, cubin=cubin)
    flags = (*bindings.with_defaults(place.binding.cuda_flags, extra), "-Xcompiler", "-fPIC", *target, "-Xptxas", "-v")
    order = (str(place.kit.nvcc), *flags, *_includes(place), "-cubin" if cubin else "-c", str(source))
    return _made(source, order, ".cubin" if cubin else ".o", f"nvcc {place.kit.version} {compilers.host('gcc')}", place)


def _cxx(source: Path, place: _Place, *, extra: tuple[str, ...] = ()) -> _Object:
    compiler = os.environ.get("CXX", "g++")
    cuda = tuple(part for folder in place.kit.includes for part in ("-isystem", str(folder)))
    flags = ("-fPIC", *bindings.with_defaults(place.binding.cxx_flags, extra))
    order = (compiler, *flags, *cuda, *_includes(place), "-c", str(source))
    return _made(source, order, ".o", f"{compiler} {compilers.host(compiler)}", place)


def _includes(place: _Place) -> tuple[str, ...]:
    return (*(f"-I{folder}" for folder in place.includes), *place.binding.includes)


def _made(source: Path, order: tuple[str, ...], suffix: str, tool: str, place: _Place) -> _Object:
    """Run the compiler unless the same text was compiled before with the same tool and flags."""
    root, headers = place.root, program_sources.headers(source, place.root, place.includes)
    named = (tool, place.binding.version, *order[1:-1])
    key = _key(named, source, headers, root)
    made = (place.cache / "objects" / key[:2] / key).with_suffix(suffix)
    if (known := _known(made)) is not None:
        return known
    readable = place.readable(source)
    for file in (source, *headers):
        if (said := foreign(file.read_text("utf-8", "replace"), file, readable, _relative(str(file), root))) is not None:
            return _Object(path=None, log=said)
    made.parent.mkdir(parents=True, exist_ok=True)
    with compilers.sole(made), tempfile.TemporaryDirectory(dir=made.parent, prefix="building-") as scratch:
        if (known := _known(made)) is not None:    # by somebody else, while this one waited
            return known
        temporary = Path(scratch) / f"made{suffix}"
        finished = None
        within = functools.partial(_run, readable=readable, scratch=Path(scratch))
        if place.binding.torch is not None and suffix == ".o":
            finished = with_front(order, headers, place.binding.torch, temporary, within)
        elif source.suffix == ".cu" and suffix == ".o" and _HEAVY in source.read_text("utf-8", "replace"):
            (halves := Path(scratch) / "halves").mkdir()
            finished = passes.compiled(order, temporary, halves, within)
        if finished is None:
            finished = _run((*order, "-o", str(temporary)), root, readable, Path(scratch))
        if finished.timed_out:
            return _Object(path=None, log=f"{source}:1: error: the compiler did not finish within {_SECONDS:.0f} s")
        if _key(named, source, program_sources.headers(source, root, place.includes), root) != key:
            return _Object(path=None, log=f"{source}:1: error: the program's files changed while they were compiled")
        ok = finished.code == 0 and temporary.exists()
        said = finished.output
        if not ok:
            said = compiler_log.placed(said, source, lambda: _ptx(order, root, Path(scratch), within))
        said = _relative(said, root)
        if ok:
            digest_seal.put(temporary, made)
        if ok or (_BLAMES_SOURCE.search(said) and not _ABSENT.search(said)):
            # A compiler that was killed, found no file or ran out of disk names no line of the source; that is not remembered.
            note = Path(scratch) / "log.json"
            note.write_text(_Entry(ok=ok, log=said).model_dump_json())
            os.replace(note, made.with_suffix(".json"))
    said = said or f"{source}:1: error: the compiler ended with {limits.signal_name(finished.code)}"
    return _Object(path=made if ok else None, log=said)


def _ptx(order: tuple[str, ...], root: Path, scratch: Path, run: passes.Run) -> str:
    """The PTX that ptxas refused, made once more: nvcc keeps none, but leaves what it was asked for. "" where it does not."""
    made = scratch / "refused.ptx"
    wanted = (*("-ptx" if word in ("-c", "-cubin") else word for word in order), "-o", str(made))
    run(wanted, root)
    return made.read_text("utf-8", "replace") if made.is_file() else ""


def _known(made: Path) -> _Object | None:
    """What an earlier compilation came to; None as well where that cannot be read any more."""
    try:
        entry = _Entry.model_validate_json(made.with_suffix(".json").read_bytes(), strict=True)
    except (OSError, ValueError):
        return None
    if entry.ok and digest_seal.state(made) != "intact":
        return None
    return _Object(path=made if entry.ok else None, log=entry.log, cached=True)


def _key(parts: Sequence[str], source: Path, headers: Sequence[Path], root: Path) -> str:
    """Names a compilation by everything that decides about its result, wherever the program lies."""
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
    with compilers.sole(made), tempfile.TemporaryDirectory(dir=made.parent, prefix="linking-") as scratch:
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
    with compilers.turn():
        return command.run(order, seconds=_SECONDS, cwd=cwd, env=environment, read=readable, write=(scratch,))


def _together(make: Callable[[Path], _Object], sources: Sequence[Path]) -> list[_Object]:
    """CUDA first: where it fails nobody waits for the bindings. They go on into the cache, the next attempt wants them."""
    pool = ThreadPoolExecutor(max(1, min(len(sources), os.cpu_count() or 1)))
    try:
        made = {source: pool.submit(make, source) for source in sorted(sources, key=lambda source: source.suffix != ".cu")}
        cuda = [part.result() for source, part in made.items() if source.suffix == ".cu"]
        return cuda if any(part.path is None for part in cuda) else [made[source].result() for source in sources]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _relative(log: str, root: Path) -> str:
    """Paths as the program's author knows them; also what makes a remembered log true for another copy of the program."""
    for folder in (root, root.resolve()):
        log = log.replace(f"{folder}/", "")
    return log
