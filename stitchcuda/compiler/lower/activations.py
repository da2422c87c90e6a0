"""Lowers activation functions, by the formulas of torch's own kernels (aten/src/ATen/native/cuda/Activation*.cu).

Each becomes a few pointwise steps. `glu` loads the two halves of its input in place, so that input has to be in memory.

Where to look next: `compiler/lower/call.py` (what a rule is given), `compiler/lower/pointwise.py` (arithmetic).
"""

from __future__ import annotations

import math
from dataclasses import replace

from stitchcuda.compiler.lower.call import OperatorCall, Rule
from stitchcuda.compiler.lower.nest import Number, Value
from stitchcuda.compiler.lower.pointwise import clamp


def _gelu(call: OperatorCall) -> Value:
    x = call.tensor()
    if call.get(1, "approximate", "none") == "tanh":
        cube = call.do("mul", call.do("mul", x, x), x)
        inner = call.do("mul", math.sqrt(2.0 / math.pi), call.do("add", x, call.do("mul", 0.044715, cube)))
        return call.do("mul", call.do("mul", 0.5, x), call.do("add", 1.0, call.do("tanh", inner)))
    erf = call.do("erf", call.do("mul", x, math.sqrt(0.5)))
    return call.do("mul", call.do("mul", x, 0.5), call.do("add", 1.0, erf))


def _silu(call: OperatorCall) -> Value:
    x = call.tensor()
    return call.do("div", x, call.do("add", 1.0, call.do("exp", call.do("neg", x))))


def _softplus(call: OperatorCall) -> Value:
    x = call.tensor()
    beta = call.number(1, "beta", 1)
    scaled = x if beta == 1 else call.do("mul", x, beta)
    soft = call.do("log1p", call.do("exp", scaled))
    soft = soft if beta == 1 else call.do("div", soft, beta)
    return call.do("where", call.do("gt", scaled, call.number(2, "threshold", 20), dtype="bool"), x, soft)


def _mish(call: OperatorCall) -> Value:
    x = call.tensor()
    return call.do("mul", x, call.do("tanh", call.do("log1p", call.do("exp", x))))


def _log_sigmoid(call: OperatorCall) -> Value:
    x = call.tensor()
    return call.do("sub", call.do("minimum", x, 0.0), call.do("log1p", call.do("exp", call.do("neg", call.do("abs", x)))))


def _exponential_unit(call: OperatorCall, alpha: Number, scale: Number, input_scale: Number) -> Value:
    x = call.tensor()
    inner = x if input_scale == 1 else call.do("mul", x, input_scale)
    below = call.do("mul", call.do("expm1", inner), alpha * scale)
    above = x if scale == 1 else call.do("mul", x, scale)
    return call.do("where", call.do("gt", x, 0, dtype="bool"), above, below)


def _elu(call: OperatorCall) -> Value:
    return _exponential_unit(call, call.number(1, "alpha", 1), call.number(2, "scale", 1), call.number(3, "input_scale", 1))


def _celu(call: OperatorCall) -> Value:
    alpha = call.number(1, "alpha", 1.0)
    return _exponential_unit(call, alpha, 1, 1.0 / alpha)


def _selu(call: OperatorCall) -> Value:
    return _exponential_unit(call, 1.6732632423543772, 1.0507009873554805, 1)


def _leaky_relu(call: OperatorCall) -> Value:
    x = call.tensor()
    slope = call.number(1, "negative_slope", 0.01)
    return call.do("where", call.do("gt", x, 0, dtype="bool"), x, call.do("mul", x, slope))


def _prelu(call: OperatorCall) -> Value:
    x, weight = call.tensor(), call.tensor(1, "weight")
    if len(x.shape) > 1 and weight.shape and weight.shape[0] > 1:
        weight = call.nest.reshape(weight, (weight.shape[0], *(1,) * (len(x.shape) - 2)))
    return call.do("where", call.do("gt", x, 0, dtype="bool"), x, call.do("mul", weight, x))


def _hard_gate(call: OperatorCall, x: Value) -> Value:
    return call.do("div", clamp(call, call.do("add", x, 3.0), 0.0, 6.0), 6.0)


def _hardswish(call: OperatorCall) -> Value:
    x = call.tensor()
    gate = clamp(call, call.do("add", x, 3.0), 0.0, 6.0)
    return call.do("div", call.do("mul", x, gate), 6.0)


def _threshold(call: OperatorCall) -> Value:
    x = call.tensor()
    return call.do("where", call.do("le", x, call.number(1, "threshold"), dtype="bool"), call.number(2, "value"), x)


def _shrink(hard: bool) -> Rule:
    def rule(call: OperatorCall) -> Value:
        x, limit = call.tensor(), call.number(1, "lambd", 0.5)
        above, below = call.do("gt", x, limit, dtype="bool"), call.do("lt", x, -limit, dtype="bool")
        if hard:
            return call.do("where", call.do("or", above, below, dtype="bool"), x, 0)
        low = call.do("where", below, call.do("add", x, limit), 0)
        return call.do("where", above, call.do("sub", x, limit), low)

    return rule


def _glu(call: OperatorCall) -> Value:
    leaf = call.leaf(0, "self")
    dim = call.get(1, "dim", -1) % len(leaf.shape)
    half = leaf.shape[dim] // 2
    shape = (*leaf.shape[:dim], half, *leaf.shape[dim + 1 :])
    first = replace(leaf, shape=shape)
    second = replace(first, offset=leaf.offset + half * leaf.strides[dim])
    return call.do("mul", call.nest.load(first), call.do("sigmoid", call.nest.load(second)))


RULES: dict[str, Rule] = {
    "relu": lambda call: clamp(call, call.tensor(), 0, None), "relu6": lambda call: clamp(call, call.tensor(), 0, 6),
    "hardtanh": lambda call: clamp(call, call.tensor(), call.number(1, "min_val", -1.0), call.number(2, "max_val", 1.0)),
    "gelu": _gelu, "silu": _silu, "softplus": _softplus, "mish": _mish, "log_sigmoid": _log_sigmoid,
    "elu": _elu, "celu": _celu, "selu": _selu, "leaky_relu": _leaky_relu, "prelu": _prelu,
    "hardswish": _hardswish, "hardsigmoid": lambda call: _hard_gate(call, call.tensor()), "threshold": _threshold,
    "hardshrink": _shrink(True), "softshrink": _shrink(False), "glu": _glu,
}  # fmt: skip
