"""Refuses references that no program can be judged by, because a program that computes nothing would pass.

A reference is refused when all of its outputs are degenerate (`verify/compare/degenerate_outputs.py`); when some are, a note
says which. Nothing is run or compared here: the reference worker does that.
Where to look next: `verify/judge/judge_resources.py` (who asks), `verify/inputs/secret_inputs.py` (the outputs).
"""

from __future__ import annotations

import secrets

from stitchcuda.verify.inputs.reference_requests import Ask, FindDegenerate, Reweigh, Reweighed
from stitchcuda.verify.inputs.secret_inputs import ReferenceLost, SecretInputs


def check_reference(ask: Ask, secret_inputs: SecretInputs) -> tuple[str, list[str]]:
    """Returns (why no program can be judged by the reference, or ""; notes on single degenerate outputs).

    Needs two input sets, and asks the reference worker for one more run in float64, with other parameters.
    """
    first = secret_inputs.sets[0]
    try:
        reweighed = ask(Reweigh(secrets.randbits(31), secret_inputs.state, first))
    except ReferenceLost:
        reweighed = Reweighed()
    has_inputs = any(tensor.bytes for tensor in first.input_facts)
    sets = secret_inputs.sets[: 2 if has_inputs else 1]
    answer = ask(FindDegenerate(tuple(sets), secret_inputs.bounds(2), reweighed))
    names, found = answer.judged, answer.found
    kinds = zip(first.names, first.output_facts, strict=True)  # what a call writes, such as running statistics, is judged too
    writes_state = any(not name.startswith("output") and fact.floating for name, fact in kinds)
    if names and len(found) == len(names) and not writes_state:
        listed = "; ".join(f"{name} {why}" for name, why in list(found.items())[:3])
        return f"The reference is degenerate: {listed}. A program that computes nothing would pass.", []
    return "", [f"the check of {name} says little: it {why}" for name, why in found.items()]
