"""What a rare kind of inputs is drawn from: the arguments, which of them is changed, and random numbers.

Where to look next: `verify/inputs/rare_values.py` (the kinds), `verify/inputs/rare_integers.py` (those of integers and masks).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stitchcuda.verify.inputs.input_ranges import InputRanges
from stitchcuda.verify.inputs.reseeding import random_signs
from stitchcuda.verify.inputs.value_domain import find_domain


@dataclass(frozen=True)
class Drawing:
    """One tensor of the arguments, which a kind changes. `tensors`: all of them, by number."""

    tensors: Sequence[Tensor]
    number: int
    generator: torch.Generator
    ranges: InputRanges

    @property
    def tensor(self) -> Tensor:
        return self.tensors[self.number]

    @property
    def signed(self) -> bool:
        """Whether its values may be negative, and beyond 1."""
        return find_domain(self.tensor) == "free" or self.number in self.ranges.free

    def random(self, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64, device=self.generator.device)
        return drawn.to(self.tensor.device)

    def whole(self, below: int, *shape: int) -> Tensor:
        drawn = torch.randint(below, shape, generator=self.generator, device=self.generator.device)
        return drawn.to(self.tensor.device)

    def signs(self, *shape: int) -> Tensor:
        """Random signs, or 1 where values may not be negative."""
        signs = random_signs(torch.Size(shape), self.generator).to(self.tensor.device).double()
        return signs if self.signed else signs.abs()

    def between(self, octaves: tuple[int, int], *shape: int) -> Tensor:
        """Numbers of 2 to the power of `octaves`."""
        return 2.0 ** (octaves[0] + (octaves[1] - octaves[0]) * self.random(*shape))


Change = Callable[[Tensor, Drawing], "Tensor | None"]


def few_places(rows: Tensor, drawing: Drawing, most: int = 3) -> Tensor:
    """A mask of one to `most` places of each row."""
    places = drawing.whole(rows.shape[1], len(rows), most)
    return torch.zeros(rows.shape, dtype=torch.bool, device=rows.device).scatter_(1, places, True)


def by_row(change: Change) -> Change:
    """A change of the rows of the last axis, which are given as those of a matrix."""
    def changed(x: Tensor, drawing: Drawing) -> Tensor | None:
        made = change(x.reshape(-1, x.shape[-1]), drawing)
        return None if made is None else made.reshape(x.shape)
    return changed
