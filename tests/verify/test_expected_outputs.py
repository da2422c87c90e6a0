"""Input sets that many answers are compared with are read and measured once, within a bound on memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stitchcuda.verify.compare import bound
from stitchcuda.verify.compare.expected_outputs import ExpectedOutput, ExpectedOutputs
from stitchcuda.verify.compare.reference_error import Float64Output

ELEMENTS = 1000
SIZE = ELEMENTS * (4 + 4 + 2 * 8)          # bytes of one set: input, answer, float64 and its magnitudes


class Sets:
    """Input sets by name, which counts how often each is read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def of(self, keys: ExpectedOutputs, name: str) -> list[Tensor]:
        def read() -> ExpectedOutput:
            self.read.append(name)
            x = torch.full((ELEMENTS,), float(ord(name)))
            return ExpectedOutput([x], [x + 1], [Float64Output(x.double() + 1)])

        return keys.get(name, read).expected


def test_a_set_is_read_once() -> None:
    keys, sets = ExpectedOutputs(), Sets()
    assert [float(sets.of(keys, name)[0][0]) for name in "abab"] == [98.0, 99.0, 98.0, 99.0]
    assert sets.read == ["a", "b"]


def test_what_was_looked_at_last_is_kept() -> None:
    keys, sets = ExpectedOutputs(most_bytes=2 * SIZE), Sets()
    for name in "abacab":                  # c takes the place of b, which was looked at longest ago; then b that of c
        assert float(sets.of(keys, name)[0][0]) == ord(name) + 1
    assert sets.read == ["a", "b", "c", "b"]


def test_a_set_that_is_larger_than_the_bound_is_read_each_time() -> None:
    keys, sets = ExpectedOutputs(most_bytes=SIZE - 1), Sets()
    assert [float(sets.of(keys, "a")[0][0]) for _ in range(2)] == [98.0, 98.0]
    assert sets.read == ["a", "a"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float64])
@pytest.mark.parametrize("spoil", ["nothing", "one element", "a row", "an infinity"])
def test_what_is_known_of_float64_changes_no_judgement(dtype: torch.dtype, spoil: str) -> None:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    exact = torch.randn(64, 48, generator=torch.Generator().manual_seed(1), dtype=wide)
    exact[3] *= 1e-4
    if spoil == "an infinity" and not dtype.is_complex:
        exact[5, 7] = float("inf")
    own, known = exact.to(dtype), Float64Output(exact)
    given = own.clone()
    if spoil == "one element":
        given[9, 9] *= 1.5
    if spoil == "a row":
        given[3] *= 1.2
    allowed = bound.bound([own], [exact])
    first = bound.judge("output", given, own, exact, allowed)
    assert first.ok == (spoil in ("nothing", "an infinity"))
    for _ in range(2):                     # the second time everything is there already
        assert bound.judge("output", given, own, known, allowed, bound.measure_error(own, known)) == first
