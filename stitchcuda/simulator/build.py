"""Builds a CUDA program as a shared library that runs on the CPU. It never loads what it builds.

`build_simulated` rewrites each .cu file and the program's own headers, compiles them and the C++ bindings, and links them
with the runtime. Results lie in `cache`, named by their content. The runtime itself lies in `home`, a folder of the user's
cache, or in `cache` if there is none. `FLAGS` are the compiler's flags.
Where to look next: `simulator/rewrite.py` (CUDA to C++), `simulator/compile.py` (objects), `simulator/library_cache.py` (the
home), `simulator/unsupported.py` (what cannot run).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stitchcuda.errors import BadInput
from stitchcuda.sandbox import digest_seal
from stitchcuda.simulator import library_cache as homes
from stitchcuda.simulator.compile import (
    CompileError,
    CompileUnit,
    compile_unit,
    compiler,
    digest,
    find_compiled,
    localize_shared_symbols,
    run_compiler,
)
from stitchcuda.simulator.headers import INCLUDE, RUNTIME, cuda_includes, tvm_ffi
from stitchcuda.simulator.includes import find_foreign_include, inside
from stitchcuda.simulator.rewrite import rewrite
from stitchcuda.simulator.unsupported import refuse

# CUDA's arithmetic wraps and its code reinterprets freely. Unique symbols would let two versions of a program share their
# shared memory within one process.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pthread", "-w", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno",
         "-fno-gnu-unique", "-fno-semantic-interposition", "-fmax-errors=8", "-fdiagnostics-color=never")  # fmt: skip
# For device code: a call before each access, and one where an address does not fit its type, which look for mistakes
# (runtime/access_check.h). No sanitizer is linked.
WATCHED = ("-fsanitize=thread", "-fsanitize=alignment", "--param=tsan-instrument-func-entry-exit=0",
           "--param=tsan-distinguish-volatile=1")  # fmt: skip
WITH_LINES = ("-g1",)  # the code stays the same
# One library, which all modules of a process share.
_CORE = ("fiber.cpp", "settings.cpp", "diagnosis.cpp", "device_memory.cpp", "access_check.cpp", "protection.cpp",
         "block.cpp", "kernels.cpp", "grid.cpp")
_SHIMS = ("api_error.cpp", "api_memory.cpp", "api_device.cpp", "api_stream.cpp", "assert.cpp")  # in every module, hidden
CUDA_SUFFIXES = {".cu", ".cuh"}
SHARED = homes.SHARED
_runtime_objects: dict[Path, list[Path]] = {}  # by folder; our own files do not change while a process runs


def build_simulated(
    sources: Sequence[Path],
    *,
    name: str,
    cache: Path,
    home: Path | None = None,
    include_dirs: Sequence[Path] = (),
    flags: Sequence[str] = (),
    within: Sequence[Path] = (),
    lines: bool = False,
) -> Path:
    """Returns the path of the library made from `sources` (.cu, and .cc or .cpp bindings), built if it is not in the cache.

    `flags` go to the compiler as they are. Sources may include files of their own folders, of `include_dirs` and of `within`
    only. `lines`: with a table of source lines (`simulator/source_lines.py`). Raises `Unsupported` for what the simulator
    cannot run, `CompileError` for what does not compile, `Unavailable` without a compiler or CUDA headers.
    """
    cache = cache.resolve()
    ffi_includes, ffi_library = tvm_ffi()
    common = (*flags, *_include_flags([*include_dirs, *ffi_includes]), *(WITH_LINES if lines else ()))
    units = [make_unit(source, include_dirs, common, cache, within) for source in sources]
    return link(units, name=name, cache=cache, home=home, libraries=[ffi_library])


def make_unit(
    source: Path, include_dirs: Sequence[Path], flags: Sequence[str], cache: Path, within: Sequence[Path] = ()
) -> CompileUnit:
    """Reads a source, checks it, and rewrites it if it is CUDA. Returns what to compile; raises as `read_checked` does."""
    source = source.resolve()
    text = read_checked(source, (source.parent, *include_dirs, *within))
    prelude: tuple[str, ...] = ("stitchsim/device.h",)
    if source.suffix in CUDA_SUFFIXES:
        text = rewrite_with_headers(text, source, include_dirs, cache, within)
        prelude = ("stitchsim/prelude.h", *WATCHED)
    every = (*FLAGS, *base_includes(), *flags, "-include", *prelude)
    return CompileUnit(source, text, every, (*include_dirs, *within, *tvm_ffi()[0]))


def read_checked(file: Path, roots: Sequence[Path]) -> str:
    """Returns the text of a source or header. Raises `CompileError` if it includes files from outside of `roots`, `Unsupported`
    if it holds what cannot run."""
    text = read(file)
    if (error := find_foreign_include(text, file, roots)) is not None:
        raise CompileError(file.name, error)
    refuse(text, file)
    return text


def rewrite_with_headers(
    text: str,
    file: Path,
    include_dirs: Sequence[Path],
    cache: Path,
    within: Sequence[Path] = (),
    _above: tuple[Path, ...] = (),
) -> str:
    """Returns `text` rewritten as C++, with includes of the program's own headers led to rewritten copies in the cache."""
    roots = (file.parent, *(above.parent for above in _above), *include_dirs, *within)

    def redirect(match: re.Match[str]) -> str:
        places = (Path(folder) / match["name"] for folder in (file.parent, *include_dirs))
        found = next((path for path in places if path.is_file()), None)
        if found is None or found.resolve() in _above:
            return match.group()
        header = found.resolve()
        if not inside(header, roots):
            raise CompileError(file.name, f"{file}:1: error: {match['name']} is a link to what lies outside of the program")
        content = rewrite_with_headers(read_checked(header, roots), header, include_dirs, cache, within, (*_above, file))
        copy = cache / "headers" / digest(content)[:24] / header.name
        write_once(copy, f'#line 1 "{_shown(header, roots)}"\n{content}')
        return f'{match["before"]}"{copy}"'

    return re.sub(r'(?m)^(?P<before>[ \t]*#[ \t]*include[ \t]*)"(?P<name>[^"\n]+)"', redirect, rewrite(text))


def _shown(header: Path, roots: Sequence[Path]) -> str:
    """Returns a header's name as in its program, so that one copy in the cache serves all copies of the program."""
    homes = [root.resolve() for root in reversed(roots) if header.is_relative_to(root.resolve())]
    return str(header.relative_to(homes[0])) if homes else header.name


def link(
    units: Sequence[CompileUnit],
    *,
    name: str,
    cache: Path,
    libraries: Sequence[Path],
    home: Path | None = None,
    link_flags: Sequence[str] = ("-Wl,--no-undefined",),
    folder: str = "modules",
) -> Path:
    """Compiles the units and links them with the runtime. Returns `cache`/`folder`/NAME-DIGEST.so."""
    shims, runtime = homes.build_in_home(_runtime, home, cache)
    objects = _compile(units, cache)
    cuda = [made for unit, made in zip(units, objects, strict=True) if unit.file.suffix in CUDA_SUFFIXES]
    own = [*localize_shared_symbols(cuda), *(made for made in objects if made not in cuda), *shims]
    return _link(own, cache / folder, name, ("-Wl,-Bsymbolic", *link_flags), [*libraries, runtime])


def runtime_library(cache: Path, home: Path | None = None) -> Path:
    """Returns the path of the runtime that all modules of a process share. It has counters such as `stitchsim_launches()`."""
    return homes.build_in_home(_runtime, home, cache.resolve())[1]


def read(path: Path) -> str:
    """Returns a file's text. Raises `BadInput` if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text") from error


def write_once(path: Path, text: str) -> None:
    """Writes a file that is named by its content, unless it exists. Other processes may write the same file."""
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as scratch:
        scratch.write(text)
    os.replace(scratch.name, path)


def base_includes() -> tuple[str, ...]:
    """Returns the flags for our headers and then NVIDIA's, since some of ours replace theirs."""
    return (f"-I{INCLUDE}", *_include_flags(cuda_includes(), system=True))


def _include_flags(folders: Sequence[Path], *, system: bool = False) -> tuple[str, ...]:
    return tuple(part for folder in folders for part in (("-isystem", str(folder)) if system else (f"-I{folder}",)))


def _runtime(place: Path) -> tuple[list[Path], Path]:
    """Builds the runtime in `place`. Returns (objects that each module gets a copy of, the library that modules share)."""
    ours = _runtime_objects.get(place, [])
    if not ours or any(digest_seal.state(made) != "intact" for made in ours):
        common = (*FLAGS, *base_includes())
        hidden, shared = (*common, "-fvisibility=hidden"), (*common, "-ftls-model=initial-exec")  # threadIdx without a call
        sources = [*((file, hidden) for file in _SHIMS), *((file, shared) for file in _CORE)]
        units = [CompileUnit(RUNTIME / file, read(RUNTIME / file), flags) for file, flags in sources]
        ours = _runtime_objects[place] = _compile(units, place)
    shims, core = ours[: len(_SHIMS)], ours[len(_SHIMS) :]
    return shims, _link(core, place / SHARED, "libstitchsim", ("-Wl,-Bsymbolic", "-Wl,-z,nodelete"), ())


def _compile(units: Sequence[CompileUnit], cache: Path) -> list[Path]:
    made = {unit: found for unit in units if (found := find_compiled(unit, cache)) is not None}
    missing = [unit for unit in units if unit not in made]
    if missing:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made.update(zip(missing, pool.map(lambda unit: compile_unit(unit, cache), missing), strict=True))
    return [made[unit] for unit in units]


def _link(objects: Sequence[Path], folder: Path, name: str, flags: Sequence[str], libraries: Sequence[Path]) -> Path:
    path, version = compiler()
    inputs = [str(file) for file in (*objects, *libraries)]
    target = folder / f"{name}-{digest(*inputs, *flags, path, version)[:16]}.so"
    if digest_seal.state(target) == "intact":
        return target
    folder.mkdir(parents=True, exist_ok=True)
    places = [f"-Wl,-rpath,{library.parent}" for library in libraries]
    with tempfile.TemporaryDirectory(dir=folder, prefix="linking-") as scratch:
        made = Path(scratch) / target.name
        order = [path, "-shared", "-pthread", "-o", str(made), *inputs, *places, *flags]
        run_compiler(order, name, scratch=Path(scratch), read=[file.parent for file in (*objects, *libraries)])
        digest_seal.put(made, target)
    return target
