"""Lowering rules for operators that work element by element: arithmetic, comparisons, selections, activations, conversions.

Formulas are those of torch's own kernels (aten/src/ATen/native/cuda/Activation*.cu and BinaryOps), so that a program's error is
eager's. Half types compute in fp32 throughout. Reductions are in `lower_norm.py`, moves of data in `lower_shape.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stitchcuda.fusion.call import Call, Rule
from stitchcuda.fusion.dtypes import rounded
from stitchcuda.fusion.ir import Fn
from stitchcuda.fusion.nest import CannotLower, Number, Value, kind_of

LARGEST_INTEGER_POWER = 8


def unary(fn: Fn) -> Rule:
    return lambda call: call.do(fn, call.tensor())


def _arithmetic(fn: Fn, *, swapped: bool = False) -> Rule:
    def rule(call: Call) -> Value:
        left, right = call.operand(0, "self"), call.operand(1, "other")
        alpha = call.number(2, "alpha", 1)
        if swapped:
            left, right = right, left
        if alpha != 1:
            right = _scaled(call, right, alpha)
        if kind_of(call.dtype) == "bool":
            return call.do("or" if fn == "add" else "and", left, right)
        return call.do(fn, left, right)

    return rule


def _scaled(call: Call, operand: Value | Number, alpha: Number) -> Value | Number:
    return call.do("mul", operand, alpha) if isinstance(operand, Value) else operand * alpha


def _truncated(call: Call, left: Value | Number, right: Value | Number) -> Value:
    """Division rounded towards zero."""
    quotient = call.do("div", left, right)
    return quotient if kind_of(call.dtype) == "int64" else call.do("trunc", quotient)


def _floored(call: Call, left: Value | Number, right: Value | Number) -> Value:
    """Division rounded down; for floating point as torch's div_floor: from the exact remainder, not the quotient."""
    if kind_of(call.dtype) == "int64":
        quotient = call.do("div", left, right)
        rest = call.do("sub", left, call.do("mul", quotient, right))
        apart = call.do("ne", call.do("lt", rest, 0, dtype="bool"), _negative(call, right), dtype="bool")
        inexact = call.do("and", call.do("ne", rest, 0, dtype="bool"), apart, dtype="bool")
        return call.do("where", inexact, call.do("sub", quotient, 1), quotient)
    rest = call.do("fmod", left, right)
    quotient = call.do("div", call.do("sub", left, rest), right)
    apart = call.do("ne", call.do("lt", rest, 0, dtype="bool"), _negative(call, right), dtype="bool")
    inexact = call.do("and", call.do("ne", rest, 0, dtype="bool"), apart, dtype="bool")
    quotient = call.do("where", inexact, call.do("sub", quotient, 1), quotient)
    floor = call.do("floor", quotient)
    above = call.do("gt", call.do("sub", quotient, floor), 0.5, dtype="bool")
    whole = call.do("where", above, call.do("add", floor, 1), floor)
    return call.do("where", call.do("eq", right, 0, dtype="bool"), call.do("div", left, right), whole)


def _negative(call: Call, operand: Value | Number) -> Value | Number:
    return call.do("lt", operand, 0, dtype="bool") if isinstance(operand, Value) else operand < 0


def _div(call: Call) -> Value:
    left, right = call.operand(0, "self"), call.operand(1, "other")
    mode = call.get(2, "rounding_mode")
    if mode is None:
        return call.do("div", left, right)
    return _floored(call, left, right) if mode == "floor" else _truncated(call, left, right)


def _floor_divide(call: Call) -> Value:
    return _floored(call, call.operand(0, "self"), call.operand(1, "other"))


def _remainder(call: Call) -> Value:
    left, right = call.operand(0, "self"), call.operand(1, "other")
    if kind_of(call.dtype) == "int64":
        return call.do("sub", left, call.do("mul", _floored(call, left, right), right))
    rest = call.do("fmod", left, right)
    apart = call.do("ne", call.do("lt", rest, 0, dtype="bool"), _negative(call, right), dtype="bool")
    inexact = call.do("and", call.do("ne", rest, 0, dtype="bool"), apart, dtype="bool")
    return call.do("where", inexact, call.do("add", rest, right), rest)


def _fmod(call: Call) -> Value:
    left, right = call.operand(0, "self"), call.operand(1, "other")
    if kind_of(call.dtype) == "int64":
        return call.do("sub", left, call.do("mul", call.do("div", left, right), right))
    return call.do("fmod", left, right)


def _compare(fn: Fn) -> Rule:
    def rule(call: Call) -> Value:
        left, right = call.tensor(), call.operand(1, "other")
        if isinstance(right, float):
            right = rounded(right, left.dtype)
        return call.do(fn, left, right, dtype="bool")

    return rule


def _logical(fn: Fn) -> Rule:
    return lambda call: call.do(fn, call.tensor(), call.operand(1, "other"), dtype="bool")


def _bitwise(fn: Fn) -> Rule:
    def rule(call: Call) -> Value:
        if call.dtype != "bool":
            raise CannotLower("bitwise operations on integers")
        return call.do(fn, call.tensor(), call.operand(1, "other"))

    return rule


def _not(call: Call) -> Value:
    if call.dtype != "bool":
        raise CannotLower("bitwise operations on integers")
    return call.do("not", call.tensor(), dtype="bool")


def _where(call: Call) -> Value:
    return call.do("where", call.tensor(0, "condition"), call.operand(1, "self"), call.operand(2, "other"))


def _masked_fill(call: Call) -> Value:
    return call.do("where", call.tensor(1, "mask"), call.operand(2, "value"), call.tensor())


def clamped(call: Call, value: Value, low: Value | Number | None, high: Value | Number | None) -> Value:
    if low is not None:
        value = call.do("maximum", value, low)
    return value if high is None else call.do("minimum", value, high)


def _clamp(call: Call) -> Value:
    low = None if call.get(1, "min") is None else call.operand(1, "min")
    high = None if call.get(2, "max") is None else call.operand(2, "max")
    return clamped(call, call.tensor(), low, high)


def power(call: Call, base: Value, exponent: Number) -> Value:
    """`base ** exponent`; small whole powers are products, as in torch's pow for 2 and 3."""
    whole = float(exponent).is_integer() and abs(exponent) <= LARGEST_INTEGER_POWER
    integral = kind_of(call.dtype) in ("int64", "bool")
    if whole and (exponent >= 0 or not integral):
        base = call.nest.cast(base, call.dtype) if base.kind != kind_of(call.dtype) else base
        result: Value | None = None
        for _ in range(abs(int(exponent))):
            result = base if result is None else call.do("mul", result, base)
        if result is None:
            return call.do("where", call.do("eq", base, base, dtype="bool"), 1, 1)
        return result if exponent >= 0 else call.do("reciprocal", result)
    if integral:
        raise CannotLower("large or negative powers of integers")
    if exponent == 0.5:
        return call.do("sqrt", base)
    if exponent == -0.5:
        return call.do("rsqrt", base)
    return call.do("pow", base, float(exponent))


def _pow(call: Call) -> Value:
    if not call.is_tensor(1, "exponent"):
        return power(call, call.tensor(), call.number(1, "exponent"))
    if kind_of(call.dtype) == "int64":
        raise CannotLower("powers of integers by a tensor")
    return call.do("pow", call.operand(0, "self"), call.tensor(1, "exponent"))


def _gelu(call: Call) -> Value:
    x = call.tensor()
    if call.get(1, "approximate", "none") == "tanh":
        cube = call.do("mul", call.do("mul", x, x), x)
        inner = call.do("mul", math.sqrt(2.0 / math.pi), call.do("add", x, call.do("mul", 0.044715, cube)))
        return call.do("mul", call.do("mul", 0.5, x), call.do("add", 1.0, call.do("tanh", inner)))
    erf = call.do("erf", call.do("mul", x, math.sqrt(0.5)))
    return call.do("mul", call.do("mul", x, 0.5), call.do("add", 1.0, erf))


def _silu(call: Call) -> Value:
    x = call.tensor()
    return call.do("div", x, call.do("add", 1.0, call.do("exp", call.do("neg", x))))


def _softplus(call: Call) -> Value:
    x = call.tensor()
    beta = call.number(1, "beta", 1)
    scaled = x if beta == 1 else call.do("mul", x, beta)
    soft = call.do("log1p", call.do("exp", scaled))
    soft = soft if beta == 1 else call.do("div", soft, beta)
    return call.do("where", call.do("gt", scaled, call.number(2, "threshold", 20), dtype="bool"), x, soft)


def _mish(call: Call) -> Value:
    x = call.tensor()
    return call.do("mul", x, call.do("tanh", call.do("log1p", call.do("exp", x))))


def _log_sigmoid(call: Call) -> Value:
    x = call.tensor()
    return call.do("sub", call.do("minimum", x, 0.0), call.do("log1p", call.do("exp", call.do("neg", call.do("abs", x)))))


def _exponential_unit(call: Call, alpha: Number, scale: Number, input_scale: Number) -> Value:
    x = call.tensor()
    inner = x if input_scale == 1 else call.do("mul", x, input_scale)
    below = call.do("mul", call.do("expm1", inner), alpha * scale)
    above = x if scale == 1 else call.do("mul", x, scale)
    return call.do("where", call.do("gt", x, 0, dtype="bool"), above, below)


def _elu(call: Call) -> Value:
    return _exponential_unit(call, call.number(1, "alpha", 1), call.number(2, "scale", 1), call.number(3, "input_scale", 1))


def _celu(call: Call) -> Value:
    alpha = call.number(1, "alpha", 1.0)
    return _exponential_unit(call, alpha, 1, 1.0 / alpha)


def _selu(call: Call) -> Value:
    return _exponential_unit(call, 1.6732632423543772, 1.0507009873554805, 1)


def _leaky_relu(call: Call) -> Value:
    x = call.tensor()
    slope = call.number(1, "negative_slope", 0.01)
    return call.do("where", call.do("gt", x, 0, dtype="bool"), x, call.do("mul", x, slope))


def _prelu(call: Call) -> Value:
    x, weight = call.tensor(), call.tensor(1, "weight")
    if len(x.shape) > 1 and weight.shape and weight.shape[0] > 1:
        weight = call.nest.reshape(weight, (weight.shape[0], *(1,) * (len(x.shape) - 2)))
    return call.do("where", call.do("gt", x, 0, dtype="bool"), x, call.do("mul", weight, x))


def _hard_gate(call: Call, x: Value) -> Value:
    return call.do("div", clamped(call, call.do("add", x, 3.0), 0.0, 6.0), 6.0)


def _hardswish(call: Call) -> Value:
    x = call.tensor()
    gate = clamped(call, call.do("add", x, 3.0), 0.0, 6.0)
    return call.do("div", call.do("mul", x, gate), 6.0)


def _threshold(call: Call) -> Value:
    x = call.tensor()
    return call.do("where", call.do("le", x, call.number(1, "threshold"), dtype="bool"), call.number(2, "value"), x)


def _shrink(hard: bool) -> Rule:
    def rule(call: Call) -> Value:
        x, limit = call.tensor(), call.number(1, "lambd", 0.5)
        above, below = call.do("gt", x, limit, dtype="bool"), call.do("lt", x, -limit, dtype="bool")
        if hard:
            return call.do("where", call.do("or", above, below, dtype="bool"), x, 0)
        low = call.do("where", below, call.do("add", x, limit), 0)
        return call.do("where", above, call.do("sub", x, limit), low)

    return rule


def _glu(call: Call) -> Value:
    leaf = call.leaf(0, "self")
    dim = call.get(1, "dim", -1) % len(leaf.shape)
    half = leaf.shape[dim] // 2
    shape = (*leaf.shape[:dim], half, *leaf.shape[dim + 1 :])
    first = type(leaf)(leaf.key, leaf.dtype, shape, leaf.strides, leaf.offset)
    second = type(leaf)(leaf.key, leaf.dtype, shape, leaf.strides, leaf.offset + half * leaf.strides[dim])
    return call.do("mul", call.nest.load(first), call.do("sigmoid", call.nest.load(second)))


def _add_product(fn: Fn) -> Rule:
    def rule(call: Call) -> Value:
        product = call.do(fn, call.tensor(1, "tensor1"), call.tensor(2, "tensor2"))
        value = call.number(3, "value", 1)
        return call.do("add", call.tensor(), product if value == 1 else call.do("mul", value, product))

    return rule


def _lerp(call: Call) -> Value:
    start, end, weight = call.tensor(), call.tensor(1, "end"), call.operand(2, "weight")
    span = call.do("sub", end, start)
    near = call.do("add", start, call.do("mul", weight, span))
    far = call.do("sub", end, call.do("mul", span, call.do("sub", 1.0, weight)))
    if not isinstance(weight, Value):
        return near if abs(weight) < 0.5 else far
    return call.do("where", call.do("lt", call.do("abs", weight), 0.5, dtype="bool"), near, far)


def _scaled_log(scale: float) -> Rule:
    return lambda call: call.do("mul", call.do("log", call.tensor()), scale)


def _round(call: Call) -> Value:
    if call.get(1, "decimals", 0):
        raise CannotLower("rounding to decimals")
    return call.do("round", call.tensor())


def _same_integers(rule: Rule) -> Rule:
    """Rounding leaves integers as they are."""
    return lambda call: call.tensor() if kind_of(call.dtype) == "int64" else rule(call)


def _isinf(call: Call) -> Value:
    x = call.tensor()
    return call.do("eq", call.do("abs", x, dtype=x.dtype), math.inf, dtype="bool")


def _isfinite(call: Call) -> Value:
    x = call.tensor()
    return call.do("lt", call.do("abs", x, dtype=x.dtype), math.inf, dtype="bool")


def _convert(call: Call) -> Value:
    return call.nest.cast(call.tensor(), call.dtype)


def _dropout(call: Call) -> Value:
    if call.get(2, "train", True) and call.get(1, "p", 0.5) != 0:
        raise CannotLower("dropout in training draws random numbers")
    return call.tensor()


def _copy_into(call: Call) -> Value:
    source = call.operand(1, "src")
    value = source if isinstance(source, Value) else call.nest.constant(source, call.dtype)
    return call.nest.expand(call.nest.cast(value, call.dtype), call.out.shape)


def _min_max(fn: Fn) -> Callable[[Call], Value]:
    return lambda call: call.do(fn, call.tensor(), call.tensor(1, "other"))


RULES: dict[str, Rule] = {
    **{name: unary(name) for name in (
        "neg", "abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal", "tanh", "erf", "sin", "cos",
        "sign", "sigmoid",
    )},
    **{name: _same_integers(unary(name)) for name in ("floor", "ceil", "trunc")},
    "negative": unary("neg"), "absolute": unary("abs"), "sgn": unary("sign"), "fix": _same_integers(unary("trunc")),
    "special_erf": unary("erf"), "special_expm1": unary("expm1"), "special_expit": unary("sigmoid"),
    "round": _same_integers(_round), "log2": _scaled_log(1.0 / math.log(2.0)), "log10": _scaled_log(1.0 / math.log(10.0)),
    "exp2": lambda call: call.do("exp", call.do("mul", call.tensor(), math.log(2.0))),
    "tan": lambda call: call.do("div", call.do("sin", call.tensor()), call.do("cos", call.tensor())),
    "square": lambda call: power(call, call.tensor(), 2),
    "frac": lambda call: call.do("sub", call.tensor(), call.do("trunc", call.tensor())),
    "add": _arithmetic("add"), "sub": _arithmetic("sub"), "subtract": _arithmetic("sub"),
    "rsub": _arithmetic("sub", swapped=True),
    "mul": _arithmetic("mul"), "multiply": _arithmetic("mul"), "__and__": _bitwise("and"), "__or__": _bitwise("or"),
    "div": _div, "true_divide": _div, "divide": _div, "floor_divide": _floor_divide, "remainder": _remainder, "fmod": _fmod,
    **{name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "less": _compare("lt"), "greater": _compare("gt"), "less_equal": _compare("le"), "greater_equal": _compare("ge"),
    "not_equal": _compare("ne"),
    "logical_and": _logical("and"), "logical_or": _logical("or"),
    "logical_not": lambda call: call.do("not", call.tensor(), dtype="bool"),
    "bitwise_and": _bitwise("and"), "bitwise_or": _bitwise("or"), "bitwise_xor": _bitwise("ne"), "bitwise_not": _not,
    "logical_xor": lambda call: call.do(
        "ne", call.nest.cast(call.tensor(), "bool"), call.nest.cast(call.tensor(1, "other"), "bool"), dtype="bool"
    ),
    "where": _where, "masked_fill": _masked_fill, "clamp": _clamp, "clip": _clamp,
    "clamp_min": lambda call: clamped(call, call.tensor(), call.operand(1, "min"), None),
    "clamp_max": lambda call: clamped(call, call.tensor(), None, call.operand(1, "max")),
    "maximum": _min_max("maximum"), "minimum": _min_max("minimum"),
    "pow": _pow, "addcmul": _add_product("mul"), "addcdiv": _add_product("div"), "lerp": _lerp,
    "isnan": lambda call: call.do("ne", call.tensor(), call.tensor(), dtype="bool"), "isinf": _isinf, "isfinite": _isfinite,
    "relu": lambda call: clamped(call, call.tensor(), 0, None), "relu6": lambda call: clamped(call, call.tensor(), 0, 6),
    "hardtanh": lambda call: clamped(call, call.tensor(), call.number(1, "min_val", -1.0), call.number(2, "max_val", 1.0)),
    "gelu": _gelu, "silu": _silu, "softplus": _softplus, "mish": _mish, "log_sigmoid": _log_sigmoid,
    "elu": _elu, "celu": _celu, "selu": _selu, "leaky_relu": _leaky_relu, "prelu": _prelu,
    "hardswish": _hardswish, "hardsigmoid": lambda call: _hard_gate(call, call.tensor()), "threshold": _threshold,
    "hardshrink": _shrink(True), "softshrink": _shrink(False), "glu": _glu,
    "to": _convert, "_to_copy": _convert, "type_as": _convert, "clone": _convert, "contiguous": _convert,
    "lift_fresh_copy": _convert,
    "alias_copy": _convert, "detach_copy": _convert, "dropout": _dropout, "copy": _copy_into, "float": _convert,
    "half": _convert,
    "double": _convert,
}  # fmt: skip
