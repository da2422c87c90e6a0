"""Random kernels of the kernel language for property tests: any rank, memory order, broadcasting, type and number of stages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from stitchcuda.compiler.lower.dtypes import KINDS
from stitchcuda.compiler.lower.ir import Fn, Kernel
from tests.compiler.kernels import Draft

SIZES = (1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 40, 64, 100)
FLOATS = ("float32", "bfloat16", "float16")
UNARY: tuple[Fn, ...] = ("neg", "abs", "tanh", "sigmoid", "sin")
BINARY: tuple[Fn, ...] = ("add", "sub", "mul", "maximum", "minimum")


def _layout(draw: st.DrawFn, sizes: Sequence[int], broadcast: bool) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A tensor over some of the nest's axes, in any order of memory, perhaps padded: shape, strides, stride on each axis."""
    axes = [axis for axis in range(len(sizes)) if not broadcast or draw(st.booleans())]
    order = draw(st.permutations(axes)) if draw(st.booleans()) else axes
    strides, below = {}, 1
    for axis in reversed(order):
        strides[axis] = below
        below *= sizes[axis] + (draw(st.sampled_from((0, 0, 0, 1, 8))) if sizes[axis] > 1 else 0)
    along = tuple(strides.get(axis, 0) for axis in range(len(sizes)))
    return tuple(sizes[axis] for axis in axes), tuple(strides[axis] for axis in axes), along


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """A kernel whose values stay near one, so that rounding errors stay small."""
    rank = draw(st.sampled_from((2, 3, 4, 1)))
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=rank, max_size=rank).filter(lambda s: math.prod(s) <= 40000))
    kept = draw(st.sampled_from((*range(rank), *range(1, rank), rank)))
    draft = Draft("drawn", sizes[:kept], sizes[kept:])
    full: list[str] = []
    for number in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(FLOATS))
        shape, strides, along = _layout(draw, sizes, broadcast=number > 0)
        full.append(draft.load(f"in{number}", dtype, shape=shape, strides=strides, along=along))
    condition = draft.do("gt", full[0], draw(st.sampled_from((0.0, 0.5))), dtype="bool")
    rows: list[str] = []

    def pointwise(pool: list[str]) -> str:
        value = draw(st.sampled_from(pool))
        for _ in range(draw(st.integers(1, 3))):
            if draw(st.booleans()):
                value = draft.do(draw(st.sampled_from(UNARY)), value)
            else:
                constants: list[str | float] = [0.5, -1.25]
                other = draw(st.sampled_from([*pool, *constants]))
                value = draft.do("tanh", draft.do(draw(st.sampled_from(BINARY)), value, other))
        return draft.do("where", condition, value, draw(st.sampled_from(pool))) if draw(st.booleans()) else value

    full.append(pointwise(full))
    if kept < rank:
        length = math.prod(sizes[kept:])
        for _ in range(draw(st.integers(1, 3))):
            fn = draw(st.sampled_from(("sum", "sum", "max", "min")))
            value = draft.do("sum" if fn == "sum" else "max" if fn == "max" else "min", draw(st.sampled_from(full)))
            rows.append(draft.do("mul", value, 1 / length) if fn == "sum" else value)
            full.append(pointwise([*full, rows[-1]]))
    for number in range(draw(st.integers(1, 2))):
        dtype = draw(st.sampled_from(FLOATS))
        whole = draw(st.booleans())
        if rows and not whole:
            draft.store_rows(f"rows{number}", draw(st.sampled_from(rows)), dtype)
        else:
            shape, strides, along = _layout(draw, sizes, broadcast=False)
            draft.store(f"out{number}", draw(st.sampled_from(full)), dtype, shape=shape, strides=strides, along=along)
    assert all(KINDS[argument.dtype] == "float32" for argument in draft.arguments.values())
    return draft.kernel()
