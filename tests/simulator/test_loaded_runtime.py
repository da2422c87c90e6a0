"""What host code touches of the simulated device's memory is counted; what a device does there is not; settings hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.simulator.build import build_simulated, runtime_library
from stitchcuda.simulator.torch_extension import torch_memory
from tests.simulator.programs import CACHE, HOME

KERNEL = r"""
#include <cuda_runtime.h>
#include <algorithm>
__global__ void order(int* seen, int* next) { seen[blockIdx.x] = atomicAdd(next, 1); }
extern "C" void run(int* seen, int* next, int blocks) { order<<<blocks, 1>>>(seen, next); }
__global__ void turn(float* x) { x[threadIdx.x] = -x[threadIdx.x]; }
__global__ void same(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" int turns(float* x, float* y) {
  try { same<<<1, 4>>>(x, y); turn<<<1, 4>>>(x); } catch (...) { return 1; }
  return 0;
}
extern "C" int host_sum(const int* x, int n) { int sum = 0; for (int i = 0; i < n; i++) sum += x[i]; return sum; }
extern "C" int copied(const int* x, int n) {
  int* host; int first;
  cudaMallocHost(&host, n * 4);
  cudaMemcpy(host, x, n * 4, cudaMemcpyDefault);
  cudaMemcpy(&first, host, 4, cudaMemcpyDefault);
  cudaFreeHost(host);
  return first + (cudaFreeHost(&first) == cudaErrorInvalidValue ? 0 : 1000);
}
__constant__ int table[1000];
__device__ int other[1000];
__global__ void add_table(int* y) { y[threadIdx.x] += table[999 - threadIdx.x]; }
extern "C" void by_symbol(int* x) {
  void* address;
  cudaMemcpyToSymbolAsync(table, x, sizeof table, 0, cudaMemcpyDeviceToDevice, nullptr);
  cudaGetSymbolAddress(&address, other);
  cudaMemcpyAsync(address, x, sizeof other, cudaMemcpyDeviceToDevice, nullptr);
  add_table<<<1, 1000>>>((int*)address);
  cudaMemcpyFromSymbolAsync(x, other, 4 * 500, 4 * 500, cudaMemcpyDeviceToDevice, nullptr);
}
extern "C" int from_symbol(int* x) {
  int host[1000];
  cudaMemcpyToSymbol(table, x, sizeof table, 0, cudaMemcpyDeviceToDevice);
  cudaMemcpyFromSymbol(host, table, sizeof host);
  cudaMemcpyToSymbol(table, host, sizeof host);
  return host[999];
}
int plain[1000];
extern "C" int host_symbol(int* x, int bytes) {
  int onstack[1000];
  if (cudaMemcpyToSymbol((const void*)onstack, x, bytes, 0, cudaMemcpyDeviceToDevice) != cudaErrorInvalidSymbol) return -2;
  cudaMemcpyToSymbol(table, x, bytes, 0, cudaMemcpyDeviceToDevice);
  cudaMemcpyToSymbol((const void*)plain, x, bytes, 0, cudaMemcpyDeviceToDevice);
  int most = -1;
  for (int i = 0; i < 1000; i++) most = std::max(most, std::max(table[i], plain[i]));
  for (int i = 0; i < 1000; i++) plain[i] = table[i] = 7;
  cudaMemcpyFromSymbol(x + 1000, (const void*)plain, bytes, 0, cudaMemcpyDeviceToDevice);
  return most;
}
static const int squares[] = {0, 1, 4, 9};
extern "C" int constants() {
  int host[4];
  void* address;
  cudaGetSymbolAddress(&address, squares);
  return cudaMemcpyFromSymbol(host, squares, sizeof host) == cudaSuccess ? host[3] + ((const int*)address)[2] : -1;
}
"""
START = """
import copy, ctypes, os, sys
from pathlib import Path
import numpy as np
import torch
from stitchcuda.simulator import loaded_runtime as runtime
from stitchcuda.verify.program import simulated_device
from stitchcuda.verify.program.simulated_graph import SimulatedGraph
from stitchcuda.verify.integrity.byte_traffic import ByteTraffic
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder, mark, note
library, memory, module = map(Path, sys.argv[1:])
runtime.start(library, memory, {"SCHEDULE": "random:7", "CHECK": "1"})
kernels = ctypes.CDLL(str(module))
simulated_device.install()

def touched(call):
    before, witness = runtime.host_bytes(), DispatchRecorder()
    with torch.no_grad(), witness, simulated_device.SimulatedDevice(), ByteTraffic():
        runtime.count_host_access(True)
        try:
            call()
        finally:
            runtime.count_host_access(False)
    assert witness.reasons == [], witness.reasons
    return runtime.host_bytes() - before + witness.total("read")

x = torch.arange(10_000, dtype=torch.int32)
"""


def done(program: str, tmp_path: Path) -> str:
    (tmp_path / "order.cu").write_text(KERNEL)
    module = build_simulated([tmp_path / "order.cu"], name="order", cache=CACHE, home=HOME)
    ran = subprocess.run(
        [sys.executable, "-c", START + program, str(runtime_library(CACHE, HOME)), str(torch_memory(CACHE, HOME)), str(module)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    ways = {
        "numpy": "np.asarray(x).sum()",
        "numpy()": "x.numpy().sum()",
        "dlpack": "np.from_dlpack(x).sum()",
        "tolist": "x.tolist()",
        "items": "[float(x[i]) for i in range(100)] + [bool(one) for one in x[:100]]",
        "cpu": "x.cpu()",
        "to": "x.to('cpu')",
        "ctypes": "ctypes.string_at(x.data_ptr(), 40_000)",
        "array": "torch.from_numpy(np.zeros(10_000, dtype=np.int32)).copy_(x)",
        "native": "kernels.host_sum(ctypes.c_void_p(x.data_ptr()), 10_000)",
        "pinned": "kernels.copied(ctypes.c_void_p(x.data_ptr()), 10_000)",
        "writing": "x.numpy().fill(3)",
        "operators": "(x.float().relu() @ torch.ones(10_000)).reshape(1).to('cuda:0').add_(1)",
        "constants": "torch.tensor([1.0, 2.0]).to('cuda').mul(2.0)",
        "deepcopy": "copy.deepcopy(x.float())",
        "kernel": "kernels.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(x[-1:].data_ptr()), 64)",
        "own": "runtime.allow_host_access(); x.numpy().sum(); runtime.end_host_access()",
    }
    calls = "".join(f"print({name!r}, touched(lambda: [{call.replace('; ', ', ')}]))\n" for name, call in ways.items())
    said = done(calls, tmp_path_factory.mktemp("counts"))
    return {line.split()[0]: int(line.split()[1]) for line in said.splitlines()}


@pytest.mark.parametrize("way", ["numpy", "numpy()", "dlpack", "tolist", "cpu", "to", "ctypes", "array", "native", "writing"])
def test_all_of_a_tensor(way: str, counts: dict[str, int]) -> None:
    assert counts[way] == 40_000


def test_parts(counts: dict[str, int]) -> None:
    assert counts["items"] == 800
    assert counts["pinned"] == 4, "what is copied to pinned memory counts when the host reads it"


@pytest.mark.parametrize("way", ["operators", "constants", "deepcopy", "kernel", "own"])
def test_what_a_device_does_is_not_counted(way: str, counts: dict[str, int]) -> None:
    assert counts[way] == 0


def test_variables_of_the_device(tmp_path: Path) -> None:
    """What the API copies between them and device memory is no host's work; host code finds no values in them."""
    program = """
pointer = ctypes.c_void_p(x.data_ptr())
print(touched(lambda: kernels.by_symbol(pointer)), x[:501].tolist() == 500 * [999] + [500])
x.copy_(torch.arange(10_000))
print(touched(lambda: print(kernels.from_symbol(pointer))))
print(touched(lambda: print(kernels.host_symbol(pointer, 4000))), x[1000:2000].equal(x[:1000]))
print(kernels.host_symbol(pointer, 4000), kernels.constants())
"""
    assert done(program, tmp_path).splitlines() == ["0 True", "999", "4000", "-1", "0 True", "999 13"]


def test_settings_hold_whatever_the_environment_says_later(tmp_path: Path) -> None:
    program = """
assert not [name for name in os.environ if name.startswith("STITCHCUDA_SIM_")]
os.environ["STITCHCUDA_SIM_SCHEDULE"] = "forward"
os.environ["STITCHCUDA_SIM_THREADS"] = "1"
seen, count = torch.zeros(1000, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
kernels.run(ctypes.c_void_p(seen.data_ptr()), ctypes.c_void_p(count.data_ptr()), 1000)
print(bool((seen.diff() == 1).all()))
"""
    assert done(program, tmp_path) == "False"


def test_a_crash_elsewhere_is_a_crash(tmp_path: Path) -> None:
    program = """
import faulthandler
faulthandler.enable()
pid = os.fork()
if pid == 0:
    touched(lambda: ctypes.string_at(8, 8))
    os._exit(0)
print(os.WTERMSIG(os.waitpid(pid, 0)[1]))
"""
    assert done(program, tmp_path) == "11"


def test_memory_is_used_again_and_given_back(tmp_path: Path) -> None:
    program = """
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
for round in range(20):
    held = [torch.full((1 << 18,), 1.0) for _ in range(8)]
held = torch.full((48 << 18,), 1.0)
held = None
print(resident() - before < 40 << 20, hex(torch.empty(4).data_ptr())[:6])
"""
    assert done(program, tmp_path) == "True 0x2000"


def test_kernels_get_a_copy_of_what_is_the_hosts(tmp_path: Path) -> None:
    program = """
array = np.ones(8, dtype=np.float32)
layer = torch.nn.Linear(8, 1)
layer.weight.data = torch.from_numpy(array.reshape(1, 8))
simulated_device.move_to_device(layer)
with simulated_device.SimulatedDevice():
    moved = torch.from_numpy(array).to("cuda"), torch.from_numpy(array).cuda(), layer.weight
    kept = torch.from_numpy(array)
print([runtime.is_host_memory(one.data_ptr()) for one in (*moved, kept)])
"""
    assert done(program, tmp_path) == "[False, False, False, True]"


def test_a_second_copy_of_the_runtime_has_memory_of_its_own(tmp_path: Path) -> None:
    """A worker is a fork: its process may hold another copy of the runtime, whose memory takes the usual addresses."""
    program = """
import shutil, tempfile
held = torch.empty(4)
with tempfile.TemporaryDirectory() as folder:
    second = ctypes.CDLL(shutil.copy(runtime._library._name, Path(folder) / "second.so"))
second.stitchsim_allocate.restype = ctypes.c_void_p
place = second.stitchsim_allocate(ctypes.c_ulong(4096))
print(hex(held.data_ptr())[:6], hex(place)[:6], second.stitchsim_is_device(ctypes.c_void_p(place)))
"""
    assert done(program, tmp_path) == "0x2000 0x2100 1"


def test_a_launch_that_changes_protected_memory_is_refused(tmp_path: Path) -> None:
    program = """
x, y = torch.ones(4), torch.zeros(4)
at = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
runtime.protect([(y.data_ptr(), 0)])
unprotected = kernels.turns(*at)
runtime.protect([(x.data_ptr(), 16)])
print(unprotected, kernels.turns(*at), y.tolist(), runtime.take_failed_launch())
"""
    said = "kernel turn writes into an input or parameter that the reference leaves alone: write to memory of its own"
    assert done(program, tmp_path) == f"0 1 [-1.0, -1.0, -1.0, -1.0] {said}"
