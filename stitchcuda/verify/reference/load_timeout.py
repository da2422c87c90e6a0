"""Stops code of a reference that takes too long: importing it, its constructor, `get_inputs()`.

An alarm signal raises an exception in the running Python code. So it works in the main thread of a process only, and a loop
inside one native call is not stopped here: the judge kills the process a little later.
Where to look next: `verify/reference/reference.py` (who uses it), `verify/judge/judge_resources.py` (the judge's own limit).
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stitchcuda.errors import BadInput

_AGAIN_S = 1.0                             # the alarm repeats, for code that catches whatever is raised


class _TimeUp(BaseException):
    """Raised by the alarm. It is no `Exception`, because a reference that catches those would go on."""


@contextmanager
def time_limit(seconds: float, doing: str, path: Path) -> Iterator[None]:
    """Raises `BadInput` when the block takes longer than `seconds`, with the line of `path` that was running; 0 sets no limit.

    `doing` begins the sentence, such as "get_inputs() of model.py".
    """
    if not seconds:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    except _TimeUp as time_up:
        signal.setitimer(signal.ITIMER_REAL, 0)
        lines = [frame.lineno for frame in traceback.extract_tb(time_up.__traceback__) if frame.filename == str(path)]
        where = f", in line {lines[-1]}" if lines else ""
        raise BadInput(
            f"{doing} did not end within {seconds:.0f} s and was stopped{where}: "
            "it loops for ever, waits for something, or is too much work."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, before)
