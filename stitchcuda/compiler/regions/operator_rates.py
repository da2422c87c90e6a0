"""Lists how fast torch's own kernels run: each operator's share of the device's ceilings, fixed time and host time.

Fitted to medians on an H200 (torch 2.11, CUDA 13.0, fp32 and bf16, 2 to 800 MB, products of 1 to 137 Gflop): `fixed_us` is the
time of a tiny call on a busy stream, `bandwidth` the share of copy bandwidth that a large call reaches, `host` the host's time
in units of `DeviceFacts.launch_us`. Predictions from them are within 1.5x for calls above 5 us. Rates of generated kernels
(`OWN_POINTWISE`, `OWN_ROWS`) are assumed, not measured.

Where to look next: `compiler/regions/cost.py` (the formulas).
"""

from __future__ import annotations

from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import base_name


@dataclass(frozen=True)
class Rate:
    """How fast one operator runs. Shares are of the device's ceilings.

    `fixed_us`: microseconds of a tiny call. `bandwidth`: share of copy bandwidth, `half` the same for 16-bit elements. `host`:
    host time in units of `DeviceFacts.launch_us`. `flops`: share of the matrix rate.
    """

    fixed_us: float = 1.8
    bandwidth: float = 0.95
    half: float = 0.75
    host: float = 1.1
    flops: float = 0.85


POINTWISE = Rate()
REDUCTION = Rate(fixed_us=4.0, bandwidth=0.9, half=0.75, host=1.3)
OWN_POINTWISE = Rate(bandwidth=0.95, half=0.95, host=0.8)
OWN_ROWS = Rate(fixed_us=2.5, bandwidth=0.85, half=0.85, host=0.8)
"""Generated kernels; assumed, not measured. Their host time is an output's allocation and a call through tvm-ffi."""

VIEW_HOST = 0.2
"""Host time of a view, in units of `DeviceFacts.launch_us`."""
GRAPH_GAP_US = 1.0
"""Microseconds that a kernel takes less inside a CUDA graph than on a busy stream."""
REPLAY_US = 2.0
"""Host microseconds of replaying a CUDA graph."""

_RATES: dict[str, Rate] = {
    "layer_norm": Rate(fixed_us=3.7, bandwidth=0.60, half=0.41, host=1.7),
    "softmax": Rate(fixed_us=3.5, bandwidth=0.85, half=0.58, host=1.1),
    "log_softmax": Rate(fixed_us=3.5, bandwidth=0.85, half=0.58, host=1.1),
    "batch_norm": Rate(fixed_us=1.8, bandwidth=0.60, half=0.5, host=3.8),
    "group_norm": Rate(fixed_us=6.0, bandwidth=0.33, half=0.3, host=3.1),
    "instance_norm": Rate(fixed_us=8.0, bandwidth=0.5, half=0.4, host=4.5),
    "cat": Rate(fixed_us=2.5, bandwidth=0.8, half=0.7, host=1.3),
    "stack": Rate(fixed_us=2.5, bandwidth=0.8, half=0.7, host=1.6),
    "linear": Rate(fixed_us=4.0, host=3.3),
    "scaled_dot_product_attention": Rate(fixed_us=5.0, flops=0.55, host=2.0),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "var", "std", "prod", "linalg_vector_norm", "norm", "max", "min"), REDUCTION
    ),
    **{name: Rate(fixed_us=4.0, host=1.6) for name in ("mm", "bmm", "matmul", "addmm", "baddbmm", "einsum")},
    **{f"conv{n}d": Rate(fixed_us=4.0, flops=0.27, host=2.0) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": Rate(fixed_us=6.0, flops=0.2, host=2.0) for n in (1, 2, 3)},
}
CHANNELS_AT_FULL_RATE = 320
"""BatchNorm in training runs one thread block per channel: 64 channels reach a fifth of the bandwidth, 256 four fifths."""


def rate_of(op: str) -> Rate:
    """Returns the rate of an operator by torch's name; `POINTWISE` for those that were not measured."""
    return _RATES.get(base_name(op).rstrip("_"), POINTWISE)
