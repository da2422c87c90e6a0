"""Writes C++ expressions for the steps of a kernel: types, literals, conversions, and torch's meaning of each function.

No fast-math: every function keeps the accuracy of CUDA's default library. It never decides where a value lives or which loop
it is computed in.

Where to look next: `compiler/codegen/points.py` (statements around the expressions), `compiler/codegen/device_functions.py`
(functions that C++ lacks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from stitchcuda.compiler.lower.ir import Step

Operand = str | float | int | bool

STORAGE: dict[str, str] = {
    "float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16", "int64": "long long",
    "int32": "int", "int16": "short", "int8": "signed char", "uint8": "unsigned char", "bool": "unsigned char",
}  # fmt: skip
"""C++ type of one element in memory, by torch's name. Other element types cannot be generated."""

COMPUTE: dict[str, str] = {"float32": "float", "float64": "double", "int64": "long long", "bool": "bool"}
"""C++ type that a step's value has in registers."""

REDUCTIONS = frozenset(("sum", "max", "min", "prod", "any", "all"))
COSTLY = frozenset((
    "exp", "exp2", "log", "log2", "log1p", "expm1", "tanh", "erf", "sin", "cos", "pow", "sigmoid", "div", "fmod", "sqrt",
    "reciprocal",
))  # fmt: skip
"""Functions that are cheaper to keep in a register than to compute twice."""

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_LIBRARY = {
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log1p": "log1p",
    "expm1": "expm1", "sqrt": "sqrt", "tanh": "tanh", "erf": "erf", "sin": "sin",
    "cos": "cos", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "abs": "fabs", "fmod": "fmod",
}  # fmt: skip
_OPERATOR = {"sum": "Sum", "max": "Maximum", "min": "Minimum", "prod": "Product", "any": "Any", "all": "All"}


def compute_kind(dtype: str) -> str:
    """Returns the type that a value of element type `dtype` is computed in: float32, float64, int64 or bool."""
    if dtype in COMPUTE:
        return dtype
    return "float32" if dtype in ("float16", "bfloat16") else "int64"


def cpp_literal(number: float | int | bool, kind: str) -> str:
    """Returns a Python number as a C++ constant of the compute type `kind`."""
    if kind == "bool":
        return "true" if number else "false"
    if kind == "int64":
        whole = int(number)
        return "(-9223372036854775807LL - 1)" if whole == -(2**63) else f"{whole}LL"
    value = float(number)
    if math.isnan(value):
        return "static_cast<double>(NAN)" if kind == "float64" else "NAN"
    if math.isinf(value):
        word = "static_cast<double>(INFINITY)" if kind == "float64" else "INFINITY"
        return word if value > 0 else f"-{word}"
    if kind == "float32" and abs(value) > 3.4028235677973366e38:
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{value!r}f" if kind == "float32" else repr(value)


def convert(text: str, source: str, target: str) -> str:
    """Returns the C++ expression `text`, of compute type `source`, converted to compute type `target`."""
    if source == target:
        return text
    if target == "bool":
        return f"({text} != 0)"
    return f"static_cast<{COMPUTE[target]}>({text})"


def widen(text: str, storage: str, kind: str) -> str:
    """Returns the C++ expression `text`, of element type `storage`, converted to the compute type `kind`."""
    if storage == "float16":
        return convert(f"__half2float({text})", "float32", kind)
    if storage == "bfloat16":
        return convert(f"__bfloat162float({text})", "float32", kind)
    if storage == kind:
        return text
    if kind == "bool":
        return f"({text} != 0)"
    return f"static_cast<{COMPUTE[kind]}>({text})"


def narrow(text: str, kind: str, storage: str) -> str:
    """Returns the C++ expression `text`, of compute type `kind`, rounded to the element type `storage`."""
    if storage in ("float16", "bfloat16"):
        wide = convert(text, kind, "float32")
        return f"__float2half_rn({wide})" if storage == "float16" else f"__float2bfloat16_rn({wide})"
    if storage == kind:
        return text
    if storage == "bool":
        return f"({text} != 0)"
    if storage == "uint8" and kind in ("float32", "float64"):
        return f"static_cast<unsigned char>(static_cast<long long>({text}))"  # a negative float has no defined direct cast
    return f"static_cast<{STORAGE[storage]}>({text})"


def round_and_widen(text: str, source: str, storage: str) -> str:
    """Returns `text`, of compute type `source`, rounded to the element type `storage` and widened again: the `cast` step."""
    if storage in COMPUTE:
        return convert(text, source, storage)
    return widen(narrow(text, source, storage), storage, compute_kind(storage))


def reduction_type(step: Step) -> str:
    """Returns the C++ type of a reduction's accumulator. Booleans accumulate as int, because warp shuffles take no bool."""
    kind = compute_kind(step.dtype)
    return "int" if kind == "bool" else COMPUTE[kind]


def reduction_operator(step: Step) -> str:
    """Returns the name of the functor in `compiler/codegen/device_functions.py` that joins two accumulators."""
    return _OPERATOR[step.fn]


def reduction_identity(step: Step) -> str:
    """Returns the C++ constant that a reduction starts from, and that it gives for no elements."""
    kind = compute_kind(step.dtype)
    if step.fn in ("any", "all"):
        return "0" if step.fn == "any" else "1"
    if kind == "bool":
        return {"sum": "0", "max": "0", "min": "1", "prod": "1"}[step.fn]
    if step.fn == "sum":
        return cpp_literal(0, kind)
    if step.fn == "prod":
        return cpp_literal(1, kind)
    if kind == "int64":
        return cpp_literal(-(2**63) if step.fn == "max" else 2**63 - 1, kind)
    return cpp_literal(-math.inf if step.fn == "max" else math.inf, kind)


def called_functions(step: Step) -> tuple[str, ...]:
    """Returns the names (in `compiler/codegen/device_functions.py`) of the functions that the step's expression calls."""
    if step.fn in ("max", "maximum"):
        return ("maximum",)
    if step.fn in ("min", "minimum"):
        return ("minimum",)
    if step.fn == "pow" and compute_kind(step.dtype) == "int64":
        return ("integer_power",)
    return ()


def _common_kind(step: Step, kinds: Mapping[str, str]) -> str:
    """Returns the compute type to which both operands of a comparison are converted."""
    order = ("bool", "int64", "float32", "float64")
    ranks = []
    for arg in step.args:
        if isinstance(arg, str):
            ranks.append(order.index(kinds[arg]))
        else:
            ranks.append(0 if isinstance(arg, bool) else 1 if isinstance(arg, int) else 2)
    return order[max(ranks)]


def expression(step: Step, names: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """Returns the right-hand side of a pointwise step. `names` gives each value's C++ text, `kinds` its compute type."""
    fn, kind = step.fn, compute_kind(step.dtype)

    def operand(arg: Operand, want: str) -> str:
        if isinstance(arg, str):
            return convert(names[arg], kinds[arg], want)
        return cpp_literal(arg, want)

    if fn == "cast":
        (arg,) = step.args
        if isinstance(arg, str):
            return round_and_widen(names[arg], kinds[arg], step.dtype)
        source = "bool" if isinstance(arg, bool) else "int64" if isinstance(arg, int) else "float32"
        return round_and_widen(cpp_literal(arg, source), source, step.dtype)
    if fn in _COMPARE:
        common = _common_kind(step, kinds)
        left, right = (operand(arg, common) for arg in step.args)
        return f"{left} {_COMPARE[fn]} {right}"
    if fn == "where":
        condition, yes, no = step.args
        return f"{operand(condition, 'bool')} ? {operand(yes, kind)} : {operand(no, kind)}"
    if fn == "not":
        return f"!{operand(step.args[0], 'bool')}" if kind == "bool" else f"~{operand(step.args[0], kind)}"
    if fn in ("and", "or"):
        left, right = (operand(arg, kind) for arg in step.args)
        sign = {"and": "&", "or": "|"}[fn] * (2 if kind == "bool" else 1)
        return f"{left} {sign} {right}"
    return _arithmetic(step, [operand(arg, kind) for arg in step.args], kind)


def _arithmetic(step: Step, args: list[str], kind: str) -> str:
    """Returns the expression of a step whose operands and result have the same type."""
    fn = step.fn
    if kind == "bool":
        sign = {"add": "||", "mul": "&&", "maximum": "||", "minimum": "&&", "sub": "!="}.get(fn)
        if sign is None:
            raise ValueError(f"step {step.name}: {fn} has no meaning for booleans")
        return f"{args[0]} {sign} {args[1]}"
    floating = kind in ("float32", "float64")
    suffix = "f" if kind == "float32" else ""
    unit = cpp_literal(1, kind)
    if fn == "reciprocal":
        return f"{unit} / {args[0]}"
    if fn == "sigmoid":
        return f"{unit} / ({unit} + exp{suffix}(-{args[0]}))"
    if fn == "rsqrt":
        return f"rsqrtf({args[0]})" if suffix else f"1.0 / sqrt({args[0]})"
    if fn == "pow":
        return _power(step, args, kind)
    if fn == "fmod" and not floating:
        return f"{args[0]} % {args[1]}"
    if fn == "abs" and not floating:
        return f"{args[0]} < 0 ? -{args[0]} : {args[0]}"
    if fn in ("floor", "ceil", "trunc", "round") and not floating:
        return args[0]
    if fn == "sign":
        zero = cpp_literal(0, kind)
        return f"static_cast<{COMPUTE[kind]}>(({args[0]} > {zero}) - ({args[0]} < {zero}))"
    if fn == "neg":
        return f"-{args[0]}" if not args[0].startswith("-") else f"-({args[0]})"
    if fn in ("maximum", "minimum"):
        return f"{fn}({args[0]}, {args[1]})"
    if fn in _INFIX:
        return f"{args[0]} {_INFIX[fn]} {args[1]}"
    if fn in _LIBRARY and floating:
        return f"{_LIBRARY[fn]}{suffix}({', '.join(args)})"
    raise ValueError(f"step {step.name}: no expression for {fn} of {step.dtype}")


def _power(step: Step, args: list[str], kind: str) -> str:
    """Returns the expression of `pow`; small constant exponents are written out, as torch does."""
    base, exponent = args[0], step.args[1]
    suffix = "f" if kind == "float32" else ""
    if kind == "int64":
        return f"integer_power({base}, {args[1]})"
    if not isinstance(exponent, str):
        written = {
            0.5: f"sqrt{suffix}({base})", 1.0: base, 2.0: f"{base} * {base}", 3.0: f"{base} * {base} * {base}",
            -1.0: f"{cpp_literal(1, kind)} / {base}", -2.0: f"{cpp_literal(1, kind)} / ({base} * {base})",
            -0.5: f"rsqrtf({base})" if suffix else f"1.0 / sqrt({base})",
        }  # fmt: skip
        if float(exponent) in written:
            return written[float(exponent)]
    return f"pow{suffix}({base}, {args[1]})"
