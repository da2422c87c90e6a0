"""Kernels of the kernel language for tests: a small builder, and the usual suspects at many shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from stitchcuda.compiler.lower.dtypes import KINDS, Kind
from stitchcuda.compiler.lower.ir import Argument, Axis, Fn, Kernel, KernelStore, Step


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, below = [], 1
    for size in reversed(shape):
        strides.append(below)
        below *= max(size, 1)
    return tuple(reversed(strides))


Role = Literal["in", "out", "inout"]


class Draft:
    """A kernel being written: every method adds a step and returns the value's name."""

    def __init__(self, name: str, kept: Sequence[int], reduced: Sequence[int] = (), comment: str = "") -> None:
        self.name, self.comment = name, comment
        self.axes = tuple([Axis(n) for n in kept] + [Axis(n, True) for n in reduced])
        self.shape = (*kept, *reduced)
        self.arguments: dict[str, Argument] = {}
        self.steps: list[Step] = []
        self.stores: list[KernelStore] = []

    def argument(
        self, name: str, dtype: str, shape: Sequence[int] | None, strides: Sequence[int] | None, role: Role
    ) -> Argument:
        size = tuple(self.shape if shape is None else shape)
        steps = contiguous(size) if strides is None else tuple(strides)
        made = Argument(name, dtype, size, steps, role, name)
        return self.arguments.setdefault(name, made)

    def load(
        self, name: str, dtype: str = "float32", *, shape: Sequence[int] | None = None, strides: Sequence[int] | None = None,
        along: Sequence[int] | None = None, offset: int = 0, role: Role = "in", kind: Kind | None = None,
    ) -> str:  # fmt: skip
        """`shape` and `strides` are the tensor's; `along` its stride on each axis of the nest (default: the tensor's own)."""
        made = self.argument(name, dtype, shape, strides, role)
        label = f"{name}_{len(self.steps)}"
        self.steps.append(Step(label, "load", (name,), kind or KINDS[dtype], tuple(along or made.strides), offset))
        return label

    def do(self, fn: Fn, *args: str | float | bool, dtype: str = "float32") -> str:
        label = f"{fn}_{len(self.steps)}"
        self.steps.append(Step(label, fn, args, dtype))
        return label

    def store(
        self, name: str, value: str, dtype: str = "float32", *, shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None, along: Sequence[int] | None = None, offset: int = 0, role: Role = "out",
    ) -> None:  # fmt: skip
        made = self.argument(name, dtype, shape, strides, role)
        self.stores.append(KernelStore(name, value, tuple(along or made.strides), offset))

    def store_rows(self, name: str, value: str, dtype: str = "float32", role: Role = "out") -> None:
        """A row value into a contiguous tensor over the kept axes."""
        kept = [axis.size for axis in self.axes if not axis.reduced]
        along = contiguous(kept) + (0,) * (len(self.axes) - len(kept))
        self.store(name, value, dtype, shape=kept, along=along, role=role)

    def kernel(self) -> Kernel:
        return Kernel(self.name, self.axes, tuple(self.arguments.values()), tuple(self.steps), tuple(self.stores), self.comment)


def normalised(draft: Draft, value: str, count: int, epsilon: float = 1e-5) -> tuple[str, str, str]:
    """Steps of a mean, a biased variance, and the normalised value."""
    mean = draft.do("div", draft.do("sum", value), float(count))
    centred = draft.do("sub", value, mean)
    variance = draft.do("div", draft.do("sum", draft.do("mul", centred, centred)), float(count))
    scale = draft.do("rsqrt", draft.do("add", variance, epsilon))
    return mean, variance, draft.do("mul", centred, scale)


def layer_norm(name: str, rows: int, length: int, dtype: str = "float32", residual: bool = True) -> Kernel:
    draft = Draft(name, (rows,), (length,), "residual add and layer norm")
    value = draft.load("x", dtype)
    if residual:
        value = draft.do("add", value, draft.load("residual", dtype))
        draft.store("total", value, dtype)
    _, _, unit = normalised(draft, value, length)
    weight = draft.load("weight", dtype, shape=(length,), along=(0, 1))
    bias = draft.load("bias", dtype, shape=(length,), along=(0, 1))
    draft.store("y", draft.do("add", draft.do("mul", unit, weight), bias), dtype)
    return draft.kernel()


def softmax(name: str, shape: tuple[int, ...], dim: int, dtype: str = "float32", log: bool = False) -> Kernel:
    """Softmax over axis `dim` of a contiguous tensor."""
    kept = [n for axis, n in enumerate(shape) if axis != dim]
    strides = contiguous(shape)
    along = (*(s for axis, s in enumerate(strides) if axis != dim), strides[dim])
    draft = Draft(name, kept, (shape[dim],), "softmax")
    value = draft.load("x", dtype, shape=shape, along=along)
    shifted = draft.do("sub", value, draft.do("max", value))
    power = draft.do("exp", shifted)
    total = draft.do("sum", power)
    result = draft.do("sub", shifted, draft.do("log", total)) if log else draft.do("div", power, total)
    draft.store("y", result, dtype, shape=shape, along=along)
    return draft.kernel()


def batch_norm(name: str, n: int, c: int, hw: int, dtype: str = "float32", last: bool = False) -> Kernel:
    """Training: batch statistics, running statistics updated in place. `last`: channels are the fastest axis."""
    strides = (c * hw, 1, c) if last else (c * hw, hw, 1)
    along = (strides[1], strides[0], strides[2])
    draft = Draft(name, (c,), (n, hw), "batch norm in training, then relu")
    value = draft.load("x", dtype, shape=(n, c, hw), strides=strides, along=along)
    mean, variance, unit = normalised(draft, value, n * hw)
    for label, statistic in (("running_mean", mean), ("running_var", variance)):
        old = draft.load(label, shape=(c,), along=(1, 0, 0), role="inout")
        scale = n * hw / max(n * hw - 1, 1) if label == "running_var" else 1.0
        fresh = draft.do("mul", draft.do("mul", statistic, scale), 0.1)
        draft.store(label, draft.do("add", draft.do("mul", old, 0.9), fresh), shape=(c,), along=(1, 0, 0), role="inout")
    weight = draft.load("weight", shape=(c,), along=(1, 0, 0))
    bias = draft.load("bias", shape=(c,), along=(1, 0, 0))
    result = draft.do("maximum", draft.do("add", draft.do("mul", unit, weight), bias), 0.0)
    draft.store("y", result, dtype, shape=(n, c, hw), strides=strides, along=along)
    return draft.kernel()


def group_norm(name: str, n: int, groups: int, width: int, hw: int, dtype: str = "float32") -> Kernel:
    c = groups * width
    draft = Draft(name, (n, groups), (width, hw), "group norm, then silu")
    value = draft.load("x", dtype, shape=(n, c, hw), along=(c * hw, width * hw, hw, 1))
    _, _, unit = normalised(draft, value, width * hw)
    weight = draft.load("weight", dtype, shape=(c,), along=(0, width, 1, 0))
    bias = draft.load("bias", dtype, shape=(c,), along=(0, width, 1, 0))
    result = draft.do("add", draft.do("mul", unit, weight), bias)
    result = draft.do("mul", result, draft.do("sigmoid", result))
    draft.store("y", result, dtype, shape=(n, c, hw), along=(c * hw, width * hw, hw, 1))
    return draft.kernel()


def total(
    name: str, shape: tuple[int, ...], dims: tuple[int, ...], fn: Fn = "sum", dtype: str = "float32", scale: float = 1.0
) -> Kernel:
    """A reduction of a contiguous tensor over `dims`, times `scale`."""
    strides = contiguous(shape)
    order = [axis for axis in range(len(shape)) if axis not in dims] + list(dims)
    kept = [shape[axis] for axis in order if axis not in dims]
    draft = Draft(name, kept, [shape[axis] for axis in dims], f"{fn} over {dims}")
    value = draft.load("x", dtype, shape=shape, along=[strides[axis] for axis in order])
    kind = "bool" if fn in ("any", "all") else KINDS[dtype]
    result = draft.do(fn, value, dtype=kind)
    if scale != 1.0:
        result = draft.do("mul", result, scale, dtype=kind)
    draft.store_rows("y", result, "bool" if kind == "bool" else dtype)
    return draft.kernel()


def chain(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Kernel:
    """gelu((x + y) * scale + bias), bias along the last axis, scale a single element."""
    draft, kind = Draft(name, shape, comment="scaled add, bias, gelu"), KINDS[dtype]
    zero = (0,) * len(shape)
    value = draft.do("add", draft.load("x", dtype), draft.load("y", dtype), dtype=kind)
    value = draft.do("mul", value, draft.load("scale", "float32", shape=(), along=zero, kind=kind), dtype=kind)
    value = draft.do("add", value, draft.load("bias", dtype, shape=shape[-1:], along=(*zero[:-1], 1)), dtype=kind)
    half = draft.do("mul", value, 0.5, dtype=kind)
    inner = draft.do("erf", draft.do("mul", value, 0.7071067811865476, dtype=kind), dtype=kind)
    draft.store("z", draft.do("mul", half, draft.do("add", inner, 1.0, dtype=kind), dtype=kind), dtype)
    return draft.kernel()


def channel_bias(name: str, n: int, c: int, hw: int, dtype: str = "float32") -> Kernel:
    draft = Draft(name, (n, c, hw), comment="bias per channel, then relu")
    value = draft.do("add", draft.load("x", dtype), draft.load("bias", dtype, shape=(c,), along=(0, 1, 0)))
    draft.store("y", draft.do("maximum", value, 0.0), dtype)
    return draft.kernel()


def transpose(name: str, outer: int, rows: int, columns: int, dtype: str = "float32", to: str | None = None) -> Kernel:
    """(outer, rows, columns) into (outer, columns, rows), plus a tensor that is already laid out like the result."""
    draft = Draft(name, (outer, columns, rows), comment="transposing add")
    value = draft.load("x", dtype, shape=(outer, rows, columns), along=(rows * columns, 1, columns))
    value = draft.do("add", value, draft.load("y", dtype))
    draft.store("z", value, to or dtype)
    return draft.kernel()


def masked_softmax(name: str, heads: int, side: int, dtype: str = "float32") -> Kernel:
    """Causal: positions after the row's own are masked with -inf."""
    draft = Draft(name, (heads, side), (side,), "causal softmax")
    seen = draft.do("ge", draft.do("index", 1, dtype="int64"), draft.do("index", 2, dtype="int64"), dtype="bool")
    value = draft.do("where", seen, draft.load("x", dtype), float("-inf"))
    power = draft.do("exp", draft.do("sub", value, draft.do("max", value)))
    draft.store("y", draft.do("div", power, draft.do("sum", power)), dtype)
    return draft.kernel()


def functions(name: str, dtype: str = "float32") -> Kernel:
    """Every floating-point function once, each into a tensor of its own."""
    draft, kind = Draft(name, (6, 50), comment="all functions"), KINDS[dtype]
    x = draft.load("x", dtype)
    y = draft.load("y", dtype)
    near = draft.do("add", draft.do("abs", x, dtype=kind), 0.25, dtype=kind)
    unary: tuple[Fn, ...] = (
        "neg", "abs", "exp", "exp2", "expm1", "tanh", "erf", "sin", "cos", "floor", "ceil", "trunc", "round", "sign", "sigmoid",
    )  # fmt: skip
    for fn in unary:
        draft.store(f"out_{fn}", draft.do(fn, x, dtype=kind), dtype)
    positive: tuple[Fn, ...] = ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal")
    for fn in positive:
        draft.store(f"out_{fn}", draft.do(fn, near, dtype=kind), dtype)
    binary: tuple[Fn, ...] = ("sub", "div", "maximum", "minimum", "fmod")
    for fn in binary:
        draft.store(f"out_{fn}", draft.do(fn, x, draft.do("add", y, 4.0, dtype=kind), dtype=kind), dtype)
    for exponent in (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 1.7):
        label = str(exponent).replace("-", "minus").replace(".", "_")
        draft.store(f"power_{label}", draft.do("pow", near, exponent, dtype=kind), dtype)
    draft.store("power", draft.do("pow", near, y, dtype=kind), dtype)
    draft.store("rounded", draft.do("cast", x, dtype="bfloat16"), dtype)
    return draft.kernel()


def integers(name: str, dtype: str = "int64") -> Kernel:
    """Integer and boolean arithmetic, exact."""
    draft = Draft(name, (5, 33), comment="integers and booleans")
    a, b, flag = draft.load("a", dtype), draft.load("b", dtype), draft.load("flag", "bool")
    fns: tuple[Fn, ...] = ("add", "sub", "mul", "maximum", "minimum", "and", "or")
    for fn in fns:
        draft.store(f"out_{fn}", draft.do(fn, a, b, dtype="int64"), "int64")
    odd = draft.do("add", draft.do("mul", b, 2, dtype="int64"), 1, dtype="int64")
    draft.store("out_div", draft.do("div", a, odd, dtype="int64"), "int64")
    draft.store("out_mod", draft.do("fmod", a, odd, dtype="int64"), "int64")
    draft.store("out_power", draft.do("pow", a, 3, dtype="int64"), "int64")
    less = draft.do("lt", a, b, dtype="bool")
    draft.store("out_both", draft.do("and", less, flag, dtype="bool"), "bool")
    draft.store("out_not", draft.do("not", flag, dtype="bool"), "bool")
    draft.store("out_float", draft.do("mul", draft.do("where", less, a, draft.do("index", 1, dtype="int64")), 0.5), "float32")
    draft.store("out_byte", draft.do("cast", a, dtype="int8"), "int8")
    return draft.kernel()


def sliced(name: str, rows: int, columns: int, skip: int, dtype: str = "float32") -> Kernel:
    """x[:, skip:skip+columns] + y, where x has longer rows: wide accesses only if `skip` and the row allow them."""
    draft = Draft(name, (rows, columns), comment="slice, then add")
    long = columns + 2 * skip
    x = draft.load("x", dtype, shape=(rows, long), along=(long, 1), offset=skip)
    draft.store("z", draft.do("add", x, draft.load("y", dtype)), dtype)
    return draft.kernel()


def joined(name: str, rows: int, left: int, right: int) -> Kernel:
    """Writes one value twice into one tensor, at two places: what a concatenation of equal parts becomes."""
    draft = Draft(name, (rows, left), comment="twice into one tensor")
    value = draft.do("tanh", draft.load("x"))
    for offset in (0, right):
        draft.store("y", value, shape=(rows, left + right), along=(left + right, 1), offset=offset)
    return draft.kernel()


def in_place(name: str, rows: int, length: int) -> Kernel:
    """x += y, then the mean of each row's square."""
    draft = Draft(name, (rows,), (length,), "update in place, mean square")
    value = draft.do("add", draft.load("x", role="inout"), draft.load("y"))
    draft.store("x", value, role="inout")
    mean = draft.do("mul", draft.do("sum", draft.do("mul", value, value)), 1 / length)
    scaled = draft.do("mul", value, draft.do("rsqrt", draft.do("add", mean, 1e-6)))
    draft.store("z", scaled, "bfloat16")
    draft.store_rows("m", mean)
    return draft.kernel()


SHAPES = (1, 7, 31, 32, 33, 128, 1000, 1024)


def usual() -> Iterator[Kernel]:
    """Kernels that cover every family over odd and even shapes and types."""
    for number, length in enumerate((*SHAPES, 4096, 5000)):
        dtype = ("float32", "bfloat16", "float16")[number % 3]
        yield layer_norm(f"ln_{length}", (3, 37)[length < 1000], length, dtype, residual=number % 2 == 0)
        yield softmax(f"sm_{length}", (5, length), 1, dtype, log=number % 2 == 1)
    yield softmax("sm_long", (2, 40000), 1)
    yield softmax("sm_mid", (6, 13, 50), 1)
    yield softmax("sm_mid_wide", (4, 100, 64), 1, "bfloat16")
    yield softmax("sm_first", (70, 300), 0)
    yield batch_norm("bn", 4, 6, 35)
    yield batch_norm("bn_even", 5, 8, 64, "bfloat16")
    yield batch_norm("bn_last", 3, 40, 49, last=True)
    yield batch_norm("bn_split", 16, 3, 12544)
    yield batch_norm("bn_split_last", 40, 16, 200, last=True)
    yield group_norm("gn", 3, 4, 5, 36)
    yield group_norm("gn_half", 2, 8, 4, 64, "float16")
    yield total("mean_hw", (6, 10, 49), (2,), scale=1 / 49)
    yield total("mean_pixels", (3, 1000, 24), (1,), scale=1 / 1000)
    yield total("sum_all", (700, 401), (0, 1))
    yield total("sum_first", (3000, 96), (0,), dtype="bfloat16")
    yield total("sum_outer_inner", (9, 5, 11), (0, 2))
    yield total("max_three", (1000, 3), (1,), "max")
    yield total("min_first", (3, 4000), (0,), "min")
    yield total("product", (5, 12), (1,), "prod", "float64")
    yield total("any_row", (9, 130), (1,), "any", "bool")
    yield total("all_row", (130, 9), (0,), "all", "bool")
    yield total("sum_int", (12, 77), (1,), "sum", "int64")
    yield total("sum_small_int", (12, 77), (1,), "max", "int32")
    yield total("sum_none", (4, 0), (1,))
    yield total("no_rows", (0, 4), (1,))
    for number, shape in enumerate(((1,), (7,), (33, 5), (31, 32), (1009,), (4, 1000), (3, 5, 64))):
        yield chain(f"chain_{'x'.join(map(str, shape))}", shape, ("float32", "float16", "bfloat16")[number % 3])
    yield chain("chain_double", (12, 20), "float64")
    yield chain("chain_empty", (0, 8))
    yield channel_bias("channels_odd", 4, 6, 49)
    yield channel_bias("channels_even", 4, 6, 64, "bfloat16")
    yield masked_softmax("causal", 2, 40)
    yield masked_softmax("causal_half", 3, 64, "float16")
    yield functions("functions_single")
    yield functions("functions_double", "float64")
    yield integers("integers_long")
    yield integers("integers_short", "int16")
    yield sliced("slice_odd", 9, 64, 3)
    yield sliced("slice_even", 9, 64, 8, "bfloat16")
    yield joined("twice", 7, 12, 12)
    yield in_place("update", 5, 300)
    yield in_place("update_long", 2, 40000)
    yield transpose("turn", 2, 33, 65)
    yield transpose("turn_half", 1, 128, 64, "bfloat16", "float32")
    yield transpose("turn_bytes", 3, 40, 96, "uint8")
    yield transpose("turn_double", 1, 20, 70, "float64")
