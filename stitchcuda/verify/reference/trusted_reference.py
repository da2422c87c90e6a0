"""Compares other ways to run a reference (graph, compiled) with its eager outputs, within the judge's error bound.

A way agrees when its outputs, written inputs and changed buffers are within the bound on the inputs of each seed in SEEDS. The
bound is measured as for a program: eager against float64. It times nothing, runs no generated program, and puts buffers back.
Where to look next: `verify/reference/baselines_worker.py` (who uses it), `verify/compare/bound.py` (the bound),
`verify/reference/float64_truth.py` (the float64 run).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.state import Precision
from stitchcuda.verify.compare import bound
from stitchcuda.verify.inputs.draw_seeds import seed_generators
from stitchcuda.verify.reference.float64_truth import (
    AUTOCAST,
    allow_tf32,
    copy_arguments,
    in_precision,
    name_outputs,
    run64,
    run_in_precision,
)
from stitchcuda.verify.reference.random_draws import RandomDraws
from stitchcuda.verify.reference.reference import load_reference

SEEDS = (0, 1)                             # of the inputs that outputs are compared on; calls are timed on the first
LOAD_S = 120.0                             # seconds to load the reference, as the judge allows


class TrustedReference:
    """A loaded reference with its inputs, its outputs on them, and the bound for other outputs."""

    def __init__(self, path: Path, device: str, precision: Precision) -> None:
        """Loads and runs the reference. Raises `BadInput` where that fails or its outputs do not repeat."""
        allow_tf32(precision)
        self.device, self._path, self._precision = device, path, precision
        reference = load_reference(path, device, seconds=LOAD_S)
        reference.examine()
        self.module = reference.module
        inputs = [reference.inputs(seed) for seed in SEEDS]
        # Each (args, kwargs). Inputs of other shapes would make a compiler compile again.
        self.inputs = [given for given in inputs if _shapes(given) == _shapes(inputs[0])]
        self._draw_seed = SEEDS[0] if reference.draws else None
        self._expected, self._exact = [], []
        for given in self.inputs:
            drawn = None if self._draw_seed is None else RandomDraws(self._draw_seed)
            self._expected.append(_on_cpu(run_in_precision(self.module, *given, precision, device, drawn)))
            self._exact.append(_on_cpu(run64(self.module, *given, drawn=drawn)))
        names = self._expected[0].keys()
        self._bounds = {
            name: bound.bound([own[name] for own in self._expected], [exact[name] for exact in self._exact]) for name in names
        }
        # Positions of the input tensors that a call writes to.
        self.written = [int(name.removeprefix("input:")) for name in names if name.startswith("input:")]
        state = _state(self.module)
        self._changing = {name: state[name.removeprefix("buffer:")] for name in names if name.startswith("buffer:")}
        self._before = {name: value.detach().clone() for name, value in self._changing.items()}

    def convolves_images(self) -> bool:
        """Whether a call runs a convolution whose weight has 4 dimensions."""
        args, kwargs = copy_arguments(self.inputs[0])
        with self.in_precision(), _Convolutions() as seen:
            self.module(*args, **kwargs)
        self.restore()
        return 4 in seen.dimensions

    def in_channels_last(self) -> TrustedReference:
        """Returns the same reference, loaded again, with its parameters in channels-last layout. It is compared with the
        outputs that this one has."""
        other, held = copy.copy(self), _state(self.module)
        other.module = load_reference(self._path, self.device, seconds=LOAD_S).module
        with torch.no_grad():
            for name, value in _state(other.module).items():
                value.copy_(held[name])
        other.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        state = _state(other.module)
        other._changing = {name: state[name.removeprefix("buffer:")] for name in self._changing}
        return other

    @contextlib.contextmanager
    def in_precision(self) -> Iterator[None]:
        """A context without gradients and with autocast to the precision given at construction."""
        with torch.no_grad(), in_precision(self._precision, self.device):
            yield

    def restore(self) -> None:
        """Puts back the buffers and parameters that a call changes."""
        with torch.no_grad():
            for name, value in self._before.items():
                self._changing[name].copy_(value)

    def disagreement(self, call: Callable[..., Any]) -> str:
        """Calls `call` on copies of the inputs. Returns "" where all it computes is within the bound, else what differs first,
        such as "output: largest error …"."""
        for given, expected, exact in zip(self.inputs, self._expected, self._exact, strict=True):
            args, kwargs = copy_arguments(given)
            self.restore()
            seed_generators(self._draw_seed)
            with self.in_precision():
                found = {name: value.clone() for name, value in name_outputs(call(*args, **kwargs)).items()}
            leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            found |= {f"input:{number}": leaves[number] for number in self.written}
            found |= {name: value.detach().clone() for name, value in self._changing.items()}
            self.restore()
            if found.keys() != expected.keys():
                return f"it returns {', '.join(found)} where the reference returns {', '.join(expected)}"
            for name, value in _on_cpu(found).items():
                as_given = value.to(expected[name].dtype) if self._precision in AUTOCAST else value
                judged = bound.judge(name, as_given, expected[name], exact[name], self._bounds[name])
                if not judged.ok:
                    return f"{name}: {judged.note}"
        return ""

    def precision(self) -> str:
        """Returns the settings in force now, in words: a compiler or the reference itself may have changed them."""
        dtype = AUTOCAST.get(self._precision)
        products, convolutions = (_fp32(backend) for backend in (torch.backends.cuda.matmul, torch.backends.cudnn))
        autocast = str(dtype).removeprefix("torch.") if dtype else "none"
        return f"fp32 products {products}, convolutions {convolutions}, autocast {autocast}"


class _Convolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`dimensions`: of the weights of the convolutions that run in it."""

    def __init__(self) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]
        self.dimensions: set[int] = set()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator is torch.ops.aten.convolution.default:
            self.dimensions.add(args[1].dim())
        return operator(*args, **(kwargs or {}))


def _state(module: torch.nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _fp32(backend: Any) -> str:
    """Whether a backend computes fp32 in TF32. Reading torch's older switch raises where the newer one was set."""
    try:
        return "TF32" if backend.allow_tf32 else "fp32"
    except RuntimeError:
        return str(backend.fp32_precision)


def _shapes(given: tuple[Any, Any]) -> list[Any]:
    leaves = pytree.tree_leaves(given)
    return [(leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}
