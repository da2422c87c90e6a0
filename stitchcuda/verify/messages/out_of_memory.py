"""Recognises exceptions and log texts that say that memory ran out.

Pure functions. Where to look next: `verify/program/failures.py`, `verify/processes/worker.py`,
`verify/reference/reference_worker.py` (who call them).
"""

from __future__ import annotations

import re

import torch

_OUT_OF_MEMORY = re.compile(
    r"MemoryError|bad_alloc|can't allocate memory|not enough memory|CUDA out of memory"
    r"|nvmlInit_v2_\(\) INTERNAL ASSERT"    # torch's complaint when it cannot ask the driver who else holds memory
)
_REQUEST = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")


def is_out_of_memory(failure: BaseException | str) -> bool:
    """Whether an exception, or the log of a process, says that memory ran out."""
    return isinstance(failure, MemoryError | torch.OutOfMemoryError) or _OUT_OF_MEMORY.search(str(failure)) is not None


def describe(error: BaseException) -> str:
    """Returns what an exception for which `is_out_of_memory` holds says, in one line without a full stop."""
    said = (str(error).splitlines() or [""])[0][:200].rstrip(".")
    return "none is left" if not said or "nvmlInit_v2_" in said else said


def describe_request(error: BaseException) -> str:
    """Says how much host memory a tensor needed and what to do about it; "" for any other exception."""
    size = _REQUEST.search(str(error))
    if size is None:
        return ""
    return f"{int(size.group(1)) / 2**30:.1f} GiB more than there is room for: use smaller inputs or a machine with more memory"
