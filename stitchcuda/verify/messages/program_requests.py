"""What the judge asks the worker of a program, and what that answers.

The worker makes requests with `kind(**fields)` and sends `vars(answer)`: all of its values are plain JSON and blocks. What it
answers is not trusted: the types below are checked by the judge (`verify/messages/request.py`), and nothing else of it is. A
layout (`Any`) is checked by the reference worker, which reads the block. No request is carried out here.
Where to look next: `verify/program/program_worker.py` (who answers), `verify/program/trial.py` (who asks),
`verify/messages/timing_requests.py` (requests of timed calls).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from stitchcuda.state import Precision
from stitchcuda.verify.messages.request import Answer, Count, Done, ReportedDict, ReportedList, Request
from stitchcuda.verify.messages.tensor_block import TensorBlock

Share = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
"""A part of a whole that an untrusted process reports."""

Row = tuple[str, Count, Count, Annotated[int, Field(strict=True)]]
"""Something that the device did: name, start in ns, duration in ns, stream."""


Step = tuple[Literal["own", "vendor", "framework"], str, Count, str, str]
"""Something that a call ran: whose it is, its name, bytes that it moved (simulator) or ns (GPU), tensors that it was given, the
program's line that called it ("model_new.py line 7"; "" where that is not known)."""

Caught = tuple[str, str]
"""A failure that the program caught: the function that it called, and the error's first line."""

_Item = TypeVar("_Item")
_OfTensors = Annotated[ReportedList[_Item], Field(max_length=65_536)]  # the judge asks about each of them


@dataclass(frozen=True, kw_only=True)
class ProgramLoaded(Answer):
    """How a program took over the reference's state (`verify/program/state_loading.py`)."""

    missing: ReportedList[str]             # names of the reference's state that it has not
    elsewhere: ReportedList[str]           # names that a load hook took in another form
    guessed: ReportedDict[str]             # names that it got by shape alone, and its own names for them
    spare: _OfTensors[Count]               # numbers in each tensor that corresponds to nothing in the reference
    alike: _OfTensors[str]                 # for each tensor that got an interchangeable constant, the constant's name
    tampered: ReportedList[str]
    caught: ReportedList[Caught] = field(default_factory=list)  # while its libraries were built and loaded
    transient: ReportedList[str] = field(default_factory=list)  # which of `LoadSettings.transient` it has
    arguments: ReportedList[str] = field(default_factory=list)  # names of forward's arguments
    arguments_changed: bool = False        # whether the constructor changed a list or dict that it was given
    packed: ReportedList[str] = field(default_factory=list)  # tensors beside its state that the constructor made of parameters


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """How a program is constructed and takes over the reference's state: all of a `LoadProgram` but the tensors."""

    program: str                           # path of the folder or the file
    precision: Precision
    gpu_bytes: int                         # the user's limit of the GPU's memory; 0: none
    init_structure: Any                    # the constructor's arguments, with places for the tensors of `init`
    init_seed: int                         # torch's seed for the constructor
    training: bool
    masked: bool                           # kernels are built so that they can be left out
    backwards: bool                        # the order of the first simulated blocks
    state_names: list[str]                 # names of the tensors of `state`, in their order
    parameters: list[str]                  # which of these are parameters
    tied: dict[str, str]                   # for each name, the first name of the same memory
    kept: list[str]                        # names that the program may lack
    alike: list[str]                       # names of interchangeable constants
    transient: list[str]                   # buffers outside of the state_dict that the reference's calls change
    updated: list[str]                     # buffers and parameters that the reference's calls change


@dataclass(frozen=True, kw_only=True)
class LoadProgram(LoadSettings, Request[ProgramLoaded]):
    """Build, import and construct `ModelNew`, and load the reference's state into it."""

    init: TensorBlock                      # the tensors among the constructor's arguments
    state: TensorBlock                     # secret values of parameters and buffers


@dataclass(frozen=True, kw_only=True)
class WrittenTensors(Answer):
    """What was written to the blocks of a request: the layouts of the tensors in the blocks of the same names."""

    structure: Any                         # of the result (`wire.encode`)
    outputs: Any
    inputs_after: Any = None
    state_after: Any = None                # of the tensors that the reference's calls change
    digests: ReportedList[str] = field(default_factory=list)  # of each other tensor of the state


@dataclass(frozen=True, kw_only=True)
class CallWork(Answer):
    """Who did the work of a call. It is counted in bytes that were moved on the simulator, in device time (ns) on a GPU."""

    own: Share = 0.0                       # of the program's own kernels
    vendor: Share = 0.0                    # of vendor libraries
    framework: Share = 0.0                 # of torch's operators
    vendor_by_torch: Share = 0.0           # part of `vendor`: vendor libraries' work that torch's operators ask for
    elsewhere: Count = 0                   # bytes or ns of vendor libraries and torch's operators together
    own_bytes: Count = 0                   # that own kernels moved (simulator)
    boundary: Count = 0                    # bytes of copies into and out of replayed graphs, part of `elsewhere`
    launches: Count = 0                    # of own kernels
    replays: Count = 0                     # of CUDA graphs that do most of the work outside of own kernels
    host_bytes: Count = 0                  # of device memory that the host read or wrote
    steps: ReportedList[Step] = field(default_factory=list)  # the first that the call ran, in order


@dataclass(frozen=True, kw_only=True)
class Called(WrittenTensors, CallWork):
    """One call of forward. The figures of `CallWork` are zero on a GPU: there a trace gives them."""

    tampered: ReportedList[str]
    failed_launch: str = ""                # a sentence on a kernel launch that failed, after which forward went on
    unwritten_read: str = ""               # a sentence on a kernel that read unwritten shared memory (simulator)
    caught: ReportedList[Caught] = field(default_factory=list)  # of calls of its libraries' functions on the simulator, too
    overlapping: ReportedList[tuple[Count, Count]] = field(default_factory=list)  # positions of outputs with common elements,
    in_inputs: ReportedList[Count] = field(default_factory=list)  # of those in the memory of inputs,
    in_state: ReportedList[Count] = field(default_factory=list)  # and of parameters and buffers
    marks: ReportedList[ReportedList[str]] = field(default_factory=list)  # for each output, what it is beside a plain tensor
    module_changed: ReportedList[str] = field(default_factory=list)  # such as "training"
    arguments_changed: bool = False        # these and the next as in `verify/integrity/call_effects.py`
    settings: ReportedList[str] = field(default_factory=list)
    written_back: ReportedList[str] = field(default_factory=list)  # inputs and state that operators of torch wrote to
    generators: str = ""                   # a digest of their states after the call
    generators_moved: bool = False
    held: bool = False                     # whether the outputs are kept alive, as asked: memory may not suffice


GradientMode = Literal["no_grad", "enable_grad", "inference_mode"]


@dataclass(frozen=True, kw_only=True)
class CallProgram(Request[Called]):
    """Call forward, and write outputs, inputs and state to the last three blocks.

    `same_addresses`: inputs are written over those of the call before, else they lie in fresh memory. `hold`: keep the outputs
    alive for `RereadOutputs`, if memory holds another call beside them. `state_key`: of the digests. `draw_seed`: for torch's
    generators, before the call; None: they are left alone. `continued`: on the state that the call before left. `written`:
    positions of inputs that the reference writes. `mode`: of torch's gradients. `pitched`: inputs are parts of longer rows.
    """

    inputs: TensorBlock
    structure: Any                         # of the arguments
    mode: GradientMode
    pitched: bool
    same_addresses: bool
    hold: bool
    continued: bool
    written: list[int]
    draw_seed: int | None
    state_key: str
    outputs: TensorBlock
    inputs_after: TensorBlock
    state_after: TensorBlock


@dataclass(frozen=True, kw_only=True)
class Repeated(WrittenTensors):
    """Many calls, of which one was written. `kept`: how many of their inputs and outputs are still in memory after them.
    `opened`: how many file descriptors they left open, at least."""

    calls: Count
    kept: Count = 0
    opened: Count = 0
    tampered: ReportedList[str]


@dataclass(frozen=True, kw_only=True)
class RepeatCalls(Request[Repeated]):
    """Make up to `calls` calls within `budget_s` seconds, one of them on `inputs` and with `draw_seed`, which is written."""

    inputs: TensorBlock
    structure: Any
    calls: int
    budget_s: float
    draw_seed: int | None
    state_key: str
    outputs: TensorBlock
    inputs_after: TensorBlock
    state_after: TensorBlock


@dataclass(frozen=True, kw_only=True)
class RereadOutputs(Request[WrittenTensors]):
    """Write the outputs that are held once more."""

    outputs: TensorBlock


@dataclass(frozen=True, kw_only=True)
class ReloadState(Request[Done]):
    """Load other parameters, as a user does after more training."""

    state: TensorBlock
    names: list[str]                       # of its tensors


@dataclass(frozen=True, kw_only=True)
class AddInstance(Request[Done]):
    """Construct `ModelNew` once more and load other parameters into it. Further requests are for this instance."""

    init: TensorBlock                      # the tensors among the constructor's arguments
    state: TensorBlock


@dataclass(frozen=True, kw_only=True)
class ExchangeInstances(Request[Done]):
    """Take further requests for the other one of two instances."""


@dataclass(frozen=True, kw_only=True)
class DisturbTensor(Request[Done]):
    """Change some numbers of one of the program's tensors, counted through `spare`, then `alike` of `ProgramLoaded`."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Launches(Answer):
    """Launches of each kernel since the last such answer, by "library:kernel"."""

    launches: ReportedDict[Count]


@dataclass(frozen=True, kw_only=True)
class SkipKernels(Request[Launches]):
    """Leave out these kernels, and no others, from now on."""

    kernels: list[str]


@dataclass(frozen=True, kw_only=True)
class DeviceRecording(Answer):
    """What the device did in a call, as CUPTI saw it. `copies`, `replayed` and `by_torch` are positions in
    `rows`."""

    rows: ReportedList[Row]
    copies: ReportedList[Count]            # copies on the device that the host asked for
    replayed: ReportedList[Count]          # work of replayed CUDA graphs
    replays: Count                         # launches of CUDA graphs
    late: ReportedList[str]                # names of work that went on, or began, when the caller's stream was done
    again: ReportedList[str] | None = None  # names of what a second call with the same contents does
    by_torch: ReportedList[Count] = field(default_factory=list)  # what one of torch's operators launched, outside of graphs


@dataclass(frozen=True, kw_only=True)
class Traced(WrittenTensors, DeviceRecording):
    """A call that was recorded. Inputs and state are not written."""


@dataclass(frozen=True, kw_only=True)
class ProfileCall(Request[Traced]):
    """Record what the device does in a call, and write its outputs (GPU only)."""

    inputs: TensorBlock
    structure: Any
    draw_seed: int | None
    outputs: TensorBlock


@dataclass(frozen=True, kw_only=True)
class IdleWork(Answer):
    """Names of what the device did while nobody called the program."""

    worked: ReportedList[str]


@dataclass(frozen=True, kw_only=True)
class WatchIdle(Request[IdleWork]):
    """Watch the device for `budget_s` seconds without a call (GPU only)."""

    budget_s: float
