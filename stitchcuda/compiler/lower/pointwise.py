"""Lowers operators that work element by element: arithmetic, comparisons, selections, conversions.

Formulas are those of torch's own kernels (aten/src/ATen/native/cuda/Binary*.cu and Unary*.cu), so that a program's rounding
error is that of eager. Half types compute in fp32 throughout. Whole exponents up to `LARGEST_INTEGER_POWER` become products.

Where to look next: `compiler/lower/call.py` (what a rule is given), `compiler/lower/activations.py`,
`compiler/lower/reductions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stitchcuda.compiler.lower.call import OperatorCall, Rule
from stitchcuda.compiler.lower.dtypes import round_to_dtype
from stitchcuda.compiler.lower.ir import Fn
from stitchcuda.compiler.lower.nest import CannotLower, Number, Value, kind_of

LARGEST_INTEGER_POWER = 8


def unary(fn: Fn) -> Rule:
    """Returns the rule of an operator that is the function `fn` of its only tensor."""
    return lambda call: call.do(fn, call.tensor())


def _arithmetic(fn: Fn, *, swapped: bool = False) -> Rule:
    def rule(call: OperatorCall) -> Value:
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


def _scaled(call: OperatorCall, operand: Value | Number, alpha: Number) -> Value | Number:
    return call.do("mul", operand, alpha) if isinstance(operand, Value) else operand * alpha


def _truncated(call: OperatorCall, left: Value | Number, right: Value | Number) -> Value:
    """Division rounded towards zero."""
    quotient = call.do("div", left, right)
    return quotient if kind_of(call.dtype) == "int64" else call.do("trunc", quotient)


def _floored(call: OperatorCall, left: Value | Number, right: Value | Number) -> Value:
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


def _negative(call: OperatorCall, operand: Value | Number) -> Value | Number:
    return call.do("lt", operand, 0, dtype="bool") if isinstance(operand, Value) else operand < 0


def _div(call: OperatorCall) -> Value:
    left, right = call.operand(0, "self"), call.operand(1, "other")
    mode = call.get(2, "rounding_mode")
    if mode is None:
        return call.do("div", left, right)
    return _floored(call, left, right) if mode == "floor" else _truncated(call, left, right)


def _floor_divide(call: OperatorCall) -> Value:
    return _floored(call, call.operand(0, "self"), call.operand(1, "other"))


def _remainder(call: OperatorCall) -> Value:
    left, right = call.operand(0, "self"), call.operand(1, "other")
    if kind_of(call.dtype) == "int64":
        return call.do("sub", left, call.do("mul", _floored(call, left, right), right))
    rest = call.do("fmod", left, right)
    apart = call.do("ne", call.do("lt", rest, 0, dtype="bool"), _negative(call, right), dtype="bool")
    inexact = call.do("and", call.do("ne", rest, 0, dtype="bool"), apart, dtype="bool")
    return call.do("where", inexact, call.do("add", rest, right), rest)


def _fmod(call: OperatorCall) -> Value:
    left, right = call.operand(0, "self"), call.operand(1, "other")
    if kind_of(call.dtype) == "int64":
        return call.do("sub", left, call.do("mul", call.do("div", left, right), right))
    return call.do("fmod", left, right)


def _compare(fn: Fn) -> Rule:
    def rule(call: OperatorCall) -> Value:
        left, right = call.tensor(), call.operand(1, "other")
        if isinstance(right, float):
            right = round_to_dtype(right, left.dtype)
        return call.do(fn, left, right, dtype="bool")

    return rule


def _logical(fn: Fn) -> Rule:
    return lambda call: call.do(fn, call.tensor(), call.operand(1, "other"), dtype="bool")


def _bitwise(fn: Fn) -> Rule:
    def rule(call: OperatorCall) -> Value:
        if call.dtype != "bool":
            raise CannotLower("bitwise operations on integers")
        return call.do(fn, call.tensor(), call.operand(1, "other"))

    return rule


def _not(call: OperatorCall) -> Value:
    if call.dtype != "bool":
        raise CannotLower("bitwise operations on integers")
    return call.do("not", call.tensor(), dtype="bool")


def _where(call: OperatorCall) -> Value:
    return call.do("where", call.tensor(0, "condition"), call.operand(1, "self"), call.operand(2, "other"))


def _masked_fill(call: OperatorCall) -> Value:
    return call.do("where", call.tensor(1, "mask"), call.operand(2, "value"), call.tensor())


def clamp(call: OperatorCall, value: Value, low: Value | Number | None, high: Value | Number | None) -> Value:
    """Adds the steps that limit `value` to low..high; None is no limit. NaN stays NaN."""
    if low is not None:
        value = call.do("maximum", value, low)
    return value if high is None else call.do("minimum", value, high)


def _clamp(call: OperatorCall) -> Value:
    low = None if call.get(1, "min") is None else call.operand(1, "min")
    high = None if call.get(2, "max") is None else call.operand(2, "max")
    return clamp(call, call.tensor(), low, high)


def power(call: OperatorCall, base: Value, exponent: Number) -> Value:
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


def _pow(call: OperatorCall) -> Value:
    if not call.is_tensor(1, "exponent"):
        return power(call, call.tensor(), call.number(1, "exponent"))
    if kind_of(call.dtype) == "int64":
        raise CannotLower("powers of integers by a tensor")
    return call.do("pow", call.operand(0, "self"), call.tensor(1, "exponent"))


def _add_product(fn: Fn) -> Rule:
    def rule(call: OperatorCall) -> Value:
        product = call.do(fn, call.tensor(1, "tensor1"), call.tensor(2, "tensor2"))
        value = call.number(3, "value", 1)
        return call.do("add", call.tensor(), product if value == 1 else call.do("mul", value, product))

    return rule


def _lerp(call: OperatorCall) -> Value:
    start, end, weight = call.tensor(), call.tensor(1, "end"), call.operand(2, "weight")
    span = call.do("sub", end, start)
    near = call.do("add", start, call.do("mul", weight, span))
    far = call.do("sub", end, call.do("mul", span, call.do("sub", 1.0, weight)))
    if not isinstance(weight, Value):
        return near if abs(weight) < 0.5 else far
    return call.do("where", call.do("lt", call.do("abs", weight), 0.5, dtype="bool"), near, far)


def _round(call: OperatorCall) -> Value:
    if call.get(1, "decimals", 0):
        raise CannotLower("rounding to decimals")
    return call.do("round", call.tensor())


def _same_integers(rule: Rule) -> Rule:
    """Rounding leaves integers as they are."""
    return lambda call: call.tensor() if kind_of(call.dtype) == "int64" else rule(call)


def _isinf(call: OperatorCall) -> Value:
    x = call.tensor()
    return call.do("eq", call.do("abs", x, dtype=x.dtype), math.inf, dtype="bool")


def _isfinite(call: OperatorCall) -> Value:
    x = call.tensor()
    return call.do("lt", call.do("abs", x, dtype=x.dtype), math.inf, dtype="bool")


def _convert(call: OperatorCall) -> Value:
    return call.nest.cast(call.tensor(), call.dtype)


def _dropout(call: OperatorCall) -> Value:
    if call.get(2, "train", True) and call.get(1, "p", 0.5) != 0:
        raise CannotLower("dropout in training draws random numbers")
    return call.tensor()


def _copy_into(call: OperatorCall) -> Value:
    source = call.operand(1, "src")
    value = source if isinstance(source, Value) else call.nest.constant(source, call.dtype)
    return call.nest.expand(call.nest.cast(value, call.dtype), call.out.shape)


def _min_max(fn: Fn) -> Callable[[OperatorCall], Value]:
    return lambda call: call.do(fn, call.tensor(), call.tensor(1, "other"))


RULES: dict[str, Rule] = {
    **{name: unary(name) for name in (
        "neg", "abs", "exp", "exp2", "log", "log2", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal", "tanh", "erf", "sin",
        "cos", "sign", "sigmoid",
    )},
    **{name: _same_integers(unary(name)) for name in ("floor", "ceil", "trunc")},
    "negative": unary("neg"), "absolute": unary("abs"), "sgn": unary("sign"), "fix": _same_integers(unary("trunc")),
    "special_erf": unary("erf"), "special_expm1": unary("expm1"), "special_expit": unary("sigmoid"),
    "round": _same_integers(_round),
    "log10": lambda call: call.do("mul", call.do("log", call.tensor()), 1.0 / math.log(10.0)),
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
    "clamp_min": lambda call: clamp(call, call.tensor(), call.operand(1, "min"), None),
    "clamp_max": lambda call: clamp(call, call.tensor(), None, call.operand(1, "max")),
    "maximum": _min_max("maximum"), "minimum": _min_max("minimum"),
    "pow": _pow, "addcmul": _add_product("mul"), "addcdiv": _add_product("div"), "lerp": _lerp,
    "isnan": lambda call: call.do("ne", call.tensor(), call.tensor(), dtype="bool"), "isinf": _isinf, "isfinite": _isfinite,
    **dict.fromkeys(("to", "_to_copy", "type_as", "clone", "contiguous", "lift_fresh_copy", "alias_copy"), _convert),
    **dict.fromkeys(("float", "half", "double", "detach_copy"), _convert), "dropout": _dropout, "copy": _copy_into,
}  # fmt: skip
