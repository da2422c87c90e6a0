"""Says why an output of a reference can hardly be wrong: a program that computes nothing would pass.

An output is degenerate when it is constant, smaller than its own error bound (zeros would pass) or the same for other inputs;
and, if the reference has parameters that no other output depends on, the same for other parameters. Pure functions.
Where to look next: `verify/inputs/secret_inputs.py` (what follows for the reference), `verify/reference/comparisons.py` (who
calls this).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from stitchcuda.counts import counted
from stitchcuda.verify.compare import bound
from stitchcuda.verify.compare.bound import Bound


def find_degenerate(
    names: Sequence[str],
    answers: Sequence[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]],
    reweighed: Mapping[str, torch.Tensor],
    bounds: Mapping[str, Bound],
    parameters: int,
    device: str,
) -> tuple[list[str], dict[str, str]]:
    """Returns (the outputs that have elements, why each degenerate one of them says nothing).

    `answers`: for each input set the reference's outputs in the order of `names`, (in its own dtype, in float64). `reweighed`:
    float64 outputs of the first set with other parameters, by name. `parameters`: how many the reference has. `device`: where
    they are compared.
    """
    judged: list[str] = []
    found: dict[str, str] = {}
    without_parameters: dict[str, str] = {}
    for number, name in enumerate(names):
        values = [(own[number], true[number]) for own, true in answers if number < len(true)]
        if not name.startswith("output") or values[0][0].numel() == 0:
            continue
        judged.append(name)
        if why := _explain(name, values, bounds[name], device):
            found[name] = why
        elif (
            parameters and name in reweighed and bound.eps(values[0][0].dtype)
            and (figures := _how_same(name, reweighed[name], values[0], bounds[name], device))
        ):  # fmt: skip
            without_parameters[name] = f"does not depend on the reference's {counted(parameters, 'parameter')}{figures}"
    if len(found) + len(without_parameters) == len(judged):
        found |= without_parameters
    return judged, found


def _explain(name: str, values: list[tuple[torch.Tensor, torch.Tensor]], allowed: Bound, device: str) -> str:
    """Says why an output is degenerate whatever the parameters, or "". `values`: (own dtype, float64) for each input set."""
    own, exact = values[0]
    if all(true.numel() and bool(true.isnan().all()) for _, true in values):
        return (
            f"is NaN in all of its {own.numel()} elements (buffers that nothing initialised? logarithms or roots of negative "
            "numbers, 0/0, inf - inf?)"
        )
    constants = [true.flatten()[0] for _, true in values if true.numel() and bool((true == true.flatten()[0]).all())]
    same = all(constant == constants[0] for constant in constants)
    if same and len(constants) == len(values) and (own.numel() > 1 or len(values) > 1):
        value = f"{constants[0].item() + 0.0:.6g}"
        return f"is constant ({value} in all of its {own.numel()} elements)" if own.numel() > 1 else f"is always {value}"
    if bound.eps(own.dtype) and all(bound.judge(name, torch.zeros_like(a), a, b, allowed, device=device).ok for a, b in values):
        largest = float(exact.abs().max())
        return f"is smaller than what rounding may change (at most {largest:.3g}, {allowed.max_relative * largest:.3g} allowed)"
    if len(values) > 1 and (figures := _how_same(name, values[1][1], values[0], allowed, device)):
        return f"is the same for different inputs{figures}"
    return ""


def _how_same(
    name: str, other: torch.Tensor, answers: tuple[torch.Tensor, torch.Tensor], allowed: Bound, device: str
) -> str:
    """Returns by how much another output differs, in words, if it would pass as this one; else ""."""
    own, exact = answers
    judged = bound.judge(name, other.to(own.device, own.dtype), own, exact, allowed, device=device)
    return f" (it changes by {judged.max_error:.3g} at most, {judged.max_bound:.3g} allowed)" if judged.ok else ""
