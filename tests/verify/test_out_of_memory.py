"""What counts as memory that ran out, however it is said."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from stitchcuda.verify.messages import out_of_memory
from stitchcuda.verify.program import failures


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), RuntimeError("std::bad_alloc"),
        RuntimeError("CUDA error: out of memory"), RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
    ],
)  # fmt: skip
def test_memory_that_ran_out(error: Exception) -> None:
    assert out_of_memory.is_out_of_memory(error)
    assert failures.describe_failure(error, Path("/nowhere")).kind == "memory"


def test_other_failures_are_none() -> None:
    assert not out_of_memory.is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory.is_out_of_memory("Fatal Python error: Segmentation fault")
    assert out_of_memory.describe_request(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) == ""


def test_what_is_lacking_is_told() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert out_of_memory.describe_request(caught.value).startswith("4194304.0 GiB more than there is room for: use smaller")
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    assert out_of_memory.describe_request(full).startswith("2.00 GiB more than there is room for on the GPU: use smaller")
    for error in (MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")):
        assert out_of_memory.describe_request(error).startswith("none is left: use smaller")
