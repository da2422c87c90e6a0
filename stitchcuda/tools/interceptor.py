"""The one build interceptor: every way a program builds its CUDA goes through here. Only in the program worker.

It serves `tvm_ffi.cpp.load`, `load_inline`, `build`, `build_inline` and `torch.utils.cpp_extension.load`, `load_inline`.
On a GPU it builds with our nvcc and cache; on the simulator it builds the same sources as C++ and wraps the functions, so
that their traffic is counted and CUDA graphs can record them. Where to look next: `nvcc.py`, `stitchcuda/simulator/`.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import inspect
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.simulator import build as simulated
from stitchcuda.simulator.compile import CompileError
from stitchcuda.state import Target
from stitchcuda.tools import nvcc, simulated_device, toolkit
from stitchcuda.tools.simulated_graph import Recorder
from stitchcuda.tools.torch_loader import listed, load_extension, portable
from stitchcuda.tools.traffic import Poison, Traffic

_Sources = Sequence[str] | str | None


class BuildFailed(Exception):
    """The compiler refused a program's sources; the text is what a person or a model should read."""


class Interceptor:
    """Installed once per worker, before anything of the program is imported."""

    def __init__(self, target: Target, cache: Path, program: Path, arch: str) -> None:
        self.build_s = 0.0
        self.loaded: list[str] = []
        self._target = target
        self._cache = cache
        self._program = program
        self._arch = arch
        self._traffic: Traffic | None = None
        self._counter: Callable[[], int] | None = None

    def install(self) -> None:
        """Patch the builders of this process. Irreversible: the worker is thrown away."""
        cpp = importlib.import_module("tvm_ffi.cpp")
        extension = importlib.import_module("tvm_ffi.cpp.extension")
        for module in (cpp, extension):
            for name in ("build", "build_inline", "load", "load_inline"):
                setattr(module, name, getattr(self, name))
        torch_extension = importlib.import_module("torch.utils.cpp_extension")
        for name in ("load", "load_inline"):
            setattr(torch_extension, name, self._torch_loader(name, getattr(torch_extension, name)))
        if self._target == "sim":
            simulated_device.install()
        elif vars(torch_extension).get("CUDA_HOME") is None and (kit := toolkit.find_toolkit()) is not None:
            vars(torch_extension)["CUDA_HOME"] = str(kit.home)

    def launches(self) -> int:
        """Grids that the simulator has run so far in this process; 0 before the first kernel is loaded."""
        if self._target != "sim" or not self.loaded:
            return 0
        if self._counter is None:
            runtime = ctypes.CDLL(str(simulated.runtime_library(self._cache / "simulator")))
            runtime.stitchsim_launches.restype = ctypes.c_ulong
            self._counter = runtime.stitchsim_launches
        return int(self._counter())

    @contextlib.contextmanager
    def running(self, traffic: Poison | None = None) -> Iterator[None]:
        """While generated code runs: the simulated device answers, fresh memory is poisoned, and a `Traffic` counts."""
        with contextlib.ExitStack() as stack:
            if self._target == "sim":
                stack.enter_context(simulated_device.SimulatedDevice())
            if traffic is not None:
                stack.enter_context(traffic)
            self._traffic = traffic if isinstance(traffic, Traffic) else None
            try:
                yield
            finally:
                self._traffic = None

    def build(
        self, name: str, *, sources: _Sources = None, cpp_files: _Sources = None, cuda_files: _Sources = None, **options: Any
    ) -> str:
        """Stands in for tvm_ffi.cpp.build: the path of a shared library. Build folder and backend are ours to choose."""
        files = [Path(item).resolve() for group in (sources, cpp_files, cuda_files) for item in listed(group)]
        started = time.monotonic()
        try:
            return str(self._compile(name, files, options))
        finally:
            self.build_s += time.monotonic() - started
            self.loaded.append(name)

    def load(self, name: str, *, keep_module_alive: bool = True, **options: Any) -> Any:
        """Stands in for tvm_ffi.cpp.load."""
        return self._open(name, self.build(name, **options), keep_module_alive)

    def build_inline(
        self,
        name: str,
        *,
        cpp_sources: _Sources = None,
        cuda_sources: _Sources = None,
        functions: Mapping[str, str] | Sequence[str] | str | None = None,
        **options: Any,
    ) -> str:
        """Stands in for tvm_ffi.cpp.build_inline: tvm-ffi's own export code around the sources, then `build`."""
        exported = dict.fromkeys(listed(functions), "") if not isinstance(functions, Mapping) else dict(functions)
        cpp, cuda = "\n".join(listed(cpp_sources)), "\n".join(listed(cuda_sources))
        texts = {}
        if cpp_sources:
            texts["main.cpp"] = _decorated(cpp, exported)
        if cuda_sources:
            texts["cuda.cu"] = _decorated(cuda, {} if cpp_sources else exported)
        digest = hashlib.sha256("\0".join(f"{file}\0{text}" for file, text in texts.items()).encode()).hexdigest()
        folder = self._cache / "inline" / digest[:24]
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            temporary = folder / f".{file}.{os.getpid()}"
            temporary.write_text(text)
            os.replace(temporary, folder / file)
        return self.build(name, sources=[str(folder / file) for file in texts], **options)

    def load_inline(self, name: str, *, keep_module_alive: bool = True, **options: Any) -> Any:
        """Stands in for tvm_ffi.cpp.load_inline."""
        return self._open(name, self.build_inline(name, **options), keep_module_alive)

    def _compile(self, name: str, files: list[Path], options: Mapping[str, Any]) -> Path:
        if options.get("embed_cubin"):
            raise BuildFailed("embed_cubin is not supported: a program is built from its own sources only")
        cflags, cuda_flags, ldflags = (
            tuple(listed(options.get(f"extra_{kind}"))) for kind in ("cflags", "cuda_cflags", "ldflags")
        )
        includes = tuple(Path(item) for item in listed(options.get("extra_include_paths")))
        if self._target == "sim":
            flags = portable((*cflags, *cuda_flags))
            place = self._cache / "simulator"
            try:
                return simulated.build_simulated(files, name=name, cache=place, include_dirs=includes, flags=flags)
            except CompileError as error:
                raise BuildFailed(_relative(error.log, self._program)) from error
        built = nvcc.library(
            files, arch=self._arch, cache=self._cache, root=self._program, cflags=cflags, cuda_flags=cuda_flags,
            ldflags=ldflags, includes=includes,
        )  # fmt: skip
        if built.path is None:
            raise BuildFailed(built.log)
        return built.path

    def _open(self, name: str, path: str, keep: bool) -> Any:
        from tvm_ffi import load_module

        module = load_module(path, keep_module_alive=keep)
        return CountedModule(module, name, self._call) if self._target == "sim" else module

    def _torch_loader(self, which: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(name: str, *args: Any, **options: Any) -> Any:
            started = time.monotonic()
            try:
                if self._target == "sim":
                    return self._simulated(name, inspect.signature(original).bind(name, *args, **options).arguments)
                key = hashlib.sha256(repr((which, name, args, sorted(options.items()), self._arch)).encode()).hexdigest()[:24]
                folder = self._cache / "torch" / key
                folder.mkdir(parents=True, exist_ok=True)
                options["build_directory"] = str(folder)
                os.environ.setdefault("TORCH_CUDA_ARCH_LIST", _dotted(self._arch))
                return original(name, *args, **options)
            finally:
                self.build_s += time.monotonic() - started
                self.loaded.append(name)

        return load

    def _simulated(self, name: str, options: Mapping[str, Any]) -> Any:
        inline = self._cache / "inline"
        try:
            module = load_extension(name, options, cache=self._cache / "simulator", place=inline)
        except CompileError as error:
            log = re.sub(rf"{re.escape(str(inline))}/\w+/", "", error.log)
            raise BuildFailed(_relative(log, self._program)) from error
        return CountedModule(module, name, self._call)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if Recorder.active is not None:
            return Recorder.active.kernel(lambda *again: self._run(function, again), args)
        return self._run(function, args)

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """One call, from the program or from a graph's replay; the runtime counts what it launches on these tensors."""
        if self._traffic is not None:
            self._traffic.given(args)
        return function(*args)


class CountedModule:
    """A kernel module whose functions report to the interceptor; everything else passes through."""

    def __init__(self, module: Any, name: str, call: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> None:
        self._module = module
        self._name = name
        self._call = call
        self._functions: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return self._wrapped(name, lambda: getattr(self._module, name))

    def __getitem__(self, name: str) -> Any:
        return self._wrapped(name, lambda: self._module[name])

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        return self._wrapped(name, lambda: self._module.get_function(name, query_imports))

    def _wrapped(self, name: str, find: Callable[[], Any]) -> Any:
        if name not in self._functions:
            found = find()
            plain = isinstance(found, type) or not callable(found)
            self._functions[name] = found if plain else self._counted(name, found)
        return self._functions[name]

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                return self._call(lambda *given: function(*given[:-1], **given[-1]), (*args, kwargs))
            return self._call(function, args)

        call.__name__ = name
        return call


def _relative(log: str, root: Path) -> str:
    for folder in (root, root.resolve()):
        log = log.replace(f"{folder}/", "")
    return log


def _decorated(source: str, functions: Mapping[str, str]) -> str:
    """tvm-ffi's headers and export macros around a source, by tvm-ffi's own code where it still has it."""
    extension = importlib.import_module("tvm_ffi.cpp.extension")
    decorate = getattr(extension, "_decorate_with_tvm_ffi", None)
    if decorate is not None:
        return str(decorate(source, functions))
    headers = ("container/tensor.h", "dtype.h", "error.h", "extra/c_env_api.h", "function.h")
    exports = (f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name});" for name in functions)
    return "\n".join((*(f"#include <tvm/ffi/{header}>" for header in headers), source, *exports, ""))


def _dotted(arch: str) -> str:
    """"9.0a" for sm_90a, as torch wants it."""
    digits = arch.removeprefix("sm_")
    number = digits.rstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{number[:-1]}.{number[-1]}{digits[len(number):]}"
