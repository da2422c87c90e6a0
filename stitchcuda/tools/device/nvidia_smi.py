"""Asks nvidia-smi which GPU is here: no CUDA context, no torch.

It knows no ceilings and takes no decision. Where to look next: `tools/device/device.py`.
"""

from __future__ import annotations

import re
import shutil

from stitchcuda.state import Record
from stitchcuda.tools.device.probe_command import ask


class Gpu(Record):
    """The first GPU as its driver names it."""

    name: str
    capability: str                        # "9.0"
    driver: str


def first_gpu() -> tuple[Gpu | None, str]:
    """The first GPU that nvidia-smi lists; None and the reason where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, "nvidia-smi is not on the PATH"
    said = ask(program, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader", seconds=30)
    if said.why:
        return None, f"nvidia-smi fails: {said.why}"
    lines = [line for line in said.out.splitlines() if line.count(",") == 2]
    if not said.ok or not lines:
        return None, f"nvidia-smi finds none ({(said.text.splitlines() or ['no output'])[-1].strip()})"
    name, capability, driver = (part.strip() for part in lines[0].split(","))
    if not re.fullmatch(r"\d+\.\d+", capability):
        return None, f"nvidia-smi tells no compute capability of {name} ({capability})"
    return Gpu(name=name, capability=capability, driver=driver), ""
