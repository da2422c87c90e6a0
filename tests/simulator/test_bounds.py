"""Accesses out of bounds and misaligned ones are found where they are made, and told with a place that has a source line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from stitchcuda.simulator.build import build_simulated
from stitchcuda.simulator.source_lines import find_line
from tests.simulator.programs import BINDING, CACHE, HOME, load, runs

HELD = "static float *e, *d = nullptr; if (!d) { cudaMalloc(&e, 400); cudaMalloc(&d, 400); cudaMemset(d, 0, 400); }"
OUTSIDE = {
    "a read": ("y[threadIdx.x] = d[threadIdx.x + 37];", "reads out of bounds: byte 403 of device memory that has 400 bytes,"),
    "a wide read": ("if (threadIdx.x == 25) y[0] = ((float4*)d)[threadIdx.x].w;", "reads .*: byte 4(03|15) of device memory"),
    "a write": ("if (threadIdx.x == 40) d[threadIdx.x + 60] = 1;", r"writes .*: byte 403 .* in thread 40 of block \(0, 0, 0\)"),
    "before the beginning": ("if (threadIdx.x == 0) y[0] = d[(int)threadIdx.x - 1];", "reads out of bounds: "),
    "dynamic shared memory": (
        "extern __shared__ float s[]; s[threadIdx.x] = 1;", "writes .* of dynamic shared memory that has 128 bytes"
    ),
    "at no multiple of its size": (
        "if (threadIdx.x == 2) { float4 v = ((float4*)(d + 1))[threadIdx.x]; y[0] = v.x + v.w; }",
        "accesses memory at an address that is no multiple of 16: byte 36 of device memory that has 400 bytes"
    ),
    "after a million accesses": (
        "float sum = 0; for (int i = 0; i < 8000; i++) sum += d[i % 100]; if (threadIdx.x == 63) sum += d[100]; y[0] = sum;",
        "reads .*: byte 403",
    ),
}
INSIDE = "extern __shared__ float s[]; s[threadIdx.x / 2] = 0; y[threadIdx.x] = d[threadIdx.x + 36] + ((float4*)d)[24].w;"


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_access_out_of_bounds_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statement, told = OUTSIDE[name]
    monkeypatch.setenv("STITCHCUDA_SIM_CHECK", "1")
    kernel = f"__global__ void reach(float* y, float* d) {{ {statement} }}"
    program = load(tmp_path, runs(kernel, f"{HELD} reach<<<1, 64, 128>>>((float*)c, d);"))
    with pytest.raises(RuntimeError, match=rf"kernel reach.* {told}.* \[.*\+0x[0-9a-f]+\]"):
        program(torch.zeros(64), None, torch.zeros(128))


def test_accesses_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_SIM_CHECK", "1")
    kernel = f"__global__ void k(float* y, float* d) {{ {INSIDE} }}"
    program = load(tmp_path, runs(kernel, f"{HELD} k<<<1, 64, 128>>>((float*)c, d);"))
    program(torch.zeros(64), None, torch.zeros(128))


def test_the_line_of_a_place_in_a_library(tmp_path: Path) -> None:
    """The library with a table of lines has the same code as the one that ran."""
    source = tmp_path / "kernel.cu"
    kernel = "__global__ void k(float* y) {\n  int i = threadIdx.x;\n  y[i] =\n    2.f;\n}"
    source.write_text(runs(kernel, "k<<<1, 1>>>((float*)c);"))
    plain, lined = (
        build_simulated([source, BINDING], name="program", cache=CACHE, home=HOME, lines=lines) for lines in (False, True)
    )
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", plain], capture_output=True, text=True, check=True).stdout
    write = next(line for line in listing.splitlines() if "call" in line and "__tsan_write4" in line)
    offset = int(write.split(":")[0], 16)
    assert find_line(lined, offset) in (("kernel.cu", 3), ("kernel.cu", 4))
    assert find_line(plain, offset) is None
