"""Defines what every node is given beside the state: workspace, engineers, tools of this machine, and events.

A context lives as long as one process works on one session. It is never checkpointed: whatever must survive is stored in the
workspace or the state. Programs, records and texts are stored and loaded through it by digest.

Where to look next: `graph/opening.py` (makes contexts), `graph/borrowed_context.py` (for runs without one),
`nodes/local_tools.py` and `nodes/remote_tools.py` (the tools).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.counts import counted
from stitchcuda.engineers import Engineer, Files
from stitchcuda.engineers.selection import Engineers
from stitchcuda.memory import Memory
from stitchcuda.state import (
    Attempt,
    BuildResult,
    CheckResult,
    DeviceFacts,
    Digest,
    Plan,
    ProfileResult,
    Record,
    Region,
    SanitizerResult,
    Settings,
    State,
    TimingResult,
    Usage,
    lineage,
)
from stitchcuda.store import SessionRecord, Workspace, get_tree, materialise, put_tree
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.reference.baseline_times import BaselineTimes

Event = dict[str, Any]
"""Something a person may want to see. `kind` is session, node, step, tokens (a reply streams in), call (a model's call has
ended), estimate, stage, plan, attempt, twin, best or note; the other keys depend on it."""

Loaded = TypeVar("Loaded", bound=Record)
_REGIONS = TypeAdapter(tuple[Region, ...])


class SessionTools(Protocol):
    """The tools for one reference on one machine. A path is the folder of a program on disk."""

    def device(self) -> DeviceFacts: ...

    def study(self) -> ReferenceFacts:
        """Runs the reference once. Raises BadInput when it cannot be used."""

    def build(self, program: Path) -> BuildResult: ...

    def build_many(self, programs: Sequence[Path]) -> list[BuildResult]:
        """Builds several programs at once, with as many compilers as this machine can run."""

    def compile(self, program: Path) -> BuildResult:
        """Compiles with the compiler of the session's target (nvcc without linking, or for the simulator): needs no GPU."""

    def check(self, program: Path, seeds: int) -> CheckResult: ...

    def check_many(self, programs: Sequence[Path], seeds: int) -> list[CheckResult]:
        """Checks several programs, as many side by side as this machine allows."""

    def verify(self, program: Path, seeds: int) -> CheckResult:
        """Checks on fresh inputs and parameters, with each kernel left out in turn. The policy comes later."""

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        """Times a program against `previous`; None without a GPU. `twice`: time again in new processes and take the slower
        figures, for a final program. A result with `refused` must not be believed."""

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        """Profiles a call of the program (None: the reference) with the best profiler here; no SystemProfile without one."""

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        """Reads hardware counters of the kernels that take most time in `system`; no CountedKernels without them."""

    def sanitize(self, program: Path) -> SanitizerResult:
        """Looks for memory errors, races, uninitialised reads and wrong barriers in a correct program's kernels."""

    def baselines(self) -> BaselineTimes:
        """Times the reference in eager mode, as a CUDA graph and with torch.compile."""

    def close(self) -> None: ...


def _nobody(question: dict[str, Any]) -> Any:
    raise RuntimeError(f"nobody can be asked here for {question['waiting_for']}")


@dataclass
class Context:
    """One session in this process."""

    workspace: Workspace
    record: SessionRecord
    settings: Settings                     # the record's, with the target resolved on this machine
    tools: SessionTools
    engineers: Engineers
    on_event: Callable[[Event], None] = lambda event: None
    memory: Memory | None = None           # lessons of earlier sessions
    ask: Callable[[dict[str, Any]], Any] = _nobody  # shows a person a question and returns the answer
    looking: threading.Lock = field(default_factory=threading.Lock)  # held while a look asks the judge or a profiler
    profiled_s: float = 0.0                # that the node which runs now has profiled for, beside its other work
    _loaded: dict[Digest, Any] = field(default_factory=dict)
    _mark: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def folder(self) -> Path:
        return self.workspace.folder(self.name)

    def engineer(self, state: State) -> Engineer:
        """Returns who works now: the built-in engineer in the start stage of a chat model's session, else the session's own."""
        return self.engineers.starter if self.engineers.starter and state.get("stage") == "start" else self.engineers.engineer

    def profiles_attempts(self, state: State) -> bool:
        """Whether attempts are profiled. True without a GPU, where the profilers record themselves why they do not run."""
        return self.engineer(state).reads_profiles or self.settings.target != "cuda"

    def usage_now(self, before: Usage, gpu_s: float, stored: bool) -> Usage:
        """Returns the usage so far: calls and looks from the transcript, `before` plus `gpu_s` and the time since usage was
        last stored. `stored`: the state will hold what is returned; if not, the next call counts this time again."""
        now = time.monotonic()
        wall_s = now - self._mark
        self._mark = now if stored else self._mark
        calls = self.engineers.transcript.usage() if self.engineers.transcript else before
        gpu_s += before.with_looks(calls.looks_gpu_s)
        return calls.model_copy(update={"gpu_s": gpu_s, "wall_s": before.wall_s + wall_s})

    def own_attempts(self, state: State) -> int:
        """Returns the number of attempts since the start stage; 0 during it."""
        return 0 if state.get("stage") == "start" else state.get("attempts", 0) - state.get("started", 0)

    def out_of_attempts(self, state: State) -> str | None:
        """Returns how many attempts were made if no more are allowed, else None. The rules end a session before that, unless
        `max_attempts` was lowered since."""
        own = self.own_attempts(state)
        return f"{counted(own, 'attempt')} of {self.settings.max_attempts}" if own >= self.settings.max_attempts else None

    def record_once(self, name: str, look: Callable[[], str]) -> str:
        """Returns the text recorded under `name` in a chat model's transcript; the first time, calls `look` and records it. So
        a node that runs again makes the same prompts. Without a transcript `look` is called each time."""
        transcript = self.engineers.transcript
        return transcript.record_once(name, look) if transcript else look()

    def record_proposal(self, name: str, make: Callable[[], str]) -> str:
        """Returns the proposal recorded under `name`, with any engineer; the first time, calls `make` and records it. A person
        is shown it, so it must be the same when the answer comes, even in another process."""
        from stitchcuda.engineers.metered_chat import Transcript

        return Transcript(self.workspace.store, self.name).record_once(f"proposal-{name}", make)

    def emit(self, kind: str, **facts: Any) -> None:
        self.on_event({"kind": kind, "session": self.name, **facts})

    def note(self, state: State, text: str) -> tuple[str, ...]:
        """Emits a note and returns the state's notes with it; a note that is there already is not repeated."""
        notes = state.get("notes", ())
        if text in notes:
            return notes
        self.emit("note", text=text)
        return (*notes, text)[-NOTES:]

    def save(self, record: Record) -> Digest:
        return self.workspace.store.put(record.model_dump_json().encode())

    def store_profile(self, result: ProfileResult, whole: Record | None) -> ProfileResult:
        """Stores the whole profile, if there is one, and returns the result with its digest."""
        return result if whole is None else result.model_copy(update={"digest": self.save(whole)})

    def load(self, kind: type[Loaded], digest: Digest) -> Loaded:
        """Returns a stored record. It is parsed once per process: records are frozen."""
        if digest not in self._loaded:
            self._loaded[digest] = kind.model_validate_json(self.workspace.store.get(digest))
        found = self._loaded[digest]
        assert isinstance(found, kind)
        return found

    def save_regions(self, regions: tuple[Region, ...]) -> Digest:
        return self.workspace.store.put(_REGIONS.dump_json(regions))

    def regions(self, digest: Digest) -> tuple[Region, ...]:
        return _REGIONS.validate_json(self.workspace.store.get(digest))

    def graph(self, digest: Digest) -> OpGraph:
        return self.load(OpGraph, digest)

    def plan(self, state: State) -> Plan | None:
        digest = state.get("plan")
        return self.load(Plan, digest) if digest else None

    def source(self) -> str:
        """Returns the reference's source text."""
        return self.workspace.store.get(self.record.source).decode()

    def lines(self, digest: Digest | None) -> tuple[str, ...]:
        """Returns the lines of a stored text; () for None."""
        return tuple(self.workspace.store.get(digest).decode().splitlines()) if digest else ()

    def save_program(self, files: Files) -> Digest:
        return put_tree(self.workspace.store, files)

    def files(self, program: Digest) -> Files:
        """Returns a program's files: path → text, or bytes for `.safetensors`."""
        tree = get_tree(self.workspace.store, program)
        return {name: content if name.endswith(".safetensors") else content.decode() for name, content in tree.items()}

    def program_folder(self, program: Digest) -> Path:
        """Returns the program's folder below the session's folder; writes it the first time."""
        folder = self.folder / "programs" / program[:16]
        return folder if folder.is_dir() else materialise(self.workspace.store, program, folder)

    def history(self, state: State) -> tuple[Attempt, ...]:
        """Returns all attempts up to the state's head, oldest first."""
        return lineage(state.get("head"), self.workspace.store.attempts(self.name))


NOTES = 20
"""How many notes the state keeps."""
