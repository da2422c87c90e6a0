"""What doctor's checks are made of: one record, and asking a command. Knows nothing of GPUs. See `doctor.py`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from stitchcuda.state import Record

NOTHING_WITHOUT_GPU = "nothing to do without a GPU"


class Check(Record):
    """One finding. `remedy` is empty when there is nothing to do."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def said(*command: str | Path, seconds: float = 20.0) -> tuple[bool, str]:
    """Whether a command succeeded, and its output in one piece. A command that cannot be run says why in its place."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def numbers(version: str) -> tuple[int, int] | None:
    """(13, 0) for "13.0.88": what decides whether two CUDA versions fit. None for a text without one."""
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found.group(1)), int(found.group(2))) if found else None
