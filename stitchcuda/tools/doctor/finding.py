"""Defines the result of one of doctor's checks, and runs checks and commands so that a failing one hides no others.

Where to look next: `tools/doctor/doctor.py` (the checks).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

from stitchcuda.errors import StitchError
from stitchcuda.sandbox.foreign_text import plain
from stitchcuda.state import Record
from stitchcuda.tools.device.probe_command import run_probe

log = logging.getLogger(__name__)

NOTHING_WITHOUT_GPU = "nothing to do without a GPU"


class Check(Record):
    """The result of one check. `remedy` is empty when there is nothing to do."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def output_of(*command: str | Path, seconds: float = 20.0) -> tuple[bool, str]:
    """Runs a command. Returns whether it succeeded, and its output; or, if it does not end or start, the reason."""
    answer = run_probe(*command, seconds=seconds)
    return answer.ok, plain(answer.text)


def run_check(name: str, check: Callable[[], Check | list[Check]]) -> list[Check]:
    """Returns what `check` returns; if it raises, one failed check called `name` with the error."""
    try:
        found = check()
    except Exception as error:
        log.debug("the check %s failed", name, exc_info=True)
        what, _, remedy = str(error).rpartition("; ") if isinstance(error, StitchError) else ("", "", "")
        detail = what or f"this could not be looked at: {type(error).__name__}: {error}"
        return [Check(name=name, ok=False, detail=detail, remedy=remedy or "stitchcuda doctor --debug shows where it failed")]
    return found if isinstance(found, list) else [found]


def major_minor(version: str) -> tuple[int, int] | None:
    """Returns (13, 0) for "13.0.88", by which two CUDA versions are compared; None for a text without a version."""
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found.group(1)), int(found.group(2))) if found else None
