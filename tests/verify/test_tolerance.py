"""The tolerance that a published check would need is the one at which torch.allclose changes its answer."""

from __future__ import annotations

import math

import pytest
import torch

from stitchcuda.verify.compare.tolerance import needed_tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_it_is_where_allclose_changes_its_answer(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    right = (100 * torch.randn(7, 9, generator=draw, dtype=torch.float64)).to(dtype)
    given = right + (1e-2 * torch.randn(7, 9, generator=draw, dtype=torch.float64)).to(dtype)
    needed = needed_tolerance(given, right)
    assert 0 < needed < 1
    for factor, passes in ((1.001, True), (0.999, False)):
        close = torch.allclose(given.double(), right.double(), atol=factor * needed, rtol=factor * needed)
        assert close == passes


def test_what_is_not_finite_must_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stitchcuda.verify.compare.tolerance._PART", 2)  # it is read a part at a time
    right = torch.tensor([1.0, math.inf, math.nan, -math.inf, 0.0])
    assert needed_tolerance(right.clone(), right) == 0.0
    for wrong in ([1.0, -math.inf, math.nan, -math.inf, 0.0], [1.0, math.inf, 2.0, -math.inf, 0.0], [math.nan, *right[1:]]):
        assert needed_tolerance(torch.tensor(wrong), right) == math.inf
    assert needed_tolerance(right[:4], right) == math.inf
    assert needed_tolerance(torch.tensor([3, 5]), torch.tensor([3, 4])) == pytest.approx(0.2)
    assert needed_tolerance(torch.empty(0), torch.empty(0)) == 0.0
