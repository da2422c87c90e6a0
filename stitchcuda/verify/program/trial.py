"""Loads one program in one worker, calls it, and has what it wrote compared with the reference, on the judge's side.

A call is right when its outputs have the reference's structure, shapes, dtypes and NaN patterns, their values are within the
error bound, buffers that the reference updates have its values (within the bound too), and inputs and all other state are as
they were, bit for bit. The reference worker compares. Only tensors that the program's worker wrote are believed, except where
it admits to tampering. Every failure of the worker is raised as `WorkerFailed`. It does not decide which calls are made, nor
the verdict.
Where to look next: `verify/judge/correctness.py` (which calls, and what follows), `verify/program/other_uses.py` (calls as the
first ones are not), `verify/reference/comparisons.py` (the comparison), `verify/program/program_worker.py` (the other end).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.protections import Protections
from stitchcuda.state import OutputError, Target, Tier
from stitchcuda.tools.build.kernel_names import calls_vendors, in_sources
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.reference_requests import (
    Ask,
    CompareAnswer,
    Construction,
    FindChanged,
    Forget,
    InputSet,
    Lend,
    Receive,
)
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, shorten_list
from stitchcuda.verify.inputs.timed_inputs import TimedCall
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity.device_time import RecordedWork
from stitchcuda.verify.messages.build_orders import BuildOrder, BuiltLibrary
from stitchcuda.verify.messages.program_requests import (
    AddInstance,
    Called,
    CallProgram,
    Caught,
    DisturbTensor,
    ExchangeInstances,
    GradientMode,
    LoadProgram,
    LoadSettings,
    ProfileCall,
    ProgramLoaded,
    ReloadState,
    RepeatCalls,
    Repeated,
    RereadOutputs,
    Traced,
    WatchIdle,
    WrittenTensors,
)
from stitchcuda.verify.messages.request import Request
from stitchcuda.verify.messages.tensor_block import TensorBlock, with_layouts
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.call_form import find_faults, find_limits

_CHANGES = 2                               # how often a tensor is changed; the program must be wrong each time to need it
_SPARE = 2**21                             # bytes of room for inputs and state beyond their own: layouts may differ a little
MOST_NAMED = 200                          # characters of a name that a worker reported, in a message,
_MOST_SAID = 1000                          # and of a sentence
_MOST_CAUGHT = 8                           # failures that a worker reported as caught

_Answer = TypeVar("_Answer")
_Reply = TypeVar("_Reply", bound=WrittenTensors)
_Reported = TypeVar("_Reported", Called, Repeated)
_Reply_co = TypeVar("_Reply_co", bound=WrittenTensors, covariant=True)


Turn = Callable[[Worker], AbstractContextManager[None]]
"""Waits for the GPU on behalf of a worker, whose deadline this extends, and holds it for the block."""


@dataclass(frozen=True)
class ProgramAnswer(Generic[_Reply_co]):
    """One call's answer, which the reference worker holds: its name there, the outputs' paths, and what the worker said of it,
    which may be false."""

    key: str
    names: tuple[str, ...]
    reply: _Reply_co


class Trial:
    """One program in one worker.

    `state_names`: names of the reference's state that the program gives back after a call. `notes`: remarks for the verdict.
    `settings`: how it was loaded. `guessed`: names of the reference's state that the program got by shape alone. `spare`,
    `alike`, `packed`: as in `ProgramLoaded`. After `profile` (GPU): `traced` is what the profiler recorded, `own` the names of
    the program's own kernels, `own_launches` the launches of each by its full name in the trace. `builds`: the orders to build,
    with their answers, of all requests that were answered: what failed among them the program has caught. `caught`: other
    failures that it caught, as its worker reports them.
    """

    def __init__(
        self, worker: Worker, secret_inputs: SecretInputs, built: Construction, target: Target, bounds: Limits, ask: Ask,
        turn: Turn = lambda worker: contextlib.nullcontext(),
    ) -> None:  # fmt: skip
        """`ask`: sends a question to the reference worker. `turn`: waits for the GPU, which is held for one request of the
        worker at a time: whoever times or traces must wait for the longest one only."""
        self._worker = worker
        self._turn = turn
        self._reference = ask
        self._secret_inputs = secret_inputs
        self.built = built
        self.tier: Tier = "timed" if target == "cuda" else "simulated"
        self._limits = bounds
        self.state = built.state
        self.state_names = built.state_names
        self.notes: list[str] = []
        self.settings: LoadSettings | None = None
        self.guessed: list[str] = []
        self.spare: list[int] = []
        self.packed: list[str] = []
        self.alike: list[str] = []
        self.traced: Traced | None = None
        self.own: tuple[str, ...] = ()
        self.own_launches: dict[str, int] = {}
        self.builds: list[tuple[BuildOrder, BuiltLibrary]] = []
        self.caught: list[Caught] = []
        self._answers: list[str] = []      # the answers that the reference worker holds, the last one last
        self._held: ProgramAnswer[Called] | None = None  # the answer whose outputs the worker still holds
        self._called = 0                   # calls of the instance that was constructed last

    def ask_reference(self, request: Request[_Answer]) -> _Answer:
        """Asks the reference worker. That time does not count against the program."""
        with self._worker.paused():
            return self._reference(request)

    def load(self, program: Path, *, masked: bool = False) -> None:
        """Builds and constructs the program (a folder or a single file) with the secret parameters. Raises `WorkerFailed`.

        `masked`: its kernels are built so that they can be left out one by one (`verify/ablation/ablation.py`).
        """
        self._worker.code = program if program.is_dir() else program.parent
        # Only a single-file program may lack some of the reference's state, and only what has the constructor's values.
        secret = self._secret_inputs
        kept = set(secret.kept if secret.renewed else self.built.state_names) if program.is_file() else set()
        self.settings = LoadSettings(
            program=str(program),
            precision=self.built.precision,
            gpu_bytes=self.built.gpu_bytes,
            init_structure=self.built.init_structure,
            init_seed=self.built.init_seed,
            training=self.built.training,
            masked=masked,
            backwards=secret.backwards != masked,
            state_names=self.built.state_names,
            parameters=[tensor.name for tensor in self.built.state if tensor.parameter],
            tied={tensor.name: tensor.tied for tensor in self.built.state},
            kept=sorted(kept),
            alike=[name for group in secret.alike for name in group],
            transient=secret.transient_buffers(self.built.state_names),
            updated=secret.updated_buffers(),
        )
        init, state = self.ask_reference(Lend((self.built.init, secret.state))).blocks
        loaded = self._worker.ask(
            LoadProgram(init=init, state=state, **vars(self.settings)),
            seconds=self._limits.start_s, doing="building and constructing ModelNew",
        )  # fmt: skip
        _check_tampering(loaded.tampered)
        self.spare, self.alike, self.packed = loaded.spare, loaded.alike, loaded.packed
        self._note_caught(loaded.caught)
        self.notes += [note for _, built in self._worker.builds for note in built.notes]
        if self.built.draws:
            self.remark(f"{self.what_is_drawn()}: torch's generators were in the same secret state before both sides' calls")
        if program.is_file():
            self._note_state(kept, loaded)
        self.state_names = [*self.state_names, *(name for name in self.settings.transient if name in loaded.transient)]
        self._note_arguments(loaded.arguments)
        if loaded.arguments_changed:
            self.remark("limited: its constructor changes a list or dict that it is given: a user's next call gets it so")

    def _note_arguments(self, ours: list[str]) -> None:
        """Notes that the program cannot be called with the reference's keyword arguments."""
        wanted = self.built.habits.arguments
        if wanted and ours and tuple(ours[: len(wanted)]) != wanted:
            named = shorten_list([name[:MOST_NAMED] for name in ours])
            self.notes.append(
                f"limited: forward's arguments are named {named}, the reference's {shorten_list(wanted)}: call it by position"
            )

    def _note_state(self, kept: set[str], loaded: ProgramLoaded) -> None:
        """Notes what a single-file program took otherwise than by name. Names come from the judge's own lists; the worker's
        answer only says which of them are concerned."""
        missing, elsewhere, guessed = set(loaded.missing), set(loaded.elsewhere), loaded.guessed
        self.guessed = [name for name in self.built.state_names if name in guessed]
        lacking = [name for name in self.built.state_names if name in self._secret_inputs.kept or name in kept & missing]
        if lacking:
            self.notes.append(
                f"limited: the program's state_dict is not the reference's: it lacks {shorten_list(lacking)}; "
                "what it lacks was drawn with the same seed instead of copied"
            )
        if self._secret_inputs.alike:
            some = [name for group in self._secret_inputs.alike for name in group]
            equal = f"limited: {shorten_list(some)} had equal values where their shapes are"
            self.notes.append(f"{equal}: which is which does not show")
        elif self.guessed:
            pairs = [f"{guessed[name][:MOST_NAMED]!r} taken for {name!r}" for name in self.guessed]
            self.notes.append(f"{shorten_list(pairs)}, by shape: name them as the reference does, or rename in a load hook")
        gone = elsewhere | (kept & missing)
        self.state_names = [name for name in self.built.state_names if name not in gone]

    def call(
        self, given: InputSet, *, same_addresses: bool, hold: bool = False, continued: bool = False,
        mode: GradientMode = "no_grad", pitched: bool = False,
    ) -> ProgramAnswer[Called]:  # fmt: skip
        """Calls the program's forward once; the reference worker reads what it wrote. Raises `WorkerFailed`.

        `same_addresses`: inputs are written over those of the call before, else they lie in fresh memory. `hold`: the worker
        keeps the outputs alive for `reread`. `continued`: the call finds the state that the one before left. `pitched`: inputs
        are parts of longer rows.
        """
        terms, rooms = self._prepare(given)
        request = CallProgram(
            **terms, mode=mode, pitched=pitched, same_addresses=same_addresses, hold=hold, continued=continued,
            written=given.written,
        )
        answer = self._call(request, rooms)
        self._called += 1
        self._note_caught(answer.reply.caught)
        if hold:
            self._held = answer if answer.reply.held else None
            if not self._held:
                self.remark("limited: memory does not hold outputs beside another call: whether they change later is not seen")
        return answer

    def _ask(self, request: Request[_Answer], *, seconds: float, doing: str) -> _Answer:
        with self._turn(self._worker):
            return self._worker.ask(request, seconds=seconds, doing=doing)

    def _call(self, request: Request[_Reported], rooms: dict[str, TensorBlock]) -> ProgramAnswer[_Reported]:
        reply = self._ask(request, seconds=self._limits.call_s, doing="running forward")
        _check_tampering(reply.tampered)
        return self._receive(reply, rooms)

    def _note_caught(self, reported: list[Caught]) -> None:
        self.builds = list(self._worker.builds)
        self.caught += [failure for failure in reported[:_MOST_CAUGHT] if failure not in self.caught]
        del self.caught[_MOST_CAUGHT:]

    def _prepare(self, given: InputSet) -> tuple[dict[str, Any], dict[str, TensorBlock]]:
        """Returns (the fields of a request for calls, the blocks among them into which the worker writes its answer)."""
        most = {"outputs": given.most_bytes, "inputs_after": given.inputs.size + _SPARE}
        facts = zip(given.names, given.output_facts, strict=True)
        most["state_after"] = _SPARE + sum(2 * fact.bytes for name, fact in facts if name.startswith("buffer:"))
        made = self.ask_reference(Lend((given.inputs,), most))
        structure = _in_another_order(given.structure, self.built.habits.arguments)
        terms = {"structure": structure, "draw_seed": given.draw_seed, "state_key": self._secret_inputs.state.key}
        return {"inputs": made.blocks[0], **terms, **made.rooms}, made.rooms

    def _receive(self, reply: _Reply, rooms: dict[str, TensorBlock]) -> ProgramAnswer[_Reply]:
        """Has the reference worker copy an answer, which lies in the blocks `rooms`. Of earlier answers it keeps the last one
        and that which is held."""
        kept = [*([self._held.key] if self._held else []), *self._answers[-1:]]
        stale, key = tuple(earlier for earlier in self._answers if earlier not in kept), secrets.token_hex(8)
        found = self.ask_reference(Receive(key, reply.structure, reply.digests, **with_layouts(rooms, reply), forget=stale))
        self._answers = [earlier for earlier in self._answers if earlier in kept]
        if found.unreadable:
            raise WorkerFailed("error", f"the program's outputs cannot be read: {found.unreadable}")
        self._answers.append(key)
        return ProgramAnswer(key, found.names, reply)

    def forget(self) -> None:
        """Has the reference worker drop all answers of this program."""
        answers, self._answers, self._held = self._answers, [], None
        if answers:
            self.ask_reference(Forget(tuple(answers)))

    def find_overwritten(self, given: InputSet) -> list[str]:
        """Returns which of the outputs that the worker holds have changed since they were returned, other than those that the
        reference returns in memory of its inputs or state. Raises `WorkerFailed`."""
        if self._held is None:
            return []
        rooms = self.ask_reference(Lend(rooms={"outputs": given.most_bytes})).rooms
        request = RereadOutputs(**rooms)
        now = self._ask(request, seconds=self._limits.call_s, doing="showing earlier outputs")
        changed = self.find_changed(self._held, self._receive(now, rooms))
        return [name for name in changed if name not in self.built.habits.lent]

    def find_changed(self, before: ProgramAnswer[WrittenTensors], after: ProgramAnswer[WrittenTensors]) -> list[str]:
        """Returns which outputs of one answer another one lacks, or has with other bits. Both must be among the last two, or
        held."""
        return list(self.ask_reference(FindChanged(before.key, after.key)).names)

    def repeat(self, given: InputSet, *, calls: int, seconds: float) -> ProgramAnswer[Repeated]:
        """Makes up to `calls` further calls within `seconds`, without recording operators or poisoning memory.

        One of them, at a random place, gets the inputs `given`, and what it wrote is returned; the others get shifted contents.
        Raises `WorkerFailed`.
        """
        terms, rooms = self._prepare(given)
        return self._call(RepeatCalls(**terms, calls=calls, budget_s=seconds), rooms)

    def compare(
        self, given: InputSet, answer: ProgramAnswer[WrittenTensors], bounds: dict[str, Bound], *, outputs_only: bool = False,
        values_only: bool = False,
    ) -> tuple[list[OutputError], list[str]]:  # fmt: skip
        """Compares a call on `given` with the reference. Returns (the error of every output and updated buffer with its bound,
        sentences on everything that is wrong; none means that the call is right).

        `bounds`: by output's name. `outputs_only`: neither inputs nor state came back. `values_only`: nothing else of the call
        is looked at. Each answer can be compared once.
        """
        state, names = self._secret_inputs.state, tuple(self.state_names)
        found = self.ask_reference(
            CompareAnswer(answer.key, given, bounds, outputs_only=outputs_only, state=state, given_back=names)
        )
        for remark in found.remarks:
            self.remark(remark)
        reasons = list(found.reasons)
        if not reasons and not values_only and isinstance(answer.reply, Called):
            reasons = find_faults(self.built.habits, given, answer.names, answer.reply, first=self._called == 1)
            for remark in find_limits(self.built.habits, answer.names, answer.reply):
                self.remark(remark)
        if reasons and isinstance(answer.reply, Called):
            causes = answer.reply.failed_launch, answer.reply.unwritten_read
            reasons += [self._worker.name_line(cause[:_MOST_SAID]) for cause in causes if cause]
        return list(found.errors), reasons

    def compare_timed_call(self, given: InputSet, secret_inputs: SecretInputs, call: TimedCall) -> list[str]:
        """Returns sentences on what is wrong with the outputs of a timed call on `given`, a set of `secret_inputs`."""
        try:
            answer = self._receive(call.written, call.blocks)
        except WorkerFailed as failure:
            return [str(failure)]
        return self.compare(given, answer, secret_inputs.bounds(len(secret_inputs.sets)))[1]

    def profile(self, given: InputSet, bounds: dict[str, Bound]) -> tuple[RecordedWork, list[str]]:
        """Profiles one call (GPU only). Returns (who did its work, what is wrong with its outputs). Raises `WorkerFailed`.

        A kernel counts as the program's own if it is in a library that the builder made for it; where the builder lists none,
        if its name is in the program's sources.
        """
        made = self.ask_reference(Lend((given.inputs,), {"outputs": given.most_bytes}))
        (inputs,), rooms = made.blocks, made.rooms
        request = ProfileCall(inputs=inputs, structure=given.structure, draw_seed=given.draw_seed, **rooms)
        self._held = None
        self.traced = traced = self._ask(
            request, seconds=self._limits.call_s, doing="running forward under the profiler"
        )
        answer = self._receive(traced, rooms)
        reasons = self.compare(given, answer, bounds, outputs_only=True)[1]
        libraries = [Path(built.path) for _, built in self._worker.builds if built.path]
        self.own = device_time.built_kernels(libraries) or in_sources(self._worker.code or Path())
        work = device_time.summarize(traced, self.own, calls_vendors=any(map(calls_vendors, libraries)))
        self.own_launches = work.own_launches
        return work, reasons

    def idle(self, seconds: float) -> str:
        """Watches the device for so many seconds in which nobody calls the program (GPU only). Returns "" or a reason against
        the program: it worked there, or failed."""
        try:
            most = seconds + self._limits.call_s
            worked = self._ask(WatchIdle(budget_s=seconds), seconds=most, doing="doing nothing").worked
        except WorkerFailed as failure:
            return str(failure)
        return f"it works on the device while nobody calls it ({worked[0][:MOST_NAMED]})" if worked else ""

    @property
    def protections(self) -> Protections:
        """The sandbox's protections that are in force around the program."""
        return self._worker.child.protections

    def load_parameters(self, other: SecretInputs) -> None:
        """Loads other parameters into the program; calls are compared with these from now on. Raises `WorkerFailed`."""
        self._secret_inputs = other
        (state,) = self.ask_reference(Lend((other.state,))).blocks
        request = ReloadState(state=state, names=self.built.state_names)
        self._ask(request, seconds=self._limits.call_s, doing="taking other parameters")

    def add_instance(self, secret_inputs: SecretInputs) -> None:
        """Constructs ModelNew once more, with these parameters; calls go to it from now on. Raises `WorkerFailed`."""
        init, state = self.ask_reference(Lend((self.built.init, secret_inputs.state))).blocks
        request = AddInstance(init=init, state=state)  # as loading, it takes no turn: it may build
        self._worker.ask(request, seconds=self._limits.start_s, doing="constructing ModelNew again")
        self._called, self._secret_inputs = 0, secret_inputs

    def exchange_instances(self, secret_inputs: SecretInputs) -> None:
        """Lets calls go to the other of two instances, which has these parameters. Raises `WorkerFailed`."""
        self._ask(ExchangeInstances(), seconds=self._limits.call_s, doing="running forward")
        self._secret_inputs = secret_inputs

    def is_correct(self, given: InputSet, bounds: dict[str, Bound]) -> bool:
        """Calls the program and returns whether every output is within its bound. Raises `WorkerFailed`."""
        return all(error.ok for error in self.compare(given, self.call(given, same_addresses=False), bounds)[0])

    def needs_tensor(self, number: int, given: InputSet, bounds: dict[str, Bound]) -> bool:
        """Whether the program is wrong, or fails to run, each time that some numbers of one of its tensors are changed.

        `number` counts through `spare`, then through `alike`. A tensor that cannot be changed, such as an expanded view, counts
        as not needed. Raises `WorkerFailed` for tampering only.
        """
        for _ in range(_CHANGES):
            changed = False
            try:
                request = DisturbTensor(number=number)
                self._ask(request, seconds=self._limits.call_s, doing="taking other parameters")
                changed = True
                if self.is_correct(given, bounds):
                    return False
            except WorkerFailed as failure:
                if failure.kind == "tampering":
                    raise
                return changed
        return True

    def what_is_drawn(self) -> str:
        """Returns "the reference draws random numbers (randn) in forward", or "" where it draws none."""
        drawn = shorten_list(self.built.draws)
        return f"the reference draws random numbers ({drawn}) in forward" if self.built.draws else ""

    def remark(self, note: str) -> None:
        """Adds a note, unless it is empty or there already."""
        if note and note not in self.notes:
            self.notes.append(note)


def _in_another_order(structure: Any, names: Sequence[str]) -> Any:
    """The encoded (args, kwargs), the latter in another order, which means nothing if all of them are of these `names`."""
    given, named = structure["tuple"]
    pairs = named["dict"]
    if not {key for key, _ in pairs} <= set(names):
        return structure
    return {**structure, "tuple": [given, {**named, "dict": secrets.SystemRandom().sample(pairs, len(pairs))}]}


def _check_tampering(found: list[str]) -> None:
    """Raises `WorkerFailed` where the worker reports tampering. That it reports none proves nothing."""
    if found:
        raise WorkerFailed("tampering", f"the program tampers with the process it runs in: {'; '.join(found)[:500]}")


@dataclass(frozen=True)
class LoadedProgram:
    """A program that is loaded in a worker of its own and, on a GPU, was built with switches for its kernels."""

    worker: Worker
    trial: Trial


Start = Callable[[], AbstractContextManager[LoadedProgram]]
"""Loads the program in a new worker, which is closed when the context ends."""
