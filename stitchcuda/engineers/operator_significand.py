"""Tells how many bits the reference's arithmetic carries at an operator: what a program has to be as exact as.

By the operator's name and the tensors' dtype, as torch computes by default; cuDNN may choose fp32 for a convolution all the
same, so what counts is what the judge measures. Source: torch's backends (`allow_tf32` is true for convolutions only).

Where to look next: `verify/reference/significands.py` (measures it), `engineers/prompt.py` (shows it).
"""

from __future__ import annotations

from stitchcuda.state import Region

OF_DTYPE = {"float32": 24, "float16": 11, "bfloat16": 8}
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "einsum", "scaled_dot_product_attention")
FEW_CHANNELS = "24 where it has few input channels, since cuDNN has no TF32 there"


def describe_significand(region: Region) -> str:
    """Returns one sentence on the region's products and convolutions; "" where it has none, or none of a known dtype."""
    bits = min((OF_DTYPE[spec.dtype] for spec in region.inputs if spec.dtype in OF_DTYPE), default=0)
    names = [operator.split(".")[1] for operator in region.operators if operator.count(".")]
    found = []
    if bits and any("conv" in name for name in names):
        found.append(f"{bits} in its convolutions" if bits < 24 else f"11 in its convolutions on a GPU (TF32; {FEW_CHANNELS})")
    if bits and any(name in _PRODUCTS for name in names):
        found.append(f"{bits} in its products")
    return f"significand in bits: {', '.join(found)}" if found else ""
