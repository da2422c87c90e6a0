"""Draws inputs of kinds that random numbers never show: one row far larger than the others, offsets, rows that hold one thing.

A program that splits numbers with one scale for all rows, skips a row by a sample of it, or has the pattern of a mask built in,
is right for random numbers. Each kind is a function and a row of the table `RARE`. A final check draws each of them, as far as
time allows, and the reference must stand them, also where its operators round otherwise. Pure functions on tensors.
Where to look next: `verify/inputs/secret_inputs.py` (`draw_rare`: when), `verify/inputs/variants.py` (the usual variants),
`verify/reference/expected_outputs.py` (does the reference stand it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stitchcuda.verify.inputs.input_ranges import InputRanges, list_tensors, replace_numbered
from stitchcuda.verify.inputs.integer_values import SMALLEST, is_mask
from stitchcuda.verify.inputs.rare_drawing import Change, Drawing, by_row, few_places
from stitchcuda.verify.inputs.rare_integers import (
    chain,
    complementing,
    ending_early,
    is_adjacency,
    is_integers,
    is_rising,
    path,
    repeating,
)
from stitchcuda.verify.inputs.reseeding import is_constant, root_mean_square
from stitchcuda.verify.inputs.value_changes import like, with_grown_integers, with_huge_values
from stitchcuda.verify.inputs.value_domain import find_domain, is_setting
from stitchcuda.verify.inputs.value_order import is_ordered
from stitchcuda.verify.messages.shared_tensors import is_float8

ONE = ", in one input"                     # ends the name of a kind that changes one input only: not all stand it in all
LOOSE = 2.0**-16                           # the error allowed where all terms of a sum are equal: they are rounded alike
_FAR, _FAR_HALF = (15, 19), (9, 12)        # octaves by which a row is larger than the others, beyond float16; in float16
_TINY, _TINY_HALF = (30, 60), (14, 20)     # octaves by which rows are smaller
_LEAST, _LEAST_HALF = (60, 110), (14, 20)  # ... and still normal numbers
_UNITS = 13                                # octaves between columns
_PEAKS = 85.0, 110.0                       # e^89 overflows in float32
_CLOSE = 1e-4
_HIDES = -1e4                              # what is added to a score to hide it, or less


class Kind(NamedTuple):
    """A kind of inputs. `suits`: whether it changes a tensor. `before`: they repeat those of the call before in part. `loose`:
    sums of them may be less exact. `offset`: the mean of rows is far larger than their spread: not for norms, whose variance a
    program may compute in one pass. `ties`: values that differ may become equal. `fades`: so may what is computed from them, in
    float64 too, as a softmax: not where an operator tells equal values apart."""

    meaning: str
    suits: Callable[[Tensor], bool]
    change: Change
    before: bool = False
    loose: bool = False
    offset: bool = False
    ties: bool = False
    fades: bool = False

    @property
    def common(self) -> bool:
        """Whether nearly all programs have inputs that it changes."""
        return self.suits in (_is_real, _is_data)


def draw(arguments: Any, name: str, generator: torch.Generator, ranges: InputRanges) -> Any | None:
    """The arguments as inputs of this kind, which may end with `ONE`; None if it changes nothing."""
    kind, tensors = RARE[name.removesuffix(ONE)], list_tensors(arguments)
    made: dict[int, Tensor] = {}
    if (kind.ties and ranges.open_ties) or (kind.fades and ranges.ties):
        return None
    for number, tensor in enumerate(tensors):
        places = number in ranges.uses.places and kind.suits in (is_integers, is_rising)
        if number in ranges.uses.read or places or not kind.suits(tensor):
            continue
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        changed = kind.change(tensor.detach().to(wide), Drawing(tensors, number, generator, ranges))
        if changed is None:
            continue
        changed = like(tensor, changed)
        changed = changed if kind.suits in (_is_mask, is_adjacency) else ranges.hold(number, tensor, changed)
        if not torch.equal(changed, tensor):
            made[number] = changed
    if name.endswith(ONE):
        if len(made) < 2:
            return None                    # the same as in all
        chosen = sorted(made)[int(torch.randint(len(made), (), generator=generator, device=generator.device))]
        made = {chosen: made[chosen]}
    return replace_numbered(arguments, lambda number, tensor: made.get(number, tensor)) if made else None


def _is_real(tensor: Tensor) -> bool:
    return find_domain(tensor) in ("free", "positive", "unit")


def _is_data(tensor: Tensor) -> bool:
    return _is_real(tensor) or _is_complex(tensor)


def _is_complex(tensor: Tensor) -> bool:
    return tensor.is_complex() and tensor.numel() >= SMALLEST


def _is_square(tensor: Tensor) -> bool:
    return tensor.dim() > 1 and 1 < tensor.shape[-1] == tensor.shape[-2] and find_domain(tensor) == "free"


def _is_share(tensor: Tensor) -> bool:
    return find_domain(tensor) == "unit"


def _is_sorted(tensor: Tensor) -> bool:
    finite = tensor.is_floating_point() and tensor.numel() >= SMALLEST and not is_float8(tensor)
    return finite and not is_constant(tensor) and is_ordered(tensor)


def _is_mask(tensor: Tensor) -> bool:
    """Whether it holds booleans, zeros and ones, or what hides scores that it is added to."""
    if tensor.numel() < 2 or tensor.is_complex() or is_float8(tensor):
        return False
    return _added(tensor) < 0 or (is_mask(tensor) and (tensor.dtype is torch.bool or not is_constant(tensor)))


def _added(tensor: Tensor) -> float:
    """What a mask adds to hide a score: -inf if it holds any, or a number below `_HIDES` beside zeros; else 0."""
    if not tensor.is_floating_point():
        return 0.0
    least = float(tensor.min())
    return least if least == -math.inf or (least <= _HIDES and bool(((tensor == 0) | (tensor == least)).all())) else 0.0


def _far_larger(among: Callable[[Sequence[int]], Sequence[int]]) -> Change:
    """One index of an axis is 2^14 times as large and more. `among`: those of the axes longer than 1 that it may be of."""
    def changed(x: Tensor, drawing: Drawing) -> Tensor | None:
        axes = among([axis for axis, length in enumerate(x.shape) if length > 1])
        if not axes or (_is_share(drawing.tensor) and not drawing.signed):
            return None
        made, axis = x.clone(), axes[int(drawing.whole(len(axes)))]
        lines = made.movedim(axis, 0)
        end = float(drawing.random()) < 1 / 4  # a causal program finds the last one only there
        octaves = _FAR_HALF if drawing.tensor.dtype is torch.float16 else _FAR
        lines[-1 if end else int(drawing.whole(len(lines)))] *= drawing.between(octaves)
        return made
    return changed


def _offset(rows: Tensor, drawing: Drawing) -> Tensor | None:
    """A constant of 100 to 1000 is added to each row, of either sign."""
    if _is_share(drawing.tensor) and not drawing.signed:
        return None
    return rows + (100 + 900 * drawing.random(len(rows), 1)) * drawing.signs(len(rows), 1)


def _peaked(low: float, high: float) -> Change:
    """Two to eight values of each row are these, or so many times its largest, and stand beside each other, or 2^k apart."""
    def changed(rows: Tensor, drawing: Drawing) -> Tensor | None:
        if rows.shape[1] < 2 or (_is_share(drawing.tensor) and not drawing.signed):
            return None
        octaves = max(1, int(math.log2(rows.shape[1])))
        start, step = drawing.whole(rows.shape[1], len(rows), 1), 2 ** drawing.whole(octaves, len(rows), 1)
        places = (start + step * torch.arange(8, device=rows.device)) % rows.shape[1]
        places = torch.where(torch.arange(8, device=rows.device) < 2 + drawing.whole(7, len(rows), 1), places, places[:, :1])
        size = low + (high - low) * drawing.random(len(rows), 8)
        values = size if low > 10 else size * rows.abs().amax(1, keepdim=True)
        return rows.scatter(1, places, values)
    return changed


def _unlike(rows: Tensor, drawing: Drawing) -> Tensor:
    """Rows of one sign with one to three elements of the other one, or of zeros."""
    alike = rows.abs() * drawing.signs(len(rows), 1)
    other = -alike * (drawing.random(len(rows), 1) < 3 / 4) if drawing.signed else torch.zeros_like(alike)
    return torch.where(few_places(rows, drawing), other, alike)


def _nearly_empty(rows: Tensor, drawing: Drawing) -> Tensor:
    kept = drawing.random(*rows.shape) < 0.05 * drawing.random(len(rows), 1)
    return torch.where(kept | few_places(rows, drawing, 1), rows, 0.0)


def _like_the_row_before(rows: Tensor, drawing: Drawing) -> Tensor | None:
    index = torch.arange(len(rows), device=rows.device)
    return torch.where(few_places(rows, drawing), rows, rows[index - index % 2]) if len(rows) > 1 else None


def _whole_numbers(rows: Tensor, drawing: Drawing) -> Tensor | None:
    """Whole numbers of 0 to 255, as of pixels."""
    return drawing.whole(256, *rows.shape).double() if drawing.signed or not _is_share(drawing.tensor) else None


def _smaller(usual: tuple[int, int], half: tuple[int, int]) -> Change:
    """Rows that are smaller by so many octaves."""
    def changed(x: Tensor, drawing: Drawing) -> Tensor:
        return x / drawing.between(half if drawing.tensor.dtype is torch.float16 else usual, *x.shape[:-1], 1)
    return changed


def _falling(rows: Tensor, drawing: Drawing) -> Tensor:
    """Rows that fall, except that the largest value stands anywhere."""
    index, place = torch.arange(rows.shape[1], device=rows.device), drawing.whole(rows.shape[1], len(rows), 1)
    order = torch.where(index < place, index + 1, torch.where(index == place, 0, index))
    return rows.sort(1, descending=True).values.gather(1, order)


def _alternating(rows: Tensor, drawing: Drawing) -> Tensor:
    """Each value of the larger half of a row stands between two of the smaller one."""
    half = -(-rows.shape[1] // 2)
    made = torch.empty_like(rows)
    ordered = rows.sort(1).values
    made[:, ::2] = ordered[:, :half]
    made[:, 1::2] = ordered[:, half:]
    return made


def _real(x: Tensor, drawing: Drawing) -> Tensor:
    """Half of the complex numbers have no imaginary part, and half of these a negative real one."""
    drawn = drawing.random(*x.shape)
    sizes = torch.where(drawn < 1 / 4, -x.abs(), x.abs())
    return torch.where(drawn < 1 / 2, torch.complex(sizes, torch.zeros_like(sizes)), x)


def _special_matrices(x: Tensor, drawing: Drawing) -> Tensor | None:
    """Matrices that are diagonal, of which half are multiples of the identity."""
    diagonal = x.diagonal(dim1=-2, dim2=-1)
    alike = drawing.random(*diagonal.shape[:-1], 1) < 1 / 2
    return torch.diag_embed(torch.where(alike, diagonal[..., :1], diagonal))


def _other_units(x: Tensor, drawing: Drawing) -> Tensor | None:
    if _is_share(drawing.tensor) and not drawing.signed:
        return None
    octaves = _UNITS if drawing.tensor.dtype is not torch.float16 else 4
    return x * 2.0 ** (octaves * (drawing.whole(3, x.shape[-1]) - 1).double())


def _zero_indices(x: Tensor, drawing: Drawing) -> Tensor:
    """Zeros at one index of each axis."""
    made = x.clone()
    for axis, length in enumerate(x.shape):
        if length > 2:
            made.select(axis, int(drawing.whole(length))).zero_()
    return made


def _one_value(shape: Callable[[torch.Size], Sequence[int]]) -> Change:
    """One value everywhere or along an axis, which 8 and 11 bits hold worst: sums of others lose what their rounding adds."""
    def changed(x: Tensor, drawing: Drawing) -> Tensor:
        sizes = tuple(shape(x.shape))
        fraction = drawing.whole(128, *sizes).double() / 128 + 3 / 1024 + (1 - 1e-3) / 2048
        scale = 2.0 ** math.floor(math.log2(root_mean_square(drawing.tensor) or 1.0))
        if _is_share(drawing.tensor):
            scale = min(scale, 0.25)
        return ((1 + fraction) * scale * drawing.signs(*sizes)).expand(x.shape).clone()
    return changed


def _near_an_end(far: bool) -> Change:
    """Shares, as of gates, that are all near zero, or all near one."""
    def changed(x: Tensor, drawing: Drawing) -> Tensor:
        return 1 - x / 128 if far else x / 128
    return changed


def _of_another(change: Callable[[Tensor, Tensor, Drawing], Tensor | None], *, alike: bool = True) -> Change:
    """A change by a float input that comes before this one; `alike`: one of its shape."""
    def changed(x: Tensor, drawing: Drawing) -> Tensor | None:
        others = [
            other for number, other in enumerate(drawing.tensors)
            if other.is_floating_point() and not is_float8(other) and other.numel() and bool(torch.isfinite(other).all())
            and (number < drawing.number and other.shape == x.shape if alike else number != drawing.number)
        ]  # fmt: skip
        return change(x, others[int(drawing.whole(len(others)))].detach().double(), drawing) if others else None
    return changed


def _same_rows(x: Tensor, other: Tensor, drawing: Drawing) -> Tensor:
    """Half the rows are the other's, up to three elements, and so is all of the first one."""
    rows, others = x.reshape(-1, x.shape[-1]), other.reshape(-1, x.shape[-1])
    own = few_places(rows, drawing) | (drawing.random(len(rows), 1) < 0.5)
    own[0] = len(rows) == 1
    return torch.where(own, rows, others).reshape(x.shape)


def _opposite(x: Tensor, other: Tensor, drawing: Drawing) -> Tensor | None:
    """Half the rows, and the first one, are the other's with the other sign."""
    return None if not drawing.signed else _same_rows(x, -other, drawing)


def _close(x: Tensor, other: Tensor, drawing: Drawing) -> Tensor:
    return other + _CLOSE * (2 * drawing.random(*x.shape) - 1) * root_mean_square(other)


def _shifted_copy(x: Tensor, other: Tensor, drawing: Drawing) -> Tensor:
    """The other, moved along its second axis (the first of one), by another number of places for each sample: half of them go
    round, by up to a quarter; the others keep their first value until they begin, by up to the whole length."""
    lines = other.movedim(1, -1) if other.dim() > 1 else other[None]
    length, count = lines.shape[-1], len(lines)
    places = torch.arange(length, device=other.device)
    round_ = (places - 1 - drawing.whole(max(1, length // 4), count, 1)) % length
    later = (places - 1 - drawing.whole(max(1, length - 1), count, 1)).clamp(0)
    taken = torch.where(drawing.random(count, 1) < 0.5, round_, later)
    made = lines.gather(-1, taken.reshape(count, *(1,) * (lines.dim() - 2), length).expand(lines.shape))
    return made.movedim(-1, 1) if other.dim() > 1 else made[0]


def _same_elements(x: Tensor, other: Tensor, drawing: Drawing) -> Tensor:
    taken = other.flatten()[drawing.whole(other.numel(), *x.shape)]
    return torch.where(drawing.random(*x.shape) < 1 / 4, taken, x)


def _huge(x: Tensor, drawing: Drawing) -> Tensor | None:
    """A few of the largest values that the reference stands, among such as are given."""
    most = drawing.ranges.huge.get(drawing.number)
    return with_huge_values(drawing.tensor, drawing.generator, most) if most else None


def _edges(x: Tensor, drawing: Drawing) -> Tensor:
    """Only the first and the last elements differ: those of a sixteenth each."""
    made = x.clone().contiguous()
    flat, count = made.view(-1), max(1, x.numel() // 16)
    for end in (flat[:count], flat[-count:]):
        end.copy_(end.roll(1) / 2)
    return made


def _rows_rearranged(rows: Tensor, drawing: Drawing) -> Tensor:
    return rows.gather(1, drawing.random(*rows.shape).argsort(1))


def _times_powers(x: Tensor, drawing: Drawing) -> Tensor:
    """Each row is divided by 2, 4 or 8, and keeps its mantissas."""
    return x / 2.0 ** (1 + drawing.whole(3, *x.shape[:-1], 1)).double()


def _rows_exchanged(rows: Tensor, drawing: Drawing) -> Tensor:
    return rows[drawing.random(len(rows)).argsort()]


def _nothing_seen(x: Tensor, drawing: Drawing) -> Tensor | None:
    return torch.zeros_like(x) if is_mask(drawing.tensor) else None


def _hidden(drawing: Drawing) -> float:
    """What a mask holds where nothing is seen."""
    return 0.0 if is_mask(drawing.tensor) else _added(drawing.tensor)


def _turned(rows: Tensor, drawing: Drawing) -> Tensor:
    """Each line is turned on until its first element differs, if it can."""
    other = drawing.random(*rows.shape) * (rows != rows[:, :1])
    start = other.argmax(1, keepdim=True)
    return rows.gather(1, (start + torch.arange(rows.shape[1], device=rows.device)) % rows.shape[1])


def _few_hide(rows: Tensor, drawing: Drawing) -> Tensor | None:
    """All rows show everything, except for a few in between."""
    if len(rows) < SMALLEST:
        return None
    seen = torch.ones_like(rows) if is_mask(drawing.tensor) else _shown(rows, drawing)
    chosen = drawing.random(len(rows), 1) < 1 / 8
    chosen[[0, len(rows) // 2, -1]] = False
    hides = drawing.random(*rows.shape) < 0.5
    hides[:, int(drawing.whole(rows.shape[1]))] = False
    return seen.masked_fill(chosen & hides, _hidden(drawing))


def _rows_hidden(rows: Tensor, drawing: Drawing) -> Tensor:
    chosen = drawing.random(len(rows), 1) < 1 / 8
    chosen[int(drawing.whole(len(rows)))] = True
    return rows.masked_fill(chosen, _hidden(drawing))


def _all_seen(x: Tensor, drawing: Drawing) -> Tensor | None:
    return None if is_mask(drawing.tensor) else _shown(x, drawing)


def _shown(x: Tensor, drawing: Drawing) -> Tensor:
    return x.masked_fill(x == _added(drawing.tensor), 0.0)


def _far_above(x: Tensor, drawing: Drawing) -> Tensor | None:
    """Some are far larger, as the reference stands it: among large values of other inputs their error would be too large."""
    reach = drawing.ranges.grown.get(drawing.number)
    return None if reach is None else with_grown_integers(x, drawing.generator, reach)


def _no_setting(x: Tensor, drawing: Drawing) -> Tensor:
    chosen = drawing.random(*x.shape) < 0.5
    chosen.view(-1)[int(drawing.whole(x.numel()))] = True
    return x.masked_fill(chosen, 0.0)


def _level(x: Tensor, drawing: Drawing) -> Tensor | None:
    """Some of the sorted values equal those before them; one is as far from those before it as the last from the first."""
    axis = next((axis for axis in reversed(range(x.dim())) if _one_way(x.movedim(axis, -1))), None)
    if axis is None:
        return None
    lines = x.movedim(axis, -1)
    length = lines.shape[-1]
    index = torch.arange(length, device=x.device)
    before = (index - (drawing.random(length) < 1 / 4).long()).clamp(min=0)
    behind = index > drawing.whole(length)
    return (lines[..., before] + (lines[..., -1:] - lines[..., :1]) * behind).movedim(-1, axis)


def _one_way(lines: Tensor) -> bool:
    steps = lines.diff(dim=-1)
    return lines.shape[-1] > 1 and bool(((steps >= 0).all(-1) | (steps <= 0).all(-1)).all())


_DISTINCT_ROWS: tuple[Change, ...] = (
    _peaked(*_PEAKS), _peaked(1.5, 2.0), _smaller(_TINY, _TINY_HALF), _falling, _alternating,
)
_ROWS: tuple[Change, ...] = (*_DISTINCT_ROWS, _unlike, _nearly_empty, _like_the_row_before, _whole_numbers)


def _mixed(rows: Tensor, drawing: Drawing) -> Tensor | None:
    """Each four rows are of one of these kinds, or as given: rows beside each other may be alike."""
    changes = _DISTINCT_ROWS if drawing.ranges.open_ties else _ROWS
    made, which = rows.clone(), drawing.whole(len(changes) + 1, -(-len(rows) // 4)).repeat_interleave(4)[: len(rows)]
    for number, change in enumerate(changes):
        chosen = which == number
        if bool(chosen.any()) and (changed := change(rows[chosen], drawing)) is not None:
            made[chosen] = changed
    return made


MIXED = "mixed"
IN_ROWS = (
    "large few", "largest few", "unlike", "nearly empty", "like the row before", "whole", "tiny", "falling", "alternating",
)
"""The kinds that rows of `MIXED` have."""
FAR = ("first far", "middle far", "last far")

RARE: dict[str, Kind] = {
    MIXED: Kind("inputs with rows of rare kinds: nearly empty, tiny, nearly alike, with a few large or "
                "unlike elements, of whole numbers", _is_real, by_row(_mixed), loose=True),
    "first far": Kind("inputs of which one sample is far larger than all others", _is_data, _far_larger(lambda axes: axes[:1])),
    "middle far": Kind("inputs of which one row is far larger than all others", _is_data, _far_larger(lambda axes: axes[1:-1])),
    "last far": Kind("inputs of which one column is far larger than all others", _is_data,
                     _far_larger(lambda axes: axes[-1:] if len(axes) > 1 else [])),
    "offset": Kind("inputs with an offset of 100 to 1000 in each row", _is_real, by_row(_offset),
                   offset=True, ties=True),
    "large few": Kind("inputs with several large values in each row", _is_real, by_row(_peaked(*_PEAKS))),
    "largest few": Kind("inputs whose largest values stand side by side, or 2^k apart", _is_real, by_row(_peaked(1.5, 2.0))),
    "unlike": Kind("inputs whose rows have one sign except for a few elements", _is_real, by_row(_unlike), ties=True),
    "nearly empty": Kind("inputs whose rows are zero except for a few elements", _is_real, by_row(_nearly_empty),
                         loose=True, ties=True),
    "like the row before": Kind("inputs whose rows equal the one before except for a few elements", _is_real,
                                by_row(_like_the_row_before), ties=True),
    "whole": Kind("inputs of whole numbers", _is_real, by_row(_whole_numbers), ties=True),
    "huge": Kind("inputs with a few values as large as the reference stands", _is_real, _huge),
    "tiny": Kind("inputs with tiny rows", _is_data, _smaller(_TINY, _TINY_HALF)),
    "tiniest": Kind("inputs with rows near the least normal numbers", _is_data, _smaller(_LEAST, _LEAST_HALF), fades=True),
    "falling": Kind("inputs whose rows fall, except for the largest value", _is_real, by_row(_falling)),
    "alternating": Kind("inputs whose neighbours are large and small in turn", _is_real, by_row(_alternating)),
    "real": Kind("complex inputs with real numbers among them", _is_complex, _real),
    "special matrices": Kind("inputs of diagonal matrices and multiples of the identity", _is_square, _special_matrices,
                             ties=True),
    "other units": Kind("inputs with columns of very different sizes", _is_real, _other_units),
    "zero indices": Kind("inputs that are zero at an index of each axis", _is_data, _zero_indices, ties=True),
    "one value": Kind("inputs of one value", _is_real, _one_value(lambda shape: (1,) * len(shape)), loose=True, ties=True),
    "one value a row": Kind("inputs with one value in each row", _is_real,
                            _one_value(lambda shape: (*shape[:-1], 1)), loose=True, ties=True),
    "one value a column": Kind("inputs with one value in each column", _is_real,
                               _one_value(lambda shape: (*(1,) * (len(shape) - 1), shape[-1])), loose=True, ties=True),
    "near zero": Kind("inputs whose shares are all near zero", _is_share, _near_an_end(False), ties=True),
    "near one": Kind("inputs whose shares are all near one", _is_share, _near_an_end(True), ties=True),
    "same rows": Kind("inputs with rows of another input, up to a few elements", _is_real, _of_another(_same_rows), ties=True),
    "close": Kind("inputs that nearly equal another input", _is_real, _of_another(_close)),
    "shifted copy": Kind("inputs that are another input, moved on", _is_real, _of_another(_shifted_copy)),
    "same elements": Kind("inputs with elements of another input", _is_real, _of_another(_same_elements, alike=False),
                          ties=True),
    "opposite": Kind("inputs with rows opposite to another input's", _is_real, _of_another(_opposite), ties=True),
    "edges": Kind("inputs seen before of which the first and last elements are changed", _is_real, _edges, before=True),
    "rows rearranged": Kind("inputs seen before whose elements have changed places within each row", _is_real,
                            by_row(_rows_rearranged), before=True),
    "rows exchanged": Kind("inputs seen before whose rows have changed places", _is_real,
                           by_row(_rows_exchanged), before=True),
    "times 2^k": Kind("inputs seen before whose rows are multiplied by powers of two", _is_data, _times_powers, before=True),
    "chain": Kind("integers that each name the place before", is_integers, by_row(chain), ties=True),
    "repeating": Kind("integers that repeat themselves", is_integers, by_row(repeating), ties=True),
    "complementing": Kind("integers that complement another input's", is_integers, complementing, ties=True),
    "far above": Kind("integers far above those that are shown", is_integers, _far_above),
    "ending early": Kind("sorted integers that end early", is_rising, ending_early, ties=True),
    "path": Kind("square masks that are a path through all", is_adjacency, path, ties=True),
    "nothing seen": Kind("masks that leave everything out", _is_mask, _nothing_seen, ties=True),
    "turned masks": Kind("masks whose lines begin elsewhere", _is_mask, by_row(_turned)),
    "few hide": Kind("masks of which few rows leave anything out", _is_mask, by_row(_few_hide), ties=True),
    "rows hidden": Kind("masks with rows that leave everything out", _is_mask, by_row(_rows_hidden), ties=True),
    "all seen": Kind("masks that add nothing", _is_mask, _all_seen, ties=True),
    "no setting": Kind("inputs whose settings are zero", is_setting, _no_setting, ties=True),
    "level": Kind("sorted inputs with equal neighbours and a large gap", _is_sorted, _level, ties=True),
}  # fmt: skip
"""By name."""
