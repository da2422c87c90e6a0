"""What every node is given beside the state: the workspace, the engineer, and the tools of this machine.

A context lives as long as one process works on one session; it is never checkpointed, and everything that must survive goes
into the store or the state. Who makes one: `sessions/session.py`, and `graph/borrowed_context.py` for the LangGraph server.
"""

from __future__ import annotations

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
from stitchcuda.verify.client import ReferenceFacts
from stitchcuda.verify.reference.baselines import BaselineTimes

Event = dict[str, Any]
"""Something a person may want to see: `kind` is session, node, step, tokens (of a reply that streams in), call (of a model,
when it is over), estimate, stage, plan, attempt, twin, best or note; the rest depends on it."""

Loaded = TypeVar("Loaded", bound=Record)
_REGIONS = TypeAdapter(tuple[Region, ...])


class SessionTools(Protocol):
    """The tools, bound to one reference on one machine. A path is a materialised program's folder."""

    def device(self) -> DeviceFacts: ...

    def study(self) -> ReferenceFacts:
        """Runs the reference once. Raises BadInput when it cannot be used."""
        ...

    def build(self, program: Path) -> BuildResult: ...

    def build_many(self, programs: Sequence[Path]) -> list[BuildResult]:
        """The same for several programs at once, with as many compilers as this machine bears."""
        ...

    def compile(self, program: Path) -> BuildResult:
        """The compiler's word alone: nothing is linked, so it is quick, and needs no GPU."""
        ...

    def check(self, program: Path, seeds: int) -> CheckResult: ...

    def check_many(self, programs: Sequence[Path], seeds: int) -> list[CheckResult]:
        """The same for several programs at once, as many side by side as this machine allows."""
        ...

    def verify(self, program: Path, seeds: int) -> CheckResult:
        """The same on inputs and parameters that were never used before, each kernel left out in turn, and under the policy."""
        ...

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        """None where nothing can be timed; `twice` for a winner. Figures with `refused` must not be believed."""
        ...

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        """Where the time of a call goes, of the reference if no program is given, by the best means here; None where nobody
        can tell."""
        ...

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        """Counters of the kernels that matter in `system`; None where there are none."""
        ...

    def sanitize(self, program: Path) -> SanitizerResult:
        """Memory errors, races, unwritten reads and barriers of a correct program's kernels."""
        ...

    def baselines(self) -> BaselineTimes:
        """The reference as people run it without us, each way timed: eager, as a CUDA graph, compiled."""
        ...

    def close(self) -> None: ...


def _nobody(question: dict[str, Any]) -> Any:
    raise RuntimeError(f"nobody can be asked here for {question['waiting_for']}")


@dataclass
class Context:
    """One session at work in this process."""

    workspace: Workspace
    record: SessionRecord
    settings: Settings                     # the record's, with the target resolved on this machine
    tools: SessionTools
    engineers: Engineers
    on_event: Callable[[Event], None] = lambda event: None
    memory: Memory | None = None           # lessons of earlier sessions
    ask: Callable[[dict[str, Any]], Any] = _nobody  # shows a person a question and returns the answer
    _loaded: dict[Digest, Any] = field(default_factory=dict)
    _mark: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def folder(self) -> Path:
        return self.workspace.folder(self.name)

    def engineer(self, state: State) -> Engineer:
        """Who is at work: the built-in engineer while a chat model's session starts, else the session's own."""
        return self.engineers.starter if self.engineers.starter and state.get("stage") == "start" else self.engineers.engineer

    def profiles_attempts(self, state: State) -> bool:
        """Whether it is looked where an attempt's time goes. Without a GPU the tools say themselves why they do not."""
        return self.engineer(state).reads_profiles or self.settings.target != "cuda"

    def usage_now(self, before: Usage, gpu_s: float) -> Usage:
        """The session's usage so far: its calls from the transcript, the time of this process since it was last asked."""
        now = time.monotonic()
        wall_s, self._mark = now - self._mark, now
        calls = self.engineers.transcript.usage() if self.engineers.transcript else before
        return calls.model_copy(update={"gpu_s": before.gpu_s + gpu_s, "wall_s": before.wall_s + wall_s})

    def own_attempts(self, state: State) -> int:
        """A chat model's, after the built-in engineer's start."""
        return 0 if state.get("stage") == "start" else state.get("attempts", 0) - state.get("started", 0)

    def out_of_attempts(self, state: State) -> str | None:
        """Why no engineer may be asked any more. The rules end a session before that, unless its budget was lowered since."""
        own = self.own_attempts(state)
        return f"{counted(own, 'attempt')} of {self.settings.max_attempts}" if own >= self.settings.max_attempts else None

    def record_once(self, name: str, look: Callable[[], str]) -> str:
        """What a look found the first time, kept under `name` with a chat model's session: a node that runs again sees the
        same. Without a transcript nobody was asked anything that must not change."""
        transcript = self.engineers.transcript
        return transcript.record_once(name, look) if transcript else look()

    def record_proposal(self, name: str, make: Callable[[], str]) -> str:
        """What was made the first time, kept under `name` with any session: a person was shown it, so it must be the same when
        the answer comes, in whatever process."""
        from stitchcuda.engineers.metered_chat import Transcript

        return Transcript(self.workspace.store, self.name).record_once(f"proposal-{name}", make)

    def emit(self, kind: str, **facts: Any) -> None:
        self.on_event({"kind": kind, "session": self.name, **facts})

    def note(self, state: State, text: str) -> tuple[str, ...]:
        """Announces a sentence and returns the notes with it; one that was said before is not repeated."""
        notes = state.get("notes", ())
        if text in notes:
            return notes
        self.emit("note", text=text)
        return (*notes, text)[-NOTES:]

    def save(self, record: Record) -> Digest:
        return self.workspace.store.put(record.model_dump_json().encode())

    def store_profile(self, result: ProfileResult, whole: Record | None) -> ProfileResult:
        """The result with the whole profile stored beside it, if there is one."""
        return result if whole is None else result.model_copy(update={"digest": self.save(whole)})

    def load(self, kind: type[Loaded], digest: Digest) -> Loaded:
        """A stored record, typed back. Parsed once per process: records are frozen."""
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
        """The reference's readable source text."""
        return self.workspace.store.get(self.record.source).decode()

    def lines(self, digest: Digest | None) -> tuple[str, ...]:
        """A stored text by lines; none for None."""
        return tuple(self.workspace.store.get(digest).decode().splitlines()) if digest else ()

    def save_program(self, files: Files) -> Digest:
        return put_tree(self.workspace.store, files)

    def files(self, program: Digest) -> Files:
        """A program's files: text where they are text, else bytes (constants)."""
        tree = get_tree(self.workspace.store, program)
        return {name: content if name.endswith(".safetensors") else content.decode() for name, content in tree.items()}

    def program_folder(self, program: Digest) -> Path:
        """The program on disk, below the session's folder, written once."""
        folder = self.folder / "programs" / program[:16]
        return folder if folder.is_dir() else materialise(self.workspace.store, program, folder)

    def history(self, state: State) -> tuple[Attempt, ...]:
        """The whole record, oldest first: the walk from the state's head through parents."""
        return lineage(state.get("head"), self.workspace.store.attempts(self.name))


NOTES = 20
"""How many notes the state keeps."""
