"""What `torch.utils.cpp_extension.load` and `load_inline` do on the simulator: build on CPU tensors, import. Only in workers.

It knows torch's own arguments and ignores those that only tune torch's build (build_directory, verbose, use_pch …). It counts
and records nothing: that is for `interceptor.py`. Where to look next: `stitchcuda/simulator/torch_extension.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.simulator.refuse import Refused
from stitchcuda.simulator.source import line_of, masked
from stitchcuda.simulator.torch_extension import build_torch_extension, inline_sources

_REGISTRATION = re.compile(r"\bTORCH_LIBRARY\w*\s*\(|\btorch::RegisterOperators\b")


def load_extension(name: str, options: Mapping[str, Any], *, cache: Path, place: Path) -> Any:
    """The imported module of one call of `load` or `load_inline`, given as its bound arguments.

    `cache` is the simulator's, `place` takes inline sources. Raises `CompileError`, `Refused`, `Unavailable`.
    """
    if not options.get("is_python_module", True) or options.get("is_standalone"):
        raise Refused("an extension that is no Python module", name, 1)
    sources = [Path(source).resolve() for source in listed(options.get("sources"))]
    if "cpp_sources" in options:
        sources = _written(options, place)
    for source in filter(Path.is_file, sources):
        text = source.read_text(encoding="utf-8", errors="replace")
        if (found := _REGISTRATION.search(masked(text))) is not None:
            raise Refused("an operator registered with torch's dispatcher", source, line_of(text, found.start()))
    library = build_torch_extension(
        sources,
        name=name,
        cache=cache,
        include_dirs=[Path(folder) for folder in listed(options.get("extra_include_paths"))],
        flags=portable((*listed(options.get("extra_cflags")), *listed(options.get("extra_cuda_cflags")))),
    )
    spec = importlib.util.spec_from_file_location(name, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} cannot be imported as {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def portable(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags that mean the same to nvcc and to the simulator's compiler; the rest tunes code for a GPU."""
    return tuple(flag for flag in dict.fromkeys(flags) if flag.startswith(("-D", "-U", "-I")))


def listed(value: Any) -> list[str]:
    """Torch and tvm-ffi take one path or text where they take a list of them."""
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(item) for item in value]


def _written(options: Mapping[str, Any], place: Path) -> list[Path]:
    """Inline sources as files, in a folder named by what is in them: messages and cache keys hold their paths."""
    cpp, cuda = listed(options["cpp_sources"]), listed(options.get("cuda_sources"))
    functions = options.get("functions")
    exported = functions if functions is None or isinstance(functions, Mapping) else listed(functions)
    folder = place / hashlib.sha256(repr((cpp, cuda, exported)).encode()).hexdigest()[:24]
    if not folder.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place, prefix="writing-") as scratch:
            made = Path(scratch) / "sources"
            inline_sources(made, cpp, cuda, exported)
            try:
                os.rename(made, folder)
            except OSError:
                if not folder.is_dir():    # another process wrote the same
                    raise
    return sorted(folder.iterdir(), reverse=True)  # main.cpp before cuda.cu
