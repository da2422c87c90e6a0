"""A stage for timing without a GPU: the real calls, contents and judge's side, and a clock whose time passes as a test says."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import TimingResult
from stitchcuda.verify.inputs import timed_inputs
from stitchcuda.verify.inputs.reference_requests import InputSet, LoadReference
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, draw, extend
from stitchcuda.verify.inputs.timed_inputs import TimedCall
from stitchcuda.verify.messages.request import Request, answer_type, read
from stitchcuda.verify.messages.timing_requests import TimingRequest
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import Trial
from stitchcuda.verify.reference.reference_worker import ReferenceWorker
from stitchcuda.verify.timing import rounds
from stitchcuda.verify.timing.timed_calls import TimedCalls, answer_request

REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32))

    def forward(self, x, y):
        return torch.tanh(x * self.weight) + y

def get_inputs():
    return [torch.randn(16, 32), torch.rand(16, 32)]
'''


class Time:
    """Milliseconds that pass for everybody."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms * 1e-3


class VirtualClock:
    """A device's clock on virtual time. `spend` is work on the call's stream, `later` work that nobody joins."""

    def __init__(self, time: Time, *, settle_ms: float = 0.2) -> None:
        self.settle_ms = settle_ms
        self.factor = 1.0                  # what the clock says per millisecond that passes
        self._time = time
        self._began = self._returned = self._later = 0.0

    def spend(self, ms: float) -> None:
        self._time.ms += ms

    def later(self, ms: float) -> None:
        self._later += ms

    def settle(self) -> None:
        self.spend(self.settle_ms)

    def start(self) -> None:
        self._began = self._time.ms

    def returned(self) -> None:
        self._returned = self._time.ms

    def copy(self, target: torch.Tensor, source: int, size: int) -> None:
        self.spend(0.002)
        ctypes.memmove(target.data_ptr(), source, size)

    def stop(self) -> tuple[float, float]:
        rest, self._later = self._later, 0.0
        self.spend(0.004 + rest)
        return self.factor * (self._returned - self._began), self.factor * rest

    def peak_bandwidth(self) -> float:
        return 1e9

    def l2_bytes(self) -> int:
        return 0


Program = Callable[..., object]


@dataclass
class Local:
    """A worker in this process. `fails`: kinds of requests for which memory does not suffice, once each."""

    scratch: Path
    clock: VirtualClock
    program: Program
    fails: list[type] = field(default_factory=list)
    asked: list[type] = field(default_factory=list)
    _held: TimedCalls | None = None

    def ask(self, request: Request[Any], *, seconds: float, doing: str) -> Any:
        self.asked.append(type(request))
        if type(request) in self.fails:
            self.fails.remove(type(request))
            raise WorkerFailed("memory", "the program ran out of memory")
        self.clock.spend(0.1)              # the way there and back
        with torch.no_grad():
            self._held, answer = answer_request(
                self._held, cast(TimingRequest, request), lambda made: TimedCalls(made, self.program, self.clock, device="cpu")
            )
        return read(answer_type(request), vars(answer))


class Paused:
    """A program's worker that only the reference is asked beside."""

    def paused(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()


class Stage:
    """One reference, its secret inputs, and a timing of any callable against it."""

    def __init__(self, folder: Path, reference: str = REFERENCE) -> None:
        self.folder = folder
        self.time = Time()
        path = folder / "reference.py"
        path.write_text(reference)
        self.worker = ReferenceWorker("sim")
        self.ask = self.worker.answer
        self.built = self.ask(LoadReference(str(path), "reference", patience=0.0))
        self.secret_inputs: SecretInputs = draw(self.ask, kept=frozenset(self.built.state_names))
        extend(self.ask, self.secret_inputs, 1)
        self.reference: Local | None = None
        self.module = self.worker._loaded().module

    def local(self, name: str, program: Program, clock: VirtualClock) -> Local:
        scratch = self.folder / name
        scratch.mkdir(exist_ok=True)
        return Local(scratch, clock, program)

    def honest(self, clock: VirtualClock, ms: float) -> Program:
        def call(*args: Any) -> Any:
            clock.spend(ms)
            return self.module(*args)

        return call

    def timed_inputs(self) -> timed_inputs.TimedInputs:
        return timed_inputs.draw(self.ask, self.secret_inputs, self.compare)

    def compare(self, given: InputSet, secret_inputs: SecretInputs, call: TimedCall) -> list[str]:
        trial = Trial(Paused(), self.secret_inputs, self.built, "sim", Limits(), self.ask)  # type: ignore[arg-type]
        return trial.compare_timed_call(given, secret_inputs, call)

    def timed(
        self, program: Program, clock: VirtualClock, *, reference_ms: float = 2.0, previous: Local | None = None, **options: Any
    ) -> TimingResult:
        """`program` against the reference at `reference_ms` a call."""
        theirs = VirtualClock(self.time)
        reference = self.reference = self.local("reference", self.honest(theirs, reference_ms), theirs)
        ours = self.local("program", program, clock)
        return rounds.time_interleaved(
            reference, previous or ours, ours, self.timed_inputs(), Limits(), now=self.time, **options
        )  # fmt: skip
