"""Memory that was freed is used again without asking the system for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from stitchcuda.verify.messages import host_memory

if sys.argv[1] == "kept":
    host_memory.keep_freed()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**25)                      # 128 MB, which is freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(min(faults() for _ in range(20)))  # how often it grows first depends on what lies in between
"""


@pytest.mark.parametrize("how", ["kept", "as it is"])
def test_freed_memory_stays_with_the_process(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, timeout=120)
    if how == "kept":
        assert int(done.stdout) < 100
    else:
        assert int(done.stdout) > 32       # huge pages of 2 MB at best: 64 of them
