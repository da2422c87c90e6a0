"""Compiles a torch-extension source about six times as fast as torch does: a lighter header, and nvcc's passes side by side.

A source that does not compile with the light header ("front") is compiled with all of torch's headers, and the errors are those
of that second attempt. `benchmarks/extension_builds.py` measures the gain. It caches nothing. Precompiled headers are no way:
nvcc's options for them crash (13.0), and g++'s take 0.8 GB and half a minute for each set of flags.
Where to look next: `tools/build/torch_front.py` (the header), `tools/build/passes.py`, `tools/build/nvcc.py` (the caller).
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stitchcuda.sandbox.command import Finished
from stitchcuda.tools.build import passes, torch_front
from stitchcuda.tools.build.passes import Run

_MACRO = re.compile(r"-D(\w+)")


def compile_with_front(order: Sequence[str], own: Sequence[Path], headers: Path, made: Path, run: Run) -> Finished | None:
    """Runs `order` (compiler, flags, `-c`, source) the fast way and writes the object to `made`.

    Returns None where the caller has to run `order` as it stands. `own`: the program's headers that the source may include;
    `headers`: torch's `include`. Files are written beside `made`.
    """
    source, scratch = Path(order[-1]), made.parent
    light = _light(order, own, headers, scratch / "front")
    if source.suffix != ".cu":
        tried = run((*light, "-o", str(made)), scratch) if light is not None else None
        return tried if tried is not None and tried.code == 0 else None
    refused = ""
    if light is not None:
        tried = passes.compile_object(light, made, _folder(scratch / "light"), run)
        if tried is not None and tried.code == 0:
            return tried
        refused = _first_error(tried) if tried is not None else ""
    whole = passes.compile_object(order, made, _folder(scratch / "whole"), run)
    if whole is None or whole.code != 0:
        return whole
    return whole._replace(output=f"{refused}{whole.output}")


def front_sources(sources: Sequence[Path], headers: Path | None, cache: Path) -> tuple[Path, ...]:
    """Returns the source that must be linked with objects of the front, written to `cache` once; () if none uses it.

    `sources`: those of the program and its own headers, through which torch's may be included.
    """
    if headers is None or not torch_front.may_use_front([source.read_text("utf-8", "replace") for source in sources]):
        return ()
    folder = cache / "front" / hashlib.sha256(torch_front.VARIABLE.encode()).hexdigest()[:16]
    source = folder / "variable.cpp"
    if not source.is_file() or source.read_text("utf-8") != torch_front.VARIABLE:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as scratch:
            scratch.write(torch_front.VARIABLE)
        os.replace(scratch.name, source)
    return (source,)


def _light(order: Sequence[str], own: Sequence[Path], headers: Path, front: Path) -> tuple[str, ...] | None:
    """Writes the front and returns the order with it before torch's headers; None for a source that needs them whole."""
    texts = [file.read_text("utf-8", "replace") for file in (Path(order[-1]), *own)]
    macros = {found[1] for word in order if (found := _MACRO.match(word))}
    if str(headers) not in order or not torch_front.write_front(texts, headers, front, macros):
        return None
    before = order.index(str(headers)) - 1             # at its -isystem
    return (*order[:before], "-isystem", str(front), *order[before:])


def _first_error(tried: Finished) -> str:
    """Returns a line for the object's log on why the front did not suffice."""
    line = next((line for line in tried.output.splitlines() if "error" in line), tried.output[-200:].strip())
    return f"the whole of torch's headers was needed: {line}\n".replace(" error", " refusal")


def _folder(folder: Path) -> Path:
    folder.mkdir()
    return folder
