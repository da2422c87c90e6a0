"""Makes build orders, the records that say which library a program worker needs, from tvm-ffi's and torch's arguments.

A worker runs no compiler and writes to no cache. It sends its order to the judge, who passes it to the builder, where each
field is checked; the answer goes the same way back. Where to look next: `verify/program/build_interceptor.py` (who orders),
`verify/program/builder_worker.py` (who checks and builds).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.simulator.unsupported import Unsupported
from stitchcuda.state import Record
from stitchcuda.verify.messages.request import Answer, Request
from stitchcuda.verify.messages.wire import Channel

# As `ReportedList`: the first wrong item ends the reading.
_Texts = Annotated[tuple[str, ...], Field(fail_fast=True)]
_Pairs = Annotated[tuple[tuple[str, str], ...], Field(fail_fast=True)]


class BuildFailed(Exception):
    """The compiler refused a program's sources. The text is for a person or a model to read."""


class BuildOrder(Record):
    """An order for one library, from files of the program's folder, from texts it wrote elsewhere, or from inline sources."""

    style: Literal["tvm", "torch", "runtime"]          # "runtime": the simulator's own library, with no source of the program
    name: str
    sources: _Texts = ()
    texts: _Pairs = ()                                 # (file name, text)
    cpp: _Texts = ()
    cuda: _Texts = ()
    inline: bool = False                               # the sources are `cpp` and `cuda`
    functions: _Pairs | None = None                    # (exported name, its docstring)
    cflags: _Texts = ()
    cuda_flags: _Texts = ()
    ldflags: _Texts = ()
    includes: _Texts = ()
    headers: bool = True                               # put torch's headers in front of inline sources
    module: bool = True                                # a Python module; else a library whose operators torch registers
    skip: bool = False                                 # build kernels with switches, so that they can be left out


@dataclass(frozen=True)
class BuiltLibrary(Answer):
    """What became of an order: a library, or why there is none.

    `kind`: "build" (the program's fault), "refused" (the simulator cannot run it) or "unavailable" (this machine lacks
    something).
    """

    path: str = ""                         # of the library; "" where there is none
    runtime: str = ""                      # of the simulator's runtime, which belongs to it
    shared: bool = False                   # every worker may read it
    failure: str = ""                      # a sentence, or the compiler's log
    first_error: str = ""                  # its first error in one line, at the file and line that the author knows
    kind: Literal["build", "refused", "unavailable"] = "build"
    construct: str = ""                    # of "refused": what the simulator cannot run, and where it is
    file: str = ""
    line: int = 0
    notes: list[str] = field(default_factory=list)

    def library(self) -> Path:
        """Returns the library's path. Raises `Unsupported`, `Unavailable` or `BuildFailed` where there is none."""
        if self.path:
            return Path(self.path)
        if self.kind == "refused":
            raise Unsupported(self.construct, self.file, self.line)
        raise Unavailable(self.failure) if self.kind == "unavailable" else BuildFailed(self.failure)


@dataclass(frozen=True)
class BuildLibrary(Request[BuiltLibrary]):
    """Has the builder build an order of the program in the folder `root`, for `arch` (such as "sm_90a"), into `cache`; the
    simulator's own libraries into `home`, or into the cache too."""

    order: BuildOrder
    root: Path
    cache: Path
    arch: str
    home: Path | None


@dataclass(frozen=True)
class FoundLine(Answer):
    """A place in a program's source, a file with its line; "" where it is not known."""

    place: str


@dataclass(frozen=True)
class FindLine(Request[FoundLine]):
    """Has the builder say which source line the code `offset` bytes behind the beginning of a simulated library comes from. The
    rest as for `BuildLibrary`, which built it."""

    order: BuildOrder
    root: Path
    cache: Path
    arch: str
    home: Path | None
    offset: int


Build = Callable[[BuildOrder], BuiltLibrary]
"""Has an order carried out."""


def make_order(
    name: str, style: Literal["tvm", "torch"], options: Mapping[str, Any], program: Path, *, skip: bool
) -> BuildOrder:
    """Makes the order for a call of `build`, `load` or their inline forms. `options`: its arguments by tvm-ffi's or torch's
    names. Raises `BuildFailed` or `Unsupported` for options that are not supported, `BadInput` for unreadable sources."""
    if options.get("embed_cubin"):
        raise BuildFailed("embed_cubin is not supported: a program is built from its own sources only")
    if options.get("is_standalone"):
        raise Unsupported("an extension that is a program of its own", name, 1)
    inline = is_inline(options)
    files = [] if inline else [item for group in ("sources", "cpp_files", "cuda_files") for item in as_list(options.get(group))]
    own, texts = [], []
    for given in map(Path, files):         # a relative name counts from the program's folder, where a user would start it
        file = given.resolve() if given.exists() else (program / given).resolve()
        if file.is_relative_to(program.resolve()):
            own.append(str(file))
        else:                              # written at run time, in a folder that the builder cannot see
            texts.append((file.name, _text(file)))
    functions = options.get("functions")
    named = functions if isinstance(functions, Mapping) else {
        function: function if style == "torch" else "" for function in as_list(functions)
    }
    return BuildOrder(
        style=style,
        name=str(name),
        sources=tuple(own),
        texts=tuple(texts),
        cpp=tuple(as_list(options.get("cpp_sources"))),
        cuda=tuple(as_list(options.get("cuda_sources"))),
        inline=inline,
        functions=None if functions is None else tuple((str(key), str(value)) for key, value in named.items()),
        cflags=tuple(as_list(options.get("extra_cflags"))),
        cuda_flags=tuple(as_list(options.get("extra_cuda_cflags"))),
        ldflags=tuple(as_list(options.get("extra_ldflags"))),
        includes=tuple(as_list(options.get("extra_include_paths"))),
        headers=not options.get("no_implicit_headers"),
        module=bool(options.get("is_python_module", True)),
        skip=skip,
    )


def is_inline(options: Mapping[str, Any]) -> bool:
    """Whether these are arguments of `load_inline` or `build_inline`, not of `load` or `build`."""
    return "cpp_sources" in options or "cuda_sources" in options


def order_over(channel: Channel) -> Build:
    """Returns a function that sends orders over the worker's channel to the judge, while the judge waits for an answer to its
    own question. Any thread may call it."""
    lock = threading.Lock()
    send, receive = channel.sender(), channel.receiver()

    def build(order: BuildOrder) -> BuiltLibrary:
        with lock:
            send({"build": order.model_dump(mode="json")})
            return BuiltLibrary(**receive()["built"])

    return build


def as_list(value: Any) -> list[str]:
    """An option as a list of strings: torch and tvm-ffi accept a single path or text, or several."""
    if value is None:
        return []
    if isinstance(value, str | Path):
        return [str(value)]
    return [str(item) for item in value] if isinstance(value, Sequence) else [str(value)]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8 text") from error
