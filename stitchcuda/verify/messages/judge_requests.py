"""What the main process asks a judge process, and what that answers. Imports no torch.

The judge gets `JudgeStart` first, as one line of JSON, and then a request a line, with its class' name as
`do`; it answers each with a `JudgeReply`. Paths are absolute.
Where to look next: `verify/client.py` (asks), `verify/judge/judge.py` (answers).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from stitchcuda.sandbox.command import Finished
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import CheckResult, Record, Settings, TimingResult
from stitchcuda.tools.profile.runner import HowCalled
from stitchcuda.verify.messages.request import Answer, Request

_Answer = TypeVar("_Answer")


class JudgeStart(Record):
    """What a judge needs to know before the first question."""

    reference: Path
    settings: Settings
    limits: Limits
    scratch: Path                          # folder for everything that the judge and its workers write, but builds
    cache: Path                            # folder for builds
    runtime: Path                          # the user's cache, with the simulator's own libraries
    arch: str                              # such as "sm_90a"


@dataclass(frozen=True)
class ReferenceFacts(Answer):
    """What one run of the reference showed."""

    capture: str                           # OpGraph as JSON
    constants: str | None = None           # path of a safetensors file with the graph's constants; exists as long as the judge
    eager_ms: float | None = None          # median of one call; None on the simulator
    device: str = "cpu"                    # as torch names it
    torch: str = ""
    sha: str = ""                          # SHA-256 of the reference's file


@dataclass(frozen=True)
class CheckResults(Answer):
    """In the order of the programs."""

    results: list[CheckResult]


@dataclass(frozen=True)
class RanUnder(Answer):
    """How the process of a `RunUnder` ended. `kernels`: the full names of the program's own kernels."""

    finished: Finished
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class RunReference(Request[ReferenceFacts]):
    """Runs the reference once: captures its graph and times it on a GPU."""


@dataclass(frozen=True)
class CheckProgram(Request[CheckResult]):
    """Judges a program on `seeds` input sets. `fresh`: on parameters and inputs that no program has seen."""

    program: str
    seeds: int
    fresh: bool


@dataclass(frozen=True)
class CheckPrograms(Request[CheckResults]):
    """Judges several programs at once, each as `CheckProgram` does, on sets that are kept."""

    programs: tuple[str, ...]
    seeds: int


@dataclass(frozen=True)
class TimeProgram(Request[TimingResult]):
    """Times reference, previous program and program, interleaved. `twice`: once more in new processes."""

    program: str
    previous: str
    twice: bool


@dataclass(frozen=True)
class RunUnder(Request[RanUnder]):
    """Calls a program that was judged correct in a process of its own, started by the command `under`."""

    program: str                           # "": the reference
    under: tuple[str, ...]
    out: Path                              # a folder that the command may write
    how: HowCalled
    calls: int
    warm: int
    seconds: float                         # its time limit
    environment: dict[str, str]            # variables to add
    visible: str | None                    # the user's CUDA_VISIBLE_DEVICES


QUESTIONS = {kind.__name__: kind for kind in (RunReference, CheckProgram, CheckPrograms, TimeProgram, RunUnder)}


class JudgeReply(Record, Generic[_Answer]):
    """The answer to one question, or why there is none: `failed` is then `BadInput`, and of it
    `UnusableReference`, `Unavailable` or our own defect.

    `why`: a sentence, or the traceback of a defect. `last`: the judge can start no workers any more.
    """

    answer: _Answer | None = None
    failed: Literal["", "bad_input", "unusable_reference", "unavailable", "defect"] = ""
    why: str = ""
    last: bool = False
