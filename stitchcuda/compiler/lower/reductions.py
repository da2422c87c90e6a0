"""Lowers operators that reduce: sums and means, variances, vector norms, softmax, and the normalisation layers.

Numerics follow eager: variances in two passes (mean first, then squared distances), softmax after subtracting the maximum, all
sums in fp32 or wider. A BatchNorm in training returns its result and updates its running statistics in place. Positions
(`argmax`, `max` with a dim) are not lowered.

Where to look next: `compiler/lower/call.py` (what a rule is given), `compiler/lower/pointwise.py` (arithmetic),
`compiler/lower/finish.py` (what one nest can hold).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stitchcuda.compiler.lower.call import OperatorCall, Rule
from stitchcuda.compiler.lower.dtypes import EPSILONS
from stitchcuda.compiler.lower.ir import Fn
from stitchcuda.compiler.lower.nest import CannotLower, Value, kind_of
from stitchcuda.compiler.lower.pointwise import power


def _count(value: Value, dims: Sequence[int]) -> int:
    return math.prod(value.shape[dim] for dim in dims)


def _sum(call: OperatorCall, value: Value, dims: Sequence[int]) -> Value:
    return call.nest.reduce("sum", value, dims, call.dtype)


def _mean(call: OperatorCall, value: Value, dims: Sequence[int]) -> Value:
    return call.do("div", _sum(call, value, dims), _count(value, dims))


def _drop_reduced_dims(call: OperatorCall, value: Value) -> Value:
    """Drops the reduced dimensions, which are of size one, where the operator does not keep them."""
    return call.nest.reshape(value, call.out.shape)


def _reduction(fn: Fn) -> Rule:
    def rule(call: OperatorCall) -> Value:
        value = call.tensor()
        dims = call.dims(1, "dim", len(value.shape))
        if fn in ("any", "all"):
            value = call.nest.cast(value, "bool")
            if not any(value.dims[dim] for dim in dims):
                return _drop_reduced_dims(call, value)
        if call.dtype != value.dtype and "dtype" in call.node.kwargs and fn in ("sum", "prod"):
            value = call.nest.cast(value, call.dtype)
        return _drop_reduced_dims(call, call.nest.reduce(fn, value, dims, call.dtype))

    return rule


def _extreme(fn: Fn, pair: Fn) -> Rule:
    def rule(call: OperatorCall) -> Value:
        if len(call.node.outputs) != 1:
            raise CannotLower("positions of extremes")
        if call.is_tensor(1, "other"):
            return call.do(pair, call.tensor(), call.tensor(1, "other"))
        value = call.tensor()
        return _drop_reduced_dims(call, call.nest.reduce(fn, value, range(len(value.shape)), call.dtype))

    return rule


def _mean_rule(call: OperatorCall) -> Value:
    value = call.tensor()
    return _drop_reduced_dims(call, _mean(call, value, call.dims(1, "dim", len(value.shape))))


def mean_and_squares(call: OperatorCall, value: Value, dims: Sequence[int]) -> tuple[Value, Value, Value]:
    """Returns the mean over `dims`, the values minus the mean, and the sum of their squares: two passes over the row."""
    mean = _mean(call, value, dims)
    centred = call.do("sub", value, mean)
    return mean, centred, _sum(call, call.do("mul", centred, centred), dims)


def _variance(*, root: bool, with_mean: bool = False) -> Rule:
    def rule(call: OperatorCall) -> Value | tuple[Value, ...]:
        value = call.tensor()
        dims, correction = _variance_arguments(call, len(value.shape))
        count = _count(value, dims)
        if count - correction <= 0:
            raise CannotLower("a variance without degrees of freedom")
        mean, _, total = mean_and_squares(call, value, dims)
        variance = call.do("div", total, count - correction)
        result = _drop_reduced_dims(call, call.do("sqrt", variance) if root else variance)
        return (result, call.nest.reshape(mean, call.node.outputs[1].shape)) if with_mean else result

    return rule


def _variance_arguments(call: OperatorCall, rank: int) -> tuple[tuple[int, ...], float]:
    """Dimensions and correction of the three overloads of var: (unbiased), (dim, unbiased), and correction=."""
    if "correction" in call.node.kwargs:
        correction = call.node.kwargs["correction"]
        return call.dims(1, "dim", rank), 1.0 if correction is None else float(call.number(9, "correction"))
    if isinstance(call.get(1, "unbiased"), bool) and not call.node.op.endswith((".dim", ".correction")):
        return tuple(range(rank)), float(call.get(1, "unbiased"))
    return call.dims(1, "dim", rank), float(call.get(2, "unbiased", True) if call.node.op.endswith(".dim") else 1)


def _vector_norm(call: OperatorCall) -> Value:
    value = call.tensor()
    kind_of(call.dtype)
    order_arg = call.get(1, "ord", call.get(1, "p", 2))
    order = 2.0 if order_arg is None else float(order_arg)
    dims = call.dims(2, "dim", len(value.shape))
    if call.dtype != value.dtype:
        value = call.nest.cast(value, call.dtype)
    if math.isinf(order):
        size = call.nest.reduce("max" if order > 0 else "min", call.do("abs", value), dims, call.dtype)
    elif order == 0:
        size = _sum(call, call.nest.cast(call.do("ne", value, 0, dtype="bool"), call.dtype), dims)
    elif order == 1:
        size = _sum(call, call.do("abs", value), dims)
    elif order == 2:
        size = call.do("sqrt", _sum(call, call.do("mul", value, value), dims))
    else:
        size = call.do("pow", _sum(call, power(call, call.do("abs", value), order), dims), 1.0 / order)
    return _drop_reduced_dims(call, size)


def _softmax(*, log: bool) -> Rule:
    def rule(call: OperatorCall) -> Value:
        value = call.tensor()
        dims = (int(call.number(1, "dim")),)
        if not value.shape:
            raise CannotLower("softmax of a number")
        if value.shape[dims[0]] == 1:
            raise CannotLower("softmax over one element")
        value = call.nest.cast(value, call.dtype) if value.kind != kind_of(call.dtype) else value
        shifted = call.do("sub", value, call.nest.reduce("max", value, dims, call.dtype))
        powers = call.do("exp", shifted)
        total = _sum(call, powers, dims)
        return call.do("sub", shifted, call.do("log", total)) if log else call.do("div", powers, total)

    return rule


def _logsumexp(call: OperatorCall) -> Value:
    value = call.tensor()
    dims = call.dims(1, "dim", len(value.shape))
    largest = call.nest.reduce("max", value, dims, call.dtype)
    infinite = call.do("eq", call.do("abs", largest), math.inf, dtype="bool")
    largest = call.do("where", infinite, 0.0, largest)
    total = _sum(call, call.do("exp", call.do("sub", value, largest)), dims)
    return _drop_reduced_dims(call, call.do("add", call.do("log", total), largest))


def _affine(call: OperatorCall, value: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        value = call.do("mul", value, weight)
    return value if bias is None else call.do("add", value, bias)


def normalise(call: OperatorCall, value: Value, dims: Sequence[int], eps: float) -> Value:
    """Returns `value` with zero mean and unit (biased) variance over `dims`."""
    _, centred, total = mean_and_squares(call, value, dims)
    variance = call.do("div", total, _count(value, dims))
    return call.do("mul", centred, call.do("rsqrt", call.do("add", variance, eps)))


def _trailing(call: OperatorCall, value: Value) -> tuple[int, ...]:
    return tuple(range(len(value.shape) - len(call.get(1, "normalized_shape")), len(value.shape)))


def _layer_norm(call: OperatorCall) -> Value:
    value = call.tensor(0, "input")
    normal = normalise(call, value, _trailing(call, value), float(call.number(4, "eps", 1e-5)))
    return _affine(call, normal, call.maybe_tensor(2, "weight"), call.maybe_tensor(3, "bias"))


def _rms_norm(call: OperatorCall) -> Value:
    value = call.tensor(0, "input")
    eps = EPSILONS[value.dtype] if call.get(3, "eps") is None else float(call.number(3, "eps"))
    mean = _mean(call, call.do("mul", value, value), _trailing(call, value))
    normal = call.do("mul", value, call.do("rsqrt", call.do("add", mean, eps)))
    return _affine(call, normal, call.maybe_tensor(2, "weight"), None)


def _per_channel(call: OperatorCall, position: int, name: str, rank: int) -> Value | None:
    """Returns a vector over channels (dimension 1 of `rank`), reshaped so that it broadcasts; None if the argument is None."""
    vector = call.maybe_tensor(position, name)
    return None if vector is None else call.nest.reshape(vector, (vector.shape[0], *(1,) * (rank - 2)))


def _group_norm(call: OperatorCall) -> Value:
    value = call.tensor(0, "input")
    groups = int(call.number(1, "num_groups"))
    batch, channels, *rest = value.shape
    split = call.nest.reshape(value, (batch, groups, channels // groups, *rest))
    normal = normalise(call, split, range(2, len(split.shape)), float(call.number(4, "eps", 1e-5)))
    normal = call.nest.reshape(normal, value.shape)
    rank = len(value.shape)
    return _affine(call, normal, _per_channel(call, 2, "weight", rank), _per_channel(call, 3, "bias", rank))


def _batch_norm(call: OperatorCall) -> Value:
    value = call.tensor(0, "input")
    rank, eps = len(value.shape), float(call.number(7, "eps", 1e-5))
    weight, bias = _per_channel(call, 1, "weight", rank), _per_channel(call, 2, "bias", rank)
    mean, variance = _per_channel(call, 3, "running_mean", rank), _per_channel(call, 4, "running_var", rank)
    if not call.get(5, "training"):
        if mean is None or variance is None:
            raise CannotLower("batch_norm without statistics")
        scale = call.do("rsqrt", call.do("add", variance, eps))
        return _affine(call, call.do("mul", call.do("sub", value, mean), scale), weight, bias)
    dims = tuple(i for i in range(rank) if i != 1)
    count = _count(value, dims)
    if count <= 1:
        raise CannotLower("batch statistics of one value")
    batch_mean, centred, total = mean_and_squares(call, value, dims)
    momentum = float(call.number(6, "momentum", 0.1))
    _update_statistic(call, 3, "running_mean", mean, batch_mean, momentum)
    _update_statistic(call, 4, "running_var", variance, call.do("div", total, count - 1), momentum)
    scale = call.do("rsqrt", call.do("add", call.do("div", total, count), eps))
    return _affine(call, call.do("mul", centred, scale), weight, bias)


def _update_statistic(call: OperatorCall, position: int, name: str, old: Value | None, new: Value, momentum: float) -> None:
    """`old = (1 - momentum) * old + momentum * new`, in place."""
    if old is None:
        return
    mixed = call.do("add", call.do("mul", old, 1.0 - momentum), call.do("mul", new, momentum))
    call.update(position, name, mixed)


def _instance_norm(call: OperatorCall) -> Value:
    value = call.tensor(0, "input")
    rank = len(value.shape)
    if not call.get(5, "use_input_stats", True) or call.is_tensor(3, "running_mean"):
        raise CannotLower("instance_norm with running statistics")
    normal = normalise(call, value, range(2, rank), float(call.number(7, "eps", 1e-5)))
    return _affine(call, normal, _per_channel(call, 1, "weight", rank), _per_channel(call, 2, "bias", rank))


def _average_pool(spatial: int) -> Rule:
    """Returns the rule of adaptive average pooling to a single point: a mean over the last `spatial` dimensions."""

    def rule(call: OperatorCall) -> Value:
        value = call.tensor()
        if any(size != 1 for size in call.out.shape[-spatial:]):
            raise CannotLower("pooling to more than one point")
        return _mean(call, value, range(len(value.shape) - spatial, len(value.shape)))

    return rule


def _cosine(call: OperatorCall) -> Value:
    left, right = call.tensor(0, "x1"), call.tensor(1, "x2")
    dims, eps = (int(call.number(2, "dim", 1)),), float(call.number(3, "eps", 1e-8))

    def size(value: Value) -> Value:
        return call.do("maximum", call.do("sqrt", _sum(call, call.do("mul", value, value), dims)), eps)

    product = _sum(call, call.do("mul", left, right), dims)
    return _drop_reduced_dims(call, call.do("div", call.do("div", product, size(left)), size(right)))


RULES: dict[str, Rule] = {
    "sum": _reduction("sum"), "amax": _reduction("max"), "amin": _reduction("min"), "prod": _reduction("prod"),
    "any": _reduction("any"), "all": _reduction("all"), "mean": _mean_rule,
    "max": _extreme("max", "maximum"), "min": _extreme("min", "minimum"),
    "var": _variance(root=False), "std": _variance(root=True), "var_mean": _variance(root=False, with_mean=True),
    "std_mean": _variance(root=True, with_mean=True),
    "linalg_vector_norm": _vector_norm, "norm": _vector_norm,
    "softmax": _softmax(log=False), "log_softmax": _softmax(log=True), "_softmax": _softmax(log=False),
    "_log_softmax": _softmax(log=True), "special_softmax": _softmax(log=False), "logsumexp": _logsumexp,
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "batch_norm": _batch_norm,
    "instance_norm": _instance_norm, "adaptive_avg_pool1d": _average_pool(1), "adaptive_avg_pool2d": _average_pool(2),
    "adaptive_avg_pool3d": _average_pool(3), "cosine_similarity": _cosine,
}  # fmt: skip
