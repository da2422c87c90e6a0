"""Tells how many bits the reference's arithmetic carries at an operator: what a program has to be as exact as.

Products carry their dtype's bits: torch allows no TF32 for them. For fp32 convolutions it does, but cuDNN has no TF32 kernel
for every shape: what counts is the kernel that ran in the eager profile, by its name, or what the judge measured.
Without either, what torch does by default is said as a default.

Where to look next: `verify/reference/significands.py` (measures it), `nodes/baseline.py` (reads the eager profile),
`engineers/error_bounds.py` (what the outputs may differ by), `engineers/prompt.py` (shows it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stitchcuda.state import Region

OF_DTYPE = {"float32": 24, "float16": 11, "bfloat16": 8}
ANY = ""                                   # in place of a module: what convolutions of the reference carry at least
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "einsum", "scaled_dot_product_attention")
_TF32 = re.compile(r"tf32|s1688", re.IGNORECASE)
_FP32 = re.compile(r"sgemm|ffma|winograd|depthwise|direct_kernel|fft|f32f32_f32f32_f32|simt", re.IGNORECASE)
FEW_CHANNELS = "24 where it has few input channels, since cuDNN has no TF32 there"


def bits_of_kernel(name: str) -> int | None:
    """Returns the bits of the operands of a kernel that convolves fp32 tensors, by its name; None where it does not say."""
    return 11 if _TF32.search(name) else 24 if _FP32.search(name) else None


def describe_significand(region: Region, carried: Mapping[str, int] | None = None) -> str:
    """Returns one sentence on the region's products and convolutions; "" where it has none, or none of a known dtype.
    `carried`: bits of the reference's fp32 convolutions that are known, by module as profiles name it, or for ANY of them."""
    bits = min((OF_DTYPE[spec.dtype] for spec in region.inputs if spec.dtype in OF_DTYPE), default=0)
    names = [operator.split(".")[1] for operator in region.operators if operator.count(".")]
    found = []
    if bits and any("conv" in name for name in names):
        found.append(f"{bits} in its convolutions" if bits < 24 else _convolutions(region, carried or {}))
    if bits and any(name in _PRODUCTS for name in names):
        found.append(f"{bits} in its products")
    return f"significand in bits: {', '.join(found)}" if found else ""


def _convolutions(region: Region, carried: Mapping[str, int]) -> str:
    modules = {re.sub(r"(?<![^.])\d+(?![^.])", "*", scope) or "(root)" for scope in region.scopes}
    known = [carried[module] for module in sorted(modules) if module in carried]
    if known:
        kind = "TF32" if min(known) == 11 else "fp32"
        return f"{min(known)} in its convolutions ({kind}, by the kernels that eager ran)"
    if ANY in carried:
        return f"{carried[ANY]} in the least exact of the reference's convolutions, as measured"
    return f"11 in its convolutions on a GPU by torch's default (TF32; {FEW_CHANNELS})"
