"""Defines the kernel language: loops, loads, pointwise steps, reductions and stores of one kernel.

A `Kernel` is one region as a perfect loop nest. Every axis has a constant size; axes marked `reduced` are summed (or maxed)
away by reduction steps. A step's value is *full* (one per point of the nest) or, after a reduction over all reduced axes,
*row* (one per point of the kept axes); a pointwise step of row values only is a row value. All arithmetic is in fp32
(`float64` when any tensor argument is float64; integers and booleans as themselves); loads widen, stores round.

It knows nothing of models, modules or the meaning of shapes, and nothing of CUDA.

Where to look next: `compiler/lower/lower.py` (makes kernels from regions), `compiler/codegen/emit.py` (writes them as CUDA).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fn = Literal[
    # leaves
    "load", "const", "index",
    # pointwise, in C's meaning unless said otherwise
    "add", "sub", "mul", "div", "neg", "abs", "exp", "exp2", "log", "log2", "log1p", "expm1",
    "sqrt", "rsqrt", "reciprocal", "tanh", "erf",
    "sin", "cos", "pow", "maximum", "minimum", "floor", "ceil", "trunc", "round", "sign", "sigmoid", "fmod",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "where", "cast",
    # reductions over all reduced axes
    "sum", "max", "min", "prod", "any", "all",
]  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One loop. Axes are ordered outermost first; reduced axes come last."""

    size: int
    reduced: bool = False


@dataclass(frozen=True)
class Argument:
    """A tensor the launcher takes, in launcher order. `strides` in elements; `inout` is read and written in place.

    `key` names where the program takes it from (a value of the captured graph or a parameter); the generator ignores it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: Literal["in", "out", "inout"]
    key: str = ""


@dataclass(frozen=True)
class Step:
    """`name = fn(args)`. SSA, in execution order.

    - load:  args = (argument name,), `strides` one element stride per axis (0 broadcasts), `offset` in elements
    - const: args = (number,)          - index: args = (axis position,), an int64 full or row value
    - cast:  args = (value,), rounds to `dtype` and widens again (used where the reference rounds on purpose)
    - where: args = (condition, if true, if false); any pointwise argument may be a value's name or a Python number
    - reductions: args = (value,) → a row value; `sum` of nothing is 0, `max` -inf, `prod` 1
    `dtype` is the type the value is computed in: float32, float64, int64 or bool.
    """

    name: str
    fn: Fn
    args: tuple[str | float | int | bool, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class KernelStore:
    """Writes `value` into `argument`. A row value's strides are 0 on reduced axes; it is written once per row."""

    argument: str
    value: str
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Kernel:
    """One region, ready for code generation. `name` is a C identifier and names the launcher."""

    name: str
    axes: tuple[Axis, ...]
    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    stores: tuple[KernelStore, ...]
    comment: str = ""


@dataclass(frozen=True)
class KernelSource:
    """Generated text: CUDA with `extern "C"` launchers on raw pointers, and its tvm-ffi binding (C++, a file of its own).

    The binding exports `name(arguments...)` in the order of `Kernel.arguments`, then `workspace` (a 1-d uint8 tensor of at
    least `workspace_bytes`) when `workspace_bytes` > 0. `launches` is the number of `__global__` functions one call runs.
    """

    name: str
    cuda: str
    binding: str
    kernels: tuple[str, ...]
    launches: int
    workspace_bytes: int = 0
    strategy: str = ""


@dataclass(frozen=True)
class Stitch:
    """A region with its generated kernel. `instances`: for each, the graph's value names in the order of the arguments."""

    region: str                            # state.Region.id
    kernel: Kernel
    source: KernelSource
    instances: tuple[tuple[str, ...], ...]
