"""A bound in time on code of a reference that may never end: importing it, its constructor, `get_inputs()`.

Only in the main thread of a process, and only for Python: a loop inside of one native call is ended by the judge, which waits
little longer (`verify/judge/judge.py`). Where to look next: `verify/reference/reference.py`.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stitchcuda.errors import BadInput

_AGAIN_S = 1.0                             # for code that catches whatever is raised


class _Over(BaseException):
    """Not an `Exception`: references that catch these would go on."""


@contextmanager
def within(seconds: float, doing: str, path: Path) -> Iterator[None]:
    """Raises `BadInput` when the block takes longer, with the line of `path` at which it was; 0 sets no bound.

    `doing` begins the sentence, such as "get_inputs() of model.py".
    """
    if not seconds:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _Over

    before = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    except _Over as over:
        signal.setitimer(signal.ITIMER_REAL, 0)
        lines = [frame.lineno for frame in traceback.extract_tb(over.__traceback__) if frame.filename == str(path)]
        where = f", in line {lines[-1]}" if lines else ""
        raise BadInput(
            f"{doing} did not end within {seconds:.0f} s and was stopped{where}: "
            "it loops for ever, waits for something, or is too much work."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, before)
