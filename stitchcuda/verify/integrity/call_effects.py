"""What a call leaves behind beside values: changed arguments and modules, settings of the process, generators, writes that were
undone, and what outputs are beside plain tensors.

The reference's worker and a program's look in the same way, so that a program may do what the reference does. Nothing is judged
here, and a report of a program's worker may be false.
Where to look next: `verify/program/call_form.py` (the judge's sentences), `verify/program/program_calls.py` and
`verify/reference/float64_truth.py` (who look).
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext as _OfDevice

from stitchcuda.verify.messages.shared_tensors import memory_of

_MOST_COMPARED = 4096                      # pairs of tensors whose memory overlaps
INFERENCE = "an inference tensor"          # a mark of outputs
POOLED = "a part of one memory with an earlier call's output"  # another mark, of programs only
LARGER = "a small part of the memory that it keeps alive"  # another mark
_MUCH_LARGER, _LITTLE = 16, 2**12          # times its size, which is counted as so many bytes at least
_TINY = 5e-324                             # no more than zero where denormal numbers are flushed
_WHOLE, _PARTS = 1.0, (2.0**-53, 3 * 2.0**-54)  # their sums lie between two numbers: they show how the process rounds
_autocast = torch.is_autocast_enabled
_function_modes: Callable[[], list[Any]] = _get_current_function_mode_stack

_OF_BUILDS = ("TORCH", "TVM", "CUDA_HOME", "CUDA_PATH", "MAX_JOBS", "PATH", "CC", "CXX", "NVCC")  # set to build a kernel
# Bound before a program is imported, which could replace them.
_SETTINGS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("torch.set_default_dtype", torch.get_default_dtype),
    ("torch.set_grad_enabled", torch.is_grad_enabled),
    ("torch.inference_mode", torch.is_inference_mode_enabled),
    ("torch.autocast", lambda: [_autocast(device) for device in ("cuda", "cpu")]),
    ("torch.overrides.TorchFunctionMode", lambda: [id(mode) for mode in _function_modes() if not isinstance(mode, _OfDevice)]),
    ("fesetround", lambda: [_WHOLE + part for part in _PARTS]),
    ("torch.set_num_threads", torch.get_num_threads),
    ("torch.use_deterministic_algorithms", torch._C._get_deterministic_algorithms),
    ("torch.backends.cuda.matmul.allow_tf32", torch._C._get_cublas_allow_tf32),
    ("torch.backends.cudnn.allow_tf32", torch._C._get_cudnn_allow_tf32),
    ("torch.backends.cudnn.enabled", torch._C._get_cudnn_enabled),
    ("torch.backends.cudnn.deterministic", torch._C._get_cudnn_deterministic),
    ("torch.set_default_device", torch.get_default_device),
    ("torch.set_flush_denormal", lambda: _TINY > 0.0),
    ("torch.autograd.set_detect_anomaly", torch.is_anomaly_enabled),
    ("torch.backends.cuda.enable_flash_sdp", torch._C._get_flash_sdp_enabled),
    ("torch.backends.cuda.enable_mem_efficient_sdp", torch._C._get_mem_efficient_sdp_enabled),
    ("torch.backends.cuda.enable_math_sdp", torch._C._get_math_sdp_enabled),
    ("torch.nn.modules.module.register_module_forward_hook", lambda: list(map(len, _GLOBAL_HOOKS))),
    ("random.seed", random.getstate),
    ("numpy.random.seed", lambda: _without_arrays(np.random.get_state())),
    ("numpy.seterr", np.geterr),
    ("torch.cuda.set_stream", lambda: torch.cuda.current_stream().cuda_stream if _has_gpu() else 0),
    ("torch.backends.cuda.matmul.allow_fp16_accumulation", torch._C._get_cublas_allow_fp16_accumulation),
    ("torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
     torch._C._get_cublas_allow_fp16_reduced_precision_reduction),
    ("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
     torch._C._get_cublas_allow_bf16_reduced_precision_reduction),
    ("torch.manual_seed", torch.initial_seed),
    ("torch.backends.cudnn.benchmark", torch._C._get_cudnn_benchmark),
    ("torch.set_printoptions", lambda: dict(vars(torch._tensor_str.PRINT_OPTS))),
    ("warnings.simplefilter", lambda: len(warnings.filters)),
    ("gc.disable", gc.isenabled),
    ("gc.set_threshold", gc.get_threshold),
    ("logging.disable", lambda: logging.root.manager.disable),
    ("logging.root.setLevel", lambda: logging.root.level),
    ("sys.setrecursionlimit", sys.getrecursionlimit),
    ("os.environ", lambda: {name: value for name, value in os.environ.items() if not name.startswith(_OF_BUILDS)}),
    ("os.chdir", os.getcwd),
)
_GLOBAL_HOOKS: list[dict[Any, Any]] = [
    value for name, value in vars(hooks).items() if name.startswith("_global_") and isinstance(value, dict)
]
_set_default_dtype = torch.set_default_dtype
_host_state = torch.default_generator.get_state
_has_gpu: Callable[[], bool] = torch.cuda.is_initialized  # the simulator's device has the generator of the host
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class CallEffects:
    """Made just before a call of `module` with `arguments`. `tensors`: those whose writes are looked for."""

    def __init__(self, module: torch.nn.Module, arguments: Any, tensors: Sequence[torch.Tensor] = ()) -> None:
        self._module, self._marks = module, _marks(module)
        self._arguments, self._before = arguments, form(arguments)
        self._tensors, self._versions = tensors, [tensor._version for tensor in tensors]
        self._settings = _read_settings()
        self._generators = generators_digest()

    def settings(self) -> list[str]:
        """The settings of torch and the process, by the names of what sets them, that are others now. A default dtype is put
        back: setting it exchanges classes of torch."""
        now = _read_settings()
        if now[0] != self._settings[0]:
            _set_default_dtype(self._settings[0])
        return [name for (name, _), was, new in zip(_SETTINGS, self._settings, now, strict=True) if was != new]

    def arguments_changed(self) -> bool:
        """Whether a list or dict among the arguments holds other objects now, or a tensor has another shape or layout."""
        return bool(form(self._arguments) != self._before)

    def module_changed(self) -> list[str]:
        """What the call changed of the module beside values, such as "training"."""
        now = _marks(self._module)
        return sorted({mark for (place, mark), was in self._marks.items() if now.get((place, mark), was) != was})

    def written(self) -> list[int]:
        """The positions of tensors that operators of torch have written to, whatever they hold now."""
        versions = zip(self._tensors, self._versions, strict=True)
        return [position for position, (tensor, version) in enumerate(versions) if tensor._version != version]

    def generators_moved(self) -> bool:
        """Whether one of torch's generators has another state now."""
        return generators_digest() != self._generators


def output_marks(tensor: torch.Tensor) -> list[str]:
    """What a returned tensor is beside its values, in words: few can be used as a plain one is."""
    found = {
        "a parameter": type(tensor) is torch.nn.Parameter,
        "a tensor that requires gradients": tensor.requires_grad and type(tensor) is not torch.nn.Parameter,
        INFERENCE: tensor.is_inference(),
        "a tensor with attributes of its own": bool(object.__getattribute__(tensor, "__dict__")),
        "a tensor with torch's negative bit set": tensor.is_neg(),
        "a tensor with torch's conjugate bit set": tensor.is_conj(),
        "a tensor whose elements lie on one another": _folded(tensor),
        LARGER: tensor.untyped_storage().nbytes() > _MUCH_LARGER * max(tensor.numel() * tensor.element_size(), _LITTLE),
    }
    return [what for what, is_so in found.items() if is_so]


def _folded(tensor: torch.Tensor) -> bool:
    """Whether several elements have one place in memory, as in an expanded tensor, so that it cannot be written to."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.numel() > 1 and any(stride == 0 and size > 1 for size, stride in sizes)


def argument_names(forward: Any) -> list[str]:
    """The names by which a function's arguments may be given, in their order; none where they are not known."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [found.name for found in parameters if found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)]


def generators_digest() -> str:
    """A digest of the states of torch's generators of the host and, once it is used, of the GPU."""
    found = blake2b(digest_size=16)
    on_gpu = torch.cuda.default_generators if _has_gpu() else ()
    for state in (_host_state(), *(generator.get_state() for generator in on_gpu)):
        found.update(bytes(state.tolist()))
    return found.hexdigest()


def overlapping(tensors: Sequence[torch.Tensor], first: int | None = None) -> list[tuple[int, int]]:
    """The pairs of positions of tensors that have an element in common: views of one memory that lie side by side do not.
    `first`: only pairs of which one is among so many first tensors. Of very many, not all are compared."""
    places = sorted((*memory_of(tensor), position) for position, tensor in enumerate(tensors) if tensor.numel())
    found: list[tuple[int, int]] = []
    compared = 0
    for number, (begin, size, left) in enumerate(places):
        for later in range(number + 1, len(places)):
            other, length, right = places[later]
            if other >= begin + size or compared == _MOST_COMPARED:
                break
            compared += 1
            if first is not None and min(left, right) >= first:
                continue
            if tensors[left].device == tensors[right].device and _meet(tensors[left], tensors[right], begin, other, length):
                found.append((min(left, right), max(left, right)))
    return sorted(found)


def _meet(left: torch.Tensor, right: torch.Tensor, begin: int, other: int, length: int) -> bool:
    """Whether two tensors, which begin at these addresses, share a byte. `length`: bytes of the second."""
    end = max(begin + memory_of(left)[1], other + length)
    marks = torch.zeros(end - begin, dtype=torch.bool, device=left.device)

    def view(tensor: torch.Tensor, offset: int) -> torch.Tensor:
        width = tensor.element_size()
        return marks.as_strided((*tensor.shape, width), (*(width * stride for stride in tensor.stride()), 1), offset)

    view(left, 0).fill_(True)
    return bool(view(right, other - begin).any())


def _marks(module: torch.nn.Module) -> dict[tuple[str, str], Any]:
    """By name of a submodule or parameter and of what may be changed of it."""
    marks: dict[tuple[str, str], Any] = {(name, "training"): part.training for name, part in module.named_modules()}
    for name, parameter in module.named_parameters():
        marks[name, "requires_grad"] = parameter.requires_grad
        marks[name, "grad"] = id(parameter.grad)
        marks[name, "parameter objects"] = id(parameter)
    return marks


def _without_arrays(state: Any) -> list[Any]:
    """With the bytes of arrays in their place, which can be compared as a whole."""
    return [part.tobytes() if isinstance(part, np.ndarray) else part for part in state]


def _read_settings() -> list[Any]:
    return [_read(read) for _, read in _SETTINGS]


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:                   # torch does not answer where its older and newer settings of TF32 are mixed
        return None


def form(value: Any) -> Any:
    """The objects that nested arguments consist of, and the layouts of tensors."""
    if isinstance(value, dict):
        return [(key, form(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return [type(value), *map(form, value)]
    if isinstance(value, torch.Tensor):
        plain = type(value) in _PLAIN and value.layout is torch.strided
        if not plain:
            return id(value), type(value)
        layout = value.dtype, tuple(value.shape), value.stride(), value.data_ptr()
        return id(value), *layout, value.requires_grad, id(value.grad) if value.is_leaf else 0
    return id(value)
