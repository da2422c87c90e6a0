"""Lists data-sheet figures of GPUs, which bound measured ceilings and from which nominal ones are derived.

Rates are dense (no sparsity), with fp32 accumulation, at boost clock. No program reaches them, so no floor is computed from
them directly.
Where to look next: `tools/device/device.py` (nominal ceilings), `tools/device/ceilings.py` (measured ones).
"""

from __future__ import annotations

import re

from stitchcuda.errors import BadInput
from stitchcuda.state import Record

LOWEST, HIGHEST = 0.10, 1.05
"""Shares of a data sheet's figure outside of which a measured one is refused: a shared or sliced GPU, or a wrong clock."""


class DataSheet(Record):
    """One GPU. `tflops` (1e12 per second) are tensor-core rates, except for float32, and for float64 where there are none."""

    title: str
    capability: str                        # compute capability, such as "9.0"
    sm_count: int
    bandwidth_gbs: float                   # 1e9 bytes per second
    tflops: dict[str, float]


def _sheet(
    title: str, capability: str, sms: int, bandwidth: float, *,
    half: float, tf32: float, single: float, double: float, int8: float,
) -> DataSheet:  # fmt: skip
    rates = {"bfloat16": half, "float16": half, "tf32": tf32, "float32": single, "float64": double, "int8": int8}
    return DataSheet(title=title, capability=capability, sm_count=sms, bandwidth_gbs=bandwidth, tflops=rates)


# The words that a driver's name for the GPU must have, and its sheet. The first that fits counts, so special names come first.
_SHEETS: tuple[tuple[tuple[str, ...], DataSheet], ...] = (
    (("H200", "NVL"), _sheet(
        "H200 NVL", "9.0", 132, 4800, half=835.5, tf32=417.5, single=60.0, double=60.0, int8=1671.0)),
    (("H200",), _sheet("H200 SXM", "9.0", 132, 4800, half=989.4, tf32=494.7, single=66.9, double=66.9, int8=1978.9)),
    (("H100", "PCIe"), _sheet(
        "H100 PCIe", "9.0", 114, 2039, half=756.0, tf32=378.0, single=51.2, double=51.2, int8=1513.0)),
    (("H100", "NVL"), _sheet(
        "H100 NVL", "9.0", 132, 3938, half=835.5, tf32=417.5, single=60.0, double=60.0, int8=1671.0)),
    (("H100",), _sheet("H100 SXM", "9.0", 132, 3350, half=989.4, tf32=494.7, single=66.9, double=66.9, int8=1978.9)),
    (("A100", "40GB"), _sheet(
        "A100 40 GB", "8.0", 108, 1555, half=312.0, tf32=156.0, single=19.5, double=19.5, int8=624.0)),
    (("A100",), _sheet("A100 80 GB SXM", "8.0", 108, 2039, half=312.0, tf32=156.0, single=19.5, double=19.5, int8=624.0)),
    (("L40S",), _sheet("L40S", "8.9", 142, 864, half=362.0, tf32=183.0, single=91.6, double=1.43, int8=733.0)),
    (("L4",), _sheet("L4", "8.9", 58, 300, half=121.0, tf32=60.0, single=30.3, double=0.49, int8=242.0)),
    (("A10",), _sheet("A10", "8.6", 72, 600, half=125.0, tf32=62.5, single=31.2, double=0.98, int8=250.0)),
)  # fmt: skip
_BY_SHORT_NAME = {
    "-".join(words).lower(): (" ".join(("NVIDIA", *words)), sheet.capability) for words, sheet in _SHEETS
}  # fmt: skip
SHORT_NAMES = tuple(sorted(_BY_SHORT_NAME))
"""The names that `--predict-for` takes, such as "h100" or "h100-pcie"."""


def sheet_of(name: str) -> DataSheet | None:
    """Returns the data sheet of a GPU by its driver's name, such as "NVIDIA A100-SXM4-80GB"; None for an unknown one."""
    words = set(re.split(r"[\s-]+", name))
    return next((sheet for key, sheet in _SHEETS if words.issuperset(key)), None)


def gpu_called(short: str) -> tuple[str, str]:
    """Returns name and compute capability of a GPU by its short name: ("NVIDIA H100 PCIe", "9.0") for "h100-pcie", in any case.

    `sheet_of` accepts the name. Raises BadInput for a short name that is not in `SHORT_NAMES`.
    """
    found = _BY_SHORT_NAME.get(short.lower())
    if found is None:
        raise BadInput(f"--predict-for {short!r} has no data sheet here: give one of {', '.join(SHORT_NAMES)}")
    return found


def objection(what: str, measured: float, listed: float) -> str:
    """Returns why a measured figure cannot be true of a device with this data sheet; "" if it can."""
    share = measured / listed
    if LOWEST <= share <= HIGHEST:
        return ""
    return f"{what} of {measured:.4g} is {share:.0%} of the data sheet's {listed:.4g} ({LOWEST:.0%} to {HIGHEST:.0%} can be)"
