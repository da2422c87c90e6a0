"""Draws values for a reference's parameters and buffers that lie far from those of its constructor, each kind with a table row.

A program may be right near the constructor's values only: a series in place of a function behind a small matrix, a window in
place of a recurrence that forgets, counters of 16 bits. A kind has strengths: the largest that the reference stands is taken,
found by trying. Pure functions on tensors. Where to look next: `verify/reference/reference_state.py` (who tries them),
`verify/inputs/other_parameters.py` (which check gets which kind).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from stitchcuda.verify.inputs.integer_values import SMALLEST
from stitchcuda.verify.inputs.reseeding import Freedom, is_constant, perturb, root_mean_square

_FEW = 16                                  # a tensor of so few elements is treated as a vector
_ZERO_OF, _LARGE_OF = 8, 4                 # one of so many elements becomes zero, or large
_MOST_BLOCKS = 64                          # squares that a matrix may consist of
_LEAST_BIAS, _MOST_BIAS = 4.0, 8.0         # of a gate that stays open or closed
_COUNTED = 2**16, 2**20                    # calls that a counter grows by
_STATISTICS, _ROUND, _GROWN = 1.0, 2.0, 3.0  # strengths of `_loaded`


class BufferFacts(NamedTuple):
    """How the reference uses a tensor of whole numbers. `names`: it names places without a limit. `read`: by the host. `step`:
    by how much a call changes it; 0 if it does not, or each element by another number. `lengths`: of the axes of what a call
    changes."""

    names: bool = False
    read: bool = False
    step: int = 0
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Draw:
    """What a kind makes other values of. `own`: the constructor's values, which may get others as far as `freedom` says."""

    own: Tensor
    freedom: Freedom
    generator: torch.Generator
    facts: BufferFacts

    def near(self) -> Tensor:
        return perturb(self.own, self.freedom, self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.generator.device).to(self.own.device)

    def shares(self, *parts: float) -> Tensor:
        """For each element a number: n for about the share `parts[n]` of them, -1 for the rest; one at least has 0."""
        order = self.uniform(self.own.numel()).argsort().argsort().view(self.own.shape)
        found, begin = torch.full_like(order, -1), 0
        for number, part in enumerate(parts):
            end = begin + math.ceil(part * order.numel())
            found[(order >= begin) & (order < end)] = number
            begin = end
        return found


Change = Callable[[Draw, float], Tensor]


@dataclass(frozen=True)
class FarKind:
    """`change`: returns other values for a tensor, `near` ones where it has none of its own. `integers`: it is for whole
    numbers too. `ties`: rows may become equal, and so may what is computed from them. `what`: the values, for a sentence."""

    what: str
    strengths: tuple[float, ...]
    change: Change
    integers: bool = False
    ties: bool = False


def concerns(kind: FarKind, value: Tensor, freedom: Freedom) -> bool:
    """Whether a kind has values of its own for a tensor."""
    if freedom == "none":
        plain = not (value.is_floating_point() or value.is_complex())
        return kind.integers and plain and value.numel() > 0
    if value.itemsize < 2:
        return False
    if kind.change is _loaded:
        return freedom == "same signs"
    if kind.change is _pruned:
        return freedom == "any" and not _is_vector(value)
    return kind.change is not _remembering or _is_vector(value) or _square_side(value) > 1


def drawn_far(kind: FarKind, draw: Draw, strength: float) -> Tensor:
    """The values of a kind. Complex numbers get its sizes, with signs, and generic phases."""
    if not draw.own.is_complex():
        return kind.change(draw, strength)
    near = draw.near()
    return kind.change(replace(draw, own=near.abs()), strength) * torch.where(near == 0, 1, near.sgn())


def _is_vector(value: Tensor) -> bool:
    return value.numel() <= max(_FEW, *value.shape, 1) if value.dim() else True


def _square_side(value: Tensor) -> int:
    """The side of the squares that a matrix consists of, as those of a recurrence do; 0 where it does not."""
    side = value.shape[-1] if value.dim() > 1 else 0
    blocks, rest = divmod(value.numel(), side * side) if side else (0, 1)
    return side if rest == 0 and 0 < blocks <= _MOST_BLOCKS else 0


def _larger(draw: Draw, strength: float) -> Tensor:
    """Matrices grow as a whole; a quarter of a vector's elements lies between 2 and about 100."""
    near = draw.near()
    if not _is_vector(near):
        return near * strength
    sizes = 2 + (1.6 * strength - 2) * draw.uniform(*near.shape).to(near.dtype)
    signs = torch.where(near < 0, -1, 1).to(near.dtype)
    return torch.where(draw.shares(1 / _LARGE_OF) == 0, sizes * signs, near)


def _smaller(draw: Draw, strength: float) -> Tensor:
    """Matrices shrink as a whole, and have single zeros; a third of a vector's elements is a thousand times smaller, a third
    a hundred thousand times."""
    near = draw.near()
    if _is_vector(near):
        shares = draw.shares(1 / 3, 1 / 3)
        return torch.where(shares == 0, near * 1e-3, torch.where(shares == 1, near * 1e-5, near))
    zero = (draw.uniform(*near.shape) < 1 / _ZERO_OF) & (draw.freedom == "any")
    return torch.where(zero, torch.zeros_like(near), near / strength)


def _remembering(draw: Draw, strength: float) -> Tensor:
    """Squares get a spectral radius of about `strength` (that of a random matrix follows from its root mean square), and
    three of eight elements of a vector move up by 4 to 8, as many down: gates stay open or closed."""
    near = draw.near()
    if _is_vector(near):
        shares = draw.shares(3 / 8, 3 / 8)
        if near.numel() == 1:
            shares = (draw.uniform(*near.shape) < 1 / 2).long()
        sizes = _LEAST_BIAS + (_MOST_BIAS - _LEAST_BIAS) * draw.uniform(*near.shape)
        signs = torch.where(shares == 0, -1, torch.where(shares == 1, 1, 0))
        return near + (sizes * signs).to(near.dtype)
    side = _square_side(near)
    for block in near.view(-1, side, side) if side > 1 and near.is_contiguous() else ():
        if size := root_mean_square(block) * math.sqrt(side):
            block *= strength / size
    return near


def _loaded(draw: Draw, strength: float) -> Tensor:
    """What a checkpoint may hold: statistics that must not be negative are zero in one of eight elements; flags are flipped;
    numbers of 8 bits that are computed with take any value, permutations another order; counters have counted (or, with a
    smaller strength, the next call takes them around a ring)."""
    own = draw.own
    if draw.freedom == "same signs":
        return torch.where(draw.shares(1 / _ZERO_OF) == 0, torch.zeros_like(own), draw.near())
    if own.dtype is torch.bool:
        return ~own if own.numel() == 1 or is_constant(own) else own
    if own.is_floating_point() or own.is_complex():
        return own
    if is_constant(own) or own.numel() == 1:
        return _counted(draw, strength)
    if own.dim() and _is_permutation(own):
        return own.gather(-1, draw.uniform(*own.shape).argsort(-1))
    most = torch.iinfo(own.dtype)
    if most.bits > 8 or own.numel() < SMALLEST or draw.facts.names or draw.facts.read or bool(((own == 0) | (own == 1)).all()):
        return own
    return (most.min + (draw.uniform(*own.shape) * 256).long()).to(own.dtype)


def _pruned(draw: Draw, strength: float) -> Tensor:
    """Of matrices so large a share of the elements is zero, alone or in blocks of 16, and all of some rows."""
    near = draw.near()
    if _is_vector(near):
        return near
    rows = near.reshape(-1, near.shape[-1])
    blocks = draw.uniform(len(rows), -(-rows.shape[1] // _FEW)).repeat_interleave(_FEW, 1)[:, : rows.shape[1]]
    single = draw.uniform(*rows.shape) < strength
    zero = torch.where(draw.uniform(len(rows), 1) < 1 / 2, single, blocks < strength)
    return rows.masked_fill(zero, 0.0).view(near.shape)


def _counted(draw: Draw, strength: float) -> Tensor:
    own, facts = draw.own, draw.facts
    if own.itemsize < 4 or strength == _STATISTICS:
        return own
    if strength == _GROWN:
        low, high = _COUNTED
        return own if facts.names else own + (low + draw.uniform(*own.shape) * (high - low)).to(own.dtype)
    ends = [length - facts.step for length in sorted(set(facts.lengths)) if length > facts.step > 0]
    return torch.full_like(own, ends[int(draw.uniform(1) * len(ends))]) if ends else own


def _is_permutation(own: Tensor) -> bool:
    """Whether each line along the last axis holds 0 to its length, each once, and not in order."""
    length = own.shape[-1]
    ordered = torch.arange(length, device=own.device)
    return length >= SMALLEST and bool((own.long().sort(-1).values == ordered).all()) and not bool((own == ordered).all())


KINDS: Mapping[str, FarKind] = MappingProxyType({
    "large": FarKind("matrices up to 64 times larger, and elements of vectors up to 100", (64.0, 8.0, 2.0), _larger),
    "small": FarKind(
        "matrices up to 64 times smaller with single zeros, and elements of vectors near zero", (64.0, 8.0), _smaller,
    ),
    "long memory": FarKind(
        "gates that stay open or closed, and square matrices of spectral radius 1 to 2",
        (2.5, 2.0, 1.7, 1.4, 1.2, 1.0), _remembering,
    ),
    "pruned": FarKind("matrices that are mostly zero", (0.9, 0.5), _pruned, ties=True),
    "loaded": FarKind(
        "counters, flags, permutations, 8-bit numbers and statistics as a checkpoint may hold them",
        (_GROWN, _ROUND, _STATISTICS), _loaded, integers=True,
    ),
})  # fmt: skip
