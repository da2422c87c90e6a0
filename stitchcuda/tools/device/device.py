"""Decides which device a session is for and what it can do, by asking nvidia-smi and never torch.

Ceilings are those that programs reach, not the data sheet's: a floor computed from peak numbers promises savings that do
not exist. Ceilings measured on this machine are used first (`tools/device/ceilings.py`); else nominal ones, with the reason.
Without a GPU they are those of the GPU that `--predict-for` names, by default an H200.
Where to look next: `compiler/regions/cost.py`, `compiler/regions/floor.py` (which use them), `tools/device/data_sheets.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from stitchcuda.compiler.regions import operator_rates
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import DeviceFacts, Record, Target
from stitchcuda.tools.device import ceilings
from stitchcuda.tools.device.data_sheets import DataSheet, gpu_called, sheet_of
from stitchcuda.tools.device.nvidia_smi import Gpu, first_gpu

DEVICES = ("auto", "cuda", "sim")


class NominalCeilings(Record):
    """The rates that a kind of device is assumed to reach where nothing was measured."""

    sm_count: int
    bandwidth_gbs: float                   # a large copy, reads plus writes
    tflops: dict[str, float]               # dense, fp32 accumulation


# Measured on an H200 with torch 2.11 (CUDA 13.0): a large device copy; matrix products of 4096 to 8192 cubed.
_H200 = NominalCeilings(
    sm_count=132, bandwidth_gbs=4300.0,
    tflops={"bfloat16": 790.0, "float16": 790.0, "tf32": 385.0, "float32": 51.0, "float64": 34.0},
)  # fmt: skip
_UNKNOWN = NominalCeilings(
    sm_count=80, bandwidth_gbs=800.0,
    tflops={"bfloat16": 100.0, "float16": 100.0, "tf32": 50.0, "float32": 20.0, "float64": 0.6},
)  # fmt: skip
# The shares of its data sheet that an H200 reaches, assumed for other GPUs; float64: see `_double`.
_BANDWIDTH_SHARE = 0.90
_SHARES = {"bfloat16": 0.80, "float16": 0.80, "tf32": 0.78, "float32": 0.76}
_LAUNCH_US = 4.5                           # host cost of one eager torch operator on an H200's host, seen back to back
PREDICTED_FOR = "h200"                     # the default of --predict-for


def gpu() -> Gpu | None:
    """Returns the first GPU that nvidia-smi lists, or None."""
    return first_gpu()[0]


def resolve_target(wanted: Literal["auto", "cuda", "sim"] | str) -> Target:
    """Decides where programs run: "auto" means on a GPU if there is one, else on the simulator.

    Raises `BadInput` for any other word, `Unavailable` for "cuda" without a GPU.
    """
    if wanted not in DEVICES:
        raise BadInput(f"--device {wanted!r} is not one of {', '.join(DEVICES)}")
    if wanted == "sim":
        return "sim"
    found, why = first_gpu()
    if found is not None:
        return "cuda"
    if wanted == "cuda":
        raise Unavailable(f"--device cuda needs an NVIDIA GPU and {why}; use --device sim, or run on a machine with a GPU")
    return "sim"


def device_facts(
    target: Target, *, predict_for: str | None = None, measure: bool = False, cache: Path | None = None
) -> DeviceFacts:
    """Returns the device that programs are planned for: with target "cuda" this machine's GPU, else the GPU `predict_for`.

    `predict_for`: one of `data_sheets.SHORT_NAMES`, by default "h200". `measure`: measures ceilings if none are cached, which
    takes some seconds on the GPU. `cache`: the folder of measured ceilings, else the user's cache. The result's `note` says why
    figures are nominal.
    """
    found = gpu() if target == "cuda" else None
    name, capability = (found.name, found.capability) if found else gpu_called(predict_for or PREDICTED_FOR)
    nominal = _nominal(name)
    reached, note = ceilings.ceilings_of(found, measuring=measure, cache=cache) if found else (None, "")
    rates_reached = {dtype: rate.value for dtype, rate in reached.tflops.items()} if reached else {}
    notes = [f"{note}; {_source(name)}" if note and not reached else note, *(reached.notes if reached else ())]
    return DeviceFacts(
        name=name,
        target=target,
        arch=_arch(capability),
        sm_count=reached.sm_count if reached else nominal.sm_count,
        bandwidth_gbs=reached.bandwidth_gbs.value if reached else nominal.bandwidth_gbs,
        tflops=nominal.tflops | rates_reached,
        launch_us=reached.operator_us.value / operator_rates.POINTWISE.host if reached else _LAUNCH_US,
        driver=found.driver if found else "",
        torch=ceilings.torch_versions()[0],
        measured=reached is not None,
        note="; ".join(filter(None, notes)),
    )


def _nominal(name: str) -> NominalCeilings:
    """Returns nominal ceilings by the driver's name for the GPU."""
    sheet = sheet_of(name)
    if sheet is None:
        return _UNKNOWN
    if sheet.title == "H200 SXM":
        return _H200
    return NominalCeilings(
        sm_count=sheet.sm_count,
        bandwidth_gbs=_BANDWIDTH_SHARE * sheet.bandwidth_gbs,
        tflops={dtype: share * sheet.tflops[dtype] for dtype, share in _SHARES.items()} | {"float64": _double(sheet)},
    )


def _double(sheet: DataSheet) -> float:
    """float64 rates on tensor cores are taken at half of the sheet's, as the H200 reaches; others at all of it."""
    return sheet.tflops["float64"] * (0.5 if sheet.tflops["float64"] > 5 else 1.0)


def _source(name: str) -> str:
    """Says what the nominal figures of a GPU are based on."""
    sheet = sheet_of(name)
    if sheet is None:
        return f"no data sheet of {name} is known here, so the figures are a guess"
    return f"the figures are nominal ({sheet.title}, what an H200 reaches of its data sheet)"


def _arch(capability: str) -> str:
    """Returns "sm_90a" for "9.0": Hopper's and Blackwell's own instructions need the architecture-specific target."""
    major, minor = capability.split(".")
    return f"sm_{major}{minor}{'a' if int(major) >= 9 else ''}"
