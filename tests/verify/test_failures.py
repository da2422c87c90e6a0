"""What goes wrong in a program worker is told as what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.verify.integrity.byte_traffic import Poison
from stitchcuda.verify.messages.request import Failed
from stitchcuda.verify.program import simulated_device
from stitchcuda.verify.program.failures import describe_failure


def told(work: Any) -> Failed:
    with pytest.raises(NotImplementedError) as raised:
        work()
    return describe_failure(raised.value, Path("/program"))


@pytest.mark.parametrize(("on_simulator", "kind"), [(True, "refused"), (False, "error")])
def test_an_operator_for_cuda_alone_is_nothing_the_simulator_can_judge(
    on_simulator: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated_device, "is_installed", lambda: on_simulator)
    with torch.library._scoped_library("failures", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("thrice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CUDA")
        library.impl("thrice", lambda x: x * 3, "Meta")
        answer = told(lambda: torch.ops.failures.twice(torch.ones(2)))
        assert answer.kind == kind
        assert ("the operator failures::twice has a kernel for CUDA tensors only" in answer.error) == on_simulator
        assert told(lambda: torch.ops.failures.thrice(torch.ones(2))).kind == "error", "no GPU runs it either"


def test_what_runs_other_functions_cannot_be_watched() -> None:
    def work() -> None:
        with torch.no_grad(), Poison():
            torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),))

    answer = told(work)
    assert answer.kind == "unwatched"
    assert "torch's operator cond" in answer.error
    assert "object at" not in answer.error


def test_other_things_that_are_not_implemented_are_the_programs() -> None:
    assert describe_failure(NotImplementedError("later"), Path("/program")).kind == "error"
