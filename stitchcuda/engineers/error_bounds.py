"""Writes what a program's outputs and updated buffers may differ by from float64: figures of the reference's own error.

The judge allows 10 times the reference's error and a few ulps, in norm and at one element, with each output apart. The figures
are those of the newest check that has them; they vary a little with the inputs. Text only.

Where to look next: `verify/compare/bound.py` (the rule), `engineers/operator_significand.py` (bits by operator).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stitchcuda.state import OutputError

MOST_OUTPUTS = 8
PLAIN_BITS, SPLIT_BITS = 11, 21            # that plain TF32 or fp16 products leave of fp32, and split ones of three fp16 terms
LOST_BITS = math.log2(10)


def error_bounds(outputs: Sequence[OutputError]) -> str:
    """Returns a sentence for each output whose bound is known, equal ones together; "" where none is."""
    said: dict[str, list[str]] = {}
    for output in outputs:
        if text := _bound(output):
            said.setdefault(text, []).append(output.name)
    lines = [f"{', '.join(_shortened(names))}: {text}" for text, names in said.items()]
    more = f"; and {len(lines) - MOST_OUTPUTS} more" if len(lines) > MOST_OUTPUTS else ""
    return "; ".join(lines[:MOST_OUTPUTS]) + more


def allowed_bits(output: OutputError) -> float | None:
    """Returns the bits that an error at the bound in norm leaves; None for whole numbers and where nothing is known."""
    if output.bits_allowed is not None or output.bits_of_reference is None:
        return output.bits_allowed
    return output.bits_of_reference - LOST_BITS


def _bound(output: OutputError) -> str:
    if not output.max_bound and not output.norm_bound and output.ok:
        return "exact"
    bits = allowed_bits(output)
    if bits is None:
        return ""
    own = output.bits_of_reference
    before = "" if own is None else f"the reference's own error leaves {own:.1f} bits, "
    return (
        f"{before}at least {bits:.1f} are needed (relative error in norm at most {2**-bits:.1e}, at one element at most "
        f"{output.max_bound:.1e}), so {_products(bits)}"
    )


def _products(bits: float) -> str:
    if bits <= PLAIN_BITS:
        return "plain TF32 or fp16 products may pass"
    split = "pass" if bits <= SPLIT_BITS else "are near the bound: try them"
    return f"plain TF32 or fp16 products (about 2^-{PLAIN_BITS}) fail and split ones (three fp16 terms) {split}"


def _shortened(names: Sequence[str]) -> list[str]:
    return [*names] if len(names) <= 4 else [*names[:3], f"and {len(names) - 3} more"]
