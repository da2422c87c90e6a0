"""Runs a kernel of the kernel language in numpy, so that lowering can be compared with eager where there is no CUDA.

Each step is evaluated over the whole nest at once. Reading outside an argument's memory and storing an element twice are errors.
Half types are computed in float32 and rounded by torch, see `rounded`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stitchcuda.fusion.ir import Kernel, Step

Array = np.ndarray[Any, np.dtype[Any]]
COMPUTE: dict[str, Any] = {"float32": np.float32, "float64": np.float64, "int64": np.int64, "bool": np.bool_}


def run(kernel: Kernel, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs and updated tensors by key. `tensors` maps the keys of inputs to CPU tensors."""
    memory: dict[str, torch.Tensor] = {}
    for argument in kernel.arguments:
        dtype = getattr(torch, argument.dtype)
        fresh = torch.empty_strided(argument.shape, argument.strides, dtype=dtype)
        if argument.role == "out":
            fresh.fill_(77)
        else:
            given = tensors[argument.key]
            assert tuple(given.shape) == argument.shape, f"{argument.name}: {tuple(given.shape)} is not {argument.shape}"
            fresh.copy_(given)
        memory[argument.name] = _flat(fresh)
    values: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        for step in kernel.steps:
            values[step.name] = _step(kernel, step, values, memory)
    _store(kernel, values, memory)
    return {
        argument.key: torch.as_strided(memory[argument.name], argument.shape, argument.strides)
        for argument in kernel.arguments
        if argument.role != "in"
    }


def _store(kernel: Kernel, values: dict[str, Array], memory: dict[str, torch.Tensor]) -> None:
    shape = tuple(axis.size for axis in kernel.axes)
    rows = tuple(1 if axis.reduced else axis.size for axis in kernel.axes)
    written: dict[str, set[int]] = {}
    for store in kernel.stores:
        extent = shape if any(s for s, axis in zip(store.strides, kernel.axes, strict=True) if axis.reduced) else rows
        index = _index(extent, store.strides, store.offset).reshape(-1)
        value = torch.from_numpy(np.broadcast_to(values[store.value], extent).copy()).reshape(-1)
        seen = written.setdefault(store.argument, set())
        assert len(seen.union(index.tolist())) == len(seen) + index.size, f"{kernel.name}: an element is stored twice"
        seen.update(index.tolist())
        flat = memory[store.argument]
        flat[torch.from_numpy(index)] = value.to(flat.dtype)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return torch.as_strided(tensor, (reach,), (1,))


def _index(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    index = np.full(shape, offset, dtype=np.int64)
    for position, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        line = np.arange(size, dtype=np.int64) * stride
        index += line.reshape((1,) * position + (size,) + (1,) * (len(shape) - position - 1))
    return index


def _step(kernel: Kernel, step: Step, values: dict[str, Array], memory: dict[str, torch.Tensor]) -> Array:
    shape = tuple(axis.size for axis in kernel.axes)
    if step.fn == "load":
        flat = memory[str(step.args[0])]
        sizes = tuple(size if stride else 1 for size, stride in zip(shape, step.strides, strict=True))
        index = _index(sizes, step.strides, step.offset)
        if index.min() < 0 or index.max() >= flat.numel():
            raise IndexError(f"{kernel.name}: {step.name} reads outside {step.args[0]}")
        data = flat[torch.from_numpy(index)]
        wide = data.float() if data.dtype in (torch.float16, torch.bfloat16) else data
        return np.asarray(wide.numpy().astype(COMPUTE[step.dtype]))
    if step.fn == "index":
        axis = int(step.args[0])
        line = np.arange(shape[axis], dtype=np.int64)
        return line.reshape(tuple(size if i == axis else 1 for i, size in enumerate(shape)))
    args = [values[arg] if isinstance(arg, str) else np.asarray(arg) for arg in step.args]
    if step.fn == "cast":
        return rounded(args[0], step.dtype)
    kind = COMPUTE[step.dtype]
    if step.fn == "const":
        return np.asarray(args[0].astype(kind))
    if step.fn in REDUCTIONS:
        reduced = tuple(i for i, axis in enumerate(kernel.axes) if axis.reduced)
        full = np.broadcast_to(args[0], shape).astype(kind)
        return np.asarray(REDUCTIONS[step.fn](full, axis=reduced, keepdims=True)).astype(kind)
    if step.fn in COMPARISONS:
        return np.asarray(COMPARISONS[step.fn](*args))
    if step.fn == "where":
        return np.where(args[0].astype(bool), args[1].astype(kind), args[2].astype(kind))
    return np.asarray(POINTWISE[step.fn](*(arg.astype(kind) for arg in args))).astype(kind)


def rounded(array: Array, dtype: str) -> Array:
    """The array as elements of `dtype` would hold it, in the type that such elements are computed in."""
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype))
    if dtype in ("float16", "bfloat16"):
        return np.asarray(tensor.float().numpy()).reshape(array.shape)
    out = tensor.numpy().reshape(array.shape)
    return np.asarray(out if dtype in COMPUTE else out.astype(np.int64))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "any": np.any, "all": np.all,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
POINTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log,
    "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[np.float64]), "sin": np.sin, "cos": np.cos, "pow": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round,
    "sign": np.sign, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "fmod": np.fmod,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "div": lambda a, b: np.trunc(a / b) if a.dtype.kind == "i" else a / b,
}  # fmt: skip
