"""The kernel language run literally with torch on the CPU: what generated code and lowering are compared with.

Every value is a tensor over the kernel's axes (size one where it does not move). Pointwise steps run in their own type; float32
sums and products run in float64, so the reference has no summation error of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stitchcuda.compiler.lower.ir import Argument, Kernel, Step

DTYPES = {
    "float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
_WIDE = {"float16": "float32", "bfloat16": "float32", **dict.fromkeys(("int32", "int16", "int8", "uint8"), "int64")}
_POINTWISE: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "neg": torch.neg, "abs": torch.abs, "exp": torch.exp,
    "exp2": torch.exp2, "log": torch.log, "log2": torch.log2, "log1p": torch.log1p, "expm1": torch.expm1,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal":
    torch.reciprocal, "tanh": torch.tanh, "erf": torch.erf, "sin": torch.sin, "cos": torch.cos, "pow": torch.pow,
    "maximum": torch.maximum, "minimum": torch.minimum, "floor": torch.floor, "ceil": torch.ceil, "trunc":
    torch.trunc, "round": torch.round, "sign": torch.sign, "sigmoid": torch.sigmoid, "fmod": torch.fmod, "eq":
    torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip
_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory from its first element on, as one dimension."""
    left = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((left,), (1,), tensor.storage_offset())


def allocate(argument: Argument, make: Callable[[tuple[int, ...], str], torch.Tensor], shift: int = 0) -> torch.Tensor:
    """A tensor with the argument's shape and strides, `shift` elements into its memory, filled by `make(shape, dtype)`."""
    span = 1 + sum((n - 1) * abs(s) for n, s in zip(argument.shape, argument.strides, strict=True) if n)
    return make((span + shift + 16,), argument.dtype).as_strided(argument.shape, argument.strides, shift)


def interpret(kernel: Kernel, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Runs the kernel on copies of `tensors` (by argument name); returns the written ones (role out or inout)."""
    results = {a.name: _copy(tensors[a.name]) for a in kernel.arguments if a.role != "in"}
    sizes = [axis.size for axis in kernel.axes]
    reduced = [position for position, axis in enumerate(kernel.axes) if axis.reduced]
    values: dict[str, torch.Tensor] = {}
    for step in kernel.steps:
        values[step.name] = _value(step, values, tensors, sizes, reduced)
    for store in kernel.stores:
        target = results[store.argument]
        # Once per row where the target does not move along reduced axes, even where there is nothing to reduce.
        still = [1 if axis.reduced else min(axis.size, 1) for axis in kernel.axes]
        shape = [n if s else one for n, one, s in zip(sizes, still, store.strides, strict=True)]
        value = values[store.value]
        if value.ndim:
            value = value.expand(shape)
        flat(target).as_strided(shape, store.strides, target.storage_offset() + store.offset).copy_(value)
    return results


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return flat(tensor).clone().as_strided(tensor.shape, tensor.stride(), 0)


def _value(
    step: Step, values: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], sizes: list[int], reduced: list[int]
) -> torch.Tensor:
    kind = _WIDE.get(step.dtype, step.dtype)
    dtype = DTYPES[kind]
    if step.fn == "load":
        source = tensors[str(step.args[0])]
        strides = step.strides or (0,) * len(sizes)
        shape = [n if s else min(n, 1) for n, s in zip(sizes, strides, strict=True)]
        return flat(source).as_strided(shape, strides, source.storage_offset() + step.offset).to(dtype)
    if step.fn == "index":
        axis = int(step.args[0])
        return torch.arange(sizes[axis]).reshape([sizes[axis] if position == axis else 1 for position in range(len(sizes))])
    if step.fn == "const":
        return torch.tensor(step.args[0], dtype=dtype)
    args = [values[a] if isinstance(a, str) else _number(a) for a in step.args]
    if step.fn in _REDUCTIONS:
        return _reduced(step, args[0], sizes, reduced, dtype)
    if step.fn == "cast":
        return args[0].to(DTYPES[step.dtype]).to(dtype)
    if step.fn == "where":
        return torch.where(args[0].bool(), args[1].to(dtype), args[2].to(dtype))
    if step.fn in ("eq", "ne", "lt", "le", "gt", "ge"):
        if any(a.dtype == torch.float64 and a.ndim for a in args):
            common = torch.float64
        else:
            common = torch.float32 if any(a.dtype.is_floating_point for a in args) else torch.int64
        return _POINTWISE[step.fn](*(a.to(common) for a in args))
    args = [a.to(dtype) for a in args]
    if step.fn in ("and", "or", "not"):
        return {"and": torch.bitwise_and, "or": torch.bitwise_or, "not": torch.bitwise_not}[step.fn](*args)  # type: ignore[operator, no-any-return]
    if step.fn == "div":
        return torch.div(args[0], args[1], rounding_mode=None if dtype.is_floating_point else "trunc").to(dtype)
    if kind == "bool":
        logic = {"add": torch.logical_or, "mul": torch.logical_and, "maximum": torch.logical_or, "minimum": torch.logical_and}
        return logic[step.fn](*args)
    return _POINTWISE[step.fn](*args)


def _number(number: float | int | bool) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None)


def _reduced(step: Step, value: torch.Tensor, sizes: list[int], reduced: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A reduction over all reduced axes, which the value may not span by itself."""
    rank = len(sizes)
    value = value.reshape([1] * (rank - value.ndim) + list(value.shape))
    value = value.expand([sizes[p] if p in reduced else n for p, n in enumerate(value.shape)])
    wide = torch.float64 if dtype.is_floating_point else dtype
    value = value.to(torch.bool) if step.fn in ("any", "all") else value.to(wide)
    empty = any(sizes[p] == 0 for p in reduced)
    for axis in reduced:
        if step.fn == "sum":
            value = value.sum(axis, keepdim=True, dtype=torch.int64 if wide == torch.bool else wide)
        elif step.fn == "prod":
            value = value.prod(axis, keepdim=True, dtype=wide)
        elif step.fn in ("any", "all"):
            value = getattr(value, step.fn)(axis, keepdim=True)
        elif empty:
            shape = [1 if p == axis else n for p, n in enumerate(value.shape)]
            value = torch.full(shape, -torch.inf if step.fn == "max" else torch.inf)
        else:
            value = getattr(torch, "a" + step.fn)(value, axis, keepdim=True)
    return value.to(dtype)
