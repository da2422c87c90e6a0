"""Takes over stdin and stdout of the judge process as pipes to its client, and ends the process when the client is gone.

Nothing else is written to the pipe of answers. Where to look next: `verify/judge/judge.py` (what is answered),
`verify/client.py` (the client).
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
    """Returns private copies of stdin and stdout. Then stdin is /dev/null and stdout the log, so that a print is no answer."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def die_with(requests: BinaryIO, scratch: Path) -> None:
    """Ends this process at once, even in the middle of a check, when the client is gone, and removes `scratch`. The workers end
    with their parent."""

    def watch() -> None:
        poll = select.poll()
        poll.register(requests.fileno(), select.POLLHUP)
        while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            time.sleep(0.05)
        remove(scratch)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
