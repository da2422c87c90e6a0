"""What the judge asks a worker that is timed: the reference's and a program's answer the same requests (GPU only).

In this order: prepare, then blocks and rows of calls, release. A call is a list [set, turn, 1 if at new addresses]
(`verify/inputs/timed_contents.py`). No request is carried out here.
Where to look next: `verify/timing/timed_calls.py` (who answers), `verify/timing/rounds.py` (who asks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import Field

from stitchcuda.verify.messages.program_requests import WrittenTensors
from stitchcuda.verify.messages.request import Answer, Done, ReportedList, Request
from stitchcuda.verify.messages.tensor_block import TensorBlock

Milliseconds = Annotated[float, Field(strict=True, ge=0.0, lt=1e9, allow_inf_nan=False)]
"""A time that an untrusted process reports."""


@dataclass(frozen=True, kw_only=True)
class TimingPrepared(Answer):
    """`pinned`: the process runs on the core that it was told."""

    pinned: bool


@dataclass(frozen=True, kw_only=True)
class PrepareTiming(Request[TimingPrepared]):
    """Hold these input sets for timed calls."""

    inputs: list[TensorBlock]              # of each set
    structures: list[Any]                  # of the arguments of each set
    draw_seeds: list[int | None]           # of each set; a call's seed follows from its turn too
    moving: list[list[int]]                # the tensors that a turn rolls: [position, axis, …] of each
    scaled: bool                           # whether a turn scales floats too
    restore: list[str]                     # buffers and parameters that a call changes and that are put back
    core: int | None                       # for the main thread
    state: TensorBlock | None = None       # the parameters, for the reference's worker


@dataclass(frozen=True, kw_only=True)
class MoveTensors(Request[Done]):
    """Free all memory and take it anew behind `spacer` bytes, with room for `fresh` calls at new addresses. Make one call."""

    spacer: int
    call: list[int]
    fresh: int


@dataclass(frozen=True, kw_only=True)
class BlockTimes(Answer):
    """Milliseconds of each call: on its stream, and of other work on the device after that."""

    device_ms: ReportedList[Milliseconds]
    rest_ms: ReportedList[Milliseconds]


@dataclass(frozen=True, kw_only=True)
class TimeBlock(Request[BlockTimes]):
    """Time each of these calls. `run`: whether they are made; else all else is done without them."""

    calls: list[list[int]]
    run: bool


@dataclass(frozen=True, kw_only=True)
class LayRow(Request[Done]):
    """Put the contents of these calls into memory, each at its own addresses."""

    calls: list[list[int]]


@dataclass(frozen=True, kw_only=True)
class CallRow(Request[Done]):
    """Make the calls that were laid, one right after the other."""


@dataclass(frozen=True, kw_only=True)
class Deliver(Request[WrittenTensors]):
    """Write what the last call returned, and its inputs as they are now; of large tensors what `sample` draws."""

    sample: int                            # a seed
    outputs: TensorBlock
    inputs_after: TensorBlock


@dataclass(frozen=True, kw_only=True)
class TimingReleased(Answer):
    """What the program did to the process it runs in while it was timed."""

    tampered: ReportedList[str]


@dataclass(frozen=True, kw_only=True)
class ReleaseTiming(Request[TimingReleased]):
    """End the timed calls and free their memory."""


TimingRequest = PrepareTiming | MoveTensors | TimeBlock | LayRow | CallRow | Deliver | ReleaseTiming
TIMING_REQUESTS: tuple[type[Request[Any]], ...] = get_args(TimingRequest)
