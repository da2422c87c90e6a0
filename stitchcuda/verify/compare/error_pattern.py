"""Names where the wrong elements of an output lie: the last columns, some rows, every fourth index, negative values only.

An output is looked at a part at a time, on its device. What is kept is, for each axis, which of its indices hold a wrong
element, and a few counts; there is no list of elements. A place is named only if chance would have put `_OUTSIDE` wrong
elements or more elsewhere, and every sentence holds for all wrong elements. It judges nothing.
Where to look next: `verify/compare/bound.py` (who says which elements are wrong).
"""

from __future__ import annotations

import math

import torch

from stitchcuda.verify.messages.shared_tensors import without_float8

_OUTSIDE = 8.0                             # with so many expected elsewhere, chance puts none there in 0.03 % of cases
_LISTED = 4                                # so many indices are named one by one
_PERIODS = 256                             # the longest period that is looked for
_START = 2**13                             # indices of which each period is tried first
_DENSE = 0.9                               # of a range in memory's order so much is wrong if it is named


class ErrorPattern:
    """Where the wrong elements of an output of `shape` lie. `device`: where its parts lie."""

    def __init__(self, shape: torch.Size, device: torch.device) -> None:
        self._shape = shape
        self._hit = [torch.zeros(length, dtype=torch.bool, device=device) for length in shape]
        self._count = self._negative = self._signs = 0
        self._first, self._last = shape.numel(), -1

    def add(self, wrong: torch.Tensor, start: int, place: tuple[slice, ...], exact: torch.Tensor | None = None) -> None:
        """Adds a part: `wrong` (boolean) says which of its elements are. `start`: the position of its first element in
        row-major order; `place`: its indices. `exact`: the right values of the part, where their sign may matter."""
        if not wrong.numel() or not (count := int(wrong.sum())):
            if exact is not None:
                self._signs += int((without_float8(exact) < 0).sum())
            return
        for axis, hit in enumerate(self._hit):
            others = [other for other in range(wrong.dim()) if other != axis]
            hit[place[axis]] |= wrong.any(dim=others) if others else wrong
        flat = wrong.reshape(-1)
        self._first = min(self._first, start + int(flat.byte().argmax()))
        self._last = max(self._last, start + flat.numel() - 1 - int(flat.flip(0).byte().argmax()))
        self._count += count
        if exact is not None:
            below = without_float8(exact) < 0
            self._signs += int(below.sum())
            self._negative += int((below & wrong).sum())

    def describe(self) -> str:
        """Returns "all wrong elements are in …", or "" where no pattern shows."""
        if not self._count:
            return ""
        tail = self._in_memory()
        places = [tail] if tail else [place for axis in range(len(self._shape)) if (place := self._along(axis))]
        if sign := self._sign():
            places.append(sign)
        return f"all wrong elements are {' and '.join(places)}" if places else ""

    def _unlikely(self, outside: float) -> bool:
        """Whether chance would have put wrong elements into the share `outside` of all elements, where there are none."""
        return self._count * outside >= _OUTSIDE

    def _along(self, axis: int) -> str:
        """Names the indices of an axis at which there are wrong elements; "" where they are no pattern."""
        hit, length = self._hit[axis], self._shape[axis]
        number = int(hit.sum())
        if not self._unlikely(1 - number / length):
            return ""
        first, last = int(hit.byte().argmax()), length - 1 - int(hit.flip(0).byte().argmax())
        span = last - first + 1
        if number == 1:
            return self._at(axis, str(first), single=True)
        if number != span and number <= _LISTED:
            return self._at(axis, ", ".join(str(int(index)) for index in hit.nonzero().flatten()))
        if number == span or (span <= 2 * number and 2 * span <= length):
            if last == length - 1 or first == 0:
                return self._end(axis, "first" if first == 0 else "last", span)
            return self._at(axis, f"{first} to {last}")
        if not (period := _period(hit)):
            return ""
        inside = [int(index) for index in hit[:period].nonzero().flatten()]
        often = f"every {_ordinal(period)}" if len(inside) == 1 else f"{len(inside)} of every {period}"
        if inside[-1] - inside[0] + 1 == len(inside) > 1:
            return self._at(axis, f"{inside[0]} to {inside[-1]}, {inside[0] + period} to {inside[-1] + period}, … ({often})")
        named = [index + turn * period for turn in range(3) for index in inside][:3]
        return self._at(axis, f"{', '.join(map(str, named))}, … ({often})")

    def _at(self, axis: int, indices: str, *, single: bool = False) -> str:
        if len(self._shape) <= 2:
            return f"in {self._unit(axis)}{'' if single else 's'} {indices} of {self._shape[axis]}"
        return f"at {'index' if single else 'indices'} {indices} of {self._axis(axis)}"

    def _end(self, axis: int, which: str, number: int) -> str:
        if len(self._shape) <= 2:
            return f"in the {which} {number} of {self._shape[axis]} {self._unit(axis)}s"
        return f"at the {which} {number} indices of {self._axis(axis)}"

    def _unit(self, axis: int) -> str:
        return "element" if len(self._shape) == 1 else ("row", "column")[axis]

    def _axis(self, axis: int) -> str:
        """Names an axis. The second of four holds channels in images and heads in attention."""
        meaning = "channels or heads, " if len(self._shape) == 4 and axis == 1 else ""
        return f"axis {axis} ({meaning}{self._shape[axis]} long)"

    def _in_memory(self) -> str:
        """Names a range of elements in row-major order that begins or ends with the output, such as a tail that no block
        reaches, but only where rows and columns say less."""
        total, span = self._shape.numel(), self._last - self._first + 1
        if not self._unlikely(1 - span / total) or self._count < _DENSE * span:
            return ""
        if span >= math.prod(int(hit.sum()) for hit in self._hit):
            return ""
        if self._last == total - 1:
            return f"among the last {span} of {total} elements in row-major order"
        return f"among the first {span} of {total} elements in row-major order" if self._first == 0 else ""

    def _sign(self) -> str:
        share = self._signs / max(1, self._shape.numel())
        if self._negative == self._count and self._unlikely(1 - share):
            return "where the right value is negative"
        if self._signs and not self._negative and self._unlikely(share):
            return "where the right value is not negative"
        return ""


def _period(hit: torch.Tensor) -> int:
    """The smallest period with which a boolean vector repeats itself three times or more; 0 if there is none."""
    start = hit[:_START]
    for period in range(2, min(_PERIODS, len(hit) // 3) + 1):
        if torch.equal(start[period:], start[:-period]):
            return period if torch.equal(hit[period:], hit[:-period]) else 0
    return 0


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
