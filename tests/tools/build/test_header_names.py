"""Names of headers: read once, kept until a file changes, and what the nearest of them are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stitchcuda.sandbox import digest_seal
from stitchcuda.tools.build import header_names
from stitchcuda.tools.build.nearest_names import nearest
from stitchcuda.tools.device import toolkit
from tests.verify import programs

NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
HEADER = """
/* cudaOnlyInAComment(1) */ // cudaGone(2)
typedef void (*cudaCallback_t)(void*);
#define cuMemAlloc cuMemAlloc_v2
CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* p, size_t n);
extern __host__ cudaError_t CUDARTAPI cudaMalloc(void** p, size_t n);
const char* text = "cudaInAString(3) /*"; cudaError_t cudaFree(void*);
"""


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_names, "_known", {})


def read(folder: Path, cache: Path, *, deep: bool = False) -> header_names.Names:
    """As another process would, which remembers nothing."""
    header_names._known.clear()
    return header_names.of(folder, cache, deep=deep)


def test_code_counts_and_comments_do_not(tmp_path: Path) -> None:
    names = read(programs.write(tmp_path / "include", {"cuda.h": HEADER}), tmp_path / "cache")
    assert names.every == {"cudaCallback_t", "cuMemAlloc", "cuMemAlloc_v2", "cudaError_t", "cudaMalloc", "cudaFree"}
    assert names.functions == {"cuMemAlloc", "cudaMalloc", "cudaFree"}


def test_only_what_is_asked_for_is_read_below(tmp_path: Path) -> None:
    folder = programs.write(tmp_path / "include", {"cuda.h": "int cuA();", "crt/deep/x.h": "int cuB();"})
    (folder / "crt" / "round").symlink_to(folder)
    assert read(folder, tmp_path / "cache").every == {"cuA"}
    assert read(folder, tmp_path / "cache", deep=True).every == {"cuA", "cuB"}


def test_names_are_kept_until_a_header_changes(tmp_path: Path) -> None:
    folder, cache = programs.write(tmp_path / "include", {"cuda.h": "int cuA();"}), tmp_path / "cache"
    assert read(folder, cache).every == {"cuA"}
    before = (folder / "cuda.h").stat()
    (folder / "cuda.h").write_text("int cuB();")
    os.utime(folder / "cuda.h", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(folder, cache).every == {"cuA"}        # told by size and time: it was not read again
    os.utime(folder / "cuda.h", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert read(folder, cache).every == {"cuB"}
    programs.write(folder, {"cudaGL.h": "int cuC();"})
    assert read(folder, cache).every == {"cuB", "cuC"}
    assert header_names.of(folder, cache, deep=False).every == {"cuB", "cuC"}


@pytest.mark.parametrize("damage", [b"", b"{", b'{"state": 1}', b'{"state": "", "every": ["cuX"], "functions": []}'])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: bytes) -> None:
    folder, cache = programs.write(tmp_path / "include", {"cuda.h": "int cuA();"}), tmp_path / "cache"
    read(folder, cache)
    (kept,) = (cache / "api_names").glob("*.json")
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    assert read(folder, cache).every == {"cuA"}
    assert kept.read_bytes() == whole
    (kept.with_name(f"{kept.name}.sha256")).unlink()
    assert read(folder, cache).every == {"cuA"}
    digest_seal.notes()


def test_a_cache_that_takes_nothing_is_no_obstacle(tmp_path: Path) -> None:
    folder = programs.write(tmp_path / "include", {"cuda.h": "int cuA();"})
    (tmp_path / "cache").write_text("no folder")
    assert read(folder, tmp_path / "cache").every == {"cuA"}


@NVCC
def test_this_machines_toolkit(tmp_path: Path) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    names = read(kit.includes[0], tmp_path / "cache")
    known = {
        "cudaMalloc", "cudaGetParameterBuffer", "cuMemAlloc_v2", "cuStreamBeginCapture_v2", "cuTensorMapEncodeTiled",
        "cudaGetDeviceProperties", "cudaMemcpyToSymbolAsync", "cuComplexFloatToDouble", "cudaLaunchKernelEx",
    }  # fmt: skip
    assert known <= names.every
    assert names.lacking({*known, "cudaStreamBeginCapture_ptsz", "cuMemcpyHtoD_v2_ptds"}) == set()
    assert names.lacking({"cudaMemcpyAsyncToSymbol", "cudaHostFree", "cudaMemFreeAsync", "cudaMadeUp_ptsz"}) == {
        "cudaMemcpyAsyncToSymbol", "cudaHostFree", "cudaMemFreeAsync", "cudaMadeUp_ptsz",
    }  # fmt: skip
    assert {"cudaMalloc", "cuMemAlloc", "cudaMemcpyToSymbolAsync", "cuTensorMapEncodeTiled"} <= names.functions
    assert not {"cuMemAlloc_v2", "cudaError_t", "cudaMemcpyAsyncToSymbol"} & names.functions


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
def test_made_up_names_of_cuda_lead_to_real_ones(wanted: str, real: str, tmp_path: Path) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    names = header_names.of(kit.includes[0], tmp_path.parent / "cache", deep=False)
    assert wanted not in names.every
    assert real in nearest(wanted, names.functions)


def test_what_is_far_from_everything_has_no_nearest() -> None:
    assert nearest("cudaWarpReduceSum", (*CUBLAS, *CUDNN)) == ()
