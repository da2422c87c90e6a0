"""Opens a file that a program may have written: only a regular file of bounded size, without waiting on it.

Under the expected name there may be a pipe, a link to one of the user's files, a device, or an endless file.
Where to look next: `tools/profile/profiling.py`, `tools/profile/cupti_trace.py`, `tools/profile/nsys_export.py`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from stitchcuda.errors import Unavailable

MOST_BYTES = 2**29
"""The most bytes of a recording; one of ten calls has a few million."""


def open_foreign(path: Path, most: int = MOST_BYTES) -> BinaryIO:
    """Opens a file of at most `most` bytes for reading. Raises `Unavailable`, with the reason, for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= most:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISREG(facts.st_mode):
        raise Unavailable(f"{path} is larger than {most >> 10} KiB: profile fewer calls")
    raise Unavailable(f"{path} cannot be read: it is no regular file")
