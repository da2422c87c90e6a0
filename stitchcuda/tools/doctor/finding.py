"""The record of one check, how a command is asked, and what becomes of a check that fails itself.

See `tools/doctor/doctor.py`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

from stitchcuda.errors import StitchError
from stitchcuda.state import Record
from stitchcuda.tools.device.probe_command import ask

log = logging.getLogger(__name__)

NOTHING_WITHOUT_GPU = "nothing to do without a GPU"


class Check(Record):
    """One finding. `remedy` is empty when there is nothing to do."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def said(*command: str | Path, seconds: float = 20.0) -> tuple[bool, str]:
    """Whether a command succeeded, and its output in one piece. A command that does not answer says why in its place."""
    answer = ask(*command, seconds=seconds)
    return answer.ok, answer.text


def tried(name: str, look: Callable[[], Check | list[Check]]) -> list[Check]:
    """What a check finds; one that fails itself is a line of its own, so that the others are told."""
    try:
        found = look()
    except Exception as error:
        log.debug("the check %s failed", name, exc_info=True)
        what, _, remedy = str(error).rpartition("; ") if isinstance(error, StitchError) else ("", "", "")
        detail = what or f"this could not be looked at: {type(error).__name__}: {error}"
        return [Check(name=name, ok=False, detail=detail, remedy=remedy or "stitchcuda doctor --debug shows where it failed")]
    return found if isinstance(found, list) else [found]


def numbers(version: str) -> tuple[int, int] | None:
    """(13, 0) for "13.0.88": what decides whether two CUDA versions fit. None for a text without one."""
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found.group(1)), int(found.group(2))) if found else None
