"""Asks nvidia-smi which GPU this machine has, without a CUDA context and without torch.

It decides nothing.
Where to look next: `tools/device/device.py` (which does).
"""

from __future__ import annotations

import os
import re
import shutil

from stitchcuda.state import Record
from stitchcuda.tools.device.probe_command import run_probe


class Gpu(Record):
    """A GPU as its driver names it."""

    name: str
    capability: str                        # "9.0"
    driver: str


def first_gpu() -> tuple[Gpu | None, str]:
    """Returns the first GPU that nvidia-smi lists and ""; without one, None and the reason."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, "nvidia-smi is not on the PATH"
    answer = run_probe(program, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader", seconds=30)
    if answer.why:
        return None, f"nvidia-smi fails: {answer.why}"
    lines = [line for line in answer.out.splitlines() if line.count(",") == 2]
    if not answer.ok or not lines:
        return None, f"nvidia-smi finds none ({(answer.text.splitlines() or ['no output'])[-1].strip()})"
    name, capability, driver = (part.strip() for part in lines[0].split(","))
    if not re.fullmatch(r"\d+\.\d+", capability):
        return None, f"nvidia-smi tells no compute capability of {name} ({capability})"
    return Gpu(name=name, capability=capability, driver=driver), ""


def visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; without that, all that are listed."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    program = shutil.which("nvidia-smi")
    answer = run_probe(program, "--query-gpu=index", "--format=csv,noheader", seconds=30) if program else None
    return answer.out.split() if answer and answer.ok else []
