"""Small parts of a trial that odd references have broken."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import OutputError
from stitchcuda.verify.inputs.reference_requests import Construction, Names
from stitchcuda.verify.inputs.secret_inputs import SecretInputs
from stitchcuda.verify.messages.program_requests import Called, IdleWork, ProgramLoaded, Repeated, WatchIdle, WrittenTensors
from stitchcuda.verify.messages.request import read
from stitchcuda.verify.messages.tensor_block import pack
from stitchcuda.verify.messages.timing_requests import TimingReleased
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import ProgramAnswer, Trial
from stitchcuda.verify.reference.comparisons import same_bits


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


def test_time_of_the_reference_does_not_count_against_the_program() -> None:
    built = Construction(init=pack([], "cpu"), init_structure=None, init_seed=0, training=False, precision="reference")
    events: list[str] = []

    class Paused:
        @contextlib.contextmanager
        def paused(self) -> Iterator[None]:
            events.append("paused")
            yield
            events.append("goes on")

    def ask(request: Any) -> Names:
        events.append(type(request).__name__)
        return Names(())

    nothing = SecretInputs(state=pack([], "cpu"), renewed=True)
    trial = Trial(Paused(), nothing, built, "sim", Limits(), ask)  # type: ignore[arg-type]
    answer: Any = ProgramAnswer("a", (), WrittenTensors(structure=None, outputs=None))
    trial.find_changed(answer, answer)
    assert events == ["paused", "FindChanged", "goes on"]


class Idle:
    """A worker that answers this when it was left alone, or fails."""

    def __init__(self, answer: IdleWork | WorkerFailed) -> None:
        self.answer, self.asked = answer, list[Any]()

    def ask(self, request: Any, *, seconds: float, doing: str) -> IdleWork:
        self.asked.append(request)
        if isinstance(self.answer, WorkerFailed):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (IdleWork(worked=[]), ""),
        (IdleWork(worked=["spin_kernel(long)"] * 9), "it works on the device while nobody calls it (spin_kernel(long))"),
        (WorkerFailed("crash", "the program crashed while doing nothing"), "the program crashed while doing nothing"),
    ],
)  # fmt: skip
def test_a_program_that_nobody_calls_does_nothing(answer: Any, reason: str) -> None:
    built = Construction(init=pack([], "cpu"), init_structure=None, init_seed=0, training=False, precision="reference")
    worker = Idle(answer)
    nothing = SecretInputs(state=pack([], "cpu"), renewed=True)
    trial = Trial(worker, nothing, built, "cuda", Limits(), lambda request: None)  # type: ignore[arg-type]
    assert trial.idle(0.3) == reason
    assert worker.asked == [WatchIdle(budget_s=0.3)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"own": 1.5}, {"own": "1"}, {"own": math.nan}, {"own": True}, {"launches": -1}, {"launches": 1.0}, {"launches": True},
        {"elsewhere": 2**63}, {"host_bytes": None}, {"tampered": "no"}, {"tampered": [1]}, {"digests": [0]}, {"more": 0},
    ],
)  # fmt: skip
def test_what_a_worker_says_of_a_call_is_of_its_type(wrong: dict[str, Any]) -> None:
    said: dict[str, Any] = {"structure": None, "outputs": {}, "tampered": [], "own": 0.5, "launches": 2}
    assert read(Called, said).launches == 2
    for field in ("structure", "outputs", "tampered"):
        with pytest.raises(ValidationError):
            read(Called, {name: value for name, value in said.items() if name != field})
    with pytest.raises(ValidationError):
        read(Called, said | wrong)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Repeated, {"structure": None, "outputs": {}, "calls": 1}), (TimingReleased, {}),
        (ProgramLoaded, {"missing": [], "elsewhere": [], "guessed": {}, "spare": [], "alike": []}),
    ],
)  # fmt: skip
def test_a_worker_may_not_keep_silent_about_tampering(kind: Any, said: dict[str, Any]) -> None:
    assert read(kind, said | {"tampered": ["x"]}).tampered == ["x"]
    with pytest.raises(ValidationError):
        read(kind, said)


def test_a_program_holds_no_million_tensors() -> None:
    said: dict[str, Any] = {"missing": [], "elsewhere": [], "guessed": {}, "tampered": [], "spare": [1] * 1000, "alike": []}
    assert len(read(ProgramLoaded, said).spare) == 1000
    with pytest.raises(ValidationError):
        read(ProgramLoaded, said | {"spare": [1] * 1_000_000})
