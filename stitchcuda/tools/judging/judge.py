"""The judge process: owns seeds, expected outputs, bounds and the verdict; started by `check.py`, one per session.

It has no CUDA context and runs nothing but comparisons: the reference runs in its own worker, every program in a fresh one.
It speaks JSON lines on the descriptors it was started with and ends, taking everything with it, when they close.
Where to look next: `exam.py` (what is secret), `sitting.py` (what is asked and compared), `timing.py`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox.limits import Limits, for_data
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import CheckResult, Settings, TimingResult
from stitchcuda.tools.judging import degenerate, deliveries, integrity, lacking, sitting, skipping, timing
from stitchcuda.tools.judging.builder import Builder, Home, simulator_home
from stitchcuda.tools.judging.deliveries import Deliveries
from stitchcuda.tools.judging.early_builds import EarlyBuilds
from stitchcuda.tools.judging.errands import Errands
from stitchcuda.tools.judging.exam import Exam, Lost, declared_sizes, draw, extend, reloaded, resized
from stitchcuda.tools.judging.lacking import Terms
from stitchcuda.tools.judging.lifeline import die_with, take_over_stdio
from stitchcuda.tools.judging.nursery import Nursery
from stitchcuda.tools.judging.processes import Others, threads_below
from stitchcuda.tools.judging.rehearsal import Rehearsal
from stitchcuda.tools.judging.screen import screen
from stitchcuda.tools.judging.skipping import Seat
from stitchcuda.tools.judging.snapshot import snapshot
from stitchcuda.tools.judging.trial import Construction, Trial
from stitchcuda.tools.judging.worker import OnBuild, Worker, WorkerFailed
from stitchcuda.tools.machine import turns
from stitchcuda.tools.running import ceiling, host_memory, origin
from stitchcuda.tools.running.builder_worker import handed_out

_MOST_EXAMS = 4                            # kept for the programs of a session, each for other terms
_TIMINGS = 2                               # of a winner
_IDLE_S = 0.3                              # for which a program is not called: whether it works by itself
_LARGE = 2**30                             # bytes of a call, parameters included: no second copy in memory without need
_GRACE_S = 5.0                             # for a reference's worker to say by itself that its time is over


class Born(NamedTuple):
    """A worker for one program before anything is loaded, and what to close when it is done with."""

    copy: Path
    worker: Worker
    stack: contextlib.ExitStack


class Ahead:
    """Workers that are born before they are needed, for timing the program `of`: a CUDA context takes its time."""

    def __init__(self, of: str = "") -> None:
        self._of = of
        self._born: list[Born] = []

    def add(self, one: Born) -> None:
        self._born.append(one)

    def __len__(self) -> int:
        return len(self._born)

    def taken(self, of: str) -> list[Born]:
        """Those for this program, which are the caller's now; others are closed."""
        if of != self._of:
            self.close()
        born, self._born = self._born, []
        return born

    def close(self) -> None:
        while self._born:
            self._born.pop().stack.close()


class Seated(NamedTuple):
    """A program that is being loaded into a new worker, with switches for its kernels."""

    worker: Worker
    trial: Trial
    loading: Future[None]

    def close(self) -> None:
        """For a seat that nobody took. Who waits for its loading sees it die, and is done before anything is closed."""
        self.worker.child.kill()
        wait([self.loading])
        self.worker.close()


class JudgeProcess:
    """One reference, its exams, and the programs that sit them."""

    def __init__(self, order: dict[str, Any], nursery: Nursery) -> None:
        self._settings = Settings(**order["settings"])
        self._limits = Limits(**order["limits"])
        self._scratch = Path(order["scratch"])
        self._path = order["reference"]
        self._cache = Path(order["cache"])
        self._arch = order["arch"]
        self._target = self._settings.target
        self._nursery = nursery
        self._home = simulator_home(Path(order["runtime"])) if self._target == "sim" else Home()
        self._builder = self._new_builder()
        for folder in handed_out(self._cache, self._home.place):
            folder.mkdir(parents=True, exist_ok=True)
        self._reference: Worker | None = None
        self._facts: dict[str, Any] = {}
        self._exams: dict[Terms, Exam] = {}
        self._terms: dict[str, Terms] = {}  # on which a program was judged the last time
        self._work: dict[str, Any] | None = None
        self._gpu: turns.Turn | None = None
        self._asking = threading.RLock()   # one question to the reference at a time
        self._errands = Errands()
        self._ahead = Ahead()
        self._hurried = self._target == "cuda"  # a context and a build with switches take their time; the simulator has neither
        self._says_enough: tuple[str, ...] | None = None  # notes on outputs that say little; None: not looked at yet

    def baseline(self, message: dict[str, Any]) -> dict[str, Any]:
        constants = self._scratch / "constants.safetensors"
        answer = self._ask("baseline", seed=secrets.randbits(31), constants=str(constants))
        return {name: value for name, value in answer.items() if name != "ok"}

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        """Judge one program; `fresh` draws parameters and input sets that no program has seen."""
        seeds, fresh = int(message["seeds"]), bool(message["fresh"])
        started = time.monotonic()
        self._ahead.close()
        self._ahead = Ahead(message["program"])
        with self._copy(message["program"]) as program:
            result, self._terms[message["program"]] = self._screened(program, seeds, fresh=fresh)
        if not (result.ok and fresh and self._hurried):
            self._ahead.close()
            self._errands.quiet()          # a timing that follows waits for that itself
        return result.model_copy(update={"seconds": time.monotonic() - started}).model_dump(mode="json")

    def _screened(self, program: Path, seeds: int, *, fresh: bool) -> tuple[CheckResult, Terms]:
        findings = screen(program)
        refused = tuple(f"the source itself: {one.sentence}" for one in findings if one.severity == "refused")
        if refused:
            return CheckResult(ok=False, tier="timed" if self._target == "cuda" else "simulated", reasons=refused), Terms()
        result, terms = lacking.agreed(lambda terms: self._check(program, seeds, fresh=fresh, terms=terms))
        noted = tuple(f"the source: {one.sentence}" for one in findings)
        return result.model_copy(update={"notes": (*result.notes, *noted)}), terms

    @contextlib.contextmanager
    def _copy(self, program: str) -> Iterator[Path]:
        """What is judged is a copy that nobody else can change, gone afterwards."""
        place = self._scratch / f"program-{secrets.token_hex(8)}"
        try:
            yield snapshot(Path(program), place)
        finally:
            remove(place)

    def time(self, message: dict[str, Any]) -> dict[str, Any]:
        """Reference, previous program and program in one interleaving; `twice` for a winner, each time in new workers."""
        self._need_gpu("timing")
        of, before = message["program"], message["previous"]
        timings = _TIMINGS if message["twice"] else 1
        born = self._ahead.taken(of)
        try:
            while len(born) < timings:
                born.append(self._born(of, self._exam(1, fresh=False, terms=self._terms.get(of, Terms()))))
            results = [self._interleaved(of, before, born)]
            while not results[-1].refused and (len(results) < timings or timing.parted(results)):
                results.append(self._interleaved(of, before, born))
        finally:
            for one in born:
                one.stack.close()
            self._errands.quiet()
        return timing.confirmed(results).model_dump(mode="json")

    def _interleaved(self, of: str, before: str, born: list[Born]) -> TimingResult:
        for integers in (True, False):     # an integer that is an index may be out of range elsewhere
            try:
                result = self._timed_together(of, before, born, integers=integers)
                # A busy machine may part honest clocks once, a lie parts them each time.
                return self._timed_together(of, before, born, integers=integers) if result.disputed else result
            except timing.Unfit as failure:
                self._drop_reference()
                failed = failure
        raise BadInput(f"The reference cannot be timed: {failed}")

    def _timed_together(self, of: str, before: str, born: list[Born], *, integers: bool) -> TimingResult:
        with contextlib.ExitStack() as stack:
            drawn: list[Future[Deliveries]] = []

            def draw(exam: Exam, one: Trial) -> None:
                """Contents that no one has seen, while the program is being loaded."""
                folder = self._folder()
                stack.callback(remove, folder)
                stack.callback(self._errands.answered)
                question = functools.partial(deliveries.draw, self._ask, exam, folder, one.delivered, integers=integers)
                drawn.append(self._errands.ask(question))

            try:
                program, exam, _ = self._ready(stack, of, born, beside=draw)
                previous = program if before == of else self._ready(stack, before)[0]
                given = drawn[-1].result()
                self._errands.quiet()
                with self._turn(alone=True):
                    return self._timed(previous, program, exam, given)
            except timing.Unfit:
                raise
            except WorkerFailed as failure:
                # It was judged correct before: whatever goes wrong under the clock is the program's doing.
                return timing.refused(f"while it was timed, {failure}")

    def _timed(self, previous: Worker, program: Worker, exam: Exam, given: Deliveries) -> TimingResult:
        """The figures, and whether memory could be that fast."""
        others = Others({"previous": previous.pid, "program": program.pid})
        result = timing.interleaved(
            self._the_reference(), previous, program, given, self._limits,
            threads=lambda: threads_below(program.pid), core=timing.quick_core(), hold=others.held,
        )  # fmt: skip
        if others.denied:
            note = "limited: the program's process could not be stopped while the reference was timed"
            result = result.model_copy(update={"notes": (*result.notes, note)})
        asked = {"given": str(given.sets[0].inputs), "structure": given.sets[0].structure, "state": str(exam.state)}
        facts = self._ask("ceiling", matters=False, **asked)
        return ceiling.judged(
            result, given.input_bytes, given.output_bytes, at_most=given.at_most_bytes(),
            bandwidth=facts["bandwidth"], l2=facts["l2"],
            matters=lambda: self._ask("ceiling", matters=True, **asked)["matters"],
        )  # fmt: skip

    def rehearse(self, message: dict[str, Any]) -> dict[str, Any]:
        """The reference, or a program, called in a process of its own under another command (`rehearsal.py`)."""
        self._the_reference()              # which takes turns on the GPU, and must be fit to be called
        with contextlib.ExitStack() as stack:
            stack.callback(self._errands.quiet)
            rehearsal = Rehearsal(message, self._target, self._settings.precision, self._limits)
            if message["program"]:
                try:
                    shared = handed_out(self._cache, self._home.place)
                    worker, exam, one = self._ready(stack, message["program"])
                    with self._turn(worker):   # libraries are often ordered at the first call only
                        one.call(exam.sets[0], same_addresses=False)
                    stack.enter_context(rehearsal.of_program(self._scratch, shared, worker, exam, one))
                except WorkerFailed as failure:
                    raise Unavailable(f"the program could not be rehearsed: {failure}") from failure
            else:
                rehearsal.of_reference(Path(self._path), secrets.randbits(31))
            self._errands.quiet()
            with self._turn(alone=True):
                return rehearsal.run()._asdict() | {"kernels": rehearsal.kernels}

    def _born(self, program: str | Path, exam: Exam) -> Born:
        """A worker for a copy of the program. Nothing is loaded yet."""
        with contextlib.ExitStack() as stack:
            copy = stack.enter_context(self._copy(str(program)))
            worker = stack.enter_context(self._errands.lent(self._worker(copy, exam)))
            return Born(copy, worker, stack.pop_all())

    def _ready(
        self, stack: contextlib.ExitStack, program: str, born: list[Born] | None = None,
        *, beside: Callable[[Exam, Trial], None] = lambda exam, one: None,
    ) -> tuple[Worker, Exam, Trial]:  # fmt: skip
        """A worker with the program loaded, on the terms on which it was judged; one of those that are `born`, if any is.

        `beside` is called before it is loaded, with what is known by then.
        """

        def ready(terms: Terms) -> tuple[Worker, Exam, Trial]:
            exam = self._exam(1, fresh=False, terms=terms)
            copy, worker, own = born.pop() if born else self._born(program, exam)
            stack.push(own)
            one = Trial(worker, exam, self._construction(), self._target, self._limits)
            self._make_room(exam)
            beside(exam, one)
            try:
                one.load(copy, cache=self._cache, arch=self._arch)
            except WorkerFailed as failure:
                raise lacking.reconsidered(self._ask, exam, one.state, failure, terms) from failure
            return worker, exam, one

        return lacking.agreed(ready, self._terms.get(program, Terms()))[0]

    def _check(self, program: Path, seeds: int, *, fresh: bool, terms: Terms) -> CheckResult:
        """Raises `OtherTerms` for a program that has not all of the reference's state under its names."""
        exam = self._exam(1, fresh=fresh, terms=terms)
        self._make_room(exam)
        early = EarlyBuilds(self._builder, self._new_builder()) if fresh and self._hurried else None
        build = early.build if early else self._builder.build
        seated: list[Seated] = []          # ahead of time
        seat = functools.partial(self._seat, program, exam, build, seated)

        def nobody_sits() -> None:
            for unused in seated:
                self._errands.tidy(unused.close)

        with contextlib.ExitStack() as stack:
            if fresh:
                stack.callback(self._errands.tidy, exam.close)
            stack.callback(self._errands.answered)
            stack.callback(nobody_sits)
            if early:
                stack.callback(self._errands.tidy, early.close)
            worker = self._worker(program, exam, build)
            sitter = stack.enter_context(contextlib.ExitStack())
            sitter.callback(self._errands.tidy, worker.close)
            # While the program is built the reference answers all other questions, of which loading needs none.
            completed = self._errands.ask(lambda: self._complete(exam, seeds))
            again = self._errands.ask(lambda: reloaded(self._ask, exam) if fresh else None)
            worker.expire_in(self._limits.check_s)
            one = Trial(worker, exam, self._construction(), self._target, self._limits)
            try:
                try:
                    one.load(program, cache=self._cache, arch=self._arch)
                finally:
                    completed.result()     # what is wrong with the reference comes first
            except WorkerFailed as failure:
                return sitting.failed(one, lacking.reconsidered(self._ask, exam, one.state, failure, terms))
            if early and not _large(exam):
                seated.append(self._seated(program, exam, build))
            while early and len(self._ahead) < _TIMINGS:
                self._ahead.add(self._born(program, exam))
            try:
                others = resized(self._ask, exam, declared_sizes(program)) if fresh else []
            except WorkerFailed as failure:
                return sitting.failed(one, failure)
            with self._turn(worker):
                result = sitting.sit(
                    one, exam, seeds, final=fresh, profile=self._target == "cuda", others=others, reload=again.result,
                )  # fmt: skip
            idle = None
            if early and result.ok:
                sitter.pop_all()     # closed when it has been left alone
                idle = self._idle(one, worker)
            sitter.close()
            self._make_room(exam)
            if not result.ok:
                lacking.regroup(one.state, terms, one.guessed, more=any(one.spare))
            elif unread := lacking.unread(seat, self._ask, exam, one.state, terms):
                result = sitting.failed(one, unread, outputs=result.outputs, seeds=result.seeds)
            if not (fresh and result.ok):
                return result
            work = self._reference_work()
            result = result.model_copy(update={"whole": int(work["work"])})
            if one.traced:
                most = len(exam.sets[0].names) + str(exam.sets[0].structure).count("'tensor':")
                alone = origin.computed(work, one.traced, one.own, most=most)
                shares = zip(("replaced", "exchanged"), max(origin.taken(work, one.traced, one.own), alone), strict=True)
                result = result.model_copy(update=dict(shares))
            # Whether it has kernels is not for the worker to say.
            times = origin.own_times(one.traced, one.own)
            skipped = skipping.examine(seat, exam, seeds, work=times)
            result = integrity.judged(result, skipped, one.own_launches, times)
            if idle and (reason := idle.result()):
                result = result.model_copy(update={"ok": False, "reasons": (*result.reasons, reason)})
            return result

    def _idle(self, one: Trial, worker: Worker) -> Future[str]:
        """A reason if the program does anything while nobody calls it; its worker is left alone for a while, then closed."""
        watched = self._errands.begin(lambda: one.idle(_IDLE_S))

        def close() -> None:
            wait([watched])                # one thread at a time asks a worker, or closes it
            worker.close()

        self._errands.tidy(close)
        return watched

    def _seated(self, program: Path, exam: Exam, build: OnBuild) -> Seated:
        """Begin to load the program into a new worker, built so that single kernels can be left out."""
        worker = self._worker(program, exam, build)
        one = Trial(worker, exam, self._construction(), self._target, self._limits)
        return Seated(worker, one, self._errands.begin(
            lambda: one.load(program, cache=self._cache, arch=self._arch, masked=True)
        ))  # fmt: skip

    @contextlib.contextmanager
    def _seat(self, program: Path, exam: Exam, build: OnBuild, seated: list[Seated]) -> Iterator[Seat]:
        """The program in a worker of its own with switches for its kernels: that which is `seated`, or a new one."""
        worker, one, loading = seated.pop() if seated else self._seated(program, exam, build)
        with self._errands.lent(worker):
            worker.expire_in(self._limits.check_s)
            loading.result()
            with self._turn(worker):
                yield Seat(worker, one)

    def _make_room(self, exam: Exam) -> None:
        """Before a large program is loaded, what is being closed must have given its memory back."""
        if _large(exam):
            self._errands.quiet()

    def _reference_work(self) -> dict[str, Any]:
        """What one call of the reference costs, and on a GPU its trace."""
        if self._work is None:
            self._work = self._ask("work", seed=secrets.randbits(31))
        return self._work

    @contextlib.contextmanager
    def _turn(self, worker: Worker | None = None, *, alone: bool = False) -> Iterator[None]:
        """A turn on the GPU, `alone` or beside others that do not time; inside of one it is this one."""
        if self._target != "cuda":
            yield
            return
        assert self._gpu is not None       # who takes a turn has a reference
        with self._gpu.taken(solely=alone, waited=worker.extend if worker else lambda seconds: None):
            yield

    def _exam(self, seeds: int, *, fresh: bool, terms: Terms) -> Exam:
        exam = None if fresh else self._exams.get(terms)
        if exam is None:
            exam = draw(self._ask, self._folder(), kept=terms.kept, alike=terms.alike)
            if not fresh:
                self._exams[terms] = exam
                if len(self._exams) > _MOST_EXAMS:
                    self._exams.pop(next(one for one in self._exams if one != Terms() and one != terms)).close()
        self._complete(exam, seeds)
        return exam

    def _complete(self, exam: Exam, seeds: int) -> None:
        extend(self._ask, exam, seeds, tell=exam.measure_soon)
        if self._says_enough is None and seeds > 1:
            refusal, notes = degenerate.reasons(self._ask, exam)
            if refusal:
                raise BadInput(refusal)
            self._says_enough = tuple(notes)
        for note in self._says_enough or ():
            exam.remark(note)

    def _new_builder(self) -> Builder:
        return Builder(
            lambda: Worker(self._nursery, "builder", self._scratch, self._target, self._limits),
            cache=self._cache, arch=self._arch, home=self._home,
        )  # fmt: skip

    def _worker(self, program: Path, exam: Exam, build: OnBuild | None = None) -> Worker:
        """A fresh worker for a program, which may read its own copy, our libraries, and what is lent to it (`lending.py`)."""
        bounds = for_data(self._limits, exam.bytes_of_a_call())
        read = (program if program.is_dir() else program.parent, *handed_out(self._cache, self._home.place))
        build = build or self._builder.build
        return Worker(self._nursery, "program", self._scratch, self._target, bounds, on_build=build, read=read)

    def _folder(self) -> Path:
        """Where an exam's files go, which no program can read."""
        return self._scratch / f"exam-{secrets.token_hex(8)}"

    def _construction(self) -> Construction:
        facts = self._facts
        return Construction(
            init=Path(facts["init"]),
            init_structure=facts["init_structure"],
            init_seed=facts["init_seed"],
            training=facts["training"],
            state_names=facts["state_names"],
            state=lacking.told(facts["state"]),
            precision=self._settings.precision,
        )

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask the reference worker. What goes wrong with a reference is the user's to mend: `BadInput`."""
        try:
            with self._asking:
                reference = self._the_reference()
                with self._turn():
                    return reference.ask(do, seconds=self._limits.baseline_s, doing=_DOING.get(do, do), **fields)
        except WorkerFailed as failure:
            if failure.kind == "error":
                raise RuntimeError(f"the reference worker failed:\n{failure}") from failure
            if failure.kind != "bad_input":
                self._drop_reference()
                raise Lost(str(failure)) from failure
            raise BadInput(str(failure)) from failure

    def _the_reference(self) -> Worker:
        if self._reference is None:
            self._reference = Worker(self._nursery, "reference", self._scratch, self._target, self._limits)
            init = self._scratch / "init"
            try:
                self._facts = self._reference.ask(
                    "load",
                    seconds=self._limits.load_s + _GRACE_S,
                    doing="loading",
                    path=self._path,
                    precision=self._settings.precision,
                    init=str(init),
                    patience=self._limits.load_s,
                ) | {"init": str(init)}
                self._gpu = turns.Turn(self._facts["gpu"])
                with self._turn():
                    self._reference.ask("examine", seconds=self._limits.baseline_s, doing="running forward")
            except WorkerFailed as failure:
                self._drop_reference()
                if failure.kind == "error":
                    raise RuntimeError(f"the reference worker failed:\n{failure}") from failure
                raise BadInput(str(failure)) from failure
        return self._reference

    def _drop_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def _need_gpu(self, what: str) -> None:
        if self._target != "cuda":
            raise Unavailable(f"{what} needs a GPU; this session runs on the simulator")


def _large(exam: Exam) -> bool:
    return exam.bytes_of_a_call() > _LARGE


_DOING = {"baseline": "being captured", "renew": "running with other parameters", "expect": "running on secret inputs"}


def main() -> None:
    """Serve one client until its end of the pipe closes."""
    requests, answers = take_over_stdio()
    nursery = Nursery()                    # before any secret exists, and before any thread
    host_memory.keep_freed()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    order = json.loads(requests.readline())
    die_with(requests, Path(order["scratch"]))
    process = JudgeProcess(order, nursery)
    handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "baseline": process.baseline,
        "check": process.check,
        "time": process.time,
        "rehearse": process.rehearse,
    }
    for line in requests:
        message = json.loads(line)
        try:
            answer: dict[str, Any] = {"result": handlers[message["do"]](message)}
        except BadInput as error:
            answer = {"bad_input": str(error)}
        except Unavailable as error:
            answer = {"unavailable": str(error)}
        except OSError as error:
            answer = {"defect": traceback.format_exc()}
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                room = f"{error.strerror} in {order['scratch']}: free some there, or set TMPDIR to a folder with more"
                answer = {"unavailable": f"there is no room to judge in ({room})"}
        except Exception:
            answer = {"defect": traceback.format_exc()}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
