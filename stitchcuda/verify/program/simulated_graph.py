"""Stands in for CUDA graphs on the simulator: capture records calls, replay runs them again on the same tensors.

As on a device, capturing changes nothing: tensors that the captured code wrote get their contents back, and tensors that it
made hold poison until the first replay. Replay runs the recorded operators and kernels on the very tensors of the capture, so
a program that forgets to copy its inputs in computes from stale data. An operator of `_HOST_READS` raises during capture, as on
a device. No time is measured here.
Where to look next: `verify/program/simulated_device.py` (who installs it), `verify/program/build_interceptor.py` (who records
the program's kernels).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from stitchcuda.simulator import loaded_runtime
from stitchcuda.verify.integrity.byte_traffic import is_allocation, poison, tensors_of
from stitchcuda.verify.integrity.dispatch_recorder import mark, note
from stitchcuda.verify.messages.shared_tensors import memory_of

_HOST_READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::_unique2", "aten::equal")
# These operators update running statistics, though their schema says that they write to no argument.
_HIDDEN_WRITES = ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")


class Recorder(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """A dispatch mode that runs and records the operators between the begin and the end of a capture.

    `steps` run the recorded calls again, in order. `touched` has (address, bytes) of every tensor that they use. `active` is
    the recorder of the capture that is under way in this process.
    """

    active: Recorder | None = None

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.steps: list[Callable[[], None]] = []
        self.touched: dict[tuple[int, int], None] = {}
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._fresh: dict[int, torch.Tensor] = {}
        self._in_kernel = False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name in _HOST_READS:
            raise RuntimeError(
                f"CUDA error: operation not permitted when stream is capturing ({name.removeprefix('aten::')} reads the device)"
            )
        if func._schema.is_mutable or name in _HIDDEN_WRITES:
            self._remember(tensors_of((args, kwargs)))
        result = func(*args, **kwargs)
        known = {_storage(tensor) for tensor in tensors_of((args, kwargs))}
        fresh = [tensor for tensor in tensors_of(result) if _storage(tensor) not in known]
        for tensor in fresh:
            self._fresh[_storage(tensor)] = tensor
        if not is_allocation(func) and not func.is_view and not self._in_kernel:
            self._touch((args, kwargs, result))
            self.steps.append(lambda: _again(func, args, kwargs, result, fresh))
        return result

    def kernel(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Runs and records a kernel function of the program. Which arguments it writes is unknown, so all are put back after
        the capture. Operators that it calls from C++ are not recorded by themselves: replay calls the function again.
        """
        self._remember(tensors_of(args))
        self._in_kernel = True
        try:
            result = call(*args)
        finally:
            self._in_kernel = False
        known = {_storage(tensor) for tensor in tensors_of(args)}
        fresh = [tensor for tensor in tensors_of(result) if _storage(tensor) not in known]
        for tensor in fresh:
            self._fresh[_storage(tensor)] = tensor
        self._touch((args, result))
        self.steps.append(lambda: _again(call, args, {}, result, fresh))
        return result

    def undo(self) -> None:
        """Gives every tensor that existed before the capture its contents back, and poisons those made during it."""
        with _disable_current_modes(), mark():  # these copies do not count as the program's traffic
            for tensor, saved in self._before.values():
                tensor.data.copy_(saved)   # a capture writes nothing, so versions stay
            for tensor in self._fresh.values():
                span = tensor.untyped_storage().nbytes() // tensor.element_size()
                poison(tensor.detach().as_strided((span,), (1,), 0))
        self._before.clear()

    def _touch(self, values: object) -> None:
        self.touched.update(dict.fromkeys(map(memory_of, tensors_of(values))))

    def _remember(self, tensors: list[torch.Tensor]) -> None:
        with _disable_current_modes(), mark():
            for tensor in tensors:
                key = _storage(tensor)
                if key not in self._before and key not in self._fresh:
                    count = tensor.untyped_storage().nbytes() // tensor.element_size()
                    whole = tensor.detach().as_strided((count,), (1,), 0)
                    self._before[key] = (whole, whole.clone())


class SimulatedGraph:
    """Stands in for torch.cuda.CUDAGraph."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._recorder: Recorder | None = None
        self._steps: list[Callable[[], None]] = []
        self._touched: tuple[tuple[int, int], ...] = ()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if Recorder.active is not None:
            raise RuntimeError("CUDA error: a capture is already under way")
        self._recorder = Recorder.active = Recorder()
        self._recorder.__enter__()  # type: ignore[no-untyped-call, unused-ignore]

    def capture_end(self) -> None:
        recorder = self._recorder
        if recorder is None:
            raise RuntimeError("capture_end without capture_begin")
        self._recorder = Recorder.active = None
        recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call, unused-ignore]
        with torch.no_grad():
            recorder.undo()
        self._steps, self._touched = recorder.steps, tuple(recorder.touched)

    def replay(self) -> None:
        if not self._steps:
            raise RuntimeError("the CUDA graph is empty: nothing was captured before replay")
        note("replay", 1)                  # a graph that a program declares counts only where a replay is noted
        for address, length in self._touched:
            note("touch", length, str(address))
        before = loaded_runtime.launched_bytes()
        with torch.no_grad():
            for step in self._steps:
                step()
        note("launched", loaded_runtime.launched_bytes() - before)
        note("replayed", 1)

    def reset(self) -> None:
        self._steps = []

    def instantiate(self) -> None: ...

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def enable_debug_mode(self) -> None: ...


class SimulatedCapture:
    """Stands in for torch.cuda.graph: `with torch.cuda.graph(graph):`"""

    def __init__(self, cuda_graph: SimulatedGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "") -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._graph.capture_end()


def _again(call: Callable[..., Any], args: Any, kwargs: dict[str, Any], recorded: Any, fresh: list[torch.Tensor]) -> None:
    """Runs a recorded call again and copies the tensors that it makes into those that it made during the capture (`fresh`)."""
    result = call(*args, **kwargs)
    if fresh:
        targets = {id(tensor) for tensor in fresh}
        with _disable_current_modes(), mark():  # a replay on a device writes in place: this copy is not the program's traffic
            for new, old in zip(tensors_of(result), tensors_of(recorded), strict=True):
                if id(old) in targets:
                    old.copy_(new)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
