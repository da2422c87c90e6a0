"""What says that memory ran out: exceptions of Python and torch, and the last words of a process.

Pure functions on what was said. Where to look next: `verify/program/failures.py`, `verify/processes/worker.py`,
`verify/reference/reference_worker.py`.
"""

from __future__ import annotations

import re

import torch

_SAID = re.compile(r"MemoryError|bad_alloc|can't allocate memory|not enough memory|CUDA out of memory")
_ASKED = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")


def is_out_of_memory(said: BaseException | str) -> bool:
    """Whether an exception, or a text that a process left, is about memory that there is not."""
    return isinstance(said, MemoryError | torch.OutOfMemoryError) or _SAID.search(str(said)) is not None


def describe_request(error: BaseException) -> str:
    """What a tensor asked for that the host's memory has no room for, and what to do; "" for any other exception."""
    size = _ASKED.search(str(error))
    if size is None:
        return ""
    return f"{int(size.group(1)) / 2**30:.1f} GiB more than there is room for: use smaller inputs or a machine with more memory"
