"""What a user is told when a kernel is wrong or a launch is refused. None of it may end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stitchcuda.simulator.build import build_simulated
from stitchcuda.simulator.compile import CompileError
from tests.simulator.programs import HOME, load, runs

OUT = torch.zeros(1024)


def message(folder: Path, kernel: str, launch: str) -> str:
    with pytest.raises(RuntimeError) as caught:
        load(folder, runs(kernel, launch))(OUT, None, OUT.clone())
    return str(caught.value)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_SIM_RETURNED", "refuse")


@pytest.mark.usefixtures("strict")
def test_a_barrier_that_some_threads_never_reach(tmp_path: Path) -> None:
    text = message(tmp_path, """
template <int N> __global__ void halves(float* x) { if (threadIdx.x < 16) { __syncthreads(); x[threadIdx.x] = N; } }
""", "halves<7><<<1, 64>>>((float*)c);")  # fmt: skip
    assert "kernel halves<7>, block (0, 0, 0): 16 threads wait at a block barrier that 48 others never reach" in text


EARLY = """
__global__ void early(float* x, int n) {
  __shared__ float s[64];
  const int i = threadIdx.x;
  if (i >= n) return;
  s[i] = x[i];
  __syncthreads();
  float v = s[n - 1 - i];
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  x[i] = v + 100 * __syncthreads_count(1) + 10000 * __popc(__ballot_sync(0xffffffffu, 1));
}"""


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:3"])
def test_threads_that_returned_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    """In a barrier, a shuffle's and a vote's mask, whether they return before or after the others arrive."""
    monkeypatch.setenv("STITCHCUDA_SIM_SCHEDULE", schedule)
    x = torch.arange(64.0)
    load(tmp_path, runs(EARLY, "early<<<1, 64>>>((float*)c, n);"))(OUT, None, x, 40)
    i = torch.arange(40)
    lanes = torch.where(i < 32, 32.0, 8.0)
    assert torch.equal(x[:40], (39.0 - i) + (39.0 - (i ^ 1)) + 100 * 40 + 10000 * lanes)
    assert torch.equal(x[40:], torch.arange(40.0, 64.0))


@pytest.mark.usefixtures("strict")
def test_threads_that_returned_count_when_asked_for(tmp_path: Path) -> None:
    program = load(tmp_path, runs(EARLY, "early<<<1, 64>>>((float*)c, n);"))
    with pytest.raises(RuntimeError, match=r"kernel early, .* 40 threads wait at a block barrier that 24 others never reach"):
        program(OUT, None, OUT.clone(), 40)


def test_live_threads_that_miss_a_barrier_still_deadlock(tmp_path: Path) -> None:
    text = message(tmp_path, """
__global__ void split(float* x) {
  if (threadIdx.x >= 48) return;
  if (threadIdx.x < 16) __syncthreads(); else if (threadIdx.x < 32) __shfl_sync(0xffffffffu, 1.0f, 0);
  x[threadIdx.x] = 1;
}""", "split<<<1, 64>>>((float*)c);")  # fmt: skip
    assert "deadlock, 16 threads wait at a block barrier and 32 have returned" in text
    assert "lanes 0xffff0000 of warp 0 wait at a shuffle" in text


@pytest.mark.usefixtures("strict")
def test_a_shuffle_with_missing_lanes(tmp_path: Path) -> None:
    text = message(tmp_path, """
__global__ void sum(float* x) {
  if (threadIdx.x >= 40) return;
  float v = x[threadIdx.x];
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o);
  x[threadIdx.x] = v;
}""", "sum<<<1, 64>>>((float*)c);")  # fmt: skip
    assert "kernel sum, block (0, 0, 0)" in text
    assert "but lanes 0x00000100 of that mask have returned" in text


def test_lanes_at_different_operations(tmp_path: Path) -> None:
    text = message(tmp_path, """
__global__ void mixed(float* x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
  else x[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
}""", "mixed<<<1, 32>>>((float*)c);")  # fmt: skip
    assert "meet at different operations, a shuffle and a vote" in text


def test_a_lane_outside_its_mask(tmp_path: Path) -> None:
    text = message(
        tmp_path, "__global__ void k(float* x) { x[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 0); }", "k<<<1, 32>>>((float*)c);"
    )
    assert "thread (16, 0, 0): a shuffle with mask 0x0000ffff is called by a lane outside it" in text


def test_a_barrier_against_a_shuffle(tmp_path: Path) -> None:
    text = message(tmp_path, """
__global__ void crossed(float* x) { if (threadIdx.x < 16) __syncthreads(); else __syncwarp(); __syncthreads(); x[0] = 1; }
""", "crossed<<<3, 32>>>((float*)c);")  # fmt: skip
    assert "kernel crossed" in text
    assert "deadlock, 16 threads wait at a block barrier" in text
    assert "lanes 0xffff0000 of warp 0 wait at __syncwarp" in text


def test_assertions_traps_and_the_launch_after_them(tmp_path: Path) -> None:
    program = load(tmp_path, runs("""
#include <cassert>
__global__ void judge(float* x, int n) { assert(n != 1 && "not one"); if (n == 2) __trap(); x[threadIdx.x] = n; }
""", "judge<<<1, 32>>>((float*)c, n);"))  # fmt: skip
    with pytest.raises(
        RuntimeError, match=r"kernel judge, block \(0, 0, 0\), thread \(0, 0, 0\): .*kernel.cu:3: .*not one.*failed"
    ):
        program(OUT, None, OUT.clone(), 1)
    with pytest.raises(RuntimeError, match="__trap"):
        program(OUT, None, OUT.clone(), 2)
    assert program(OUT, None, OUT.clone(), 3).sum() == 96


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ("1, 1025", "invalid configuration argument"),
        ("1, dim3(1, 1, 65)", "invalid configuration argument"),
        ("0, 32", "invalid configuration argument"),
        ("1, 0", "invalid configuration argument"),
        ("dim3(1, 65536), 32", "invalid configuration argument"),
        ("1, 32, 228 * 1024", "invalid argument"),
    ],
)
def test_launches_that_a_gpu_refuses_do_not_run(tmp_path: Path, configuration: str, expected: str) -> None:
    program = load(tmp_path, runs("__global__ void mark(float* x) { x[0] = 1; }", f"mark<<<{configuration}>>>((float*)c);"))
    out = OUT.clone()
    with pytest.raises(RuntimeError, match=expected):
        program(OUT, None, out)
    assert out.sum() == 0


MUCH = """
import sys
from pathlib import Path
import torch
from tests.simulator.programs import load, runs

kernel = "__global__ void mark(float* x) { extern __shared__ float s[]; s[25599] = 1; x[0] = s[25599]; }"
program = load(Path(sys.argv[1]), runs(kernel, '''
  cudaError_t status = cudaSuccess;
  if (m) status = cudaFuncSetAttribute(mark, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024);
  if (status != cudaSuccess) return (int)status;
  mark<<<1, 32, 100 * 1024>>>((float*)c);'''))
out = torch.zeros(1024)
try:
    program(out, None, out.clone(), 0, 0)
except RuntimeError as error:
    print(error)
print(float(program(out, None, out.clone(), 0, 1)[0]))
"""


def test_much_shared_memory_must_be_asked_for(tmp_path: Path) -> None:
    """In a process of its own: who asks for one kernel has asked for all."""
    command = [sys.executable, "-c", MUCH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120)
    assert done.returncode == 0, done.stderr
    refused, allowed = done.stdout.splitlines()
    assert "invalid argument" in refused
    assert allowed == "1.0"


def test_too_much_static_shared_memory(tmp_path: Path) -> None:
    text = message(
        tmp_path,
        "__global__ void big(float* x) { __shared__ float s[12289]; s[0] = 1; x[0] = s[0]; }",
        "big<<<1, 32>>>((float*)c);",
    )
    assert "static shared memory exceeds 49152 bytes" in text


def test_compiler_errors_name_the_users_file_and_line(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text("#include <cuda_runtime.h>\n// a comment\n__global__ void k(float* x) {\n  x[threadIdx.x] = missing(1);\n"
                      "}\n"
                      "void go(float* x) { k<<<1,\n  2>>>(x); undeclared<<<1, 1>>>(x); }\n")  # fmt: skip
    with pytest.raises(CompileError) as caught:
        build_simulated([source], name="wrong", cache=tmp_path / "cache", home=HOME)
    assert f"{source}:4:20: error: 'missing' was not declared" in caught.value.log.replace("‘", "'").replace("’", "'")
    assert f"{source}:7:" in caught.value.log
    assert "wrong.cu does not compile for the simulator" in str(caught.value)


def test_a_function_nobody_defines_is_named(tmp_path: Path) -> None:
    source = tmp_path / "lost.cu"
    source.write_text("void elsewhere(float*);\nvoid go(float* x) { elsewhere(x); cudaDeviceCanAccessPeer(nullptr, 0, 0); }\n")
    with pytest.raises(CompileError) as caught:
        build_simulated([source], name="lost", cache=tmp_path / "cache", home=HOME)
    assert "undefined reference to elsewhere(float*): not defined in the program, nor by the simulator" in caught.value.log
    assert "undefined reference to cudaDeviceCanAccessPeer" in caught.value.log


@pytest.mark.parametrize(("index", "where"), [
    ("threadIdx.x + 40", "to byte 400"), ("threadIdx.x + 116", "to byte 464"), ("(int)threadIdx.x - 1", "before byte 0"),
])  # fmt: skip
def test_a_write_beyond_what_it_was_given(tmp_path: Path, index: str, where: str) -> None:
    """What lies behind the memory is restored: the same launch fails each time, and one within bounds does not."""
    kernel = f"__global__ void past(float* x, int n) {{ if (threadIdx.x < n) x[{index}] = 1; }}"
    program = load(tmp_path, runs(kernel, """
  static float* before = nullptr; static float* d = nullptr;
  if (!d) { cudaMalloc(&before, 4096); cudaMalloc(&d, 400); }
  past<<<1, 64>>>(d, n);"""))  # fmt: skip
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            program(OUT, None, OUT.clone(), 61 if "40" in index else 16)
        told = f"simulator: kernel past writes out of bounds: {where} of device memory that has 400 bytes"
        assert told in str(caught.value)
    program(OUT, None, OUT.clone(), 0)
