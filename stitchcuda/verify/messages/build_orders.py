"""Makes build orders, the records that say which library a program worker needs, from tvm-ffi's and torch's arguments.

A worker runs no compiler and writes to no cache. It sends its order to the judge, who passes it to the builder; the builder
trusts no field of it. Where to look next: `verify/program/build_interceptor.py` (who orders),
`verify/program/builder_worker.py` (who checks and builds).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.simulator.unsupported import Unsupported
from stitchcuda.state import Record
from stitchcuda.verify.messages.wire import Channel

Build = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends an order's JSON fields; returns the builder's answer, `{"path": …}` or `{"error": …, "kind": …}`."""


class BuildFailed(Exception):
    """The compiler refused a program's sources. The text is for a person or a model to read."""


class BuildOrder(Record):
    """An order for one library, from files of the program's folder, from texts it wrote elsewhere, or from inline sources."""

    style: Literal["tvm", "torch", "runtime"]          # "runtime": the simulator's own library, with no source of the program
    name: str
    sources: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()            # (file name, text)
    cpp: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    inline: bool = False                               # the sources are `cpp` and `cuda`
    functions: tuple[tuple[str, str], ...] | None = None  # (exported name, its docstring)
    cflags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    headers: bool = True                               # put torch's headers in front of inline sources
    module: bool = True                                # a Python module; else a library whose operators torch registers
    skip: bool = False                                 # build kernels with switches, so that they can be left out


def make_order(
    name: str, style: Literal["tvm", "torch"], options: Mapping[str, Any], program: Path, *, skip: bool
) -> BuildOrder:
    """Makes the order for a call of `build`, `load` or their inline forms. `options`: its arguments by tvm-ffi's or torch's
    names. Raises `BuildFailed` or `Unsupported` for options that are not supported, `BadInput` for unreadable sources."""
    if options.get("embed_cubin"):
        raise BuildFailed("embed_cubin is not supported: a program is built from its own sources only")
    if options.get("is_standalone"):
        raise Unsupported("an extension that is a program of its own", name, 1)
    inline = "cpp_sources" in options or "cuda_sources" in options
    files = [] if inline else [item for group in ("sources", "cpp_files", "cuda_files") for item in as_list(options.get(group))]
    own, texts = [], []
    for file in (Path(item).resolve() for item in files):
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


def digest(order: Mapping[str, Any]) -> str:
    """The SHA-256 of all fields of an order, in hexadecimal."""
    return hashlib.sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()


def library_path(answer: Mapping[str, Any]) -> Path:
    """The library's path in a builder's answer. Raises `Unsupported`, `Unavailable` or `BuildFailed` for an error in it."""
    if "path" in answer:
        return Path(answer["path"])
    error = str(answer.get("error", "the builder gave no answer"))
    if answer.get("kind") == "refused":
        raise Unsupported(answer["construct"], answer["file"], answer["line"])
    raise Unavailable(error) if answer.get("kind") == "unavailable" else BuildFailed(error)


def order_over(channel: Channel) -> Build:
    """Returns a function that sends orders over the worker's channel to the judge, while the judge waits for an answer to its
    own question. Any thread may call it."""
    lock = threading.Lock()
    send, receive = channel.sender(), channel.receiver()

    def build(order: dict[str, Any]) -> dict[str, Any]:
        with lock:
            send({"build": order})
            answer: dict[str, Any] = receive()["built"]
            return answer

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
