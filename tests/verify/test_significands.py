"""The significand that products and convolutions carry is found from their own error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from stitchcuda.verify.reference import significands
from stitchcuda.verify.reference.significands import Significands

A, B, C = torch.randn(96, 300), torch.randn(300, 400), torch.randn(400)
X, W = torch.randn(3, 8, 20, 20), torch.randn(12, 8, 3, 3)
CALLS: dict[str, Callable[[], torch.Tensor]] = {
    "mm": lambda: A @ B,
    "addmm": lambda: torch.addmm(C, A, B, beta=0.5, alpha=3.0),
    "bmm": lambda: A.expand(4, -1, -1) @ B.expand(4, -1, -1),
    "baddbmm": lambda: torch.baddbmm(C, A.expand(4, -1, -1), B.expand(4, -1, -1), alpha=0.25),
    "convolution": lambda: F.conv2d(X, W, torch.randn(12), stride=2, padding=1),
}


def found(call: Callable[[], torch.Tensor]) -> dict[str, int]:
    with torch.no_grad(), Significands() as seen:
        call()
    return dict(seen.bits)


@pytest.mark.parametrize("operator", CALLS)
@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 24), (torch.bfloat16, 8), (torch.float64, 53)])
def test_operators_by_dtype(operator: str, dtype: torch.dtype, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A", "B", "C", "X", "W"):
        monkeypatch.setitem(globals(), name, globals()[name].to(dtype))
    call = CALLS[operator] if operator != "convolution" else lambda: F.conv2d(X, W, stride=2, padding=1)
    assert found(call) == {operator: bits}


def rounded(x: torch.Tensor, explicit: int) -> torch.Tensor:
    """Float32 with so many explicit bits of the significand left."""
    step = 1 << (23 - explicit)
    return ((x.view(torch.int32) + step // 2) & -step).view(torch.float32)


@pytest.mark.parametrize(("explicit", "bits"), [(10, 11), (7, 8), (23, 24)])
@pytest.mark.parametrize("terms", [16, 300, 20_000])
def test_rounded_operands_are_told(explicit: int, bits: int, terms: int) -> None:
    """As TF32 and bfloat16 products do it, whatever the flag says; also after a ReLU."""
    for draw in (torch.randn, torch.rand):
        left, right = draw(64, terms), torch.randn(terms, 32)
        given = rounded(left, explicit) @ rounded(right, explicit)
        assert significands._bits(given, left.double() @ right.double()) == bits


def test_what_is_no_product_is_not_told() -> None:
    assert found(lambda: torch.randn(8, 8).softmax(-1)) == {}
    assert found(lambda: torch.zeros(0, 4) @ torch.zeros(4, 4)) == {}
    assert found(lambda: torch.ones(4, 4, dtype=torch.int64) @ torch.ones(4, 4, dtype=torch.int64)) == {}
    assert found(lambda: torch.zeros(4, 4) @ torch.zeros(4, 4)) == {"mm": 24}
