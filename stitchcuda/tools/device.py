"""Which device a session is for, and what it can do: asks nvidia-smi, never torch.

Ceilings are the ones that programs reach, not the data sheet's: a floor computed from peak numbers promises savings that do
not exist. Without a GPU the figures are an H200's and marked as nominal. Where to look next: `fusion/cost.py`.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from typing import Literal

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import DeviceFacts, Record, Target

DEVICES = ("auto", "cuda", "sim")


class Ceilings(Record):
    """What one kind of device reaches."""

    sm_count: int
    bandwidth_gbs: float                   # a large copy, reads plus writes
    tflops: dict[str, float]               # dense, fp32 accumulation
    source: str


# H200: measured with torch 2.11 (CUDA 13.0): a large device copy; matrix products 4096 to 8192 cubed.
# Others: the vendor's data sheet for dense rates, times what an H200 reaches of its own sheet (bandwidth 0.90, bf16 0.80,
# tf32 0.78, fp32 0.76).
_CEILINGS = {
    "H200": Ceilings(
        sm_count=132, bandwidth_gbs=4300.0, source="measured",
        tflops={"bfloat16": 790.0, "float16": 790.0, "tf32": 385.0, "float32": 51.0, "float64": 34.0},
    ),
    "H100": Ceilings(
        sm_count=132, bandwidth_gbs=3015.0, source="data sheet, H100 SXM",
        tflops={"bfloat16": 790.0, "float16": 790.0, "tf32": 385.0, "float32": 51.0, "float64": 34.0},
    ),
    "A100": Ceilings(
        sm_count=108, bandwidth_gbs=1835.0, source="data sheet, A100 80 GB SXM",
        tflops={"bfloat16": 250.0, "float16": 250.0, "tf32": 122.0, "float32": 14.8, "float64": 9.7},
    ),
    "L40S": Ceilings(
        sm_count=142, bandwidth_gbs=778.0, source="data sheet, L40S",
        tflops={"bfloat16": 290.0, "float16": 290.0, "tf32": 143.0, "float32": 69.6, "float64": 1.4},
    ),
    "L4": Ceilings(
        sm_count=58, bandwidth_gbs=270.0, source="data sheet, L4",
        tflops={"bfloat16": 97.0, "float16": 97.0, "tf32": 47.0, "float32": 23.0, "float64": 0.5},
    ),
    "A10": Ceilings(
        sm_count=72, bandwidth_gbs=540.0, source="data sheet, A10",
        tflops={"bfloat16": 100.0, "float16": 100.0, "tf32": 49.0, "float32": 24.0, "float64": 0.5},
    ),
}  # fmt: skip
_UNKNOWN = Ceilings(
    sm_count=80, bandwidth_gbs=800.0, source="a guess for a device that is not in the table",
    tflops={"bfloat16": 100.0, "float16": 100.0, "tf32": 50.0, "float32": 20.0, "float64": 0.6},
)  # fmt: skip
_LAUNCH_US = 4.5                           # host cost of one eager torch operator on an H200's host, measured back to back
_NOMINAL = "NVIDIA H200"


class Gpu(Record):
    """The first GPU as its driver names it."""

    name: str
    capability: str                        # "9.0"
    driver: str


def gpu() -> Gpu | None:
    """The first GPU that nvidia-smi lists, or None."""
    return _ask()[0]


def resolve_target(wanted: Literal["auto", "cuda", "sim"] | str) -> Target:
    """Where programs run: "auto" takes a GPU when there is one.

    Raises `BadInput` for any other word, `Unavailable` when "cuda" is asked for in vain.
    """
    if wanted not in DEVICES:
        raise BadInput(f"--device {wanted!r} is not one of {', '.join(DEVICES)}")
    if wanted == "sim":
        return "sim"
    found, why = _ask()
    if found is not None:
        return "cuda"
    if wanted == "cuda":
        raise Unavailable(f"--device cuda needs an NVIDIA GPU and {why}; use --device sim, or run on a machine with a GPU")
    return "sim"


def device_facts(target: Target) -> DeviceFacts:
    """The device that programs are planned for: the GPU that is here, else an H200's nominal figures."""
    found = gpu() if target == "cuda" else None
    name = found.name if found else _NOMINAL
    ceilings = next((figures for key, figures in _CEILINGS.items() if key in name.split()), _UNKNOWN)
    return DeviceFacts(
        name=name,
        target=target,
        arch=_arch(found.capability if found else "9.0"),
        sm_count=ceilings.sm_count,
        bandwidth_gbs=ceilings.bandwidth_gbs,
        tflops=ceilings.tflops,
        launch_us=_LAUNCH_US,
        driver=found.driver if found else "",
        torch=_torch_version(),
        measured=found is not None and ceilings.source == "measured",
    )


def _arch(capability: str) -> str:
    """sm_90a for "9.0": Hopper's and Blackwell's own instructions need the architecture-specific target."""
    major, minor = capability.split(".")
    return f"sm_{major}{minor}{'a' if int(major) >= 9 else ''}"


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ask() -> tuple[Gpu | None, str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, "nvidia-smi is not on the PATH"
    query = [program, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return None, "nvidia-smi does not answer"
    lines = [line for line in said.stdout.splitlines() if line.count(",") == 2]
    if said.returncode != 0 or not lines:
        return None, f"nvidia-smi finds none ({(said.stdout + said.stderr).strip().splitlines()[-1:] or ['no output']})"
    name, capability, driver = (part.strip() for part in lines[0].split(","))
    return Gpu(name=name, capability=capability, driver=driver), ""
