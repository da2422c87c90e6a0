"""What the judge asks the reference worker about calls that are made otherwise: in a row, or with one tensor for two inputs.

Like the other records, these hold descriptors of blocks, and nothing is computed here.
Where to look next: `verify/inputs/reference_requests.py` (the other requests), `verify/reference/expected_outputs.py` (who
answers), `verify/judge/other_calls.py` (who asks).
"""

from __future__ import annotations

from dataclasses import dataclass

from stitchcuda.verify.inputs.reference_requests import InputSet
from stitchcuda.verify.messages.request import Answer, Request
from stitchcuda.verify.messages.tensor_block import TensorBlock


@dataclass(frozen=True)
class OtherCalls(Answer):
    """Input sets for these calls; fewer, with a note, where the reference does not stand them."""

    sets: tuple[InputSet, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class ExpectRow(Request[OtherCalls]):
    """Computes the outputs of calls on `row`, one after the other, each on the state that the one before left. The answer has
    no set for the first call."""

    row: tuple[InputSet, ...]
    state: TensorBlock
    usual: float                           # the reference's own error on inputs as given, relative in norm


@dataclass(frozen=True)
class ExpectShared(Request[OtherCalls]):
    """Computes the outputs for the inputs of `given`, with one tensor for two inputs that are alike in shape, and with two for
    those that are one: the answer has a set for each, as far as there are such inputs."""

    given: InputSet
    state: TensorBlock
    usual: float
