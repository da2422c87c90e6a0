"""Opens a file that a program may have written: only a regular file of bounded size, without waiting on it.

What lies there under the expected name may be a pipe, a link to one of the user's files, a device, or endless: only a regular
file of at most so many bytes is opened. Where to look next: `tools/profile/profiling.py`, `tools/profile/cupti_trace.py`,
`tools/profile/nsys_export.py` (who read such files).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from stitchcuda.errors import Unavailable

MOST_BYTES = 2**29
"""Of a recording; one of ten calls has a few million."""


def open_foreign(path: Path, most: int = MOST_BYTES) -> BinaryIO:
    """A file of at most `most` bytes, for reading. Raises `Unavailable`, with the reason, for anything else."""
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
