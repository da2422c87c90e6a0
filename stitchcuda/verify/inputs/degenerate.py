"""Refuses references that no program can be judged by, because a program that computes nothing would pass.

A reference is refused when all of its outputs are degenerate (`verify/compare/degenerate_outputs.py`); when some are, a note
says which. Nothing is run or compared here: the reference worker does that.
Where to look next: `verify/judge/judge_resources.py` (who asks), `verify/inputs/secret_inputs.py` (the outputs).
"""

from __future__ import annotations

import secrets

from stitchcuda.verify.compare.bound import bounds_as_json
from stitchcuda.verify.inputs.secret_inputs import Ask, ReferenceLost, SecretInputs
from stitchcuda.verify.messages.tensor_block import TensorBlock


def check_reference(ask: Ask, secret_inputs: SecretInputs) -> tuple[str, list[str]]:
    """Returns (why no program can be judged by the reference, or ""; notes on single degenerate outputs).

    Needs two input sets, and asks the reference worker for one more run in float64, with other parameters.
    """
    first = secret_inputs.sets[0]
    exact, reweighed, parameters = _with_other_parameters(ask, secret_inputs)
    has_inputs = any(tensor.bytes for tensor in first.input_facts)
    sets = secret_inputs.sets[:2] if has_inputs else [first]
    answer = ask(
        "find_degenerate",
        sets=[given.message() for given in sets],
        bounds=bounds_as_json(secret_inputs.bounds_of(secret_inputs.sets[:2])),
        reweighed=exact,
        reweighed_names=reweighed,
        parameters=parameters,
    )
    names, found = answer["names"], answer["found"]
    outputs = [name for name in first.names if name.startswith("output")]
    if names and len(found) == len(names) and (len(first.names) == len(outputs) or not _writes_state(secret_inputs)):
        listed = "; ".join(f"{name} {why}" for name, why in list(found.items())[:3])
        return f"The reference is degenerate: {listed}. A program that computes nothing would pass.", []
    return "", [f"the check of {name} says little: it {why}" for name, why in found.items()]


def _writes_state(secret_inputs: SecretInputs) -> bool:
    """Whether a call writes floating-point inputs or buffers, such as running statistics, that can be judged too."""
    kinds = zip(secret_inputs.sets[0].names, secret_inputs.sets[0].output_facts, strict=True)
    return any(not name.startswith("output") and fact.floating for name, fact in kinds)


def _with_other_parameters(ask: Ask, secret_inputs: SecretInputs) -> tuple[TensorBlock | None, list[str], int]:
    """Computes the first set in float64 with other parameters. Returns (the outputs' block, their names, the number of
    parameters). There are no names if there is no parameter or the reference fails with other ones."""
    given, state = secret_inputs.sets[0], secret_inputs.state
    try:
        answer = ask("reweighed", seed=secrets.randbits(31), state=state, inputs=given.inputs, structure=given.structure)
    except ReferenceLost:
        return None, [], 0
    return answer["exact"], list(answer["names"]) if answer["parameters"] else [], int(answer["parameters"])
