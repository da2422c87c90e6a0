"""What a chat model reads when it looks a name up: the real headers of this machine, and small ones where these have none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchcuda.tools.building import header_index, libraries
from stitchcuda.tools.building.header_docs import HIT_CHARS, LINES, documentation
from stitchcuda.tools.machine import toolkit

LT = """
/* A licence. */
#pragma once
#include "cublas_api.h"
#define CUBLASWINAPI
#define FOR_BOTH static __host__ __device__ inline
#if defined(__cplusplus)
extern "C" {
#endif

/** Execute matrix multiplication (D = alpha * op(A) * op(B) + beta * C).
 *
 * \\retval     CUBLAS_STATUS_INVALID_VALUE     if parameters are in conflict
 * \\retval     CUBLAS_STATUS_SUCCESS           if the operation completed successfully
 */
cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t lightHandle,
                                           const void* alpha, /* host or device pointer */
                                           const void* A,
                                           cudaStream_t stream);

/** Postprocessing options for the epilogue */
typedef enum {
  /** No special postprocessing, just scale and quantize results if necessary. */
  CUBLASLT_EPILOGUE_DEFAULT = 1,

  /** GELU and Bias, apply Bias and then GELU transform
   */
  CUBLASLT_EPILOGUE_GELU_BIAS = (CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_BIAS),
} cublasLtEpilogue_t;

/* Rows of a matrix */
FOR_BOTH int cublasLtRows(int count = 1);
#if defined(__cplusplus)
}
#endif
"""
API = """
typedef enum { CUBLAS_STATUS_SUCCESS = 0, /* all is well */ CUBLAS_STATUS_INVALID_VALUE = 7 } cublasStatus_t;
CUBLASAPI cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, int m);
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder))
        documentation("cudaMalloc")
    return folder


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The include folder of a toolkit of our own, with this machine's compiler."""
    kit = toolkit.find_toolkit()
    assert kit is not None
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\nexec {kit.nvcc} "$@"\n')
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    include = tmp_path / "cuda/include"
    (include / "cub").mkdir(parents=True)
    (tmp_path / "cuda/lib64").mkdir()
    for library in ("cublas", "cublasLt"):
        (tmp_path / f"cuda/lib64/lib{library}.so").touch()
    headers = {
        "cuda_runtime.h": "/** \\brief Says nothing */\nvoid cudaNothing(void);\n",
        "cublas_api.h": API,
        "cublasLt.h": LT,
        "cublas_v2.h": "#define cublasSgemm cublasSgemm_v2\n",
        "cublas.h": "void cublasSgemm(char transa);  // as it was before handles\n",
        "cub/version.cuh": "#define CUB_VERSION 1\n",
    }
    for name, text in headers.items():
        (include / name).write_text(text)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return include


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr(header_index, "_known", {})


def test_a_function_of_the_runtime() -> None:
    said = documentation("cudaMemcpyAsync")
    assert said.splitlines()[:7] == [
        "cudaMemcpyAsync (cuda_runtime_api.h)",
        "__host__ cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, "
        "cudaStream_t stream = 0);",
        "Copies data between host and device",
        "dst: Destination memory address",
        "src: Source memory address",
        "count: Size in bytes to copy",
        "kind: Type of transfer",
    ]
    assert "The memory areas may not overlap." in said
    assert "cudaMemcpy2D" not in said      # the list of relatives
    assert "\\" not in said
    assert "::" not in said


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ("cuTensorMapEncodeTiled", ["(cuda.h)", "CUtensorMapSwizzle swizzle", "elementStrides: Array containing"]),
        ("__shfl_xor_sync", ["(sm_30_intrinsics.h)", "__device__ float __shfl_xor_sync(unsigned mask, float var, int"]),
        ("__expf", ["(crt/device_functions.h)", "__device__ float __expf(float x);", "fast approximate base e exponential"]),
        ("rsqrtf", ["__device__ float rsqrtf(float x);", "- rsqrtf(± 0) returns ± infinity."]),
        ("atomicAdd", ["__device__ float atomicAdd(float *address, float val);", "double *address", "__half2 *const address"]),
        ("__float2half", ["(cuda_fp16.h)", "__half __float2half(const float a);", "round-to-nearest-even"]),
        ("make_float4", ["__host__ __device__ float4 make_float4(float x, float y, float z, float w);"]),
        ("threadIdx", ["uint3 threadIdx;", "(device_launch_parameters.h)"]),
        ("cudaMemcpyKind", ["enum cudaMemcpyKind", "  cudaMemcpyDeviceToHost = 2 - Device -> Host"]),
        ("cudaMemcpyDeviceToHost", ["a value of cudaMemcpyKind (driver_types.h)", "Device -> Host"]),
        ("cudaMemAttachGlobal", ["#define cudaMemAttachGlobal 0x01", "Memory can be accessed by any stream on any device"]),
        ("cudaError_t", ["typedef enum cudaError cudaError_t;", "cudaErrorInvalidValue, cudaErrorMemoryAllocation"]),
        ("multiProcessorCount", ["a field of cudaDeviceProp", "Number of multiprocessors on device"]),
        ("cudaStream_t", ["typedef struct CUstream_st *cudaStream_t;"]),
        ("cooperative_groups::this_thread_block", ["cooperative_groups.h", "__device__ thread_block this_thread_block();"]),
        ("cg::reduce", ["cooperative_groups::reduce (cooperative_groups/details/reduce.h)", "const TyGroup& group"]),
        ("wmma::load_matrix_sync", ["nvcuda::wmma::load_matrix_sync (crt/mma.h)", "const __half* p, unsigned ldm);"]),
        ("cub::BlockReduce", ["(cub/block/block_reduce.cuh)", "BLOCK_REDUCE_WARP_REDUCTIONS", "functions: Reduce, Sum"]),
        ("BlockReduce<float, 128>::Sum", ["BlockReduce"]),
        ("BlockReduce::Sum", ["__device__ T Sum(T input, int num_valid);", "BlockReduce(temp_storage).Sum(thread_data);"]),
        ("cp.async.bulk", ["cuda::ptx::cp_async_bulk", "uint64_t* smem_bar", "[dstMem], [srcMem], size, [smem_bar]; PTX"]),
        ("cp.async.bulk.commit_group.sync", ["cuda::ptx::cp_async_bulk_commit_group"]),
    ],
)
def test_names_of_every_kind(asked: str, parts: list[str]) -> None:
    said = documentation(asked)
    for part in parts:
        assert part in said
    assert all(len(hit) <= HIT_CHARS for hit in said.split("\n\n"))


def test_a_name_is_found_however_it_is_written() -> None:
    plain = documentation("cudaMalloc")
    assert "devPtr: Pointer to allocated device memory" in plain
    for written in ("  cudaMalloc() ", "::cudaMalloc", "&cudaMalloc", "cudaMalloc(&p, n * sizeof(float));", "cudamalloc"):
        assert documentation(written) == plain
    assert documentation("can you explain cudaMalloc politely") == plain


def test_words_list_names() -> None:
    lines = documentation("copies memory asynchronously").splitlines()
    assert "cuMemcpyAsync: Copies memory asynchronously (cuda.h)" in lines
    assert 1 < len(lines) <= LINES
    assert documentation("How do I convert a half to float").splitlines()[0].startswith("__float2half: ")
    assert all("cp_async_bulk" in line for line in documentation("cp.async").splitlines()[:2])


def test_nothing_is_one_sentence_with_the_nearest_names() -> None:
    assert documentation("cudaMemcpyAsnc") == (
        "nothing about 'cudaMemcpyAsnc' in the CUDA headers of this machine; "
        "nearest names: cudaMemcpyAsync, cudaMemcpy, cudaMemcpy2D"
    )
    assert documentation("  ") == "there was no question"


def test_a_librarys_headers_are_those_that_a_build_finds(small: Path) -> None:
    assert documentation("cublasLtMatmul") == (
        "cublasLtMatmul (cublasLt.h)\n"
        "cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, const void* alpha, /* host or device pointer */ "
        "const void* A, cudaStream_t stream);\n"
        "Execute matrix multiplication (D = alpha * op(A) * op(B) + beta * C).\n"
        "Returns: CUBLAS_STATUS_INVALID_VALUE: if parameters are in conflict; "
        "CUBLAS_STATUS_SUCCESS: if the operation completed successfully"
    )
    assert documentation("CUBLASLT_EPILOGUE_GELU_BIAS") == (
        "CUBLASLT_EPILOGUE_GELU_BIAS, a value of cublasLtEpilogue_t (cublasLt.h)\n"
        "CUBLASLT_EPILOGUE_GELU_BIAS = (CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_BIAS)\n"
        "GELU and Bias, apply Bias and then GELU transform"
    )
    assert documentation("gelu bias epilogue").startswith("CUBLASLT_EPILOGUE_GELU_BIAS: GELU and Bias, apply")
    assert "  CUBLAS_STATUS_SUCCESS = 0 - all is well" in documentation("cublasStatus_t")
    assert "__host__ __device__ int cublasLtRows(int count = 1);\nRows of a matrix" in documentation("cublasLtRows")
    assert documentation("cublasSgemm").startswith("cublasSgemm_v2 (cublas_api.h)\n")          # cublas.h is another library's


def test_a_library_that_is_not_there_is_missed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    here = libraries.places(kit)
    only = here.model_copy(update={"variables": {}, "toolkit": (small.parent,), "packages": (), "system": (small,)})
    monkeypatch.setattr(libraries, "places", lambda kit: only)
    said = documentation("cudnnCreate")
    assert said.startswith("nothing about 'cudnnCreate' in the CUDA headers of this machine; cuDNN is not on this machine (")
    assert "install it with: pip install" in said


def test_what_was_read_is_kept_until_a_header_changes(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_index, "_KEPT_S", 0.0)
    first = documentation("cublasLtMatmul")
    (kept,) = (small.parent.parent / "cache").glob("stitchcuda/header_docs/*.json")
    written = kept.stat().st_mtime_ns
    later(monkeypatch)
    assert documentation("cublasLtMatmul") == first
    assert kept.stat().st_mtime_ns == written

    (small / "cublasLt.h").write_text(LT.replace("Execute matrix multiplication", "Multiply"))
    assert documentation("cublasLtMatmul") == first            # a process reads once
    later(monkeypatch)
    assert "Multiply (D = alpha" in documentation("cublasLtMatmul")

    kept.write_text(kept.read_text().replace("Multiply", "Divide"))
    later(monkeypatch)
    assert "Multiply (D = alpha" in documentation("cublasLtMatmul")


def test_a_quick_look_leaves_nothing_in_the_cache(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_index, "_KEPT_S", 3600.0)
    documentation("cublasLtMatmul")
    assert not (small.parent.parent / "cache/stitchcuda/header_docs").exists()


def test_a_header_that_cannot_be_read_is_named(small: Path) -> None:
    (small / "cuda_broken.h").mkdir()
    assert documentation("nonsenseName").endswith("; could not read cuda_broken.h")


def test_a_user_without_a_cache_is_answered(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_index, "_KEPT_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert documentation("cudaNothing") == "cudaNothing (cuda_runtime.h)\nvoid cudaNothing(void);\nSays nothing"


def test_without_a_toolkit_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = documentation("cudaMalloc")
    assert said == toolkit.missing()
    assert said.startswith("no CUDA toolkit (")


PIECES = [
    "cuda", "Memcpy", "::", ".", "<", ">", "(", ")", " ", "_", "*", "&", "cublasLt", "~", "\\", "[", "{", "\n", "\x00",
    "\ud800",
]  # fmt: skip


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=8).map("".join)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_answered(small: Path, query: str) -> None:
    said = documentation(query)
    assert said.strip()
    assert len(said) <= 4 * HIT_CHARS
    said.encode()
