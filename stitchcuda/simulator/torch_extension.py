"""Builds sources in torch-extension style for the simulator: a Python extension module on CPU tensors.

The program's C++ and CUDA are compiled against torch's real CPU headers; where it asks for a GPU it gets the CPU
(include/stitchsim/torch.h). Those headers take half a minute to read, so they are compiled once per torch version into a
precompiled header in the cache (0.5 GB); those that are no longer used are removed. It never imports torch, and never loads
what it builds.
Where to look next: `simulator/build.py` (the common part), `verify/program/builder_worker.py` (who orders builds).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import digest_seal
from stitchcuda.simulator import library_cache
from stitchcuda.simulator.build import (
    CUDA_SUFFIXES,
    FLAGS,
    SHARED,
    WATCHED,
    WITH_LINES,
    base_includes,
    link,
    read,
    read_checked,
    rewrite_with_headers,
)
from stitchcuda.simulator.compile import CompileUnit, compiler, digest, run_compiler
from stitchcuda.simulator.headers import INCLUDE, RUNTIME, tvm_ffi

_STANDARD = "-std=c++20"  # what torch's headers want from 2.13 on; earlier ones accept it
_KEPT = 2                                  # precompiled headers of 0.5 GB each that stay beside the one in use
_IN_USE = 3600.0                           # seconds
_WHOLE_TORCH = re.compile(r"\btorch::(?:nn|optim|jit|data|serialize|autograd)\b")
_LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_python.so")


def build_torch_extension(
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
    """Returns the path of an extension module that Python can import as `name`, made from .cpp and .cu sources.

    `flags` are the program's own, such as -DNAME; `within` and `lines` as for `build_simulated`. The first build for a torch
    version takes half a minute, the next ones seconds; each one with `lines` half a minute, as the precompiled header has none.
    Raises as `build_simulated` does.
    """
    cache = cache.resolve()
    torch = _torch_folder()
    # The module's name is part of its initialiser's name. It is defined in the text, so that one precompiled header serves all.
    text_of_name = f"#define TORCH_EXTENSION_NAME {name}\n"
    front = ("stitchsim/torch.h", *WITH_LINES) if lines else (str(_precompiled(torch, cache)),)
    seen = (*include_dirs, *within, torch, Path(sysconfig.get_paths()["include"]))
    common = (*_flags(torch), *flags, *(f"-I{folder}" for folder in include_dirs), "-include", *front)
    units = []
    for source in (path.resolve() for path in sources):
        text = read_checked(source, (source.parent, *include_dirs, *within))
        if source.suffix in CUDA_SUFFIXES:
            text = rewrite_with_headers(text, source, include_dirs, cache, within)
        text = re.sub(r"\bDeviceType::CUDA\b", "DeviceType::CPU", text)
        if _WHOLE_TORCH.search(text):
            text = f'#include <torch/all.h>\n#line 1 "{source}"\n{text}'
        units.append(CompileUnit(source, f'{text_of_name}#line 1 "{source}"\n{text}', common, seen))
    libraries = [torch / "lib" / library for library in _LIBRARIES]
    return link(units, name=name, cache=cache, home=home, libraries=libraries, link_flags=())


def torch_memory(cache: Path, home: Path | None = None) -> Path:
    """Returns the path of the library whose `stitchsim_take_over_torch()` puts torch's tensors into simulated device memory."""
    torch = _torch_folder()
    flags = (*FLAGS, f"-I{RUNTIME}", "-isystem", str(torch / "include"), _STANDARD)
    source = RUNTIME / "torch_memory.cpp"
    unit, libraries = CompileUnit(source, read(source), flags, (torch,)), [torch / "lib" / "libc10.so"]

    def make(place: Path) -> Path:
        return link([unit], name="libstitchsim_torch", cache=place, libraries=libraries, link_flags=(), folder=SHARED)

    return library_cache.build_in_home(make, home, cache.resolve())


def version() -> str:
    """Returns a digest of all that goes into the simulator's own libraries: sources, headers, flags, compiler, torch."""
    torch = _torch_folder()
    sources = [read(path) for path in sorted(RUNTIME.iterdir()) if path.suffix in (".cpp", ".h")]
    # An installation gives headers new times, for which objects are built again; then in a new folder.
    headers = [part for path in sorted(INCLUDE.rglob("*.h")) for part in (read(path), str(path.stat().st_mtime_ns))]
    ffi = [str(part) for part in tvm_ffi()[0]]
    given = (*FLAGS, *base_includes(), _STANDARD, *ffi, str(torch), read(torch / "version.py"), platform.machine(), *compiler())
    return digest(*given, str(len(sources)), *sources, *headers)[:24]


def inline_sources(
    cpp_sources: Sequence[str],
    cuda_sources: Sequence[str],
    functions: Mapping[str, str] | Sequence[str] | None,
    *,
    headers: bool = True,
) -> dict[str, str]:
    """Returns the files, by name, that torch's `load_inline` would write: main.cpp with bindings, and cuda.cu."""
    parts = [*(["#include <torch/extension.h>"] if headers else []), *cpp_sources]
    if functions is not None:
        documented = functions if isinstance(functions, Mapping) else {function: function for function in functions}
        parts.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        parts += [
            f'm.def("{function}", torch::wrap_pybind_function({function}), "{text}");' for function, text in documented.items()
        ]
        parts.append("}")
    made = {"main.cpp": "\n".join(parts)}
    if cuda_sources:
        first = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"] if headers else []
        made["cuda.cu"] = "\n".join([*first, *cuda_sources])
    return made


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()):
        if (folder / "include" / "torch" / "csrc").is_dir():
            return folder
    raise Unavailable("torch with its C++ headers is not installed")


def _flags(torch: Path) -> tuple[str, ...]:
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise Unavailable(f"building a torch extension needs Python's headers and {python} has none; install python3-dev")
    folders = (torch / "include", torch / "include" / "torch" / "csrc" / "api" / "include", python)
    system = (part for folder in folders for part in ("-isystem", str(folder)))
    return (
        *FLAGS, *WATCHED, f"-I{INCLUDE / 'torch_cuda'}", *base_includes(), *system, _STANDARD, "-DTORCH_API_INCLUDE_EXTENSION_H"
    )  # fmt: skip


def _precompiled(torch: Path, cache: Path) -> Path:
    """Returns torch.h, with its precompiled form beside it, made once for this torch, compiler and version of our headers."""
    ours = [read(path) for path in sorted(INCLUDE.rglob("*.h"))]
    key = digest(str(torch), read(torch / "version.py"), *_flags(torch), *compiler(), *ours)[:24]
    header = cache / "precompiled" / key / "torch.h"
    compiled = header.with_name("torch.h.gch")
    if digest_seal.state(compiled) == digest_seal.state(header) == "intact":
        with contextlib.suppress(OSError):  # a cache that may only be read
            os.utime(header.parent)
        return header
    header.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=header.parent, prefix="building-") as scratch:
        text, made = Path(scratch) / "torch.h", Path(scratch) / "torch.h.gch"
        text.write_text('#include "stitchsim/torch.h"\n', encoding="utf-8")
        order = [compiler()[0], *_flags(torch), "-x", "c++-header", "-o", str(made), str(text)]
        places = (torch, Path(sysconfig.get_paths()["include"]))
        run_compiler(order, "torch's headers", scratch=Path(scratch), read=places)
        digest_seal.put(text, header)
        digest_seal.put(made, compiled)
    _remove_unused(header.parent)
    return header


def _remove_unused(used: Path) -> None:
    """Removes the precompiled headers beside `used`, but for the last ones used and those used in the last hour."""
    with contextlib.suppress(OSError):      # another process removes them too
        times = {path: path.stat().st_mtime for path in used.parent.iterdir() if path.is_dir() and path != used}
        for old in sorted(times, key=times.__getitem__)[:-_KEPT]:
            if time.time() - times[old] > _IN_USE:
                shutil.rmtree(old, ignore_errors=True)
