"""What a program worker asks to be built, as a record: made here out of tvm-ffi's and torch's own arguments.

A worker runs no compiler and writes no cache. Its order crosses to the judge, who hands it to the builder; the builder checks
every field of it as a stranger's. Where to look next: `verify/program/build_interceptor.py` (who orders),
`verify/program/builder_worker.py` (who builds).
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
"""Sends an order; its answer is `{"path": …}` or `{"error": …, "kind": …}`."""


class BuildFailed(Exception):
    """The compiler refused a program's sources; the text is what a person or a model should read."""


class BuildOrder(Record):
    """One library. Sources are files of the program's folder, texts that it wrote elsewhere, or inline pieces."""

    style: Literal["tvm", "torch", "runtime"]          # the last: the simulator's own, made of nothing of the program's
    name: str
    sources: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()            # (file name, text)
    cpp: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    inline: bool = False                               # made of `cpp` and `cuda`
    functions: tuple[tuple[str, str], ...] | None = None  # (exported name, what documents it)
    cflags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    headers: bool = True                               # torch's own headers in front of inline pieces
    module: bool = True                                # imported by Python; else torch registers what is in it
    skip: bool = False                                 # kernels get switches


def make_order(
    name: str, style: Literal["tvm", "torch"], options: Mapping[str, Any], program: Path, *, skip: bool
) -> BuildOrder:
    """The order for these arguments of `build`, `load` or their inline forms, in tvm-ffi's or torch's names."""
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
        else:                              # written at run time, in a folder that only this process has
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
    """Names an order by all that it says."""
    return hashlib.sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()


def library_path(answer: Mapping[str, Any]) -> Path:
    """The path in a builder's answer. Raises what a build in this very process would have raised."""
    if "path" in answer:
        return Path(answer["path"])
    said = str(answer.get("error", "the builder gave no answer"))
    if answer.get("kind") == "refused":
        raise Unsupported(answer["construct"], answer["file"], answer["line"])
    raise Unavailable(said) if answer.get("kind") == "unavailable" else BuildFailed(said)


def order_over(channel: Channel) -> Build:
    """Orders by the channel on which the judge waits for an answer to its own question; threads take turns."""
    turn = threading.Lock()
    send, receive = channel.sender(), channel.receiver()

    def build(order: dict[str, Any]) -> dict[str, Any]:
        with turn:
            send({"build": order})
            answer: dict[str, Any] = receive()["built"]
            return answer

    return build


def as_list(value: Any) -> list[str]:
    """Torch and tvm-ffi take one path or text where they take a list of them."""
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
