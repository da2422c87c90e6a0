"""How far a program's tensors may be from float64, and how far they are.

The bound follows the reference: its own error against float64, times ten, plus four units in the last place of the output's
scale (an exact reference has no error of its own). Errors are taken in norm and at the worst element. An fp32 product split
into bf16 parts passes (5 to 6 times the error of fp32); TF32 (250 times) and a wide softmax answered with zeros do not.
Pure functions on CPU tensors; where to look next: `judge.py`.
"""

from __future__ import annotations

import math

import torch

from stitchcuda.state import OutputError, Record

FACTOR = 10.0                              # times the reference's own error
ULPS = 4.0                                 # of the output's scale
EXACT_ULPS = 256.0                         # where the reference computes in float64 itself, so that its error shows as zero


class Bound(Record):
    """What is allowed for one output, relative to its scale (worst element) and norm."""

    max_relative: float
    norm_relative: float


def eps(dtype: torch.dtype) -> float:
    """One unit in the last place at 1; 0 for integers and booleans, which must be exact."""
    return float(torch.finfo(dtype).eps) if dtype.is_floating_point or dtype.is_complex else 0.0


def bound(expected: list[torch.Tensor], exact: list[torch.Tensor]) -> Bound:
    """The bound for one output from the reference's results over all seeds, own dtype and float64.

    The reference's error is pooled over seeds: with few elements it can be small by luck in one of them.
    """
    worst = norm = 0.0
    for own, true in zip(expected, exact, strict=True):
        difference, scale, size = _difference(own, true)
        worst = max(worst, difference[0] / scale if scale else 0.0)
        norm = max(norm, difference[1] / size if size else 0.0)
    unit = eps(expected[0].dtype) if expected else 0.0
    ulps = EXACT_ULPS if unit <= torch.finfo(torch.float64).eps else ULPS
    return Bound(max_relative=FACTOR * worst + ulps * unit, norm_relative=FACTOR * norm + ulps * unit)


def judge(name: str, given: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, allowed: Bound) -> OutputError:
    """One output of a program against float64. Shape, dtype and the pattern of NaN and infinities are judged first."""
    def refused(note: str) -> OutputError:
        return OutputError(
            name=name, max_error=math.inf, max_bound=0.0, norm_error=math.inf, norm_bound=0.0, ok=False, note=note
        )

    if given.shape != expected.shape:
        return refused(f"has shape {tuple(given.shape)} where the reference has {tuple(expected.shape)}")
    if given.dtype != expected.dtype:
        return refused(f"has dtype {_name(given.dtype)} where the reference has {_name(expected.dtype)}")
    if eps(expected.dtype) == 0.0:
        wrong = int((given != expected).sum())
        note = "" if not wrong else f"{wrong} of {given.numel()} elements differ (integers and booleans must be exact)"
        worst = float((given.double() - expected.double()).abs().max()) if wrong else 0.0
        return OutputError(
            name=name, max_error=worst, max_bound=0.0, norm_error=worst, norm_bound=0.0, ok=not wrong, note=note
        )
    if problem := _nonfinite(given, expected):
        return refused(problem)
    (worst, norm), scale, size = _difference(given, exact)
    max_bound, norm_bound = allowed.max_relative * scale, allowed.norm_relative * size
    ok = worst <= max_bound and norm <= norm_bound
    return OutputError(
        name=name, max_error=worst, max_bound=max_bound, norm_error=norm, norm_bound=norm_bound, ok=ok,
        note="" if ok else _where(given, exact),
    )  # fmt: skip


def _difference(given: torch.Tensor, exact: torch.Tensor) -> tuple[tuple[float, float], float, float]:
    """((largest, Frobenius) of the difference, largest of exact, Frobenius of exact) over the finite elements."""
    if given.numel() == 0:
        return (0.0, 0.0), 0.0, 0.0
    wide = torch.complex128 if exact.dtype.is_complex else torch.float64
    true, seen = exact.to(wide), given.to(wide)
    finite = torch.isfinite(true) & torch.isfinite(seen)
    if not bool(finite.all()):
        true, seen = true[finite], seen[finite]
        if true.numel() == 0:
            return (0.0, 0.0), 0.0, 0.0
    off = (seen - true).abs()
    magnitude = true.abs()
    return (float(off.max()), float(off.norm())), float(magnitude.max()), float(magnitude.norm())


def _nonfinite(given: torch.Tensor, expected: torch.Tensor) -> str:
    """What is wrong with the pattern of NaN and infinities; "" when it is the reference's."""
    for what, test in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        if given.dtype.is_complex and what != "NaN":
            continue
        ours, theirs = test(given), test(expected)
        if not torch.equal(ours, theirs):
            extra, lacking = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
            if extra:
                all_of = " (an output that no kernel writes holds NaN here)" if what == "NaN" else ""
                return f"{what} in {extra} of {given.numel()} elements where the reference has none{all_of}"
            return f"{lacking} of {given.numel()} elements should be {what} and are not"
    return ""


def _where(given: torch.Tensor, exact: torch.Tensor) -> str:
    """Where the worst element is and what it holds, with how many are far off: what a model needs to find the mistake."""
    off = torch.nan_to_num((given.double() - exact.double()).abs(), nan=0.0, posinf=0.0)
    flat = int(off.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), off.shape))
    scale = float(exact.double().abs()[torch.isfinite(exact)].max()) or 1.0
    far = int((off > 1e-2 * scale).sum())
    value, should = float(given.double().flatten()[flat]), float(exact.double().flatten()[flat])
    zeros = "the output is all zeros; " if bool((given == 0).all()) else ""
    worst = f"worst at {list(index)}: {value:.6g} where {should:.6g} is right"
    return f"{zeros}{worst}; {far} of {off.numel()} elements off by over 1 % of the scale"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
