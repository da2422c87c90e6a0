"""Holds what checks and timings share: the reference's worker, secret inputs, new workers, turns on the GPU.

Runs in the judge process. At most `_MOST_INPUTS` sets of secret inputs are kept for a session's programs, one for each
`InputTerms`. A reference worker that dies is started again when it is next asked. It decides no verdict: correctness is
`verify/judge/examination.py`'s, times are `verify/judge/interleaved_timing.py`'s.
Where to look next: `verify/inputs/secret_inputs.py` (what is secret), `verify/processes/worker.py` (talks to a worker),
`verify/program/trial.py` (one program in one worker).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stitchcuda.errors import BadInput, Unavailable, UnusableReference
from stitchcuda.sandbox.limits import for_data
from stitchcuda.sandbox.removal import remove
from stitchcuda.tools.device import gpu_lock
from stitchcuda.verify.ablation import state_mismatch
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs.reference_requests import Construction, ReferenceWork
from stitchcuda.verify.inputs.secret_inputs import (
    InputTerms,
    ReferenceKilled,
    ReferenceLost,
    SecretInputs,
    check_reference,
    draw,
    extend,
)
from stitchcuda.verify.integrity.snapshot import digest_of, snapshot
from stitchcuda.verify.messages.judge_requests import JudgeStart
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.request import Request, answer_type
from stitchcuda.verify.processes.background import BackgroundWork
from stitchcuda.verify.processes.builder import Builder, SimulatorHome, simulator_home
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.builder_worker import shared_folders
from stitchcuda.verify.program.trial import Trial

_Answer = TypeVar("_Answer")

TIMINGS = 2
"""How often a winner is timed, each time in new processes."""

_MOST_INPUTS = 4                            # sets of secret inputs kept for a session's programs, each for other terms
_LARGE = {"sim": 2**30, "cuda": 6 * 2**30}  # bytes of a call, parameters included, above which no second copy is held
_MANY = 6                                   # calls for whose bytes a small GPU has room
_AMPLIFIED = "the reference's weights were scaled up: as constructed, its outputs hardly depend on its inputs"
_GRACE_S = 5.0                             # for the reference's worker to report a timeout by itself


class Born(NamedTuple):
    """A worker for the program at `copy`, into which nothing is loaded yet. Closing `stack` ends it and removes the copy."""

    copy: Path
    worker: Worker
    stack: contextlib.ExitStack


@dataclass
class _SharedState:
    """The reference's worker and its answers, shared by all checks that run at once."""

    reference: Worker | None = None
    built: Construction | None = None      # set when the reference was started, which comes first
    work: ReferenceWork | None = None
    gpu: gpu_lock.GpuLock | None = None
    output_notes: tuple[str, ...] | None = None  # on outputs that can hardly be wrong; None: not looked at yet
    amplified: bool = False                # weights are scaled up: as constructed, outputs hardly depend on the inputs
    parallel: bool = False                 # checks run at once: no secret inputs may be closed
    ask_lock: threading.RLock = field(default_factory=threading.RLock)  # one question to the reference at a time
    draw_lock: threading.RLock = field(default_factory=threading.RLock)  # secret inputs are drawn by one thread at a time


class JudgeResources:
    """One reference with its secret inputs, and workers for the programs that are judged against it."""

    def __init__(self, start: JudgeStart, forkserver: ForkServer) -> None:
        self.settings = start.settings
        self.limits = start.limits
        self.scratch = start.scratch
        self.path = str(start.reference)
        self.cache = start.cache
        self.arch = start.arch
        self.target = self.settings.target
        self.gpu_bytes = int(1e9 * (self.settings.gpu_memory_gb or 0))  # the limit that the user set; 0: none
        self.forkserver = forkserver
        self.home = simulator_home(start.runtime) if self.target == "sim" else SimulatorHome()
        self.builder = self.new_builder()
        for folder in shared_folders(self.cache, self.home.place):
            folder.mkdir(parents=True, exist_ok=True)
        self._shared = _SharedState()
        self._inputs: dict[InputTerms, SecretInputs] = {}
        self.terms: dict[str, InputTerms] = {}  # by program path: the terms on which it was judged last
        self._checked: dict[str, str] = {}     # by program path: the digest of what was checked last
        self.background = BackgroundWork()
        self._waiting: tuple[str, list[Born]] = ("", [])  # a program's path, and workers for its timing
        self.two_at_once = self.target == "cuda"  # in a final check: nvcc and a CUDA context take seconds
        self.watches_idle = self.target == "cuda"  # whether a final check looks for work that nobody asked for

    def for_parallel_check(self) -> JudgeResources:
        """Returns resources for a check beside this one (`verify/judge/parallel_checks.py`): reference, secret inputs and turns
        on the GPU are shared; it has a builder and background work of its own."""
        other = copy.copy(self)
        other.builder = other.new_builder()
        other.background = BackgroundWork()
        other._waiting = ("", [])
        return other

    @contextlib.contextmanager
    def checking_in_parallel(self) -> Iterator[None]:
        """Marks that checks run at once, for the length of the block."""
        self._shared.parallel = True
        try:
            yield
        finally:
            self._shared.parallel = False

    @contextlib.contextmanager
    def program_copy(self, program: str, *, checked: bool = False) -> Iterator[Path]:
        """Copies the program to a place where nobody else can change it, for the length of the block. `checked`: it was checked
        before, as far as this judge knows; raises `BadInput` where it is another one since."""
        place = self.scratch / f"program-{secrets.token_hex(8)}"
        try:
            copy = snapshot(Path(program), place)
            digest = digest_of(copy)
            if checked and self._checked.get(program, digest) != digest:
                raise BadInput(f"{program} was changed after it was checked: judge it again, and leave it as it is meanwhile.")
            if not checked:
                self._checked[program] = digest
            yield copy
        finally:
            remove(place)

    @contextlib.contextmanager
    def turn(self, worker: Worker | None = None, *, alone: bool = False) -> Iterator[None]:
        """Takes a turn on the GPU: `alone` for timing and tracing, else beside others that do neither. Turns nest. While it
        waits, the deadline of `worker` is extended. Does nothing on the simulator."""
        if self.target != "cuda":
            yield
            return
        gpu = self._shared.gpu
        assert gpu is not None             # set when the reference was started, which comes first
        with gpu.hold(alone=alone, waited=worker.extend if worker else lambda seconds: None):
            yield

    def clock(self) -> float:
        """Seconds since some moment, without those in which this judge waited for its turn on the GPU."""
        return time.monotonic() - (self._shared.gpu.waited_s if self._shared.gpu else 0.0)

    def start_worker(self, program: str | Path, secret_inputs: SecretInputs) -> Born:
        """Starts a worker for a copy of the program. Nothing is loaded yet."""
        with contextlib.ExitStack() as stack:
            copy = stack.enter_context(self.program_copy(str(program), checked=True))
            worker = stack.enter_context(self.background.close_later(self.worker(copy, secret_inputs)))
            return Born(copy, worker, stack.pop_all())

    def start_for_timing(self, program: str, secret_inputs: SecretInputs) -> None:
        """Starts the workers of a winner's timing while it is still being checked: each needs a second for its CUDA context.
        Does nothing on the simulator, and where inputs are large."""
        if self.target == "cuda" and self._waiting[0] != program and not self.is_large(secret_inputs):
            self.close_waiting()
            self._waiting = program, [self.start_worker(program, secret_inputs) for _ in range(TIMINGS)]

    def take_waiting(self, program: str) -> list[Born]:
        """Returns the workers that were started for the program's timing, the caller's from now on. Closes those of another."""
        (path, started), self._waiting = self._waiting, ("", [])
        if path == program:
            return started
        for unused in started:
            unused.stack.close()
        return []

    def close_waiting(self) -> None:
        """Closes the workers that wait for a timing, in the background."""
        self.take_waiting("")

    def load_program(
        self, stack: contextlib.ExitStack, program: str, started: list[Born] | None = None,
        *, before_load: Callable[[SecretInputs, Trial], None] = lambda secret_inputs, trial: None,
    ) -> tuple[Worker, SecretInputs, Trial]:  # fmt: skip
        """Loads the program on the terms on which it was judged, into a worker popped from `started` or a new one; `stack`
        closes it. `before_load` is called just before it is loaded. Raises `WorkerFailed`.
        """

        def load(terms: InputTerms) -> tuple[Worker, SecretInputs, Trial]:
            secret_inputs = self.secret_inputs(1, fresh=False, terms=terms)
            copy, worker, own = started.pop() if started else self.start_worker(program, secret_inputs)
            stack.push(own)
            trial = self.trial(worker, secret_inputs)
            stack.callback(trial.forget)
            self.wait_for_memory(secret_inputs)
            before_load(secret_inputs, trial)
            try:
                trial.load(copy)
            except WorkerFailed as failure:
                raise state_mismatch.explain_missing_state(self.ask, secret_inputs, trial.state, failure, terms) from failure
            return worker, secret_inputs, trial

        return state_mismatch.judge_on_terms(load, self.terms.get(program, InputTerms()))[0]

    def secret_inputs(self, seeds: int, *, fresh: bool, terms: InputTerms) -> SecretInputs:
        """Returns parameters and at least `seeds` input sets for programs judged on `terms`. `fresh`: new ones."""
        there = None if fresh else self._inputs.get(terms)
        if there is not None and len(there.sets) >= seeds:
            return there                   # without waiting for a thread that draws more
        with self._shared.draw_lock:
            secret_inputs = None if fresh else self._inputs.get(terms)
            if fresh and not self._shared.parallel:
                self._discard_large()
            if secret_inputs is None:
                secret_inputs = self._draw(terms)
                if not fresh:
                    self._inputs[terms] = secret_inputs
                    while len(self._inputs) > _MOST_INPUTS and not self._shared.parallel:
                        oldest = next(other for other in self._inputs if other not in (InputTerms(), terms))
                        self.discard(self._inputs.pop(oldest))
            self.extend_inputs(secret_inputs, seeds)
        return secret_inputs

    def _discard_large(self) -> None:
        """Discards the session's secret inputs that take much memory: fresh ones have more use of it."""
        for terms, held in list(self._inputs.items()):
            if sum(block.size for block in held.blocks()[1:]) > _LARGE[self.target]:
                self.discard(self._inputs.pop(terms))

    def extend_inputs(self, secret_inputs: SecretInputs, seeds: int) -> None:
        """Draws input sets until there are `seeds`."""
        with self._shared.draw_lock:
            extend(self.ask, secret_inputs, seeds)
            for note in self._shared.output_notes or ():
                secret_inputs.remark(note)

    def _draw(self, terms: InputTerms) -> SecretInputs:
        """Draws secret parameters. The first time it finds out whether the reference's outputs depend on inputs and parameters:
        if they hardly do as constructed, weights are scaled up from then on. Raises `BadInput` if they still do not."""
        shared = self._shared

        def drawn() -> SecretInputs:
            return draw(self.ask, kept=terms.kept, alike=terms.alike, amplified=shared.amplified)

        made = drawn()
        if shared.output_notes is None:
            extend(self.ask, made, 2)
            refusal, notes = check_reference(self.ask, made)
            if refusal and made.renewed:
                self.discard(made)
                shared.amplified = True
                made = drawn()
                extend(self.ask, made, 2)
                refusal, notes = check_reference(self.ask, made)
                notes.append(_AMPLIFIED)
            if refusal:
                raise UnusableReference(refusal)
            shared.output_notes = tuple(notes)
        return made

    def new_builder(self) -> Builder:
        """Returns a builder whose worker process starts with its first build."""
        return Builder(
            lambda: Worker(self.forkserver, "builder", self.scratch, self.target, self.limits),
            cache=self.cache, arch=self.arch, home=self.home,
        )  # fmt: skip

    def worker(self, program: Path, secret_inputs: SecretInputs, builder: Builder | None = None) -> Worker:
        """Starts a worker for a program. It may read the folder of `program`, our libraries, and those that were built for
        it (`verify/processes/worker.py`)."""
        bounds = for_data(self.limits, secret_inputs.bytes_of_a_call())
        read = (program if program.is_dir() else program.parent, *shared_folders(self.cache, self.home.place))
        builder = builder or self.builder
        return Worker(self.forkserver, "program", self.scratch, self.target, bounds, builder=builder, read=read)

    def trial(self, worker: Worker, secret_inputs: SecretInputs) -> Trial:
        """Returns a trial of the program that is to be loaded in `worker`. Call its `forget` when it is no longer needed."""
        assert self._shared.built is not None
        return Trial(worker, secret_inputs, self._shared.built, self.target, self.limits, self.ask, self.turn)

    def discard(self, secret_inputs: SecretInputs) -> None:
        """Has secret inputs overwritten that are needed no more; their memory is free once nobody holds them."""
        if self.target == "cuda":
            self.ask(requests.Wipe(secret_inputs.blocks()))

    def ask(self, request: Request[_Answer]) -> _Answer:
        """Asks the reference worker. Raises `BadInput` if the reference fails, also as `ReferenceLost` if its worker died, and
        `ReferenceKilled` if somebody killed it."""
        doing, answer = _DOING.get(type(request), "answering the judge"), answer_type(request)
        with self._shared.ask_lock:
            if isinstance(request, requests.Forget | requests.Wipe) and self._shared.reference is None:
                return answer()            # what it held ended with it
            try:
                reference = self.reference_worker()
                with self.turn(alone=isinstance(request, requests.RecordWork)):  # others would slow its kernels down
                    return reference.ask(request, seconds=self.limits.baseline_s, doing=doing)
            except WorkerFailed as failure:
                if failure.kind not in ("error", "bad_input"):
                    self.drop_reference()
                    raise ReferenceLost(_with_remedy(failure), late=failure.kind == "timeout") from failure
                raise _explained(failure) from failure
            except Unavailable as killed:
                self.drop_reference()
                raise ReferenceKilled(str(killed)) from killed

    def reference_worker(self) -> Worker:
        """Returns the reference's worker; starts, loads and calls it once if there is none. Raises `BadInput` if that fails."""
        shared = self._shared
        if shared.reference is None:
            shared.reference = Worker(self.forkserver, "reference", self.scratch, self.target, self.limits)
            try:
                patience, precision = self.limits.load_s, self.settings.precision
                shared.built = shared.reference.ask(
                    requests.LoadReference(self.path, precision, patience, self.gpu_bytes), seconds=patience + _GRACE_S,
                    doing="loading",
                )  # fmt: skip
                shared.gpu = shared.gpu or gpu_lock.GpuLock(shared.built.gpu)  # one per process: turns nest
                with self.turn():
                    examined = shared.reference.ask(
                        requests.Examine(), seconds=self.limits.baseline_s, doing="running forward"
                    )
                shared.built = dataclasses.replace(shared.built, draws=examined.draws, habits=examined.habits)
            except WorkerFailed as failure:
                self.drop_reference()
                raise _explained(failure) from failure
        return shared.reference

    def drop_reference(self) -> None:
        """Closes the reference's worker; the next question starts a new one."""
        reference, self._shared.reference = self._shared.reference, None
        if reference is not None:
            reference.close()

    def reference_work(self) -> ReferenceWork:
        """Returns what one call of the reference costs, and on a GPU its trace. Recorded once."""
        if self._shared.work is None:
            self._shared.work = self.ask(requests.RecordWork(secrets.randbits(31)))
        return self._shared.work

    def is_large(self, secret_inputs: SecretInputs) -> bool:
        """Whether no second copy of the inputs should be held in memory, and reference and program not take theirs at once."""
        most = _LARGE[self.target]
        if self._shared.built is not None and self._shared.built.gpu_memory:
            most = min(most, self._shared.built.gpu_memory // _MANY)
        return secret_inputs.bytes_of_a_call() > most

    def wait_for_memory(self, secret_inputs: SecretInputs) -> None:
        """Waits until workers that are being closed have given their memory back, if the inputs are large."""
        if self.is_large(secret_inputs):
            self.background.quiet()


_DOING: dict[type[Request[Any]], str] = {
    requests.CaptureReference: "being captured",
    requests.Renew: "running with other parameters",
    requests.Expect: "running on secret inputs",
    requests.Receive: "being given a program's outputs",
    requests.CompareAnswer: "being compared with a program",
}
_REMEDIES = {"timeout": "use smaller inputs", "memory": "use smaller inputs or a machine with more memory"}


def _explained(failure: WorkerFailed) -> Exception:
    """What to raise where the reference's worker failed: our defect, or what is wrong with the reference."""
    if failure.kind == "error":
        return RuntimeError(f"the reference worker failed:\n{failure}")
    passing = failure.kind in _REMEDIES or is_out_of_memory(str(failure))  # with more time or memory it may be judged
    return (BadInput if passing else UnusableReference)(_with_remedy(failure))


def _with_remedy(failure: WorkerFailed) -> str:
    """What happened to the reference's worker and, where that is known, what to do."""
    return f"{failure}: {_REMEDIES[failure.kind]}" if failure.kind in _REMEDIES else str(failure)
