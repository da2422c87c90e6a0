"""Small parts of a trial that odd references have broken."""

from __future__ import annotations

import math

import torch

from stitchcuda.state import OutputError
from stitchcuda.tools.judging.trial import same_bits


def test_strided_outputs_are_compared_bit_by_bit() -> None:
    every_other = torch.randn(8, 32)[:, ::2]
    assert same_bits(every_other, every_other.clone())
    assert same_bits(every_other.t(), every_other.clone().t())
    assert not same_bits(every_other, every_other + 1)
    assert same_bits(torch.full((3,), math.nan), torch.full((3,), math.nan))


def test_errors_without_a_number_survive_the_workspace() -> None:
    error = OutputError(name="output", max_error=math.inf, max_bound=1.0, norm_error=math.nan, norm_bound=1.0, ok=False)
    again = OutputError.model_validate_json(error.model_dump_json())
    assert again.max_error == math.inf
    assert math.isnan(again.norm_error)
