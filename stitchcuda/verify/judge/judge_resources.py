"""What every verdict needs, whoever gives it: the reference's worker, exams, workers for programs, turns on the GPU, errands.

Of the judge's process. It decides nothing: correctness is `verify/judge/examination.py`'s, times are
`verify/judge/interleaved_timing.py`'s. Where to look next: `verify/inputs/secret_inputs.py` (what is secret),
`verify/processes/worker.py`, `verify/program/trial.py`.
"""

from __future__ import annotations

import contextlib
import copy
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stitchcuda.errors import BadInput
from stitchcuda.sandbox.limits import Limits, for_data
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import Settings
from stitchcuda.tools.device import gpu_lock
from stitchcuda.verify.ablation import state_mismatch
from stitchcuda.verify.inputs import degenerate, input_terms
from stitchcuda.verify.inputs.input_terms import InputTerms
from stitchcuda.verify.inputs.secret_inputs import ReferenceLost, SecretInputs, draw, extend
from stitchcuda.verify.integrity.snapshot import snapshot
from stitchcuda.verify.processes.background import BackgroundWork
from stitchcuda.verify.processes.builder import Builder, SimulatorHome, simulator_home
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.processes.worker import OnBuild, Worker, WorkerFailed
from stitchcuda.verify.program.builder_worker import shared_folders
from stitchcuda.verify.program.trial import Construction, Trial

TIMINGS = 2
"""Of a winner, each in new processes."""

_MOST_EXAMS = 4                            # kept for the programs of a session, each for other terms
_LARGE = 2**30                             # bytes of a call, parameters included: no second copy in memory without need
_GRACE_S = 5.0                             # for a reference's worker to say by itself that its time is over


class Born(NamedTuple):
    """A worker for one program before anything is loaded, and what to close when it is done with."""

    copy: Path
    worker: Worker
    stack: contextlib.ExitStack


@dataclass
class _Known:
    """The reference's worker and what it said, whoever asked: one for all checks that go on at once."""

    reference: Worker | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    work: dict[str, Any] | None = None
    gpu: gpu_lock.GpuLock | None = None
    says_enough: tuple[str, ...] | None = None  # notes on outputs that say little; None: not looked at yet
    several: bool = False                  # checks go on at once: an exam may be somebody else's
    asking: threading.RLock = field(default_factory=threading.RLock)   # one question to the reference at a time
    drawing: threading.RLock = field(default_factory=threading.RLock)  # one exam grows at a time


class JudgeResources:
    """One reference with its exams, and workers for the programs that sit them."""

    def __init__(self, order: dict[str, Any], nursery: ForkServer) -> None:
        self.settings = Settings(**order["settings"])
        self.limits = Limits(**order["limits"])
        self.scratch = Path(order["scratch"])
        self.path = order["reference"]
        self.cache = Path(order["cache"])
        self.arch = order["arch"]
        self.target = self.settings.target
        self.nursery = nursery
        self.home = simulator_home(Path(order["runtime"])) if self.target == "sim" else SimulatorHome()
        self.builder = self.new_builder()
        for folder in shared_folders(self.cache, self.home.place):
            folder.mkdir(parents=True, exist_ok=True)
        self._known = _Known()
        self._exams: dict[InputTerms, SecretInputs] = {}
        self.terms: dict[str, InputTerms] = {}  # on which a program was judged the last time
        self.errands = BackgroundWork()
        self.two_at_once = self.target == "cuda"  # workers of a last check are loaded: nvcc and a context take seconds there
        self.watches_idle = self.target == "cuda"

    def beside(self) -> JudgeResources:
        """The same reference, exams and turns on the GPU for another check at the same time, with errands and builders of its
        own (`verify/judge/parallel_checks.py`)."""
        other = copy.copy(self)
        other.builder = other.new_builder()
        other.errands = BackgroundWork()
        return other

    @contextlib.contextmanager
    def several(self) -> Iterator[None]:
        """While checks go on at once."""
        self._known.several = True
        try:
            yield
        finally:
            self._known.several = False

    @contextlib.contextmanager
    def copy(self, program: str) -> Iterator[Path]:
        """What is judged is a copy that nobody else can change, gone afterwards."""
        place = self.scratch / f"program-{secrets.token_hex(8)}"
        try:
            yield snapshot(Path(program), place)
        finally:
            remove(place)

    @contextlib.contextmanager
    def turn(self, worker: Worker | None = None, *, alone: bool = False) -> Iterator[None]:
        """A turn on the GPU, `alone` or beside others that do not time; inside of one it is this one."""
        if self.target != "cuda":
            yield
            return
        gpu = self._known.gpu
        assert gpu is not None             # who takes a turn has a reference
        with gpu.taken(solely=alone, waited=worker.extend if worker else lambda seconds: None):
            yield

    def born(self, program: str | Path, exam: SecretInputs) -> Born:
        """A worker for a copy of the program. Nothing is loaded yet."""
        with contextlib.ExitStack() as stack:
            copy = stack.enter_context(self.copy(str(program)))
            worker = stack.enter_context(self.errands.close_later(self.worker(copy, exam)))
            return Born(copy, worker, stack.pop_all())

    def ready(
        self, stack: contextlib.ExitStack, program: str, born: list[Born] | None = None,
        *, beside: Callable[[SecretInputs, Trial], None] = lambda exam, trial: None,
    ) -> tuple[Worker, SecretInputs, Trial]:  # fmt: skip
        """A worker with the program loaded, on the terms on which it was judged; one of those that are `born`, if any is.

        `beside` is called before it is loaded, with what is known by then.
        """

        def ready(terms: InputTerms) -> tuple[Worker, SecretInputs, Trial]:
            exam = self.exam(1, fresh=False, terms=terms)
            copy, worker, own = born.pop() if born else self.born(program, exam)
            stack.push(own)
            trial = Trial(worker, exam, self.construction(), self.target, self.limits)
            self.make_room(exam)
            beside(exam, trial)
            try:
                trial.load(copy, cache=self.cache, arch=self.arch)
            except WorkerFailed as failure:
                raise state_mismatch.reconsidered(self.ask, exam, trial.state, failure, terms) from failure
            return worker, exam, trial

        return state_mismatch.agreed(ready, self.terms.get(program, InputTerms()))[0]

    def exam(self, seeds: int, *, fresh: bool, terms: InputTerms) -> SecretInputs:
        there = None if fresh else self._exams.get(terms)
        if there is not None and len(there.sets) >= seeds:
            return there                   # without waiting for whoever lets it grow
        with self._known.drawing:
            exam = None if fresh else self._exams.get(terms)
            if exam is None:
                exam = draw(self.ask, self.folder(), kept=terms.kept, alike=terms.alike)
                if not fresh:
                    self._exams[terms] = exam
                    while len(self._exams) > _MOST_EXAMS and not self._known.several:
                        oldest = next(other for other in self._exams if other not in (InputTerms(), terms))
                        self._exams.pop(oldest).close()
            self.complete(exam, seeds)
        return exam

    def complete(self, exam: SecretInputs, seeds: int) -> None:
        with self._known.drawing:
            extend(self.ask, exam, seeds)
            if self._known.says_enough is None and seeds > 1:
                refusal, notes = degenerate.check_reference(self.ask, exam)
                if refusal:
                    raise BadInput(refusal)
                self._known.says_enough = tuple(notes)
            for note in self._known.says_enough or ():
                exam.remark(note)

    def new_builder(self) -> Builder:
        return Builder(
            lambda: Worker(self.nursery, "builder", self.scratch, self.target, self.limits),
            cache=self.cache, arch=self.arch, home=self.home,
        )  # fmt: skip

    def worker(self, program: Path, exam: SecretInputs, build: OnBuild | None = None) -> Worker:
        """A fresh worker for a program, which may read its own copy, our libraries, and what is lent to it
        (`verify/processes/file_grants.py`)."""
        bounds = for_data(self.limits, exam.bytes_of_a_call())
        read = (program if program.is_dir() else program.parent, *shared_folders(self.cache, self.home.place))
        build = build or self.builder.build
        return Worker(self.nursery, "program", self.scratch, self.target, bounds, on_build=build, read=read)

    def folder(self) -> Path:
        """Where an exam's files go, which no program can read."""
        return self.scratch / f"exam-{secrets.token_hex(8)}"

    def construction(self) -> Construction:
        facts = self._known.facts
        return Construction(
            init=Path(facts["init"]),
            init_structure=facts["init_structure"],
            init_seed=facts["init_seed"],
            training=facts["training"],
            state_names=facts["state_names"],
            state=input_terms.read_reference_tensors(facts["state"]),
            precision=self.settings.precision,
        )

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask the reference worker. What goes wrong with a reference is the user's to mend: `BadInput`."""
        with self._known.asking:
            try:
                reference = self.the_reference()
                with self.turn():
                    return reference.ask(do, seconds=self.limits.baseline_s, doing=_DOING.get(do, do), **fields)
            except WorkerFailed as failure:
                if failure.kind == "error":
                    raise RuntimeError(f"the reference worker failed:\n{failure}") from failure
                if failure.kind != "bad_input":
                    self.drop_reference()
                    raise ReferenceLost(str(failure)) from failure
                raise BadInput(str(failure)) from failure

    def the_reference(self) -> Worker:
        known = self._known
        if known.reference is None:
            known.reference = Worker(self.nursery, "reference", self.scratch, self.target, self.limits)
            init = self.scratch / "init"
            try:
                known.facts = known.reference.ask(
                    "load",
                    seconds=self.limits.load_s + _GRACE_S,
                    doing="loading",
                    path=self.path,
                    precision=self.settings.precision,
                    init=str(init),
                    patience=self.limits.load_s,
                ) | {"init": str(init)}
                known.gpu = known.gpu or gpu_lock.GpuLock(known.facts["gpu"])  # one for this process, which may be in it
                with self.turn():
                    known.reference.ask("examine", seconds=self.limits.baseline_s, doing="running forward")
            except WorkerFailed as failure:
                self.drop_reference()
                if failure.kind == "error":
                    raise RuntimeError(f"the reference worker failed:\n{failure}") from failure
                raise BadInput(str(failure)) from failure
        return known.reference

    def drop_reference(self) -> None:
        reference, self._known.reference = self._known.reference, None
        if reference is not None:
            reference.close()

    def reference_work(self) -> dict[str, Any]:
        """What one call of the reference costs, and on a GPU its trace."""
        if self._known.work is None:
            self._known.work = self.ask("work", seed=secrets.randbits(31))
        return self._known.work

    def make_room(self, exam: SecretInputs) -> None:
        """Before a large program is loaded, what is being closed must have given its memory back."""
        if large(exam):
            self.errands.quiet()


def large(exam: SecretInputs) -> bool:
    """Whether a second copy in memory is too much to ask for."""
    return exam.bytes_of_a_call() > _LARGE


_DOING = {"baseline": "being captured", "renew": "running with other parameters", "expect": "running on secret inputs"}
