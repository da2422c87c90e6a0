"""What the judge asks the reference worker, and what it answers: a record for each request and each answer.

Tensors travel in blocks, of which the records hold descriptors; what the judge gets to know are figures and names. A request
for timed calls is not among these. Nothing is computed here.
Where to look next: `verify/messages/request.py` (requests and answers), `verify/reference/reference_worker.py` and
`verify/reference/comparisons.py` (which answer), `verify/inputs/secret_inputs.py` (who asks for inputs).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol, TypeVar

from stitchcuda.state import OutputError, Precision, Record
from stitchcuda.verify.compare.bound import Bound, Measure
from stitchcuda.verify.inputs.variants import GIVEN
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.messages.program_requests import Row
from stitchcuda.verify.messages.request import Answer, Done, Request
from stitchcuda.verify.messages.tensor_block import TensorBlock

_SPARE_ROOM = 2**28                        # bytes, at most, for outputs that are larger than expected
_Answer = TypeVar("_Answer")

Groups = tuple[tuple[str, ...], ...]
"""Names of the reference's parameters, grouped."""


class Ask(Protocol):
    """Sends a request to the reference worker and returns its answer. Raises `BadInput`."""

    def __call__(self, request: Request[_Answer]) -> _Answer: ...


@dataclass(frozen=True)
class ReferenceTensor:
    """One entry of the reference's state_dict."""

    name: str
    shape: tuple[int, ...]
    parameter: bool                        # else it is a buffer
    constant: bool                         # all elements are equal, as constructed
    tied: str                              # the first name for the same memory; its own name if it is not tied
    floating: bool = True                  # a floating-point dtype

    @property
    def numel(self) -> int:
        return prod(self.shape)


class TensorFacts(Record):
    """What the judge knows of a tensor that it never holds: its shape, its bytes (of an expanded tensor each element once)."""

    shape: tuple[int, ...]
    bytes: int
    floating: bool                         # floats or complex numbers


@dataclass(frozen=True)
class InputSet:
    """One call of the reference, as blocks: `inputs`, its own outputs (`expected`) and float64 outputs (`exact`).

    `structure` is how the tensors of `inputs` nest in the arguments (`wire.encode`); `names` names the outputs in their order:
    "output…", "buffer:…" and "input:…" for what the call returns and for buffers and inputs that it writes.
    """

    inputs: TensorBlock
    structure: Any
    names: tuple[str, ...]
    expected: TensorBlock
    exact: TensorBlock
    measures: tuple[Measure, ...]          # the reference's own error in each output
    input_facts: tuple[TensorFacts, ...]
    output_facts: tuple[TensorFacts, ...]
    variant: str = GIVEN
    seed: int = 0                          # for the reference's get_inputs()
    draw_seed: int | None = None           # of torch's generators before a call; None: the reference draws nothing
    generators: str = ""                   # a digest of their states after it; "" where it draws nothing
    open: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()  # by output, from where to where rounding decides its values
    recomputed: bool = False               # `expected` and `exact` hold no values: they are computed anew when they are needed

    @property
    def written(self) -> list[int]:
        """Positions of the inputs that the reference writes."""
        return [int(name.removeprefix("input:")) for name in self.names if name.startswith("input:")]

    @property
    def lenient(self) -> bool:
        """Whether a program may refuse this memory layout."""
        return self.variant == "non-contiguous"

    @property
    def most_bytes(self) -> int:
        """The room for a program's outputs: more than is expected, so that it can be said what is wrong with their shapes."""
        return self.expected.size + min(self.expected.size + 2 * self.inputs.size, _SPARE_ROOM) + 2**20


@dataclass(frozen=True)
class CallHabits:
    """What a call of the reference returns and does beside values, which a program may do too.

    `structure`: of its result (`wire.encode`). `lent`: outputs in the memory of inputs or state, which later calls may change.
    `overlapping`: pairs of outputs that have elements in common. `marks`: outputs with what they are beside plain tensors.
    `arguments`: names of forward's arguments. The others are as in `verify/integrity/call_effects.py`.
    """

    structure: Any = None
    lent: tuple[str, ...] = ()
    overlapping: tuple[tuple[str, str], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    module_changed: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    changes_arguments: bool = False
    settings: tuple[str, ...] = ()
    moves_generators: bool = False


@dataclass(frozen=True)
class Construction(Answer):
    """How the reference was constructed, so that a program is constructed in the same way."""

    init: TensorBlock                      # the tensors among the constructor's arguments
    init_structure: Any                    # the arguments, with places for these tensors (`verify/messages/wire.py`)
    init_seed: int
    training: bool
    precision: Precision
    gpu_bytes: int = 0                     # the user's limit of the GPU's memory; 0: none
    state: tuple[ReferenceTensor, ...] = ()  # the entries of its state_dict, in their order
    gpu: str = ""                          # the GPU's UUID
    gpu_memory: int = 0                    # bytes of the GPU's memory, below the user's limit; 0: there is no GPU
    draws: tuple[str, ...] = ()            # operators with which forward draws random numbers; known once it was examined
    habits: CallHabits = field(default_factory=CallHabits)  # likewise

    @property
    def state_names(self) -> list[str]:
        """Keys of the reference's state_dict, in its order."""
        return [tensor.name for tensor in self.state]


@dataclass(frozen=True)
class LoadReference(Request[Construction]):
    """Loads the reference, before anything else is asked."""

    path: str
    precision: Precision
    patience: float                        # seconds for loading, and for each call of get_inputs(); 0: no limit
    gpu_bytes: int = 0


@dataclass(frozen=True)
class Examined(Answer):
    """`draws`: operators with which forward draws random numbers from torch's generators."""

    draws: tuple[str, ...]
    habits: CallHabits


@dataclass(frozen=True)
class Examine(Request[Examined]):
    """Runs the reference: whether it raises, whether its outputs repeat, and what it draws."""


@dataclass(frozen=True)
class CaptureReference(Request[ReferenceFacts]):
    """Captures the reference on the inputs of `seed`; on a GPU it is timed too."""

    seed: int
    constants: str                         # path of the file for the graph's constants


@dataclass(frozen=True)
class Renewed(Answer):
    """A new block of parameters and buffers. `varied`: whether any is not as constructed. `notes`: on those that are not
    generic."""

    state: TensorBlock
    varied: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Renew(Request[Renewed]):
    """Gives parameters and buffers generic values, so that a program cannot rely on those that a constructor writes."""

    seed: int
    keep: tuple[str, ...] = ()             # names that stay as constructed
    alike: Groups = ()                     # the names of a group get the same values
    amplified: bool = False                # weights are scaled up as well
    wide_for: int | None = None            # a seed of get_inputs(): values of other magnitudes, which suit these inputs
    far: str = ""                          # the kind of values (`verify/inputs/far_state.py`) in place of these
    usual: float = 0.0                     # for these, as in `Expect`


@dataclass(frozen=True)
class Expected(Answer):
    """A drawn set, None where the reference stands no variant of an `optional` one. `skipped`: sentences on variants that it
    does not stand."""

    set: InputSet | None
    usual: float                           # the reference's own error on inputs as given, relative in norm; 0 for a variant
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Expect(Request[Expected]):
    """Draws inputs for `seed`, of the first variant that the reference stands, and computes its outputs for them."""

    seed: int
    state: TensorBlock
    variants: tuple[str, ...]              # the last is "as given" and never refused, if the set is not `optional`
    sizes: tuple[tuple[int, int, int], ...] = ()   # (tensor, axis, length) to cut or tile the inputs to
    usual: float = 0.0
    names: tuple[str, ...] | None = None   # the outputs that a variant must have
    draw_seed: int | None = None           # for a reference that draws; None: one that follows from `seed`
    beyond: bool = True                    # whether to try values that get_inputs() never shows
    optional: bool = False


@dataclass(frozen=True)
class RareSeeds(Answer):
    """Seeds of torch's generators; none where draws are not rare after any."""

    seeds: tuple[int, ...]


@dataclass(frozen=True)
class FindRareSeeds(Request[RareSeeds]):
    """Finds seeds after which the reference draws a rare number first, such as one below 0.001."""

    given: InputSet
    state: TensorBlock
    begin: int                             # the least seed that is tried


@dataclass(frozen=True)
class ExpectedTurned(Answer):
    """The set for a timed call. Of large tensors it has a sample only. `finite`: how many output values are."""

    set: InputSet
    finite: int


@dataclass(frozen=True)
class ExpectTurned(Request[ExpectedTurned]):
    """Computes the outputs for a timed call, whose contents are those of `given`, moved on by `turn`."""

    given: InputSet
    state: TensorBlock
    turn: int
    moving: list[list[int]]                # see `verify/inputs/timed_contents.py`
    scaled: bool
    sample: int                            # the seed of the sample


@dataclass(frozen=True)
class Reweighed(Answer):
    """Float64 outputs with other parameters, by name in the block `exact`. No names: the reference fails with these."""

    names: tuple[str, ...] = ()
    parameters: int = 0                    # how many the reference has
    exact: TensorBlock | None = None


@dataclass(frozen=True)
class Reweigh(Request[Reweighed]):
    """Computes the reference in float64 on `given`, with parameters far from those in `state`."""

    seed: int
    state: TensorBlock
    given: InputSet


@dataclass(frozen=True)
class MemoryCeiling(Answer):
    """Peak bandwidth of the GPU's memory (bytes per second, 0 if unknown), and bytes of its L2."""

    bandwidth: float
    l2: int


@dataclass(frozen=True)
class ReadCeiling(Request[MemoryCeiling]):
    """How fast the GPU's memory is."""


@dataclass(frozen=True)
class Mattering(Answer):
    """For each input tensor, whether each of its elements matters to the outputs."""

    matters: tuple[bool, ...]


@dataclass(frozen=True)
class FindMattering(Request[Mattering]):
    """Which inputs matter element by element (`verify/integrity/speed_of_light.py`)."""

    given: InputSet
    state: TensorBlock


@dataclass(frozen=True)
class ReferenceWork(Answer):
    """What one call costs: bytes moved by its operators on the simulator, device nanoseconds on a GPU, there with its trace.
    `significands`: what its products and convolutions carry (`verify/reference/significands.py`)."""

    work: int
    rows: list[Row] = field(default_factory=list)
    significands: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordWork(Request[ReferenceWork]):
    """Records one call of the reference on the inputs of `seed`."""

    seed: int


@dataclass(frozen=True)
class MemoryNeeds(Answer):
    """Bytes: the reference worker's peak so far on the host and on the GPU, and what is free on the GPU."""

    host: int
    device: int = 0
    free: int = 0


@dataclass(frozen=True)
class ReadMemoryNeeds(Request[MemoryNeeds]):
    """How much memory the reference took."""


@dataclass(frozen=True)
class Lent(Answer):
    """What a program's worker may be given in place of blocks, and new blocks to write to, by name."""

    blocks: tuple[TensorBlock, ...]
    rooms: dict[str, TensorBlock]


@dataclass(frozen=True)
class Lend(Request[Lent]):
    """Makes blocks for a program's worker. `rooms`: the bytes of the new ones."""

    blocks: tuple[TensorBlock, ...] = ()
    rooms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Wipe(Request[Done]):
    """Overwrites blocks that held a secret and will be freed."""

    blocks: tuple[TensorBlock, ...]


@dataclass(frozen=True)
class SaveBlock(Request[Done]):
    """Writes a block to the file `path`, for a process that is given no descriptors."""

    block: TensorBlock
    path: str


@dataclass(frozen=True)
class Received(Answer):
    """The paths of the outputs in a program's answer, or why it cannot be read."""

    names: tuple[str, ...] = ()
    unreadable: str = ""


@dataclass(frozen=True)
class Receive(Request[Received]):
    """Copies what a program wrote after a call, under the name `answer`; drops the answers in `forget`. Nothing that it says of
    these blocks is believed."""

    answer: str
    structure: Any                         # of its outputs (`wire.named_tensors`)
    digests: list[Any]                     # of state that the reference's calls leave alone
    outputs: TensorBlock | None = None
    inputs_after: TensorBlock | None = None
    state_after: TensorBlock | None = None
    forget: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forget(Request[Done]):
    """Drops the answers of these names."""

    answers: tuple[str, ...]


@dataclass(frozen=True)
class Names(Answer):
    """Names of outputs, or of state."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class FindChanged(Request[Names]):
    """Which outputs of the answer `before` the answer `after` lacks, or has with other bits."""

    before: str
    after: str


@dataclass(frozen=True)
class ComparedAnswer(Answer):
    """The error of every output and updated buffer, sentences on everything that is wrong, and remarks."""

    errors: tuple[OutputError, ...]
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class CompareAnswer(Request[ComparedAnswer]):
    """Compares a program's answer with the reference's outputs for `given`. Each answer can be compared once."""

    answer: str
    given: InputSet
    bounds: dict[str, Bound]               # by output's name
    outputs_only: bool                     # neither inputs nor state came back
    state: TensorBlock
    given_back: tuple[str, ...]            # names of the state that the program gives back


@dataclass(frozen=True)
class FindWrong(Request[Names]):
    """Which of the reference's own outputs for `other`, with the parameters in `other_state`, are wrong for `given`."""

    other_state: TensorBlock
    other: InputSet
    state: TensorBlock
    given: InputSet
    bounds: dict[str, Bound]


@dataclass(frozen=True)
class DegenerateOutputs(Answer):
    """The outputs that have elements, and why each degenerate one of them says nothing."""

    judged: tuple[str, ...]
    found: dict[str, str]


@dataclass(frozen=True)
class FindDegenerate(Request[DegenerateOutputs]):
    """Which outputs can hardly be wrong (`verify/compare/degenerate_outputs.py`), of sets with the parameters in `state`."""

    state: TensorBlock
    sets: tuple[InputSet, ...]
    bounds: dict[str, Bound]
    reweighed: Reweighed                   # for the first set


@dataclass(frozen=True)
class RareKinds(Answer):
    """Names of kinds of `verify/inputs/rare_values.py`, in their order."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class FindRareKinds(Request[RareKinds]):
    """Finds the kinds that change anything in the inputs of `seed`."""

    seed: int


@dataclass(frozen=True)
class WatchConditions(Request[Done]):
    """From now on, which conditions the reference meets on sets that it answers is noted."""


@dataclass(frozen=True)
class Unmet(Answer):
    """Conditions that were never met, in words (`verify/reference/conditions.py`)."""

    conditions: tuple[str, ...]


@dataclass(frozen=True)
class FindUnmet(Request[Unmet]):
    """Which conditions no set met since `WatchConditions`; ends the watching."""


@dataclass(frozen=True)
class Unvaried(Answer):
    """The positions of inputs that are alike in all sets. `ranges`: (position, the least and the largest finite value in any
    set, whether another is NaN or infinite); none for booleans, complex numbers and empty inputs."""

    positions: tuple[int, ...]
    ranges: tuple[tuple[int, float, float, bool], ...]


@dataclass(frozen=True)
class FindUnvaried(Request[Unvaried]):
    """Which input tensors a program could have written into it."""

    inputs: tuple[TensorBlock, ...]        # of each set


@dataclass(frozen=True)
class Movable(Answer):
    """What timed calls may change: `moving` as in `verify/inputs/timed_contents.py`, of these the tensors of floats, and the
    positions of the tensors whose order matters."""

    moving: list[list[int]]
    floats: list[list[int]]
    ordered: list[int]


@dataclass(frozen=True)
class FindMovable(Request[Movable]):
    """Which input tensors timed calls may change, in all of these sets."""

    inputs: tuple[TensorBlock, ...]        # of each set


@dataclass(frozen=True)
class FindChangedState(Request[Names]):
    """Whose values differ between two blocks of parameters and buffers."""

    state: TensorBlock
    other: TensorBlock


@dataclass(frozen=True)
class MixState(Request[Renewed]):
    """Makes a copy of `state` with the values in `other` for `names`."""

    state: TensorBlock
    other: TensorBlock
    names: tuple[str, ...]
