"""Builds the libraries that programs order: checks the order, writes inline sources, runs compilers in the sandbox.

This is a trusted process: it never runs, imports or loads anything of a program. A compiler that it starts sees the program's
folder, the toolkit and no other files of the user. Only this process moves results into the cache. An order is refused when its
names, options or sources break the limits at the top of this file, when a source is outside of the program's folder, or when
inline code holds what no kernel needs (`verify/integrity/screen_native.py`).
Where to look next: `verify/messages/build_orders.py` (what is ordered), `verify/processes/builder.py` (the judge's handle),
`tools/build/build_flags.py` (which flags are allowed), `tools/build/nvcc.py` and `simulator/build.py` (the compilers).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import re
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox import digest_seal
from stitchcuda.sandbox.removal import remove
from stitchcuda.simulator import source_lines
from stitchcuda.simulator.build import SHARED, build_simulated, runtime_library
from stitchcuda.simulator.compile import CompileError
from stitchcuda.simulator.includes import inside
from stitchcuda.simulator.source import line_of, masked
from stitchcuda.simulator.torch_extension import build_torch_extension, inline_sources, torch_memory
from stitchcuda.simulator.unsupported import Unsupported
from stitchcuda.state import Target
from stitchcuda.tools.build import bindings, masks, nvcc
from stitchcuda.tools.build.build_flags import FlagRefused, Flags
from stitchcuda.tools.build.program_sources import is_plain
from stitchcuda.verify.integrity import screen_native
from stitchcuda.verify.messages.build_orders import (
    BuildFailed,
    BuildLibrary,
    BuildOrder,
    BuiltLibrary,
    FindLine,
    FoundLine,
)
from stitchcuda.verify.messages.request import Answer, Failed, read
from stitchcuda.verify.messages.wire import Channel
from stitchcuda.verify.program import inline_sources as inline_places

_MOST_CHARACTERS = 32 * 2**20              # in one order's sources together; CUTLASS as a whole is smaller
_MOST_NAME = 200                           # bytes of a file's name; file systems take 255, and suffixes are added to it
_MOST_WORD = 3000                          # characters of a path or an option
_NAME = {"tvm": re.compile(r"\w[\w.+-]{0,99}"), "torch": re.compile(r"[A-Za-z_]\w{0,99}"), "runtime": re.compile("stitchsim")}
_SUFFIXES = (".cu", ".cc", ".cpp", ".cxx", ".c++")
_REQUESTS: dict[str, type[BuildLibrary | FindLine]] = {"BuildLibrary": BuildLibrary, "FindLine": FindLine}
_REGISTRATION = re.compile(r"\bTORCH_LIBRARY\w*\s*\(|\btorch::RegisterOperators\b")


class BuilderWorker:
    """Builds for one target into one cache.

    `arch`: such as "sm_90a". `home`: the folder for the simulator's own libraries (`simulator/library_cache.py`); None: they
    are built in the cache too.
    """

    def __init__(self, target: Target, cache: Path, arch: str, home: Path | None = None) -> None:
        self._target = target
        self._cache = cache.resolve()
        self._inline = self._cache / "inline"
        self._arch = arch
        self._home = home
        for folder in shared_folders(cache):
            folder.mkdir(parents=True, exist_ok=True)

    def build(self, order: BuildOrder, root: Path) -> BuiltLibrary:
        """Builds an order of the program in the folder `root`. Raises what is a defect of ours."""
        root = root.resolve()
        try:
            built = self._carry_out(_check_lengths(order), root)
        except Unsupported as error:
            file = self._shorten_paths(error.file, root)
            built = BuiltLibrary(failure=str(error), kind="refused", construct=error.construct, file=file, line=error.line)
        except Unavailable as error:
            built = BuiltLibrary(failure=str(error), kind="unavailable")
        except CompileError as error:
            built = self._failed(error.log, order, root)
        except (BuildFailed, FlagRefused, BadInput, UnicodeError) as error:
            built = self._failed(str(error), order, root)
        return replace(built, notes=list(digest_seal.notes()))

    def find_line(self, order: BuildOrder, root: Path, offset: int) -> FoundLine:
        """Says which line of the program in `root` the code comes from that is at `offset` of the library built for `order`."""
        root = root.resolve()
        library = self._carry_out(_check_lengths(order), root, lines=True)
        found = source_lines.find_line(Path(library.path), offset)
        texts = functools.partial(_inline_texts, order)
        return FoundLine(inline_places.describe_place(*found, order, texts, root) if found else "")

    def _carry_out(self, order: BuildOrder, root: Path, *, lines: bool = False) -> BuiltLibrary:
        if not _NAME[order.style].fullmatch(order.name):
            raise BuildFailed(f"{order.name[:100]!r} is no name for a library: letters, digits and _ only")
        if order.style == "runtime":
            cache = self._cache / "simulator"
            memory = torch_memory(cache, self._home)
            return BuiltLibrary(path=str(memory), runtime=str(runtime_library(cache, self._home)), shared=True)
        flags = Flags(root)
        cflags, cuda_flags = flags.host(order.cflags), flags.cuda(order.cuda_flags)
        ldflags, includes = flags.link(order.ldflags), flags.includes(order.includes)
        sources = self._find_sources(order, root)
        try:
            return self._build_library(order, root, sources, (cflags, cuda_flags, ldflags), includes, lines)
        except (CompileError, BuildFailed, Unsupported) as error:
            if not order.skip:             # a build with switches uses the same files as the build without
                self._remove_inline(sources)
            file = Path(getattr(error, "file", ""))
            if not isinstance(error, Unsupported) or file.parent.parent != self._inline:
                raise
            found = inline_places.find_author_place(file.name, error.line, order, _inline_texts(order), root)
            raise Unsupported(error.construct, *(found or (error.file, error.line))) from error

    def _build_library(
        self,
        order: BuildOrder,
        root: Path,
        sources: list[Path],
        flags: tuple[tuple[str, ...], ...],
        includes: tuple[Path, ...],
        lines: bool,
    ) -> BuiltLibrary:
        cflags, cuda_flags, ldflags = flags
        # A program with inline sources alone needs no file of the folder that it is in: its compilers do not see that folder.
        home = root if order.sources or any(inside(folder, (root,)) for folder in includes) else self._inline
        if self._target == "sim":
            within = (home,) if home is root else ()
            return self._build_simulated(order, sources, (*cflags, *cuda_flags), includes, within, lines)
        beside: tuple[Path, ...] = ()
        if order.skip:
            folder = self._cache / "masked"
            sources, _ = masks.add_switches_to_files(sources, folder=folder, include_dirs=includes, within=home)
            beside = (home, folder)
        built = nvcc.library(
            sources,
            arch=self._arch,
            cache=self._cache,
            root=home if home is root else sources[0].parent,
            cflags=cflags,
            cuda_flags=cuda_flags,
            ldflags=ldflags,
            includes=includes,
            cuda_includes=beside,
            binding=bindings.torch(order.name) if order.style == "torch" else bindings.tvm(),
        )
        if built.path is None:
            raise BuildFailed(built.log)
        return BuiltLibrary(path=str(built.path))

    def _build_simulated(
        self,
        order: BuildOrder,
        sources: list[Path],
        flags: Sequence[str],
        includes: Sequence[Path],
        within: Sequence[Path],
        lines: bool,
    ) -> BuiltLibrary:
        cache = self._cache / "simulator"
        known = tuple(flag for flag in dict.fromkeys(flags) if flag.startswith(("-D", "-U", "-I")))
        build = build_simulated if order.style == "tvm" else build_torch_extension
        if order.style == "torch":
            if not order.module:
                raise Unsupported("an extension that is no Python module", order.name, 1)
            for source in sources:
                text = source.read_text(encoding="utf-8", errors="replace")
                if (found := _REGISTRATION.search(masked(text))) is not None:
                    raise Unsupported("an operator registered with torch's dispatcher", source, line_of(text, found.start()))
        library = build(
            sources,
            name=order.name,
            cache=cache,
            home=self._home,
            include_dirs=includes,
            flags=known,
            within=within,
            lines=lines,
        )
        return BuiltLibrary(path=str(library), runtime=str(runtime_library(cache, self._home)))

    def _find_sources(self, order: BuildOrder, root: Path) -> list[Path]:
        """Returns the order's sources as files: the program's own where they are, inline ones in a folder of the cache that is
        named by their hash. Raises `BuildFailed`, and `BadInput` for a file that is not there."""
        written = (*order.cpp, *order.cuda, *(text for _, text in order.texts))
        if sum(map(len, written)) > _MOST_CHARACTERS:
            raise BuildFailed(f"the sources of {order.name} are longer than {_MOST_CHARACTERS >> 20} MiB")
        for text in written:               # however the program has put it together
            for severity, line, what in screen_native.screen(text):
                if severity == "refused":
                    raise BuildFailed(f"the source itself: line {line} of the inline code of {order.name} {what}")
        found = [_own_file(given, root) for given in order.sources]
        texts = _inline_texts(order) if order.inline else dict(order.texts)
        for name in texts:
            if Path(name).name != name or not is_plain(Path(name)) or Path(name).suffix not in _SUFFIXES:
                raise BuildFailed(f"{name[:100]!r} is no name for a source file")
        if not found and not texts:
            raise BuildFailed(f"{order.name} has no sources")
        return [*found, *self._write_inline(texts)] if texts else found

    def _write_inline(self, texts: Mapping[str, str]) -> list[Path]:
        digest = hashlib.sha256("\0".join(f"{file}\0{text}" for file, text in texts.items()).encode()).hexdigest()
        folder = self._inline / digest[:24]
        for file, text in texts.items():
            path = folder / file
            # A file that is there already is compared with the order, in case somebody else has changed it.
            if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=self._inline, delete=False, encoding="utf-8") as scratch:
                    scratch.write(text)
                os.replace(scratch.name, path)
        return [folder / file for file in texts]

    def _failed(self, log: str, order: BuildOrder, root: Path) -> BuiltLibrary:
        """The answer for a build that failed with this log."""
        log = self._shorten_paths(log, root)
        first = inline_places.first_error(log, order, functools.partial(_inline_texts, order), root)
        return BuiltLibrary(failure=log, first_error=first)

    def _remove_inline(self, sources: list[Path]) -> None:
        """Removes inline sources that did not build: nothing else would ever remove them from the cache."""
        for folder in {source.parent for source in sources if source.parent.parent == self._inline}:
            remove(folder)

    def _shorten_paths(self, log: str, root: Path) -> str:
        """Returns the text with paths relative to the program's folder, as its author knows them."""
        log = re.sub(rf"{re.escape(str(self._inline))}/\w+/", "", log)
        return log.replace(f"{root}/", "")


def shared_folders(cache: Path, home: Path | None = None) -> tuple[Path, ...]:
    """Returns the folders that every program worker may read: those of the simulator's own libraries. To a library built for
    one program, only that program's worker gets access (`verify/processes/worker.py`)."""
    places = (cache.resolve() / "simulator", *((home,) if home is not None else ()))
    return tuple(place / SHARED for place in places)


def _check_lengths(order: BuildOrder) -> BuildOrder:
    """Returns the order. Raises `BuildFailed` where a name or option is too long or has a NUL byte."""
    paths = (order.name, *order.sources, *order.includes, *(name for name, _ in order.texts))
    words = (*paths, *order.cflags, *order.cuda_flags, *order.ldflags)
    long = max((len(part.encode()) for path in paths for part in path.split("/")), default=0)
    if any("\0" in word for word in words) or long > _MOST_NAME or any(len(word) > _MOST_WORD for word in words):
        raise BuildFailed("the order to build holds a name or an option that cannot be one")
    return order


def _own_file(given: str, root: Path) -> Path:
    """Returns the source file `given` of the program in `root`. Raises `BuildFailed` where it is outside of that folder, also
    through links, or has no suffix of C++ or CUDA; `BadInput` where it is not there."""
    path = root / given
    if not inside(path, (root,)):
        raise BuildFailed(f"{given[:300]} lies outside of the program; a program is built from its own sources")
    real = path.resolve()
    parts = real.relative_to(root).parts
    if not is_plain(Path(*parts)) or real.suffix not in _SUFFIXES:
        raise BuildFailed(f"{'/'.join(parts)[:300]!r} is no name for a source file")
    if not real.is_file():
        raise BadInput(f"cannot read {'/'.join(parts)}: No such file or directory")
    return real


def _inline_texts(order: BuildOrder) -> dict[str, str]:
    """The files, by name, into which an order's inline sources are written. Raises `BuildFailed`."""
    if order.style == "tvm":
        return _tvm_inline(order)
    functions = dict(order.functions) if order.functions is not None else None
    return inline_sources(order.cpp, order.cuda, functions, headers=order.headers)


def _tvm_inline(order: BuildOrder) -> dict[str, str]:
    exported = dict(order.functions or ())
    texts = {}
    if order.cpp:
        texts["main.cpp"] = _add_exports("\n".join(order.cpp), exported)
    if order.cuda:
        texts["cuda.cu"] = _add_exports("\n".join(order.cuda), {} if order.cpp else exported)
    return texts


def _add_exports(source: str, functions: Mapping[str, str]) -> str:
    """Returns the source with tvm-ffi's headers and export macros, by tvm-ffi's own code where this version has it."""
    for name in functions:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise BuildFailed(f"{name[:100]!r} is no name for a function")
    extension = importlib.import_module("tvm_ffi.cpp.extension")
    decorate = getattr(extension, "_decorate_with_tvm_ffi", None)
    if decorate is not None:
        return str(decorate(source, functions))
    headers = ("container/tensor.h", "dtype.h", "error.h", "extra/c_env_api.h", "function.h")
    exports = (f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name});" for name in functions)
    return "\n".join((*(f"#include <tvm/ffi/{header}>" for header in headers), source, *exports, ""))


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answers the judge's orders until it closes the channel."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)         # so that the user's cache folder is found, where the toolkit's overlay is
    os.umask(os.umask(0) | 0o022)          # other users must not write to files in a cache
    while True:
        message = channel.receive()
        token = message.pop("id")
        try:
            asked = read(_REQUESTS[message.pop("do")], message)
            worker = BuilderWorker(target, asked.cache, asked.arch, asked.home)
            if isinstance(asked, FindLine):
                answer: Answer = worker.find_line(asked.order, asked.root, asked.offset)
            else:
                answer = worker.build(asked.order, asked.root)
        except Exception:
            answer = Failed(traceback.format_exc())
        channel.send({**vars(answer), "id": token})
