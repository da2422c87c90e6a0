"""A name that no header has is told with the nearest real ones, once a compiler has refused it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stitchcuda.tools.build import libraries, nvcc
from stitchcuda.tools.build.nearest_names import nearest, with_nearest
from stitchcuda.tools.device import toolkit
from stitchcuda.verify.messages.build_orders import BuildOrder
from stitchcuda.verify.program.builder_worker import BuilderWorker
from tests.verify import programs

ARCH = "sm_90a"
NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
MADE_UP = """
#include <cuda_runtime.h>
__constant__ float factors[32];
extern "C" int upload(const float* from, cudaStream_t stream) {
  return static_cast<int>(cudaMemcpyAsyncToSymbol(factors, from, sizeof factors, 0, cudaMemcpyDeviceToDevice, stream));
}
"""
SAID = 'error: identifier "cudaMemcpyAsyncToSymbol" is undefined; nearest: cudaMemcpyToSymbolAsync, cudaMemcpyToSymbol, '
HEADER = """
/* cudaOnlyInAComment(1) */ // cudaGone(2)
#define cuMemAlloc cuMemAlloc_v2
CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* p, size_t n);
const char* text = "cudaInAString(3) /*"; cudaError_t cudaFree(void*);
struct cudaFacts { int clockRate; };
"""


def undefined(name: str) -> str:
    return f'k.cu(1): error: identifier "{name}" is undefined'


@NVCC
def test_a_made_up_name_is_told_with_the_line_and_the_nearest(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"kernels/upload.cu": MADE_UP})
    for link in (False, True, True):
        built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=link)
        assert not built.ok
        assert built.log.startswith(f"kernels/upload.cu(4): {SAID}")
        assert built.log.splitlines()[1].strip().startswith("return static_cast<int>(cudaMemcpyAsyncToSymbol(")


@NVCC
def test_a_binding_is_told_by_its_own_compiler(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    binding = program / "kernels" / "gate_binding.cc"
    binding.write_text(binding.read_text().replace("if (error)", "if (error || cudaGetLastErrors())"))
    built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=True)
    said = r"kernels/gate_binding\.cc:\d+:\d+: error: .cudaGetLastErrors. was not declared .*; nearest: cudaGetLastError, "
    assert re.match(said, built.log)


@NVCC
def test_an_inline_program_is_told_the_same(tmp_path: Path) -> None:
    builder = BuilderWorker("cuda", tmp_path / "cache", ARCH)
    order = BuildOrder(style="tvm", name="k", inline=True, cuda=(MADE_UP,), functions=())
    answer = builder.build(order, programs.write(tmp_path / "program", {"model_new.py": ""}))
    assert answer.kind == "build"
    assert SAID in answer.failure


@NVCC
def test_members_and_constants_are_told_too(tmp_path: Path) -> None:
    text = """
    #include <cuda.h>
    #include <mma.h>
    int f(cudaDeviceProp p) { return p.sharedMemPerBlockOption + CU_TENSOR_MAP_SWIZZLE_128; }
    __global__ void k(float* x) { nvcuda::wmma::fill_frag(x); *x = __shfl_down_syncs(1, *x, 1) + skale; }
    """
    program = programs.write(tmp_path / "program", {"k.cu": text})
    log = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False).log
    said = [line for line in log.splitlines() if "error:" in line]
    assert [re.sub(r".*; nearest: |,.*", "", line) for line in said if "nearest" in line] == [
        "sharedMemPerBlockOptin", "CU_TENSOR_MAP_SWIZZLE_128B", "fill_fragment", "__shfl_down_sync",
    ]  # fmt: skip
    assert said[-1].endswith('identifier "skale" is undefined')


@NVCC
def test_a_missing_library_is_explained_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    nowhere = libraries.places(kit).model_copy(update={"variables": {}, "toolkit": (), "packages": (), "system": (tmp_path,)})
    monkeypatch.setattr(libraries, "places", lambda kit: nowhere)
    program = programs.write(tmp_path / "program", {"k.cu": "#include <cutlass/nowhere.h>\n"})
    built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert built.log.startswith("CUTLASS is not on this machine")


def test_names_in_comments_and_strings_are_none(tmp_path: Path) -> None:
    folders = [programs.write(tmp_path / "include", {"cuda.h": HEADER, "crt/x.h": "int cudaBelow();"}), tmp_path / "none"]
    for name, near in (
        ("cudaFreed", "cudaFree"), ("cudaBelows", "cudaBelow"), ("cuMemAllocs", "cuMemAlloc"), ("cudaGones", ""), ("freed", ""),
        ("cudaFree", ""),
    ):  # fmt: skip
        assert with_nearest(undefined(name), folders) == undefined(name) + (f"; nearest: {near}" if near else "")


@pytest.mark.parametrize(
    ("said", "near"),
    [
        ("error: ‘cudaFreed’ was not declared in this scope; did you mean ‘cudaFree’?", "cudaFree"),
        ("error: 'cudaErrors_t' does not name a type", "cudaError_t"),
        ("error: ‘struct cudaFacts’ has no member named ‘clockRates’", "clockRate"),
        ('error: class "cudaFacts" has no member "clockRates"', "clockRate"),
        ('error: class "Facts" has no member "clockRates"', ""),
        ("warning: 'cudaFreed' was not declared", ""),
    ],
)
def test_what_either_compiler_says_is_understood(tmp_path: Path, said: str, near: str) -> None:
    folder = programs.write(tmp_path / "include", {"cuda.h": HEADER})
    assert with_nearest(f"a.cc:1:2: {said}\n  text\n", [folder]) == f"a.cc:1:2: {said}{near and f'; nearest: {near}'}\n  text\n"


CUBLAS = (
    "cublasCreate", "cublasDestroy", "cublasLtCreate", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic", "cublasGemmEx",
    "cublasLtMatmulAlgoGetIds", "cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy", "cublasLtMatmulDescGetAttribute",
    "cublasLtMatmulDescInit", "cublasLtMatmulDescSetAttribute", "cublasLtMatmulPreferenceCreate", "cublasGemmBatchedEx",
    "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutSetAttribute", "cublasSgemm",
    "cublasGemmStridedBatchedEx", "cublasCgemm", "cublasDgemm", "cublasZgemm", "cublasHgemm", "cublasSgemmStridedBatched",
    "cublasDgemmStridedBatched", "cublasCgemmStridedBatched", "cublasSetMathMode", "cublasSetStream", "cublasSetWorkspace",
    "cublasGetStatusString", "cublasGetStatusName", "cublasGetProperty", "cudaGetErrorString", "cuGetErrorString",
)  # fmt: skip
CUDNN = (
    "cudnnSetTensorNdDescriptor", "cudnnSetTensorNdDescriptorEx", "cudnnSetTensor4dDescriptor", "cudnnCreateTensorDescriptor",
    "cudnnSetConvolution2dDescriptor", "cudnnSetConvolutionNdDescriptor", "cudnnSetConvolutionMathType", "cudnnRNNBackwardData",
    "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardBias", "cudnnRNNForward",
    "cudnnConvolutionForward",
    "cudnnGetConvolutionForwardWorkspaceSize", "cudnnGetConvolutionForwardAlgorithm_v7", "cudnnFindConvolutionForwardAlgorithm",
    "cudnnBatchNormalizationForwardInference", "cudnnBatchNormalizationForwardTraining", "cudnnBatchNormalizationBackward",
    "cudnnNormalizationForwardInference", "cudnnSoftmaxForward", "cudnnPoolingForward", "cudnnMultiHeadAttnForward",
)  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "real"),
    [
        ("cublasGemmExStridedBatched", "cublasGemmStridedBatchedEx"), ("cublasLtMatmulDescFoo", "cublasLtMatmulDescInit"),
        ("cublasLtMatmulDescriptorCreate", "cublasLtMatmulDescCreate"), ("cublasGetErrorString", "cublasGetStatusString"),
        ("cublasLtMatmulGetHeuristic", "cublasLtMatmulAlgoGetHeuristic"), ("cublasMatmul", "cublasLtMatmul"),
        ("cublasSgemmBatchedStrided", "cublasSgemmStridedBatched"), ("cublasCreateHandle", "cublasCreate"),
        ("cublasLtMatmulPreferenceSetAttr", "cublasLtMatmulPreferenceSetAttribute"), ("cublasBgemm", "cublasSgemm"),
        ("cudnnSetTensorNdDescriptorv2", "cudnnSetTensorNdDescriptor"),
        ("cudnnSetTensorDescriptor", "cudnnSetTensor4dDescriptor"),
        ("cudnnConvolutionForwardBias", "cudnnConvolutionBiasActivationForward"), ("cudnnSoftmax", "cudnnSoftmaxForward"),
        ("cudnnGetConvolutionForwardAlgorithm", "cudnnGetConvolutionForwardAlgorithm_v7"),
        ("cudnnBatchNormForwardInference", "cudnnBatchNormalizationForwardInference"),
        ("cudnnMultiHeadAttentionForward", "cudnnMultiHeadAttnForward"),
    ],
)  # fmt: skip
def test_made_up_names_of_libraries_lead_to_real_ones(wanted: str, real: str) -> None:
    near = nearest(wanted, (*CUBLAS, *CUDNN))
    assert real in near
    assert len(near) <= 3


@NVCC
@pytest.mark.parametrize(
    ("wanted", "real"),
    [
        ("cudaMemcpyAsyncToSymbol", "cudaMemcpyToSymbolAsync"),
        ("cudaGraphAddKernelNodeParams", "cudaGraphKernelNodeGetParams"),
        ("cudaHostFree", "cudaFreeHost"), ("cudaMemFree", "cudaFree"), ("cudaMemAlloc", "cuMemAlloc"),
        ("cudaEnablePeerAccess", "cudaDeviceEnablePeerAccess"), ("cudaDeviceGetProperties", "cudaGetDeviceProperties"),
        ("cudaTensorMapEncodeTiled", "cuTensorMapEncodeTiled"), ("cudaStreamCaptureBegin", "cudaStreamBeginCapture"),
        ("cudaGraphExecSetKernelNodeParams", "cudaGraphExecKernelNodeSetParams"), ("cudaDeviceSync", "cudaDeviceSynchronize"),
        ("cudaOccupancyMaxActiveBlocksPerSM", "cudaOccupancyMaxActiveBlocksPerMultiprocessor"),
        ("cudaMemcpyHtoDAsync", "cuMemcpyHtoDAsync"), ("cudaLaunchKernelCooperative", "cudaLaunchCooperativeKernel"),
        ("cudaSetLimit", "cudaDeviceSetLimit"), ("cudaModuleLoadData", "cuModuleLoadData"),
        ("cuGetFunction", "cuModuleGetFunction"),
        ("cudaResetPersistingL2Cache", "cudaCtxResetPersistingL2Cache"), ("cudaMemPrefetch", "cudaMemPrefetchAsync"),
    ],
)  # fmt: skip
def test_made_up_names_of_cuda_lead_to_real_ones(wanted: str, real: str) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    assert real in with_nearest(undefined(wanted), kit.includes).partition("; nearest: ")[2].split(", ")


def test_what_is_far_from_everything_has_no_nearest() -> None:
    assert nearest("cudaWarpReduceSum", (*CUBLAS, *CUDNN)) == ()
