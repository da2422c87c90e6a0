"""Facts from real machine code: nvcc compiles each kernel here, the disassembler reads what came out."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.tools.build import disassembly, nvcc, sass
from stitchcuda.tools.build.disassembly import Instruction, SassFunction
from stitchcuda.tools.build.sass import SassFacts
from stitchcuda.tools.device import toolkit
from tests.verify import programs

ARCH = "sm_90a"
KERNELS = r"""
#include <cuda_pipeline.h>
#include <mma.h>

extern "C" __global__ void wide(const float4* x, float4* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 v = x[i]; v.x += 1.f; v.y *= 2.f; v.z += 3.f; v.w *= 4.f; y[i] = v; }
}
extern "C" __global__ void narrow(const float* x, const unsigned char* mask, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && mask[i]) y[i] = x[i] + 1.f;
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y, int n) {
  float kept[96];
#pragma unroll
  for (int k = 0; k < 96; ++k) kept[k] = x[threadIdx.x + k * n];
#pragma unroll
  for (int k = 0; k < 96; ++k) y[threadIdx.x + k * n] = kept[95 - k] * kept[(k * 7) % 96] + kept[(k * 31) % 96];
}
extern "C" __global__ void indexed(const int* at, float* y) {
  float kept[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) kept[k] = k * y[k];
  for (int k = 0; k < 16; ++k) kept[at[k] & 15] += 1.f;
  y[threadIdx.x] = kept[at[threadIdx.x] & 15];
}
extern "C" __global__ void matrices(const half* a, const half* b, float* c) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.f);
  wmma::load_matrix_sync(x, a, 16);
  wmma::load_matrix_sync(y, b, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
extern "C" __global__ void warpgroup(unsigned long long a, unsigned long long b, float4* c) {
  float4 d = make_float4(0.f, 0.f, 0.f, 0.f);
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d.x), "+f"(d.y), "+f"(d.z), "+f"(d.w) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
  c[threadIdx.x] = d;
}
extern "C" __global__ void doubled(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * 0.1 + 0.3; }
extern "C" __global__ void reduced(const float* x, float* y) {
  __shared__ float tile[256];
  __pipeline_memcpy_async(reinterpret_cast<float4*>(tile) + threadIdx.x, reinterpret_cast<const float4*>(x) + threadIdx.x, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  atomicAdd(y, tile[255 - threadIdx.x]);
}
extern "C" __global__ void rolled(const float* x, float* y, int n) {
  float sum = 0.f;
#pragma unroll 1
  for (int k = 0; k < n; ++k) sum += x[threadIdx.x + k * 32];
  y[threadIdx.x] = sum;
}
extern "C" __global__ void unrolled(const float* x, float* y) {
  float sum = 0.f;
#pragma unroll 8
  for (int k = 0; k < 4096; ++k) sum += x[threadIdx.x + k * 32];
  y[threadIdx.x] = sum;
}
extern "C" __global__ void divided(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] / y[threadIdx.x]; }
"""

needs_both = pytest.mark.skipif(
    toolkit.find_toolkit() is None or not disassembly.find_tools("nvdisasm") or not disassembly.find_tools("cuobjdump"),
    reason="needs nvcc, nvdisasm and cuobjdump",
)


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sass")
    program = programs.write(folder / "program", {"kernels.cu": KERNELS})
    built = nvcc.build(program, arch=ARCH, cache=folder / "cache", link=False)
    assert built.ok, built.log
    (made,) = (folder / "cache").rglob("*.cubin")
    return made


@pytest.fixture(scope="module")
def kernels(cubin: Path) -> dict[str, SassFacts]:
    return {one.name: one for one in sass.facts(cubin)}


@needs_both
def test_the_width_of_each_access_is_told(kernels: dict[str, SassFacts]) -> None:
    assert (kernels["wide"].global_loads, kernels["wide"].global_stores) == ({128: 1}, {128: 1})
    assert "global loads 1 of 128 bits" in sass.summarize(kernels["wide"])
    assert "no 128-bit" not in sass.summarize(kernels["wide"])
    assert (kernels["narrow"].global_loads, kernels["narrow"].global_stores) == ({32: 1, 8: 1}, {32: 1})
    assert "no 128-bit loads: global loads 1 of 32 bits, 1 of 8 bits; no 128-bit stores" in sass.summarize(kernels["narrow"])


@needs_both
def test_spills_are_local_memory(kernels: dict[str, SassFacts]) -> None:
    assert kernels["spilling"].local_loads > 0
    assert kernels["spilling"].local_stores > 0
    assert "LOCAL MEMORY" in sass.summarize(kernels["spilling"])
    assert kernels["wide"].local_loads == 0
    assert "LOCAL" not in sass.summarize(kernels["wide"])


@needs_both
def test_local_memory_shows_where_ptxas_reports_no_spill(cubin: Path, kernels: dict[str, SassFacts], tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"kernels.cu": KERNELS})
    reported = nvcc.build(program, arch=ARCH, cache=cubin.parents[2], link=False).kernels
    assert {one.name: one.spill_bytes for one in reported}["indexed"] == 0
    assert kernels["indexed"].local_loads > 0


@needs_both
def test_tensor_cores_of_either_kind(kernels: dict[str, SassFacts]) -> None:
    assert set(kernels["matrices"].tensor) == {"HMMA"}
    assert set(kernels["warpgroup"].tensor) == {"HGMMA"}
    assert f"tensor cores: {kernels['matrices'].tensor['HMMA']} HMMA" in sass.summarize(kernels["matrices"])
    assert all(not kernels[name].tensor for name in ("wide", "narrow", "rolled", "divided"))


@needs_both
def test_doubles_that_crept_in(kernels: dict[str, SassFacts]) -> None:
    """A constant without its f makes the arithmetic double."""
    assert kernels["doubled"].fp64 >= 3
    assert f"{kernels['doubled'].fp64} FP64" in sass.summarize(kernels["doubled"])
    assert kernels["divided"].fp64 == 0


@needs_both
def test_shared_memory_barriers_atomics_and_copies(kernels: dict[str, SassFacts]) -> None:
    one = kernels["reduced"]
    assert one.async_copies == {128: 1}
    assert sum(one.shared_loads.values()) == 1
    assert one.barriers == 1
    assert one.global_atomics == 1
    assert one.shared_atomics == 0


@needs_both
def test_loops_show_whether_they_were_unrolled(kernels: dict[str, SassFacts]) -> None:
    (rolled,) = kernels["rolled"].loops
    (unrolled,) = kernels["unrolled"].loops
    assert (rolled.global_loads, rolled.arithmetic) == (1, 1)
    assert (unrolled.global_loads, unrolled.arithmetic) == (8, 8)
    assert unrolled.instructions > rolled.instructions
    assert "8 global loads" in sass.summarize(kernels["unrolled"])


@needs_both
def test_a_slow_path_is_named_and_is_no_loop(kernels: dict[str, SassFacts]) -> None:
    """It lies behind the kernel's end, and some of its jumps go back."""
    (name,) = kernels["divided"].subroutines
    assert name.startswith("div_rn")
    assert kernels["divided"].loops == ()


@needs_both
def test_names_are_those_of_the_compilers_report(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    (made,) = (tmp_path / "cache").rglob("*.cubin")
    assert [one.name for one in sass.facts(made)] == [one.name for one in built.kernels]


@pytest.mark.more
@needs_both
def test_a_library_tells_the_same_as_its_cubin(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    for link in (False, True):
        assert nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=link).ok
    (cubin,) = (tmp_path / "cache").rglob("*.cubin")
    (library,) = (tmp_path / "cache" / "libraries").rglob("*.so")
    assert sass.facts(library) == sass.facts(cubin)


@needs_both
def test_kernels_of_two_sources_are_told_from_one_library(tmp_path: Path) -> None:
    sources = {f"{name}.cu": f"__global__ void {name}(float* x) {{ x[0] = 1.f; }}" for name in ("one", "two")}
    program = programs.write(tmp_path / "program", sources)
    made = nvcc.library([program / name for name in sources], arch=ARCH, cache=tmp_path / "cache", root=program)
    assert made.path is not None, made.log
    assert sorted(one.name for one in sass.facts(made.path)) == ["one(float*)", "two(float*)"]


@needs_both
def test_two_sources_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    sources = {f"{name}/kernel.cu": f"__global__ void {name}(float* x) {{ x[0] = 1.f; }}" for name in ("one", "two")}
    program = programs.write(tmp_path / "program", sources)
    made = nvcc.library([program / name for name in sources], arch=ARCH, cache=tmp_path / "cache", root=program)
    assert made.path is not None, made.log
    with pytest.raises(BadInput, match="2 cubins of sources with 1 names"):
        sass.facts(made.path)


@needs_both
def test_a_library_without_device_code_has_no_kernels() -> None:
    library = next(Path("/usr/lib/x86_64-linux-gnu").glob("libstdc++.so.6*"), None)
    if library is None:
        pytest.skip("no library of the host to look at")
    assert sass.facts(library) == ()


def test_what_is_no_machine_code_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.cubin").write_text("nothing of the kind")
    with pytest.raises(BadInput, match=r"notes\.cubin is no cubin, object or library"):
        sass.facts(tmp_path / "notes.cubin")
    with pytest.raises(BadInput, match=r"cannot read .*nowhere\.cubin: No such file"):
        sass.facts(tmp_path / "nowhere.cubin")


@needs_both
def test_a_cubin_that_is_cut_short_is_said(cubin: Path, tmp_path: Path) -> None:
    (tmp_path / "half.cubin").write_bytes(cubin.read_bytes()[:3000])
    with pytest.raises(BadInput, match=r"half\.cubin cannot be read; nvdisasm says"):
        sass.facts(tmp_path / "half.cubin")


def test_without_a_disassembler_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some.so").write_bytes(b"\x7fELF")
    monkeypatch.setattr(disassembly, "find_tools", lambda name: [])
    with pytest.raises(Unavailable, match=r"no disassembler for some\.so.* pip install nvidia-cuda-nvdisasm"):
        sass.facts(tmp_path / "some.so")


def test_a_constant_loaded_by_the_tensor_pipe_is_no_tensor_core() -> None:
    """`HFMA2.MMA R2,-RZ,RZ,0,0` stands in nearly every kernel of Hopper."""
    code = [Instruction(0, "", "HFMA2.MMA", "R2,-RZ,RZ,0,0"), Instruction(16, "", "EXIT", "")]
    found = sass.facts_of(SassFunction("_Z4noopv", code))
    assert (found.name, found.tensor, found.packed) == ("noop()", {}, 0)
