"""A trusted reference that other ways of running it are held against: inputs, answers, the verifier's bound (torch).

It compares outputs, written inputs and changed state, and leaves everything as it was. It times nothing and knows no program.
Where to look next: `verify/reference/baselines_worker.py`, which uses it; `verify/compare/bound.py` and
`verify/reference/float64_truth.py`, which the judge rests on too.
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

from stitchcuda.state import Precision
from stitchcuda.verify.compare import bound
from stitchcuda.verify.messages.shared_tensors import remade
from stitchcuda.verify.reference.float64_truth import name_outputs, run, run64
from stitchcuda.verify.reference.reference import load_reference

SEEDS = (0, 1)                             # input sets that outputs are compared on; times are of the first
LOAD_S = 120.0                             # as the verifier allows
_AUTOCAST: dict[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}


class TrustedReference:
    """One loaded reference: inputs, what it answers, and how far others may be from that."""

    def __init__(self, path: Path, device: str, precision: Precision) -> None:
        """Raises `BadInput` for a reference that cannot be loaded or judged by."""
        if precision == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        self.device, self._precision = device, precision
        reference = load_reference(path, device, seconds=LOAD_S)
        reference.examine()
        self.module = reference.module
        inputs = [reference.inputs(seed) for seed in SEEDS]
        same = [one for one in inputs if _shapes(one) == _shapes(inputs[0])]
        self.inputs = same                 # (args, kwargs); others would be other programs to a compiler
        with self.as_asked():
            self._expected = [run(self.module, *one) for one in same]
        if precision in _AUTOCAST:         # the program's outputs have the reference's own dtypes
            plain = run(self.module, *same[0])
            self._expected = [{name: value.to(plain[name].dtype) for name, value in one.items()} for one in self._expected]
        self._expected = [_on_cpu(one) for one in self._expected]
        self._exact = [_on_cpu(run64(self.module, *one)) for one in same]
        names = self._expected[0].keys()
        measures = {
            name: [bound.measured(own[name], exact[name]) for own, exact in zip(self._expected, self._exact, strict=True)]
            for name in names
        }
        self._bounds = {name: bound.pooled(these) for name, these in measures.items()}
        self.written = [int(name.removeprefix("input:")) for name in names if name.startswith("input:")]
        state = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        self._changing = {name: state[name.removeprefix("buffer:")] for name in names if name.startswith("buffer:")}
        self._before = {name: value.detach().clone() for name, value in self._changing.items()}

    @contextlib.contextmanager
    def as_asked(self) -> Iterator[None]:
        """No gradients, and the precision that was asked for."""
        dtype = _AUTOCAST.get(self._precision)
        with torch.no_grad(), torch.autocast(self.device, dtype=dtype) if dtype else contextlib.nullcontext():
            yield

    def restore(self) -> None:
        """Put back the state that a call changes."""
        with torch.no_grad():
            for name, value in self._before.items():
                self._changing[name].copy_(value)

    def disagreement(self, call: Callable[..., Any]) -> str:
        """How what a call computes differs from the reference; "" within the bound."""
        for given, expected, exact in zip(self.inputs, self._expected, self._exact, strict=True):
            args, kwargs = copied(given)
            self.restore()
            with self.as_asked():
                found = {name: value.clone() for name, value in name_outputs(call(*args, **kwargs)).items()}
            leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            found |= {f"input:{number}": leaves[number] for number in self.written}
            found |= {name: value.detach().clone() for name, value in self._changing.items()}
            self.restore()
            if found.keys() != expected.keys():
                return f"it returns {', '.join(found)} where the reference returns {', '.join(expected)}"
            for name, value in _on_cpu(found).items():
                as_given = value.to(expected[name].dtype) if self._precision in _AUTOCAST else value
                judged = bound.judge(name, as_given, expected[name], exact[name], self._bounds[name])
                if not judged.ok:
                    return f"{name}: {judged.note}"
        return ""

    def precision(self) -> str:
        """What is set now, in words: a compiler or the reference itself may have changed it."""
        dtype = _AUTOCAST.get(self._precision)
        products, convolutions = (_fp32(one) for one in (torch.backends.cuda.matmul, torch.backends.cudnn))
        autocast = str(dtype).removeprefix("torch.") if dtype else "none"
        return f"fp32 products {products}, convolutions {convolutions}, autocast {autocast}"


def copied(given: tuple[Any, Any]) -> tuple[Any, Any]:
    """Copies that keep strides and what shares memory."""
    return remade(given, lambda tensor: copy.deepcopy(tensor.detach()))  # type: ignore[no-any-return]


def _fp32(backend: Any) -> str:
    """Whether a backend takes TF32 for fp32, by the older of torch's two switches or the newer, which excludes it."""
    try:
        return "TF32" if backend.allow_tf32 else "fp32"
    except RuntimeError:
        return str(backend.fp32_precision)


def _shapes(given: tuple[Any, Any]) -> list[Any]:
    leaves = pytree.tree_leaves(given)
    return [(leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}
