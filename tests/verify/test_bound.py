"""The error bound passes honest arithmetic and stops a silent downgrade."""

from __future__ import annotations

import itertools
import math
import time

import pytest
import torch

from stitchcuda.state import OutputError
from stitchcuda.verify.compare import bound, reference_error
from tests.verify import arithmetic
from tests.verify.arithmetic import Compute

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


def test_booleans_are_zeros_and_ones() -> None:
    right = torch.tensor([True, False, True])
    odd = torch.tensor([255, 0, 1], dtype=torch.uint8).view(torch.bool)
    allowed = bound.bound([right], [right])
    assert bound.judge("output", right.clone(), right, right, allowed).ok
    assert "neither 0 nor 1" in bound.judge("output", odd, right, right, allowed).note


def test_empty_outputs_have_nothing_to_be_wrong() -> None:
    own = torch.empty(0, 3)
    assert bound.judge("output", own, own, own.double(), bound.bound([own], [own.double()])).ok


def refused(reference: torch.Tensor, exact: torch.Tensor, given: torch.Tensor) -> str:
    allowed = bound.bound([reference], [exact])
    assert bound.judge("output", reference, reference, exact, allowed).ok
    result = bound.judge("output", given, reference, exact, allowed)
    assert not result.ok
    assert result.max_error > result.max_bound or result.norm_error > result.norm_bound
    assert len(result.note.splitlines()) == 1
    return result.note


@pytest.mark.parametrize("large", [1e7, -1e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_values_beside_large_ones_are_looked_at(large: float, dtype: torch.dtype) -> None:
    exact = torch.randn(64, 64, dtype=torch.float64)
    exact[torch.ones(64, 64).triu(1).bool()] = large
    own = exact.to(dtype)
    small = exact.abs() < 100
    note = refused(own, exact, torch.where(small, torch.zeros_like(own), own))
    assert "elements are off by more than values of their size may be" in note
    assert f"{abs(large):.3g}" in note
    refused(own, exact, torch.where(small, own.mul(1.2), own))


def test_half_an_output_left_out_is_refused_where_that_half_is_small() -> None:
    own = torch.randn(64, 128)
    own[:, 64:] *= 1e-8
    exact = own.double() * (1 + 3e-8 * torch.randn(64, 128, dtype=torch.float64))
    assert "values of their size" in refused(own, exact, arithmetic.half_zero(own))


def test_a_slice_is_measured_against_its_like() -> None:
    """Rows of a product whose errors are as large as one small row's values: its neighbours do not excuse it."""
    a, b, own, true = products()
    a[17] *= 1e-7
    own, true = a @ b.T, a.double() @ b.double().T
    note = refused(own, true, arithmetic.one_row_zero(own))
    assert note.startswith("index 17 of axis 0 is wrong")
    assert "0 of 255 others" in note


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cheat", [arithmetic.half_zero, arithmetic.one_row_zero, arithmetic.one_row_repeated])
def test_work_left_out_is_refused_for_every_operator(cheat: Compute, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    for operator in arithmetic.OPERATORS.values():
        given = operator.draw(generator)
        own, exact = operator.reference(*given).to(dtype), operator.reference(*(x.double() for x in given))
        if own.dim() >= 2 and bool(own.isfinite().all()):
            refused(own, exact, cheat(own))


@pytest.mark.parametrize("name", ["product", "product by fma", "product of bf16 parts", "uneven channels", "mlp"])
@pytest.mark.parametrize("bits", [10, 7])
def test_tf32_and_bf16_products_are_refused(name: str, bits: int) -> None:
    operator = arithmetic.OPERATORS[name]
    for seed in range(5):
        given = operator.draw(torch.Generator().manual_seed(seed))
        own, exact = operator.reference(*given), operator.reference(*(x.double() for x in given))
        refused(own, exact, operator.reference(*(arithmetic.rounded(x, bits) for x in given)))


def honest_judgements(rounds: int, seed: int) -> tuple[int, list[str]]:
    """(how many, what was refused) of honest kernels for every operator, three input sets and three output types."""
    torch.manual_seed(seed)
    count, wrong = 0, []
    for round_ in range(rounds):
        for name, operator in arithmetic.OPERATORS.items():
            shape = [x.shape for x in operator.draw(torch.Generator().manual_seed(1000 * seed + round_))]
            numbers = itertools.count(10**6 * seed + 10**4 * round_)
            drawn = (operator.draw(torch.Generator().manual_seed(number)) for number in numbers)
            sets = list(itertools.islice((given for given in drawn if [x.shape for x in given] == shape), 3))
            truths = [operator.reference(*(x.double() for x in given)) for given in sets]
            for dtype in operator.types:
                owns = [operator.reference(*given).to(dtype) for given in sets]
                allowed = bound.bound(owns, truths)
                for kernel, honest in enumerate(operator.honest):
                    for given, own, true in zip(sets, owns, truths, strict=True):
                        found = bound.judge("output", honest(*given).to(dtype), own, true, allowed)
                        count += 1
                        if not found.ok:
                            wrong.append(f"{name} {kernel} {dtype} {tuple(own.shape)}: {found.note}")
    return count, wrong


def test_honest_kernels_pass() -> None:
    count, wrong = honest_judgements(1, seed=1)
    assert count >= 300
    assert not wrong


@pytest.mark.long
def test_ten_thousand_honest_judgements_without_a_refusal() -> None:
    count, wrong = honest_judgements(32, seed=2)
    assert count >= 10_000
    assert not wrong


def test_a_large_output_is_judged_quickly() -> None:
    own = torch.randn(640, 4096)
    exact = own.double()
    allowed = bound.bound([own], [exact])
    bound.judge("output", own, own, exact, allowed)
    started = time.perf_counter()
    bound.judge("output", own, own, exact, allowed)
    assert time.perf_counter() - started < 2.0  # 0.05 s on an idle machine; no loop over slices


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    exact = torch.randn(16, 32, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    own = exact.to(dtype)
    allowed = bound.bound([own], [exact])
    assert bound.judge("output", own, own, exact, allowed).ok
    assert not bound.judge("output", torch.zeros_like(own), own, exact, allowed).ok
    assert bound.judge("output", own[:0], own[:0], exact[:0], allowed).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float64])
@pytest.mark.parametrize("spoil", ["nothing", "one element", "a row", "an infinity"])
def test_an_error_that_was_measured_before_changes_no_judgement(dtype: torch.dtype, spoil: str) -> None:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    exact = torch.randn(64, 48, generator=torch.Generator().manual_seed(1), dtype=wide)
    exact[3] *= 1e-4
    if spoil == "an infinity" and not dtype.is_complex:
        exact[5, 7] = float("inf")
    own = exact.to(dtype)
    given = own.clone()
    if spoil == "one element":
        given[9, 9] *= 1.5
    if spoil == "a row":
        given[3] *= 1.2
    allowed = bound.bound([own], [exact])
    first = bound.judge("output", given, own, exact, allowed)
    assert first.ok == (spoil in ("nothing", "an infinity"))
    again = bound.judge("output", given, own, exact, allowed, bound.measure_error(own, exact))
    assert again.model_copy(update={"bits_of_reference": None}) == first.model_copy(update={"bits_of_reference": None})


@pytest.mark.more
@pytest.mark.parametrize("shape", [(7, 9, 40), (1, 5, 16, 16), (300,), (2, 3, 2, 16, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float8_e4m3fn])
@pytest.mark.parametrize("most", [17, 300])
def test_an_output_read_in_parts_is_judged_as_when_read_whole(
    shape: tuple[int, ...], dtype: torch.dtype, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    own = exact.to(dtype)
    off, tiny, late = own.clone(), own.clone(), own.clone()
    off.view(-1)[exact.numel() // 2] = 7.0
    tiny.view(-1)[int(exact.abs().argmin())] = 1e-3
    late[..., -1] = 0

    def judged() -> tuple[bound.Measure, list[OutputError]]:
        allowed = bound.bound([own], [exact])
        found = [bound.judge("output", given, own, exact, allowed) for given in (own, off, tiny, late)]
        return bound.measure_error(own, exact), found

    whole, verdicts = judged()
    monkeypatch.setattr(reference_error, "_PART", most)
    measured, found = judged()
    assert (measured.counts, measured.errors) == (whole.counts, whole.errors)
    assert (measured.norm, measured.slices) == pytest.approx((whole.norm, whole.slices))
    for ours, theirs in zip(found, verdicts, strict=True):
        assert (ours.ok, ours.note[:40], ours.max_error) == (theirs.ok, theirs.note[:40], theirs.max_error)
        assert ours.norm_error == pytest.approx(theirs.norm_error)
    assert verdicts[0].ok
    assert not verdicts[1].ok


def test_rows_of_other_size_in_one_set_make_no_sum_wrong() -> None:
    """A sum near zero has the error of what it was summed from, also where another set, or other rows, hold small values."""
    generator = torch.Generator().manual_seed(0)

    def in_blocks(x: torch.Tensor) -> torch.Tensor:
        parts, before = [], torch.zeros(len(x), 1)
        for begin in range(0, x.shape[1], 25):
            part = x[:, begin : begin + 25]
            parts.append(part.cumsum(1) + before)
            before = before + part.sum(1, keepdim=True)
        return torch.cat(parts, 1)

    for _ in range(12):
        given = [torch.randn(48, 300, generator=generator) for _ in range(5)]
        given[1][::8] *= 2.0**-30
        own, exact = [x.cumsum(1) for x in given], [x.double().cumsum(1) for x in given]
        allowed = bound.bound(own, exact)
        for x, expected, true in zip(given, own, exact, strict=True):
            assert bound.judge("output", in_blocks(x), expected, true, allowed).ok
        wrong = in_blocks(given[1])
        wrong[8] *= 1.001
        assert not bound.judge("output", wrong, own[1], exact[1], allowed).ok, "a small row is looked at by itself"
