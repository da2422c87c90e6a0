"""The two pipes between the judge process and its client: nothing else is answered there, and nothing outlives them.

Where to look next: `verify/judge/judge.py` (what is answered), `verify/client.py` (the client).
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

from stitchcuda.sandbox.removal import remove


def take_over_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Private copies of stdin and stdout; the originals point to nowhere and to the log, so that no print can answer."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def die_with(requests: BinaryIO, scratch: Path) -> None:
    """End at once when the client is gone, also in the middle of a check; workers follow through their parent."""

    def watch() -> None:
        poll = select.poll()
        poll.register(requests.fileno(), select.POLLHUP)
        while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            time.sleep(0.05)
        remove(scratch)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
