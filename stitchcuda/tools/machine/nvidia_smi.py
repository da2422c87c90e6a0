"""Which GPU is here, as the driver's own nvidia-smi says: no CUDA context, no torch.

It knows no ceilings and takes no decision. Where to look next: `device.py`.
"""

from __future__ import annotations

import shutil
import subprocess

from stitchcuda.state import Record


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
