"""What is in order is told from what is not, and integers of one range from indices into different things."""

from __future__ import annotations

import pytest
import torch

from stitchcuda.verify.inputs.value_order import find_interchangeable_axis, is_ordered

TABLES = [int(size) for size in torch.logspace(1, 6, 26)]


def ids(*sizes: int, count: int, axis: int) -> torch.Tensor:
    """Indices into tables of these sizes, one table to each place along an axis."""
    return torch.stack([torch.randint(size, (count,)) for size in sizes], axis)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(40).cumsum(0),
        lambda: torch.rand(5000).sort(descending=True).values,
        lambda: torch.rand(6, 16).sort(-1).values,
        lambda: torch.rand(16, 64).sort(0).values,
        lambda: torch.tensor([0, 5, 9, 20, 33]),
        lambda: torch.arange(30).flip(0),
        lambda: torch.stack([torch.randint(900, (500,)).sort().values, torch.randint(900, (500,))]),
        lambda: torch.stack([torch.randint(900, (500,)), torch.randint(900, (500,)).sort().values], 1),
        lambda: torch.stack([torch.rand(64), torch.rand(64) + 1], 0),
        lambda: torch.arange(200_000, dtype=torch.uint8).sort().values,
    ],
)
def test_in_order(make: object) -> None:
    assert is_ordered(make())  # type: ignore[operator]


def test_in_no_order() -> None:
    shapes = [(4, 128), (1, 16), (32,), (64, 512), (2, 16), (16, 16, 3), (100_000,)]
    assert not any(is_ordered(torch.randn(shape)) for shape in shapes for _ in range(20))
    assert not is_ordered(torch.arange(8) > 3)
    assert not is_ordered(torch.tensor(3.0))
    assert not is_ordered(torch.randn(0, 4))


def test_where_integers_may_change_places() -> None:
    assert find_interchangeable_axis(ids(1000, 60, count=500, axis=0)) == 1
    assert find_interchangeable_axis(ids(1000, 60, count=500, axis=1)) == 0
    assert find_interchangeable_axis(ids(*TABLES, count=128, axis=1)) == 0
    assert find_interchangeable_axis(ids(*TABLES, count=4, axis=1)) == 0
    assert find_interchangeable_axis(torch.cat([torch.randint(size, (100,)) for size in (10, 1000, 100_000)])) is None
    assert find_interchangeable_axis(torch.randint(9, (5,))) is None
    assert find_interchangeable_axis(torch.tensor(3)) is None
    for shape in [(4, 128), (1, 16), (32,), (64, 512), (20_000,), (2, 2048), (128, 26)]:
        for _ in range(5):
            assert find_interchangeable_axis(torch.randint(50_000, shape)) == shape.index(max(shape))
