"""Refuses references that no program can be judged by, because a program that computes nothing would pass.

An output is degenerate when it is constant, smaller than its own error bound (zeros would pass), the same for other inputs or,
if the reference has parameters, the same for other parameters. A reference is refused when all of its outputs are degenerate;
when some are, a note says which. Nothing is run here: the reference worker computes what is compared.
Where to look next: `verify/judge/judge_resources.py` (who asks), `verify/inputs/secret_inputs.py` (the outputs).
"""

from __future__ import annotations

import secrets

import torch

from stitchcuda.counts import counted
from stitchcuda.verify.compare import bound
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.secret_inputs import Ask, ReferenceLost, SecretInputs
from stitchcuda.verify.messages import wire


def check_reference(ask: Ask, secret_inputs: SecretInputs) -> tuple[str, list[str]]:
    """Returns (why no program can be judged by the reference, or ""; notes on single degenerate outputs).

    Needs two input sets, and asks the reference worker for one more run in float64, with other parameters.
    """
    first = secret_inputs.sets[0]
    answers = [given.answers() for given in secret_inputs.sets[:2]]
    others, parameters = _with_other_parameters(ask, secret_inputs)
    has_inputs = any(tensor.numel() for tensor in wire.read_tensors(first.inputs))
    bounds = secret_inputs.bounds_of(secret_inputs.sets[:2])
    found: dict[str, str] = {}
    names = [name for name in first.names if name.startswith("output")]
    for number, name in enumerate(first.names):
        values = [(own[number], true[number]) for own, true in answers if number < len(true)]
        if name not in names:
            continue
        if values[0][0].numel() == 0:
            names.remove(name)
            continue
        reweighed = others.get(name) if parameters else None
        if why := _explain(name, values if has_inputs else values[:1], reweighed, bounds[name], parameters):
            found[name] = why
    if names and len(found) == len(names) and (len(first.names) == len(names) or not _writes_state(secret_inputs)):
        listed = "; ".join(f"{name} {why}" for name, why in list(found.items())[:3])
        return f"The reference is degenerate: {listed}. A program that computes nothing would pass.", []
    return "", [f"the check of {name} says little: it {why}" for name, why in found.items()]


def _explain(
    name: str, values: list[tuple[torch.Tensor, torch.Tensor]], reweighed: torch.Tensor | None, allowed: Bound, parameters: int
) -> str:
    """Says why an output is degenerate, or "". `values`: (own dtype, float64) for each input set; `reweighed`: float64 for the
    first set with other parameters."""
    own, exact = values[0]
    if all(true.numel() and bool(true.isnan().all()) for _, true in values):
        return (
            f"is NaN in all of its {own.numel()} elements (buffers that nothing initialised? logarithms or roots of negative "
            "numbers, 0/0, inf - inf?)"
        )
    constants = [true.flatten()[0] for _, true in values if true.numel() and bool((true == true.flatten()[0]).all())]
    same = all(constant == constants[0] for constant in constants)
    if same and len(constants) == len(values) and (own.numel() > 1 or len(values) > 1):
        return f"is constant ({constants[0].item() + 0.0:.6g} in all of its {own.numel()} elements)"
    if bound.eps(own.dtype) and all(bound.judge(name, torch.zeros_like(a), a, b, allowed).ok for a, b in values):
        largest = float(exact.abs().max())
        return f"is smaller than what rounding may change (at most {largest:.3g}, {allowed.max_relative * largest:.3g} allowed)"
    if len(values) > 1 and all(_same(name, values[1][1], value, allowed) for value in values[:1]):
        return "is the same for different inputs"
    if reweighed is not None and bound.eps(own.dtype) and _same(name, reweighed, values[0], allowed):
        return f"does not depend on the reference's {counted(parameters, 'parameter')}"
    return ""


def _same(name: str, other: torch.Tensor, answers: tuple[torch.Tensor, torch.Tensor], allowed: Bound) -> bool:
    own, exact = answers
    return bound.judge(name, other.to(own.dtype), own, exact, allowed).ok


def _writes_state(secret_inputs: SecretInputs) -> bool:
    """Whether a call writes floating-point inputs or buffers, such as running statistics, that can be judged too."""
    (own, _) = secret_inputs.sets[0].answers()
    kinds = zip(secret_inputs.sets[0].names, own, strict=True)
    return any(not name.startswith("output") and value.dtype.is_floating_point for name, value in kinds)


def _with_other_parameters(ask: Ask, secret_inputs: SecretInputs) -> tuple[dict[str, torch.Tensor], int]:
    """Returns (float64 outputs of the first set with other parameters, the number of parameters). The outputs are {} if there
    is no parameter or the reference fails with other ones."""
    first, path = secret_inputs.sets[0], secret_inputs.folder / "reweighed"
    try:
        answer = ask(
            "reweighed",
            seed=secrets.randbits(31),
            state=str(secret_inputs.state),
            inputs=str(first.inputs),
            structure=first.structure,
            exact=str(path),
        )
    except ReferenceLost:
        return {}, 0
    if not answer["parameters"] or not answer["names"]:
        return {}, int(answer["parameters"])
    values = dict(zip(answer["names"], wire.read_tensors(path), strict=True))
    return values, int(answer["parameters"])
