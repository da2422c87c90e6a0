"""Lowers operators that move or create data: copying reshapes, repeats, triangles, constants, ranges, cat and stack.

`cat` and `stack` are lowered for at most `MOST_PARTS` parts of equal size. Operators in `SOURCES` create a tensor from numbers
alone: a kernel computes them where they are read, and they never get a kernel of their own. Views that copy nothing are not
here.

Where to look next: `compiler/lower/lower.py` (folds views into loops and strides), `compiler/lower/call.py` (what a rule is
given).
"""

from __future__ import annotations

from stitchcuda.compiler.lower.call import OperatorCall, Rule
from stitchcuda.compiler.lower.ir import Fn
from stitchcuda.compiler.lower.nest import CannotLower, Value

MOST_PARTS = 32


def _reshape(call: OperatorCall) -> Value:
    return call.nest.reshape(call.tensor(), call.out.shape)


def _repeat(call: OperatorCall) -> Value:
    return call.nest.repeat(call.tensor(), call.out.shape)


def _repeat_interleave(call: OperatorCall) -> Value:
    value = call.tensor()
    if not isinstance(call.get(1, "repeats"), int):
        raise CannotLower("repeats given as a tensor")
    if call.get(2, "dim") is None:
        value = call.nest.reshape(value, (value_size(value.shape),))
    return call.nest.repeat(value, call.out.shape, inner=True)


def value_size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _triangle(keep: Fn) -> Rule:
    def rule(call: OperatorCall) -> Value:
        value = call.tensor()
        diagonal = call.number(1, "diagonal", 0)
        if len(value.shape) < 2:
            raise CannotLower("a triangle of a vector")
        row, column = call.nest.index(value, -2), call.nest.index(value, -1)
        inside = call.do(keep, call.do("sub", column, row, dtype="int64"), diagonal, dtype="bool")
        return call.do("where", inside, value, 0)

    return rule


def _fill(position: int | None, number: float = 0) -> Rule:
    def rule(call: OperatorCall) -> Value:
        if position is not None and call.is_tensor(position, "value"):
            return call.nest.expand(call.nest.cast(call.tensor(position, "value"), call.dtype), call.out.shape)
        fill = (
            number if position is None else call.number(position, "fill_value" if "value" not in call.node.kwargs else "value")
        )
        return call.nest.expand(call.nest.constant(fill, call.dtype), call.out.shape)

    return rule


def _arange(call: OperatorCall) -> Value:
    args = [call.number(i, "") for i in range(len(call.node.args))]
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    line = call.nest.expand(call.nest.constant(0, call.dtype), call.out.shape)
    value = call.nest.cast(call.nest.index(line, 0), call.dtype)
    value = value if step == 1 else call.do("mul", value, step)
    return value if start == 0 else call.do("add", value, start)


def _cat(call: OperatorCall) -> tuple[Value, ...]:
    """Lowers cat and stack of parts of equal shape. Each part is stored in its place, so it returns no value."""
    parts = call.tensors(0, "tensors")
    out = call.out
    dim = int(call.number(1, "dim", 0)) % len(out.shape)
    if any(part.shape != parts[0].shape for part in parts) or len(parts) > MOST_PARTS:
        raise CannotLower("cat of parts of different sizes" if len(parts) <= MOST_PARTS else "cat of too many parts")
    shape = (*out.shape[:dim], out.shape[dim] // len(parts), *out.shape[dim + 1 :])
    parts = [call.nest.reshape(call.nest.cast(part, out.dtype), shape) for part in parts]
    call.nest.align(parts)
    for i, part in enumerate(parts):
        call.nest.store(part, out, i * shape[dim] * out.strides[dim], shape=shape)
    return ()


def _diff_loss(squared: bool) -> Rule:
    def rule(call: OperatorCall) -> Value:
        apart = call.do("sub", call.tensor(), call.tensor(1, "target"))
        loss = call.do("mul", apart, apart) if squared else call.do("abs", apart)
        reduction = call.get(2, "reduction", 1)
        if reduction == 0:
            return loss
        total = call.nest.reduce("sum", loss, range(len(loss.shape)), call.dtype)
        if reduction == 1:
            total = call.do("div", total, value_size(loss.shape))
        return call.nest.reshape(total, ())

    return rule


RULES: dict[str, Rule] = {
    "reshape": _reshape, "view": _reshape, "_unsafe_view": _reshape, "flatten": _reshape, "unflatten": _reshape,
    "view_as": _reshape,
    "reshape_as": _reshape, "ravel": _reshape,
    "repeat": _repeat, "tile": _repeat, "repeat_interleave": _repeat_interleave,
    "cat": _cat, "concat": _cat, "stack": _cat,
    "tril": _triangle("le"), "triu": _triangle("ge"),
    "mse_loss": _diff_loss(True), "l1_loss": _diff_loss(False),
    "fill": _fill(1), "zero": _fill(None, 0),
}  # fmt: skip

# Tensors made of numbers alone: computed where they are used, so they never get a kernel of their own.
SOURCES: dict[str, Rule] = {
    "full": _fill(1), "zeros": _fill(None, 0), "ones": _fill(None, 1), "full_like": _fill(1),
    "zeros_like": _fill(None, 0),
    "ones_like": _fill(None, 1), "new_zeros": _fill(None, 0), "new_ones": _fill(None, 1), "new_full": _fill(2),
    "scalar_tensor": _fill(0), "arange": _arange,
}  # fmt: skip
