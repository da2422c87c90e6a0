"""Recognises exceptions and log texts that say that memory ran out.

Pure functions. Where to look next: `verify/program/failures.py`, `verify/processes/worker.py`,
`verify/reference/reference_worker.py` (who call them).
"""

from __future__ import annotations

import errno
import re

import torch

_OUT_OF_MEMORY = re.compile(
    r"MemoryError|bad_alloc|can't allocate memory|not enough memory|CUDA out of memory|CUDA error: out of memory"
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    r"|nvmlInit_v2_\(\) INTERNAL ASSERT"    # torch's complaint when it cannot ask the driver who else holds memory
)
_REQUEST = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
_REQUEST_ON_GPU = re.compile(r"CUDA out of memory. Tried to allocate ([\d.]+ \w+)")
_REMEDY = "use smaller inputs or a machine with more memory, or free some"


def is_out_of_memory(failure: BaseException | str) -> bool:
    """Whether an exception, or the log of a process, says that memory ran out."""
    if isinstance(failure, MemoryError | torch.OutOfMemoryError):
        return True
    denied = isinstance(failure, OSError) and failure.errno == errno.ENOMEM
    return denied or _OUT_OF_MEMORY.search(str(failure)) is not None


def describe_request(error: BaseException) -> str:
    """Says how much memory a tensor needed, where the exception has that, and what to do about it; "" for an exception that
    does not say that memory ran out."""
    if size := _REQUEST.search(str(error)):
        return f"{int(size[1]) / 2**30:.1f} GiB more than there is room for: {_REMEDY}"
    if size := _REQUEST_ON_GPU.search(str(error)):
        return f"{size[1]} more than there is room for on the GPU: {_REMEDY}"
    return f"none is left: {_REMEDY}" if is_out_of_memory(error) else ""
