"""Records of a benchmark's run: what was asked for, and a result for each problem, kept in a folder as they come.

    OUT/run.json           what was asked for             OUT/results.jsonl    one line a result, with its checksum
    OUT/workspace/         the sessions of `bench run`    OUT/references/      references that came in a table
    OUT/baselines.jsonl    of programs that exist         OUT/unfinished.jsonl what has no result, and why

A result is written once and never changed. Nothing is judged here.
Where to look next: `bench/run.py` and `bench/judging.py` (who write results), `bench/table.py` (who reads them).
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import Field, ValidationError

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import CheckResult, OutputError, Record, Settings, Tier, Usage
from stitchcuda.store.files import write_atomically
from stitchcuda.store.lines import Lines
from stitchcuda.verify.reference.baseline_times import BaselineTime

End = Literal["accepted", "refused", "nothing to do", "broken", "could not judge", "failed", "parked"]
"""How a problem ended. "broken": nothing can be judged by its reference. "could not judge": not on this machine, however often
it is tried. "failed" and "parked" are no results: they are tried again by the next run."""
FINAL = ("accepted", "refused", "nothing to do", "broken", "could not judge")


class Result(Record):
    """What became of one problem, or of one program of it. `id` is unique in a run."""

    id: str
    problem: str
    end: End
    reasons: tuple[str, ...] = ()
    label: str = ""
    tier: Tier | None = None
    device: str = ""                       # name, driver and torch
    speedups: dict[str, float] = Field(default_factory=dict)  # over each baseline, by its `Mode`
    disagreeing: dict[str, float] = Field(default_factory=dict)  # over those whose outputs are outside of the verifier's bound
    predicted: float | None = None         # speed-up over eager by the cost model, where nothing was timed
    claimed: float | None = None           # what the program's author says
    eager_ms: float | None = None
    program_ms: float | None = None
    max_error: float | None = None         # of the output closest to its bound, relative to the bound
    within_bound: bool | None = None       # whether all outputs are within the verifier's bound; None: none was compared
    tolerance: float | None = None         # the least atol = rtol with which torch.allclose takes all outputs for equal
    significand: tuple[float | None, float | None] = (None, None)  # bits (used, of the reference)
    shares: tuple[float, float, float] = (0.0, 0.0, 0.0)  # own kernels, vendor libraries, framework
    attempts: int = 0
    seconds: float = 0.0
    usage: Usage = Usage()
    program: str = ""                      # its path, relative to OUT where it is inside
    short_of_memory: bool = False          # something ran out of the GPU's memory, which other sessions may have held

    @property
    def final(self) -> bool:
        return self.end in FINAL

    @property
    def correct(self) -> bool:
        return self.end == "accepted"


class Baselines(Record):
    """The speed-ups over eager of a reference's other baselines, timed after a program of it was accepted: of those that agree
    with the reference, and of the others."""

    id: str                                # of the result
    speedups: dict[str, float]
    disagreeing: dict[str, float] = Field(default_factory=dict)


def baselines_of(result: str, times: Sequence[BaselineTime]) -> Baselines:
    """The record of what was timed beside eager for a result."""
    timed = [time for time in times if time.mode != "eager" and time.speedup]
    agreeing, others = (
        {str(time.mode): time.speedup or 0.0 for time in timed if bool(time.agrees) is agrees} for agrees in (True, False)
    )
    return Baselines(id=result, speedups=agreeing, disagreeing=others)


class Asked(Record):
    """What a run was asked for. A run can be gone on with by the same request only."""

    kind: Literal["run", "verify"]
    source: str
    path: str
    problems: tuple[str, ...]
    contents: tuple[str, ...]              # a digest of each one's reference and program
    settings: Settings


class RunFolder:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.references = folder / "references"
        self._lines = Lines(folder / "results.jsonl", Result, "result")
        self._baselines = Lines(folder / "baselines.jsonl", Baselines, "baselines")
        self._lock: BinaryIO | None = None
        self._unfinished: dict[str, Result] = {}

    @classmethod
    def open(cls, folder: Path) -> RunFolder:
        """Returns the run in a folder. Raises `BadInput` if there is none."""
        if not (folder / "run.json").is_file():
            raise BadInput(f"{folder} holds no benchmark's run: give a folder that `bench run` or `bench verify` wrote to")
        return cls(folder)

    def begin(self, asked: Asked) -> None:
        """Keeps what is asked for, and takes the folder for this process until `release`. Raises `BadInput` if the folder
        holds a run that was asked for something else, `Unavailable` if it cannot be written or another process writes to
        it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(f"another process is at work in {self.folder}: wait for it, or give another --out") from error
        except OSError as error:
            raise Unavailable(f"cannot write to {self.folder} ({error.strerror}): give another --out") from error
        if (self.folder / "run.json").is_file():
            if differing := _differences(self.asked(), asked):
                raise BadInput(
                    f"{self.folder} holds another run ({'; '.join(differing)}): give the same request to go on with it, or "
                    "another --out"
                )
            return
        write_atomically(self.folder / "run.json", asked.model_dump_json(indent=1).encode())

    def release(self) -> None:
        """Gives the folder back: other processes may write to it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def asked(self) -> Asked:
        path = self.folder / "run.json"
        try:
            return Asked.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise BadInput(f"{path} cannot be read: restore it, or begin anew with another --out") from error

    def add(self, result: Result) -> Result:
        """Keeps a result and returns it, or the one of the same id that is there already."""
        return self._lines.append(result)

    def keep(self, result: Result) -> Result:
        """Keeps a result, or of one that is not final what there is, until the next run. Returns what is kept."""
        if result.final:
            return self.add(result)
        self._unfinished[result.id] = result
        self.keep_unfinished(self._unfinished.values())
        return result

    def add_baselines(self, found: Baselines) -> None:
        self._baselines.append(found)

    def results(self) -> Mapping[str, Result]:
        """All results, by id, in the order in which they came, with the baselines that were timed for them."""
        baselines = self._baselines.records()
        return {
            name: beside(result, baselines[name]) if name in baselines else result
            for name, result in self._lines.records().items()
        }

    def lacks_baselines(self, result: Result) -> bool:
        return result.correct and bool(result.speedups) and result.id not in self._baselines.records()

    def keep_unfinished(self, results: Iterable[Result]) -> None:
        """Keeps what this run could not end, in place of what an earlier run could not."""
        lines = [result.model_dump_json() for result in results]
        write_atomically(self.folder / "unfinished.jsonl", "".join(f"{line}\n" for line in lines).encode())

    def unfinished(self) -> Mapping[str, Result]:
        """What has no result yet although it was tried, by id, with the reason."""
        path, known = self.folder / "unfinished.jsonl", self.results()
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
        found = [Result.model_validate_json(line) for line in lines if line]
        return {result.id: result for result in found if result.id not in known}


def digest_of(*paths: Path | None) -> str:
    """A digest of files and folders; None for what is not there."""
    found = hashlib.sha256()
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path and path.is_dir() else [path]
        for file in files:
            found.update(f"{file.name if file else None}\n".encode())
            found.update(file.read_bytes() if file and file.is_file() else b"")
    return found.hexdigest()[:16]


def _differences(before: Asked, now: Asked) -> list[str]:
    """What another request asks for: its names, what they are in the run, and what is asked for now."""
    found = []
    for name in ("kind", "source", "path"):
        if getattr(before, name) != getattr(now, name):
            found.append(f"its {name} is {getattr(before, name)}, not {getattr(now, name)}")
    old, new = before.settings.model_dump(), now.settings.model_dump()
    found += [f"its {name} is {old[name]}, not {new[name]}" for name in old if old[name] != new[name]]
    if before.problems != now.problems:
        found.append(f"it has {counted(len(before.problems), 'problem')}, and not just these")
    elif before.contents != now.contents:
        pairs = zip(before.problems, before.contents, now.contents, strict=True)
        found.append(f"{next(name for name, old, new in pairs if old != new)} has changed since")
    return found


def beside(result: Result, baselines: Baselines) -> Result:
    """The result with its program's speed-ups over other baselines; each was timed in turns with eager."""
    eager = result.speedups.get("eager")
    if not eager:
        return result
    more, others = (
        {mode: eager / speedup for mode, speedup in found.items()} for found in (baselines.speedups, baselines.disagreeing)
    )
    return result.model_copy(update={"speedups": {**result.speedups, **more}, "disagreeing": others})


def closest(check: CheckResult | None) -> OutputError | None:
    """The output whose error is closest to its bound."""
    outputs = check.outputs if check else ()
    return max(outputs, key=lambda output: output.max_error / (output.max_bound or 1.0), default=None)
