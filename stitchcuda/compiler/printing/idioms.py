"""Writes an operator as Python: `F.linear(x, w, b)`, `x.view(8, 64)`, `a + b`, and `torch.ops.aten…` for the rest.

Each form calls exactly the operator that was captured, with the same arguments, so a program without kernels equals eager
bit by bit. The tables below are the positional arguments of torch's operator schemas; no torch is needed.

Where to look next: `compiler/printing/forward_body.py` (the statements), `compiler/printing/variables.py` (the names).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from stitchcuda.compiler.capture.dependencies import base_name
from stitchcuda.compiler.capture.op_graph import Arg, Literal_, Node, ValueRef
from stitchcuda.state import TensorSpec

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==",
    "ne": "!=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "__and__": "&", "__or__": "|", "matmul": "@",
}  # fmt: skip
_UNARY = {"neg": "-", "bitwise_not": "~"}

_SPREAD = frozenset({"view", "reshape", "permute", "expand", "repeat"})
"""Methods that take their list of sizes as separate arguments."""

# Positional arguments after the tensor itself, by schema; a name is written as a keyword, "" stays positional.
_METHODS: dict[str, tuple[str, ...]] = {
    "transpose": ("", ""), "flatten": ("", ""), "unflatten": ("", ""), "squeeze": ("",), "unsqueeze": ("",), "contiguous": (),
    "t": (), "clone": (), "chunk": ("", "dim"), "split": ("", "dim"), "unbind": ("dim",), "expand_as": ("",), "view_as": ("",),
    "type_as": ("",), "movedim": ("", ""), "masked_fill": ("", ""), "mean": ("dim", "keepdim"), "sum": ("dim", "keepdim"),
    "amax": ("dim", "keepdim"), "amin": ("dim", "keepdim"), "argmax": ("dim", "keepdim"), "argmin": ("dim", "keepdim"),
    "any": ("dim", "keepdim"), "all": ("dim", "keepdim"), "prod": ("dim", "keepdim"), "cumsum": ("dim",), "cumprod": ("dim",),
    "tril": ("",), "triu": ("",), "gather": ("", ""), "index_select": ("", ""), "topk": ("", "dim", "largest", "sorted"),
    "flip": ("",), "clamp": ("min", "max"), "diagonal": ("", "", ""), "unfold": ("", "", ""), "roll": ("", ""),
}  # fmt: skip
_REDUCTIONS_BY_DIM = frozenset({"dim", "dim_IntList", "dim_int", "default", "int"})
_IN_PLACE = frozenset({
    "add_", "sub_", "mul_", "div_", "pow_", "relu_", "sigmoid_", "tanh_", "exp_", "neg_", "sqrt_", "abs_", "clamp_",
    "clamp_min_", "clamp_max_", "copy_", "fill_", "zero_", "masked_fill_", "index_add_", "index_copy_", "scatter_",
    "scatter_add_", "cumsum_", "tril_", "triu_", "squeeze_", "unsqueeze_",
})  # fmt: skip
_TORCH = frozenset({
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "erf",
    "abs", "sign", "floor", "ceil", "round", "reciprocal", "square", "logical_and", "logical_or", "logical_not",
    "maximum", "minimum", "bmm", "mm", "addmm", "baddbmm", "isnan", "isinf", "isfinite", "atan2", "fmod", "zeros_like",
    "ones_like", "outer", "dot", "mv",
})  # fmt: skip
_TORCH_NAMED: dict[str, tuple[str, ...]] = {
    "cat": ("", "dim"), "stack": ("", "dim"), "softmax": ("", "dim", "dtype"), "log_softmax": ("", "dim", "dtype"),
    "logsumexp": ("", "dim", "keepdim"), "full_like": ("", ""),
}  # fmt: skip
_FUNCTIONAL: dict[str, tuple[str, ...]] = {
    "linear": ("", "", ""), "relu": ("",), "relu6": ("",), "silu": ("",), "mish": ("",), "hardswish": ("",),
    "hardsigmoid": ("",),
    "selu": ("",), "softplus": ("", "beta", "threshold"), "leaky_relu": ("", "negative_slope"), "elu": ("", "alpha"),
    "hardtanh": ("", "", ""), "gelu": ("",), "rms_norm": ("", "", "", "eps"), "pad": ("", "", "mode", "value"),
    "conv1d": ("", "", "", "stride", "padding", "dilation", "groups"),
    "conv2d": ("", "", "", "stride", "padding", "dilation", "groups"),
    "conv3d": ("", "", "", "stride", "padding", "dilation", "groups"),
    "conv_transpose1d": ("", "", "", "stride", "padding", "output_padding", "groups", "dilation"),
    "conv_transpose2d": ("", "", "", "stride", "padding", "output_padding", "groups", "dilation"),
    "conv_transpose3d": ("", "", "", "stride", "padding", "output_padding", "groups", "dilation"),
    "max_pool1d": ("", "", "stride", "padding", "dilation", "ceil_mode"),
    "max_pool2d": ("", "", "stride", "padding", "dilation", "ceil_mode"),
    "max_pool3d": ("", "", "stride", "padding", "dilation", "ceil_mode"),
    "avg_pool1d": ("", "", "stride", "padding", "ceil_mode", "count_include_pad"),
    "avg_pool2d": ("", "", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "avg_pool3d": ("", "", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "adaptive_avg_pool1d": ("", ""), "adaptive_avg_pool2d": ("", ""), "adaptive_avg_pool3d": ("", ""), "one_hot": ("", ""),
    "scaled_dot_product_attention": ("", "", "", "attn_mask", "dropout_p", "is_causal"), "pixel_shuffle": ("", ""),
}  # fmt: skip
_DEFAULTS: dict[str, Arg] = {
    "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "ceil_mode": False, "keepdim": False, "dtype": None,
    "largest": True, "sorted": True, "divisor_override": None, "count_include_pad": True, "groups": 1, "padding": 0,
    "dilation": 1, "output_padding": 0,
}  # fmt: skip
"""Keyword arguments that are left out at these values, which are torch's defaults wherever the tables above name them."""
_LAST_DROPPED = {"layer_norm": 5, "group_norm": 5, "batch_norm": 8, "instance_norm": 8}
"""Operators whose last argument only says whether cuDNN was on when captured; the functional form asks torch again."""
_FACTORIES = frozenset(
    {"zeros", "ones", "full", "empty", "arange", "linspace", "eye", "scalar_tensor", "tril_indices", "triu_indices"}
)

Format = Callable[[Arg], str]
Specs = Mapping[str, TensorSpec]


def literal(arg: Arg, name: Callable[[str], str]) -> str:
    """Returns an argument as Python text. `name` gives a value's expression; every device becomes the variable `device`."""
    if isinstance(arg, ValueRef):
        return name(arg.value)
    if isinstance(arg, Literal_):
        return "device" if arg.kind == "device" else f"torch.{arg.text}"
    if isinstance(arg, tuple):
        parts = [literal(part, name) for part in arg]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(arg, float) and (arg != arg or arg in (float("inf"), float("-inf"))):
        return f'float("{arg}")'
    return quote(arg) if isinstance(arg, str) else repr(arg)


def quote(text: str) -> str:
    """Returns a string as Python text in double quotes, whatever is in it."""
    return json.dumps(text)


def indent(lines: Iterable[str]) -> list[str]:
    """Returns the lines indented by four spaces; empty ones stay empty."""
    return [f"    {line}" if line else "" for line in lines]


def expression(node: Node, text: Format, specs: Specs) -> str:
    """The call of one operator as a Python expression."""
    base, overload = base_name(node.op), node.op.split(".")[-1]
    args, kwargs = node.args, dict(node.kwargs)
    if not node.op.startswith("aten."):
        return _fallback(node, text)
    if base in _FACTORIES:
        return _factory(node, text)
    if base in _BINARY and len(args) == 2 and not kwargs and base_is_plain(base, overload):
        left = text(args[0])
        return f"{f'({left})' if left.startswith('-') else left} {_BINARY[base]} {text(args[1])}"
    if base == "rsub" and overload == "Scalar" and len(args) == 2 and not kwargs:
        return f"{text(args[1])} - {text(args[0])}"
    if base in _UNARY and len(args) == 1:
        return f"{_UNARY[base]}{text(args[0])}"
    indexed = _indexing(node, text, specs)
    if indexed:
        return indexed
    special = _SPECIAL.get(base)
    if special is not None:
        written = special(node, text)
        if written:
            return written
    if base in _SPREAD and len(args) == 2 and not kwargs and isinstance(args[1], tuple) and args[1]:
        return f"{text(args[0])}.{base}({', '.join(text(part) for part in args[1])})"
    known = base in _METHODS and (_METHODS[base] != ("dim", "keepdim") or overload in _REDUCTIONS_BY_DIM)
    if known and args and isinstance(args[0], ValueRef) and len(args) - 1 <= len(_METHODS[base]):
        return f"{text(args[0])}.{base}({_argument_list(args[1:], kwargs, _METHODS[base], text)})"
    if base in _IN_PLACE and isinstance(args[0], ValueRef):
        return f"{text(args[0])}.{base}({_argument_list(args[1:], kwargs, (), text)})"
    if base in _TORCH:
        return f"torch.{base}({_argument_list(args, _memory(kwargs), (), text)})"
    for table, module in ((_TORCH_NAMED, "torch"), (_FUNCTIONAL, "F")):
        if base in table and len(args) <= len(table[base]):
            return f"{module}.{base}({_argument_list(args, kwargs, table[base], text)})"
    return _fallback(node, text)


def base_is_plain(base: str, overload: str) -> bool:
    """Whether Python's operator calls this overload. It does not for `div.Tensor_mode`, for example, which rounds."""
    return overload in ("Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar") or (base == "matmul" and overload == "default")


def _fallback(node: Node, text: Format) -> str:
    return f"torch.ops.{node.op}({_argument_list(node.args, dict(node.kwargs), (), text)})"


def _argument_list(args: tuple[Arg, ...], kwargs: dict[str, Arg], names: tuple[str, ...], text: Format) -> str:
    parts = []
    for position, arg in enumerate(args):
        name = names[position] if position < len(names) else ""
        if name in _DEFAULTS and _plain(arg) == _DEFAULTS[name]:
            continue
        if name == "dim" and isinstance(arg, tuple) and len(arg) == 1:
            arg = arg[0]
        parts.append(f"{name}={text(arg)}" if name else text(arg))
    parts += [f"{key}={text(arg)}" for key, arg in kwargs.items()]
    return ", ".join(parts)


def _plain(arg: Arg) -> Arg:
    """Returns the number for a tuple of equal numbers: `padding=(0, 0)` is the default as much as `padding=0`."""
    return arg[0] if isinstance(arg, tuple) and len(set(map(repr, arg))) == 1 else arg


def _memory(kwargs: dict[str, Arg]) -> dict[str, Arg]:
    """Returns the arguments without a layout or pin_memory that are torch's defaults."""
    silent = {"pin_memory": (None, False), "layout": (None, Literal_(kind="layout", text="strided"))}
    return {key: arg for key, arg in kwargs.items() if key not in silent or arg not in silent[key]}


def _factory(node: Node, text: Format) -> str:
    kwargs = _memory(dict(node.kwargs))
    base = base_name(node.op)
    integers = base == "arange" and all(isinstance(arg, int) for arg in node.args)
    if kwargs.get("dtype") is None and not (integers and node.outputs[0].dtype == "int64"):
        kwargs["dtype"] = Literal_(kind="dtype", text=node.outputs[0].dtype)
    kwargs["device"] = Literal_(kind="device", text="")
    kwargs = {key: arg for key, arg in kwargs.items() if arg is not None}
    return f"torch.{base}({_argument_list(node.args, kwargs, (), text)})"


def _indexing(node: Node, text: Format, specs: Specs) -> str:
    """Writes slices, selections and index tensors as `x[:, 1:3]` and `x[0]`; "" for what does not fit."""
    base, args = base_name(node.op), node.args
    if base == "index" and isinstance(args[1], tuple):
        return f"{text(args[0])}[{', '.join(':' if arg is None else text(arg) for arg in args[1])}]"
    if base not in ("slice", "select") or not isinstance(args[0], ValueRef):
        return ""
    rank = len(specs[args[0].value].shape)
    dim = args[1] if len(args) > 1 else 0
    if not isinstance(dim, int) or not all(arg is None or isinstance(arg, int) for arg in args[2:]):
        return ""
    leading = ":, " * (dim % rank)
    if base == "select":
        return f"{text(args[0])}[{leading}{args[2]}]"
    limits: list[Arg] = [*args[2:], *[None, None, 1][len(args) - 2 :]]
    start, end, step = limits
    last = "" if end is None or (isinstance(end, int) and end >= 2**62) else str(end)
    return f"{text(args[0])}[{leading}{start or ''}:{last}{'' if step == 1 else f':{step}'}]"


def _embedding(node: Node, text: Format) -> str:
    weight, index, *rest = node.args
    padding = f", padding_idx={text(rest[0])}" if rest and rest[0] != -1 else ""
    if any(rest[1:]) or node.kwargs:
        return ""
    return f"F.embedding({text(index)}, {text(weight)}{padding})"


def _normalised(node: Node, text: Format) -> str:
    """Writes normalisations as functions of `torch.nn.functional`, with keyword arguments."""
    base, args = base_name(node.op), node.args[: _LAST_DROPPED[base_name(node.op)]]
    if node.kwargs:
        return ""
    if base == "batch_norm":
        data, weight, bias, mean, variance, training, momentum, eps = (text(arg) for arg in args)
        statistics = f"training={training}, momentum={momentum}, eps={eps}"
        return f"F.batch_norm({data}, {mean}, {variance}, {weight}, {bias}, {statistics})"
    if base == "instance_norm":
        data, weight, bias, mean, variance, training, momentum, eps = (text(arg) for arg in args)
        statistics = f"use_input_stats={training}, momentum={momentum}, eps={eps}"
        return f"F.instance_norm({data}, {mean}, {variance}, {weight}, {bias}, {statistics})"
    return f"F.{base}({_argument_list(args, {}, ('', '', '', '', 'eps'), text)})"


def _to(node: Node, text: Format) -> str:
    kwargs: dict[str, Arg] = {key: arg for key, arg in _memory(dict(node.kwargs)).items() if arg is not None}
    args = node.args
    while len(args) > 2 and args[-1] in (False, None):
        args = args[:-1]
    if len(args) > 2 or any(key not in ("dtype", "device", "copy", "memory_format") for key in kwargs):
        return ""
    return f"{text(args[0])}.to({_argument_list(args[1:], kwargs, (), text)})"


def _einsum(node: Node, text: Format) -> str:
    operands = node.args[1]
    if node.kwargs or len(node.args) != 2 or not isinstance(operands, tuple):
        return ""
    return f"torch.einsum({text(node.args[0])}, {', '.join(text(part) for part in operands)})"


def _where(node: Node, text: Format) -> str:
    return f"torch.where({_argument_list(node.args, {}, (), text)})" if len(node.args) == 3 else ""


def _wide_product(node: Node, text: Format) -> str:
    """A product of 16-bit matrices whose results have another dtype; "" for others."""
    if not node.op.endswith(".dtype"):
        return ""
    left, right, dtype = map(text, node.args)
    return f"torch.{base_name(node.op)}({left}, {right}, out_dtype={dtype})"


_SPECIAL: dict[str, Callable[[Node, Format], str]] = {
    "embedding": _embedding, "layer_norm": _normalised, "group_norm": _normalised, "batch_norm": _normalised,
    "instance_norm": _normalised, "to": _to,
    "einsum": _einsum, "where": _where, "mm": _wide_product, "bmm": _wide_product,
}  # fmt: skip
