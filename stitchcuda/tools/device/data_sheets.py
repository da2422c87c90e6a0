"""What vendors' data sheets say of GPUs: the frame that a measured ceiling must lie in, and what nominal figures are made of.

Dense rates without sparsity, fp32 accumulation, at boost clock. No program reaches them, so no floor is computed from them
directly. Where to look next: `tools/device/device.py` (nominal ceilings), `tools/device/ceilings.py` (measured ones).
"""

from __future__ import annotations

import re

from stitchcuda.state import Record

LOWEST, HIGHEST = 0.10, 1.05
"""Shares of a data sheet outside of which a measured figure is refused: another process, a slice of a GPU, a broken clock."""


class DataSheet(Record):
    """One product. `tflops` are tensor-core rates but for float32, and float64 where there are none: 1e12 per second."""

    title: str
    sm_count: int
    bandwidth_gbs: float                   # 1e9 bytes per second
    tflops: dict[str, float]


def _sheet(
    title: str, sms: int, bandwidth: float, *, half: float, tf32: float, single: float, double: float, int8: float
) -> DataSheet:
    rates = {"bfloat16": half, "float16": half, "tf32": tf32, "float32": single, "float64": double, "int8": int8}
    return DataSheet(title=title, sm_count=sms, bandwidth_gbs=bandwidth, tflops=rates)


# Words that a driver's name for the GPU has; the more special name first.
_SHEETS: tuple[tuple[frozenset[str], DataSheet], ...] = (
    (frozenset({"H200", "NVL"}), _sheet(
        "H200 NVL", 132, 4800, half=835.5, tf32=417.5, single=60.0, double=60.0, int8=1671.0)),
    (frozenset({"H200"}), _sheet("H200 SXM", 132, 4800, half=989.4, tf32=494.7, single=66.9, double=66.9, int8=1978.9)),
    (frozenset({"H100", "PCIe"}), _sheet(
        "H100 PCIe", 114, 2039, half=756.0, tf32=378.0, single=51.2, double=51.2, int8=1513.0)),
    (frozenset({"H100", "NVL"}), _sheet(
        "H100 NVL", 132, 3938, half=835.5, tf32=417.5, single=60.0, double=60.0, int8=1671.0)),
    (frozenset({"H100"}), _sheet("H100 SXM", 132, 3350, half=989.4, tf32=494.7, single=66.9, double=66.9, int8=1978.9)),
    (frozenset({"A100", "40GB"}), _sheet(
        "A100 40 GB", 108, 1555, half=312.0, tf32=156.0, single=19.5, double=19.5, int8=624.0)),
    (frozenset({"A100"}), _sheet("A100 80 GB SXM", 108, 2039, half=312.0, tf32=156.0, single=19.5, double=19.5, int8=624.0)),
    (frozenset({"L40S"}), _sheet("L40S", 142, 864, half=362.0, tf32=183.0, single=91.6, double=1.43, int8=733.0)),
    (frozenset({"L4"}), _sheet("L4", 58, 300, half=121.0, tf32=60.0, single=30.3, double=0.49, int8=242.0)),
    (frozenset({"A10"}), _sheet("A10", 72, 600, half=125.0, tf32=62.5, single=31.2, double=0.98, int8=250.0)),
)  # fmt: skip


def sheet_of(name: str) -> DataSheet | None:
    """The data sheet of a GPU by its driver's name, such as "NVIDIA A100-SXM4-80GB"; None for one that is not known."""
    words = set(re.split(r"[\s-]+", name))
    return next((sheet for key, sheet in _SHEETS if key <= words), None)


def objection(what: str, measured: float, listed: float) -> str:
    """Why a measured figure cannot be that of a device with this data sheet; "" when it can."""
    share = measured / listed
    if LOWEST <= share <= HIGHEST:
        return ""
    return f"{what} of {measured:.4g} is {share:.0%} of the data sheet's {listed:.4g} ({LOWEST:.0%} to {HIGHEST:.0%} can be)"
