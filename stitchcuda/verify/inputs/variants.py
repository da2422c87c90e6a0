"""Other inputs than `get_inputs()` gives: scaled, shifted, uniform, structured, differently laid out, of another size (torch).

A program that is right only for standard normal values is wrong. But a value must stay what it was made to be: values in [0, 1]
stay there, non-negative ones stay non-negative, rows that sum to one are only reordered, masks too, and integers along an axis
on which they seem to have one range, and what is in order or constant is left alone. Works on the nested arguments of one call
and never changes them; whether the reference stands a variant is for `verify/reference/reference_worker.py` to find out. Where
to look next: `verify/inputs/secret_inputs.py` (which set gets which), `verify/inputs/value_order.py` (what is in order).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stitchcuda.verify.inputs.value_order import find_interchangeable_axis, is_ordered
from stitchcuda.verify.messages.shared_tensors import replace_tensors

Variant = Literal[
    "as given", "exchanged", "touched", "patchwork", "scaled up", "scaled down", "negative", "shifted", "uniform", "sparse",
    "sorted", "repeated", "outlier", "non-contiguous",
]  # fmt: skip
SMALL: tuple[Variant, ...] = ("negative", "scaled down")
VALUES: tuple[Variant, ...] = ("scaled up", "shifted", "uniform", "sparse", "sorted", "repeated", "outlier")
"""The variants that change values. Each is moderate: the bound is relative to what float32 makes of a well-posed call."""
_REARRANGING: tuple[Variant, ...] = ("patchwork", "exchanged", "touched", "sorted", "repeated", "sparse")
# masks, labels and rows of probabilities, whose values must stay, then come in another order
MASKS_AS_GIVEN = ", masks as given"        # after a variant's name: without that
_PATCHES: tuple[Variant, ...] = ("scaled up", "scaled down", "negative", "sparse", "outlier", "sorted", "uniform")

_SCALE = 8.0
_OUTLIER = 64.0
_SMALLEST = 8                              # elements: a tensor of fewer is a parameter of the call rather than data
_HEADROOM = 0.05                           # of the largest number of the dtype
_WORSE = 8.0                               # times the usual error, beyond which a variant is ill-conditioned
_NEGLIGIBLE = 8.0                          # ulps of error that are no sign of that
_ROW_SUM = 1e-3                            # how far from one the sum of a row of probabilities may be

Domain = Literal["free", "positive", "unit", "fixed", "permuted"]


def vary(arguments: Any, variant: str, generator: torch.Generator) -> Any | None:
    """The arguments with other values or another layout; None where the variant changes nothing.

    Tensors that share memory go on sharing it. `generator` is one of the CPU.
    """
    if variant == "as given":
        return arguments
    alone = variant.endswith(MASKS_AS_GIVEN)
    plain = variant.removesuffix(MASKS_AS_GIVEN)
    change = _spread_out if plain == "non-contiguous" else lambda tensor: _changed(tensor, plain, generator, alone=alone)
    if alone and all(find_domain(leaf) != "permuted" for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)):
        return None                        # the same as the variant itself
    changed = [False]

    def noting(tensor: Tensor) -> Tensor:
        other = change(tensor)
        changed[0] |= other is not tensor
        return other

    result = replace_tensors(arguments, noting)
    return result if changed[0] else None


def resize(arguments: Any, sizes: Sequence[Sequence[int]]) -> Any:
    """The arguments cut or tiled: `sizes` holds (tensor, axis, length), tensors counted in the order of the leaves."""
    leaves, spec = pytree.tree_flatten(arguments)
    tensors = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for number, axis, length in sizes:
        position = tensors[number]
        given = leaves[position]
        index = torch.arange(length, device=given.device) % given.shape[axis]
        leaves[position] = given.index_select(axis, index)
    return pytree.tree_unflatten(leaves, spec)


def find_domain(tensor: Tensor) -> Domain:
    """What may be done to a tensor's values, told from the values."""
    if tensor.numel() < _SMALLEST or tensor.dtype.is_complex or (tensor.itemsize == 1 and tensor.dtype.is_floating_point):
        return "fixed"
    values = tensor.detach()
    if not values.dtype.is_floating_point:
        return "fixed" if is_ordered(values) else "permuted"
    values = values.double()
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)) or low == high or is_ordered(values):
        return "fixed"
    if bool((values == values.round()).all()):
        return "permuted"                  # labels, counts, a mask
    if low >= 0 and high <= 1:
        sums = values.sum(-1)
        return "permuted" if bool(((sums - 1).abs() < _ROW_SUM).all()) else "unit"
    return "positive" if low >= 0 else "free"


def _changed(tensor: Tensor, variant: str, generator: torch.Generator, *, alone: bool) -> Tensor:
    kind = find_domain(tensor)
    if kind == "fixed":
        return tensor
    if kind == "permuted":
        return _permuted(tensor, generator) if variant in _REARRANGING and not alone else tensor
    values = tensor.detach().to(torch.float64)
    change = _CHANGES[variant]
    other = change(values, kind, generator)
    if kind != "free":
        other = other.clamp(min=0.0, max=1.0 if kind == "unit" else None)
    return _like(tensor, other)


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    """`values` in the dtype and layout of `tensor`."""
    if tensor.is_contiguous() or 0 in [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]:
        return values.to(tensor.dtype).contiguous()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(values)


def _permuted(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """The same values in another order: of the rows for probabilities, of all elements for masks, and of whole numbers, which
    may be indices, each line by itself along the axis on which they may change places."""
    given = tensor.detach()
    if given.dtype is torch.bool or _rows_sum_to_one(given):
        flat = given.flatten() if given.dtype is torch.bool else given.reshape(-1, given.shape[-1])
        order = torch.randperm(flat.shape[0], generator=generator).to(given.device)
        return _like(tensor, flat[order].reshape(given.shape))
    axis = find_interchangeable_axis(given)
    if axis is None:
        return tensor
    order = torch.rand(given.shape, generator=generator).argsort(axis).to(given.device)
    return _like(tensor, given.gather(axis, order))


def _rows_sum_to_one(tensor: Tensor) -> bool:
    if not tensor.dtype.is_floating_point or tensor.dim() < 2:
        return False
    return bool(((tensor.detach().double().sum(-1) - 1).abs() < _ROW_SUM).all())


def _scaled_up(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    return x.sqrt() if kind == "unit" else x * _SCALE


def _scaled_down(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    return x / _SCALE


def _negative(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """All below zero, and small too; halved where they must not be."""
    return -x.abs() / _SCALE if kind == "free" else x / 2


def _touched(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """A few places inside change, the rest stays: who remembers an input by samples of it takes it for the old one."""
    made = x.clone().contiguous()
    inner, places = _inside(made, generator)
    inner[places] = x.std() - inner[places] if kind == "free" else inner[places] / 2
    return made


def _exchanged(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """A few places inside change their values among themselves: who remembers an input by a sum takes it for the old one."""
    made = x.clone().contiguous()
    inner, places = _inside(made, generator)
    inner[places] = inner[places.roll(1)]
    return made


def _inside(made: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(what is not near an end, flat, and a few places in it)."""
    flat = made.view(-1)
    inner = flat[flat.numel() // 8 : -(flat.numel() // 8) or None]
    return inner, torch.randperm(inner.numel(), generator=generator)[: max(2, inner.numel() // 256)].to(made.device)


def _patchwork(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Rows of the first axis that has several differ in kind: one call sees large, small, negative and sparse ones together."""
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), None)
    if axis is None:
        return x
    made = x.clone()
    given, changed = x.movedim(axis, 0), made.movedim(axis, 0)
    which = torch.randint(len(_PATCHES) + 1, (x.shape[axis],), generator=generator).to(x.device)
    for number, name in enumerate(_PATCHES):
        rows = which == number
        if bool(rows.any()):
            changed[rows] = _CHANGES[name](given[rows], kind, generator)
    return made


def _shifted(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """One standard deviation down; up where values must not be negative; mirrored where they must stay in [0, 1]."""
    if kind == "unit":
        return 1 - x
    return x + x.std() if kind == "positive" else x - x.std()


def _uniform(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    drawn = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)
    low, high = float(x.min()), float(x.max())
    if kind == "free":
        low, high = -2 * float(x.std()) + float(x.mean()), 2 * float(x.std()) + float(x.mean())
    return low + (high - low) * drawn


def _sparse(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Half of the values zero; the smallest value where the tensor holds no zero and must stay positive."""
    dropped = torch.rand(x.shape, generator=generator).to(x.device) < 0.5
    return torch.where(dropped, x.new_tensor(0.0 if kind == "free" else float(x.min())), x)


def _sorted(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    return x.sort(-1).values if x.dim() else x


def _repeated(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Every other index of the first long axis holds what the one before it holds."""
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), 0)
    index = torch.arange(x.shape[axis], device=x.device) if x.dim() else None
    return x if index is None else x.index_select(axis, index - index % 2)


def _outlier(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    other = x.clone().contiguous()
    place = int(torch.randint(x.numel(), (), generator=generator))
    other.view(-1)[place] = _OUTLIER * x.abs().max()
    return other


def why_unsuitable(expected: dict[str, Tensor], exact: dict[str, Tensor], usual: float | None) -> str:
    """Why the reference's answers under a variant are no yardstick; "" where they are.

    They must be finite and not near overflow (an honest program may overflow a little earlier), not constant, and their own
    error not far above the `usual` one (`error` of the inputs as given): what is ill-conditioned refuses honest programs.
    """
    for name, own in expected.items():
        if not own.dtype.is_floating_point or own.numel() == 0:
            continue
        values = own.double()
        if not bool(torch.isfinite(values).all()) or not bool(torch.isfinite(exact[name]).all()):
            return "it does not stay finite"
        if float(values.abs().max()) > _HEADROOM * torch.finfo(own.dtype).max:
            return "it comes near overflow"
        if own.numel() > 1 and name.startswith("output") and bool((values == values.flatten()[0]).all()):
            return "its output becomes constant"
    if usual is not None and relative_error(expected, exact) > _WORSE * usual + _NEGLIGIBLE * _unit(expected):
        return "it becomes ill-conditioned"
    return ""


def relative_error(expected: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """The reference's own error, in norm relative to its output, of the worst of its outputs."""
    worst = 0.0
    for name, own in expected.items():
        if own.dtype.is_floating_point and own.numel():
            true = exact[name].double()
            size = float(true.norm())
            worst = max(worst, float((own.double() - true).norm()) / size if size else 0.0)
    return worst if math.isfinite(worst) else math.inf


def _unit(outputs: dict[str, Tensor]) -> float:
    return max((torch.finfo(output.dtype).eps for output in outputs.values() if output.dtype.is_floating_point), default=0.0)


_CHANGES: dict[str, Callable[[Tensor, Domain, torch.Generator], Tensor]] = {
    "touched": _touched,
    "exchanged": _exchanged,
    "patchwork": _patchwork,
    "negative": _negative,
    "scaled up": _scaled_up,
    "scaled down": _scaled_down,
    "shifted": _shifted,
    "uniform": _uniform,
    "sparse": _sparse,
    "sorted": _sorted,
    "repeated": _repeated,
    "outlier": _outlier,
}


def _spread_out(tensor: Tensor) -> Tensor:
    """The same values as a slice of a larger tensor, or transposed in memory where it has two axes to swap."""
    if not tensor.dtype.is_floating_point or not tensor.is_contiguous() or tensor.numel() < _SMALLEST or tensor.dim() == 0:
        return tensor
    if tensor.dim() > 1 and tensor.shape[-1] > 1 and tensor.shape[-2] > 1:
        return tensor.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = tensor.detach().new_zeros((*tensor.shape, 2))
    wide[..., 0] = tensor.detach()
    return wide[..., 0]
