"""Intercepts every way in which a program builds its CUDA code, and sends a build order to the builder process instead.

It replaces `tvm_ffi.cpp.load`, `load_inline`, `build`, `build_inline` and `torch.utils.cpp_extension.load`, `load_inline` in
the program worker, which may start no compiler and write to no cache. On the simulator it also wraps the loaded functions, so
that the bytes they move are counted and CUDA graphs can record them. It compiles nothing.
Where to look next: `verify/messages/build_orders.py` (what is sent), `verify/program/builder_worker.py` (who builds),
`verify/program/simulated_graph.py` (recording).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from stitchcuda.simulator import loaded_runtime
from stitchcuda.state import Target
from stitchcuda.tools.device import toolkit
from stitchcuda.verify.integrity import byte_traffic
from stitchcuda.verify.integrity.byte_traffic import ByteTraffic, Poison
from stitchcuda.verify.integrity.dispatch_recorder import note
from stitchcuda.verify.messages.build_orders import Build, BuildOrder, is_inline, make_order
from stitchcuda.verify.messages.program_requests import Caught
from stitchcuda.verify.program import simulated_device
from stitchcuda.verify.program.simulated_graph import Recorder
from stitchcuda.verify.program.torch_loader import load_extension

_MOST_FAILURES = 8                         # that are kept for the judge,
_LONGEST_FAILURE = 500                     # characters of each


class Interceptor:
    """Replaces the build functions of this process. Installed once per worker, before anything of the program is imported.

    `program`: the program's folder. `build`: has an order built. `skip`: kernels are built with switches, so that they can be
    left out.
    """

    def __init__(self, target: Target, program: Path, build: Build, *, skip: bool = False) -> None:
        self._target = target
        self._program = program
        self._build = build
        self._skip = skip
        self._failures: list[Caught] = []

    def install(self) -> None:
        """Patches the build functions of tvm_ffi and torch. It cannot be undone: the process ends with the program."""
        cpp = importlib.import_module("tvm_ffi.cpp")
        extension = importlib.import_module("tvm_ffi.cpp.extension")
        for module in (cpp, extension):
            for name in ("build", "load"):
                setattr(module, name, getattr(self, name))
                setattr(module, f"{name}_inline", getattr(self, name))
        torch_extension = importlib.import_module("torch.utils.cpp_extension")
        for name in ("load", "load_inline"):
            setattr(torch_extension, name, self._torch_loader(name, getattr(torch_extension, name)))
        if self._target == "sim":
            simulated_device.install()
        elif vars(torch_extension).get("CUDA_HOME") is None and (kit := toolkit.find_toolkit()) is not None:
            vars(torch_extension)["CUDA_HOME"] = str(kit.home)

    def start(self, settings: Mapping[str, str]) -> None:
        """Loads the simulator's runtime with these settings (`simulator/runtime/settings.h`), before the program can change
        any."""
        built = self._build(BuildOrder(style="runtime", name="stitchsim"))
        loaded_runtime.start(Path(built.runtime), built.library(), settings)

    @contextlib.contextmanager
    def running(self, poison: Poison | None = None) -> Iterator[None]:
        """A context for running generated code. On the simulator, torch calls see the simulated device in it. With `poison`,
        fresh memory is filled with poison; if that is a `ByteTraffic`, host accesses to device memory are counted too."""
        with contextlib.ExitStack() as stack:
            if self._target == "sim":
                stack.enter_context(simulated_device.SimulatedDevice())
            if poison is not None:
                stack.enter_context(poison)
            if isinstance(poison, ByteTraffic):
                loaded_runtime.count_host_access(True)
                stack.callback(loaded_runtime.count_host_access, False)
            yield

    def take_failures(self) -> list[Caught]:
        """Returns the failures of libraries and their functions since the last call, but not what the builder refused: the
        judge knows that. If the request that the judge waits for is answered, the program has caught them."""
        taken, self._failures = self._failures, []
        return taken

    @contextlib.contextmanager
    def _noting(self, called: str) -> Iterator[None]:
        """Notes an exception of the block, which calls the function of this name."""
        try:
            yield
        except Exception as error:
            if len(self._failures) < _MOST_FAILURES:
                first = re.sub(r"/\S*/", "", next(iter(str(error).strip().splitlines()), ""))  # without folders of ours
                self._failures.append((called, f"{type(error).__name__}: {first}"[:_LONGEST_FAILURE]))
            raise

    def build(self, name: str, **options: Any) -> str:
        """Stands in for tvm_ffi.cpp.build and build_inline: returns the path of a shared library. The program's choice of a
        build folder and a backend is ignored."""
        return str(self._order_library(name, "tvm", options))

    def load(self, name: str, *, keep_module_alive: bool = True, **options: Any) -> Any:
        """Stands in for tvm_ffi.cpp.load and load_inline."""
        from tvm_ffi import load_module

        library = self.build(name, **options)
        with self._noting("load_inline" if is_inline(options) else "load"):
            module = load_module(library, keep_module_alive=keep_module_alive)
        return CountedModule(module, self._noting) if self._target == "sim" else module

    def _order_library(self, name: str, style: Literal["tvm", "torch"], options: Mapping[str, Any]) -> Path:
        with self._noting("load_inline" if is_inline(options) else "load"):
            order = make_order(name, style, options, self._program, skip=self._skip)
        return self._build(order).library()

    def _torch_loader(self, which: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def load(name: str, *args: Any, **options: Any) -> Any:
            given = signature.bind(name, *args, **options).arguments
            library = self._order_library(name, "torch", given)
            with self._noting(which):
                module = load_extension(name, library, module=bool(given.get("is_python_module", True)))
            return CountedModule(module, self._noting) if self._target == "sim" else module

        load.__name__ = which
        return load


def _call(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Calls a kernel function; during a graph's capture, records it too."""
    if Recorder.active is not None:
        return Recorder.active.kernel(lambda *given: _run(name, function, given), args)
    return _run(name, function, args)


def _run(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Calls a kernel function, for the program or a graph's replay. Its tensors are announced to the byte counters first, and
    noted with the bytes of its launches afterwards."""
    given = byte_traffic.tensors_of(args)
    byte_traffic.announce(given)
    for tensor in given:
        if loaded_runtime.is_host_memory(tensor.data_ptr()):  # what a kernel writes there, the host can read uncounted
            note("read", byte_traffic.extent_bytes(tensor), "host memory")
    before = loaded_runtime.launched_bytes()
    result = function(*args)
    note("own", loaded_runtime.launched_bytes() - before, f"{name} {byte_traffic.layouts(given)}")
    return result


class CountedModule:
    """Wraps a kernel module, so that calls of its functions go through `_call`; other attributes pass through. The counters
    are elsewhere: a program that changes this object changes no count. `noting`: a context that notes a call's failure."""

    def __init__(self, module: Any, noting: Callable[[str], AbstractContextManager[None]]) -> None:
        self._module, self._noting = module, noting
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
            self._functions[name] = found if plain else self._count_calls(name, found)
        return self._functions[name]

    def _count_calls(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._noting(name):
                if kwargs:
                    return _call(name, lambda *given: function(*given[:-1], **given[-1]), (*args, kwargs))
                return _call(name, function, args)

        call.__name__ = name
        return call
