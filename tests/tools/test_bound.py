"""The error bound passes honest arithmetic and stops a silent downgrade."""

from __future__ import annotations

import math

import torch

from stitchcuda.tools import bound

ROWS, INNER = 256, 1024


def products() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(ROWS, INNER, generator=generator) for _ in range(2))
    return a, b, a @ b.T, a.double() @ b.double().T


def test_another_summation_order_passes() -> None:
    a, b, own, true = products()
    other = sum((a[:, i::8] @ b[:, i::8].T for i in range(8)), torch.zeros(ROWS, ROWS))
    assert bound.judge("output", other, own, true, bound.bound([own], [true])).ok


def test_products_split_into_bf16_parts_pass() -> None:
    """Beside a reference whose own error is that of fp32 on a GPU's CUDA cores (1.15e-6 in norm, 3.0e-6 at worst, measured)."""
    a, b, own, true = products()

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        high = x.bfloat16().float()
        return high, (x - high).bfloat16().float()

    (a0, a1), (b0, b1) = parts(a), parts(b)
    split = a0 @ b1.T + a1 @ b0.T + a0 @ b0.T
    noise = torch.randn(own.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    measured = true + noise * (1.15e-6 * true.norm() / noise.norm())
    allowed = bound.bound([measured.float()], [true])
    assert bound.judge("output", split, own, true, allowed).ok
    assert not bound.judge("output", a0 @ b0.T, own, true, allowed).ok


def test_lower_precision_is_refused() -> None:
    a, b, own, true = products()
    allowed = bound.bound([own], [true])
    for downgraded in ((a.bfloat16().float() @ b.bfloat16().float().T), (a.half().float() @ b.half().float().T)):
        result = bound.judge("output", downgraded, own, true, allowed)
        assert not result.ok
        assert "worst at [" in result.note


def test_zeros_for_a_wide_softmax_are_refused() -> None:
    x = torch.randn(16, 100_000)
    own, true = x.softmax(-1), x.double().softmax(-1)
    result = bound.judge("output", torch.zeros_like(own), own, true, bound.bound([own], [true]))
    assert not result.ok
    assert "all zeros" in result.note


def test_an_exact_reference_leaves_a_few_ulps() -> None:
    own = torch.tensor([1.0, 2.0, 4.0])
    allowed = bound.bound([own], [own.double()])
    assert bound.judge("output", own * (1 + 2**-23), own, own.double(), allowed).ok
    assert not bound.judge("output", own * (1 + 2**-19), own, own.double(), allowed).ok


def test_nan_patterns_must_agree() -> None:
    own = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    allowed = bound.bound([own], [own.double()])
    assert bound.judge("output", own.clone(), own, own.double(), allowed).ok
    nan, inf = math.nan, math.inf
    for wrong in ([1.0, 0.0, inf, -inf], [nan, nan, inf, -inf], [1.0, nan, inf, inf]):
        assert not bound.judge("output", torch.tensor(wrong), own, own.double(), allowed).ok


def test_integers_are_exact() -> None:
    own = torch.tensor([3, 4])
    allowed = bound.bound([own], [own])
    assert bound.judge("output", own.clone(), own, own, allowed).ok
    result = bound.judge("output", own + torch.tensor([0, 1]), own, own, allowed)
    assert not result.ok
    assert "1 of 2 elements differ" in result.note


def test_empty_outputs_have_nothing_to_be_wrong() -> None:
    own = torch.empty(0, 3)
    assert bound.judge("output", own, own, own.double(), bound.bound([own], [own.double()])).ok
