"""Makes torch answer as if this process had the GPU that a program expects: devices, streams, events, generators.

Tensors stay in host memory: `device="cuda"` means the CPU, and `is_cuda` is true. There is one order of execution, so all
streams are the same. The device's name, capability and sizes are in `install`. An event's elapsed time is the host's clock and
is never reported as a measurement. It runs in program workers only and compiles no kernel.
Where to look next: `verify/program/build_interceptor.py` (kernels), `verify/program/simulated_graph.py` (CUDA graphs).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from stitchcuda.simulator import loaded_runtime
from stitchcuda.verify.integrity import dispatch_recorder
from stitchcuda.verify.integrity.byte_traffic import trust
from stitchcuda.verify.integrity.dispatch_recorder import note
from stitchcuda.verify.program.simulated_graph import Recorder, SimulatedCapture, SimulatedGraph

_NAME = "StitchCUDA simulator"
_CAPABILITY = (9, 0)
_CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")


for _module in (__file__, dispatch_recorder.__file__, loaded_runtime.__file__):
    trust(_module)                         # an operator that C++ calls comes through `SimulatedDevice` too


_added: torch.library.Library | None = None  # kept, since its operators go when it goes


class SimulatedStream:
    """There is one order of execution, so every stream is the same one."""

    cuda_stream = 0
    stream_id = 0
    device = _CUDA
    device_index = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: SimulatedEvent | None = None) -> SimulatedEvent:
        event = event or SimulatedEvent()
        event.record()
        return event

    def __enter__(self) -> SimulatedStream:
        return self

    def __exit__(self, *_: Any) -> None: ...


class SimulatedEvent:
    """An event on the host's clock."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: SimulatedEvent) -> float:
        return (end._at - self._at) * 1e3


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class SimulatedGenerator(torch._C.Generator, metaclass=_AnyGenerator):
    """Stands in for torch.Generator: a generator for a CUDA device is one for the host. Any generator is an instance of it."""

    def __new__(cls, device: Any = "cpu") -> SimulatedGenerator:
        place = _CPU if _is_cuda(device) else device
        generator: SimulatedGenerator = torch._C.Generator.__new__(cls, place)  # type: ignore[call-arg]
        return generator


class SimulatedDevice(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """A context in which every torch call maps CUDA devices to the CPU, and answers questions about devices as a GPU would.

    A copy to the host is noted. What host code does with a tensor's memory otherwise is counted by the simulator's runtime.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cpu or (func is torch.Tensor.to and _to_host(args, kwargs)):
            note("read", args[0].nbytes, "cpu")
        answer = _ANSWERS.get(func)
        if answer is not None and not args[0].is_meta:
            return answer(args[0])
        to_device = any(map(_is_cuda, args)) or any(map(_is_cuda, kwargs.values()))
        if to_device:
            args = tuple(_CPU if _is_cuda(arg) else arg for arg in args)
            kwargs = {name: _CPU if _is_cuda(arg) else arg for name, arg in kwargs.items()}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        result = func(*args, **kwargs)
        return _on_device(result) if to_device and func is torch.Tensor.to else result


def _on_device(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy where a tensor lies in host memory, such as a numpy array's, as moving it to a device copies it."""
    return tensor.clone() if loaded_runtime.is_host_memory(tensor.data_ptr()) else tensor


def move_to_device(program: torch.nn.Module) -> None:
    """Moves parameters and buffers that lie in host memory to the simulated device's memory, as `.to("cuda")` would."""
    for tensor in (*program.parameters(), *program.buffers()):
        tensor.data = _on_device(tensor.data)


def _getter(name: str) -> Any:
    """The function that a TorchFunctionMode is called with when the attribute `name` of a tensor is read."""
    return getattr(torch.Tensor, name).__get__


_ANSWERS: dict[Any, Callable[[torch.Tensor], Any]] = {
    _getter("is_cuda"): lambda tensor: True,
    _getter("is_cpu"): lambda tensor: False,
    _getter("device"): lambda tensor: _CUDA,
    torch.Tensor.get_device: lambda tensor: 0,
    torch.Tensor.cuda: _on_device,
    torch.Tensor.cpu: lambda tensor: tensor.clone(),
    torch.Tensor.pin_memory: lambda tensor: tensor.clone(),
    torch.Tensor.is_pinned: lambda tensor: False,
}


def _to_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(str(value) == "cpu" for value in (*args[1:], *kwargs.values()) if isinstance(value, str | torch.device))


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


@contextlib.contextmanager
def _no_context(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Returns a copy in the simulated device's memory."""
    return torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage().copy_(storage, non_blocking=False)


def _set_states(states: Iterable[torch.Tensor]) -> None:
    for state in states:
        torch.default_generator.set_state(state)


def add_operators() -> torch.library.Library:
    """Gives the CPU products of 16-bit matrices with fp32 sums and results, which torch has for GPUs only."""
    added = torch.library.Library("aten", "IMPL", "CPU")  # type: ignore[no-untyped-call, unused-ignore]
    for name, multiply in (("mm.dtype", torch.mm), ("bmm.dtype", torch.bmm)):
        def product(left: torch.Tensor, right: torch.Tensor, out_dtype: torch.dtype, multiply: Any = multiply) -> torch.Tensor:
            result: torch.Tensor = multiply(left.float(), right.float())
            return result.to(out_dtype)

        added.impl(name, product)  # type: ignore[no-untyped-call, unused-ignore]
    return added


def is_installed() -> bool:
    """Whether this process has the simulator's device."""
    return vars(torch.cuda).get("CUDAGraph") is SimulatedGraph


def install() -> None:
    """Patches `torch.cuda` of this process. It cannot be undone: the process ends with the program."""
    stream = SimulatedStream()
    properties = SimpleNamespace(
        name=_NAME, major=_CAPABILITY[0], minor=_CAPABILITY[1], multi_processor_count=132, warp_size=32,
        total_memory=141 * 10**9, max_threads_per_multi_processor=2048, shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, regs_per_multiprocessor=65536,
        L2_cache_size=60 * 2**20,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: _NAME,
        "get_device_capability": lambda device=None: _CAPABILITY,
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda including_emulation=True: True,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "set_stream": lambda stream: None,
        "stream": _no_context,
        "device": _no_context,
        "device_of": _no_context,
        "Stream": SimulatedStream,
        "Event": SimulatedEvent,
        "CUDAGraph": SimulatedGraph,
        "graph": SimulatedCapture,
        "graph_pool_handle": lambda: (0, 1),
        "is_current_stream_capturing": lambda: Recorder.active is not None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "mem_get_info": lambda device=None: (141 * 10**9, 141 * 10**9),
        "_sleep": lambda cycles: None,
    }
    generators: dict[str, Any] = {         # the device's random generator is the host's
        "default_generators": (torch.default_generator,),
        "initial_seed": lambda: torch.default_generator.initial_seed(),
        "get_rng_state": lambda device="cuda": torch.default_generator.get_state(),
        "get_rng_state_all": lambda: [torch.default_generator.get_state()],
        "set_rng_state": lambda new_state, device="cuda": _set_states([new_state]),
        "set_rng_state_all": _set_states,
    }
    global _added
    _added = add_operators()
    for name, answer in (answers | generators).items():
        setattr(torch.cuda, name, answer)
    for name, answer in generators.items():
        setattr(torch.cuda.random, name, answer)
    torch.Generator = SimulatedGenerator  # type: ignore[misc]
    # Ranges and marks are for a profiler of the device; there is none here.
    vars(torch.cuda.nvtx)["_nvtx"] = SimpleNamespace(
        rangePushA=lambda message: 0, rangePop=lambda: 0, markA=lambda message: None, rangeStartA=lambda message: 0,
        rangeEnd=lambda number: None, deviceRangeStart=lambda message, stream: None, deviceRangeEnd=lambda handle, stream: None,
    )  # fmt: skip
    # Torch checks the stream's type before it calls a TorchFunctionMode, and accepts its own class only.
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign, assignment]
    # copy.deepcopy of a tensor calls this; torch's own would allocate the copy in host memory.
    torch.UntypedStorage.clone = _clone_storage  # type: ignore[method-assign, assignment]
    for name in ("CUDAGraph", "graph", "is_current_stream_capturing", "graph_pool_handle"):
        setattr(torch.cuda.graphs, name, answers[name])
