"""Where wrong elements lie is named if it is a pattern, for outputs that are looked at in parts too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from stitchcuda.verify.compare.error_pattern import ErrorPattern

Mark = Callable[[torch.Tensor], object]


def described(shape: tuple[int, ...], mark: Mark, *, parts: int = 1, exact: torch.Tensor | None = None) -> str:
    """What is said of an output in which `mark` sets the wrong elements, read in `parts` along the first axis."""
    wrong = torch.zeros(shape, dtype=torch.bool)
    mark(wrong)
    pattern = ErrorPattern(wrong.shape, wrong.device)
    step = -(-shape[0] // parts)
    for begin in range(0, shape[0], step):
        place = (slice(begin, min(begin + step, shape[0])), *(slice(0, length) for length in shape[1:]))
        pattern.add(wrong[place], begin * wrong[0].numel(), place, None if exact is None else exact[place])
    return pattern.describe().removeprefix("all wrong elements are ")


def fill(*place: slice | int) -> Mark:
    return lambda wrong: wrong[place].fill_(True)


EVERY = slice(None)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("shape", "mark", "said"),
    [
        ((64, 37), fill(EVERY, slice(-5, None)), "in the last 5 of 37 columns"),
        ((128, 40), fill(slice(64, 128)), "in the last 64 of 128 rows"),
        ((192, 40), fill(slice(64, 128)), "in rows 64 to 127 of 192"),
        ((64, 40), fill(EVERY, slice(0, 8)), "in the first 8 of 40 columns"),
        ((64, 37), fill(EVERY, 36), "in column 36 of 37"),
        ((64, 32), fill(EVERY, slice(3, None, 4)), "in columns 3, 7, 11, … (every 4th) of 32"),
        ((8, 128), lambda wrong: wrong.view(8, 4, 32)[:, :, 28:].fill_(True),
         "in columns 28 to 31, 60 to 63, … (4 of every 32) of 128"),
        ((2, 8, 16, 16), fill(EVERY, 3), "at index 3 of axis 1 (channels or heads, 8 long)"),
        ((2, 8, 16, 16), lambda wrong: [wrong[:, head].fill_(True) for head in (1, 4, 6)],
         "at indices 1, 4, 6 of axis 1 (channels or heads, 8 long)"),
        ((4, 16, 20), fill(EVERY, slice(12, None)), "at the last 4 indices of axis 1 (16 long)"),
        ((64, 64), lambda wrong: wrong.view(-1)[-1124:].fill_(True), "among the last 1124 of 4096 elements in row-major order"),
        ((1000,), fill(slice(768, None)), "in the last 232 of 1000 elements"),
        ((64, 64), fill(slice(32, None), slice(48, None)), "in the last 32 of 64 rows and in the last 16 of 64 columns"),
    ],
)  # fmt: skip
def test_places_are_named(shape: tuple[int, ...], mark: Mark, said: str, parts: int) -> None:
    assert described(shape, mark, parts=parts) == said


def test_scattered_few_and_all_elements_are_no_pattern() -> None:
    generator = torch.Generator().manual_seed(5)
    scattered = torch.rand(64, 48, generator=generator) < 0.02
    assert described((64, 48), lambda wrong: wrong.copy_(scattered)) == ""
    assert described((64, 48), lambda wrong: wrong.fill_(True)) == ""
    assert described((64, 48), fill(slice(5, 6), slice(40, 42))) == ""       # so few may lie there by chance
    assert described((64, 48), lambda wrong: wrong) == ""


def test_signs_of_the_right_values_are_a_pattern() -> None:
    exact = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    negative = "where the right value is negative"
    assert described((40, 30), lambda wrong: wrong.copy_(exact < 0), exact=exact) == negative
    assert described((40, 30), lambda wrong: wrong.copy_(exact < 0), exact=exact, parts=4) == negative
    assert described((40, 30), lambda wrong: wrong.copy_(exact > 0.1), exact=exact) == "where the right value is not negative"
    assert described((40, 30), fill(EVERY), exact=exact) == ""
    assert described((40, 30), fill(EVERY), exact=-exact.abs()) == ""
