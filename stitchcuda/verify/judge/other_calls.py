"""Calls a program otherwise than on input sets of their own: in a row, and with one tensor for two inputs.

In a row each call finds the state that the one before left, as a user's calls do: counters, averages and caches go on. It draws
no inputs, and decides no verdict.
Where to look next: `verify/reference/expected_outputs.py` (what is expected), `verify/judge/correctness.py` (who asks).
"""

from __future__ import annotations

import random

from stitchcuda.verify.inputs.call_requests import ExpectRow, ExpectShared
from stitchcuda.verify.inputs.reference_requests import InputSet
from stitchcuda.verify.inputs.secret_inputs import ReferenceLost, SecretInputs
from stitchcuda.verify.program.trial import Trial

_ROW = 3                                   # calls in a row,
_LONG_ROW = 24, 40                         # and of references that take little: a ring of 16 or a limit on a count shows
_LITTLE = 2**22                            # bytes of a call


def check_row(trial: Trial, secret_inputs: SecretInputs, strict: list[InputSet]) -> list[str]:
    """Calls the program on the first input sets in a row, if the reference updates state. Returns why it is refused."""
    if len(strict) < 2 or not secret_inputs.updated_buffers():
        return []
    drawn = random.SystemRandom()
    more = drawn.randint(*_LONG_ROW) - _ROW if secret_inputs.bytes_of_a_call() <= _LITTLE else 0
    row = [*strict[:_ROW], *drawn.choices(strict, k=more)]
    try:
        expected = trial.ask_reference(ExpectRow(tuple(row), secret_inputs.state, secret_inputs.usual))
    except ReferenceLost as error:
        if error.late:
            raise
        trial.remark(f"limited: calls in a row were not tried: for these, {error}")
        return []
    trial.remark(expected.note)
    if expected.sets:
        trial.call(row[0], same_addresses=False)
    for number, given in enumerate(expected.sets, 2):
        bounds = secret_inputs.bounds_of([*strict, given])
        _, reasons = trial.compare(given, trial.call(given, same_addresses=False, continued=True), bounds)
        if reasons:
            return [f"in call {number} of a row, with the state that the call before left, {reason}" for reason in reasons]
    return []


def check_shared(trial: Trial, secret_inputs: SecretInputs, strict: list[InputSet]) -> list[str]:
    """Calls the program with one tensor for inputs that are alike, and with two where `get_inputs()` gives one twice. Returns
    why it is refused."""
    given = strict[0]
    if len(given.input_facts) < 2:
        return []
    try:
        expected = trial.ask_reference(ExpectShared(given, secret_inputs.state, secret_inputs.usual))
    except ReferenceLost as error:
        if error.late:
            raise
        return []
    trial.remark(expected.note)
    for other in expected.sets:
        bounds = secret_inputs.bounds_of([*strict, other])
        _, reasons = trial.compare(other, trial.call(other, same_addresses=False), bounds)
        if reasons:
            parted = other.inputs.size > given.inputs.size
            how = "several tensors for inputs for which get_inputs() gives one" if parted else "one tensor for several inputs"
            return [f"with {how}, {reason}" for reason in reasons]
    return []
