"""A reference's running sums have the error of float32 on the CPU too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from stitchcuda.verify.compare import bound
from stitchcuda.verify.reference.float64_truth import run64, run_in_precision
from stitchcuda.verify.reference.running_sums import Float32RunningSums


class Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


def cancelling(width: int) -> Tensor:
    """Rows in which large values come and go, so that later sums are small."""
    made = torch.randn(48, width, generator=torch.Generator().manual_seed(width))
    made[7, 20], made[7, 90], made[31, 5], made[31, 60] = 8192.3, -8192.1, -4096.7, 4096.9
    return made


def in_chunks(x: Tensor, chunk: int = 32) -> Tensor:
    """An honest scan in float32: each chunk as a tree, the carry from chunk to chunk."""
    parts: list[Tensor] = []
    for part in torch.split(x, chunk, 1):
        sums, step = part, 1
        while step < part.shape[1]:
            sums = torch.cat((sums[:, :step], sums[:, step:] + sums[:, :-step]), 1)
            step *= 2
        parts.append(sums + parts[-1][:, -1:] if parts else sums)
    return torch.cat(parts, 1)


def is_accepted(x: Tensor, scan: Callable[[Tensor], Tensor]) -> bool:
    own, exact = run_in_precision(Sums(), (x,), {}, "reference", "cpu")["output"], run64(Sums(), (x,), {})["output"]
    measure = bound.measure_error(own, exact)
    return bound.judge("output", scan(x), own, exact, bound.pool_measures([measure]), measure).ok


@pytest.mark.parametrize("width", [300, 3000])
def test_a_scan_in_float32_is_right_and_one_in_less_is_not(width: int) -> None:
    x = cancelling(width)
    exact, rounded = x.double().cumsum(1), x.cumsum(1)
    measure = bound.measure_error(rounded, exact)
    assert not bound.judge("output", in_chunks(x), rounded, exact, bound.pool_measures([measure]), measure).ok
    assert is_accepted(x, in_chunks)

    def in_tf32(x: Tensor) -> Tensor:
        return in_chunks(((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32))

    assert not is_accepted(x, in_tf32)
    assert not is_accepted(x, lambda x: in_chunks(x.half().float()))
    assert not is_accepted(x, lambda x: in_chunks(x).half().float())


def test_only_running_sums_of_float32_are_added_otherwise() -> None:
    x = cancelling(100)
    with Float32RunningSums():
        other, transposed, written, total = x.cumsum(1), x.T.cumsum(-2), x.clone(), x.sum(1)
        written.cumsum_(1)
        torch.cumsum(x, 1, out=(out := torch.empty_like(x)))
        counts = (x > 0).cumsum(1, dtype=torch.float32)
        kept = x.double().cumsum(1), torch.tensor(2.0).cumsum(0), torch.empty(0, 3).cumsum(0), torch.arange(5).cumsum(0)
    assert not torch.equal(other, x.cumsum(1))
    assert torch.allclose(other, x.cumsum(1), atol=0.01)
    assert torch.equal(transposed.T, other)
    assert transposed.stride() == x.T.cumsum(0).stride()
    assert torch.equal(written, other)
    assert torch.equal(out, other)
    assert torch.equal(total, x.sum(1))
    assert torch.equal(counts, (x > 0).cumsum(1).float())
    assert torch.equal(kept[0], x.double().cumsum(1))
    assert [tuple(made.shape) for made in kept[1:]] == [(), (0, 3), (5,)]


def test_what_runs_other_functions_is_left_to_the_float64_call() -> None:
    with Float32RunningSums():
        made = torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),))
    assert torch.equal(made, torch.full((2,), 2.0))
