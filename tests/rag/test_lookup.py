"""What a chat model reads when it looks a name up: the real headers of this machine, and small ones where these have none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchcuda.rag import index_store, lookup
from stitchcuda.rag.index import Docs
from stitchcuda.rag.lookup import DocsQuery
from stitchcuda.rag.sources import place_here
from stitchcuda.tools.device import toolkit

TOKENS = 1100


def documentation(query: str) -> str:
    return lookup.answer(query, TOKENS, words)


def words(text: str) -> int:
    return len(text) // 3


def test_a_function_of_the_runtime(asked: Docs) -> None:
    said = documentation("cudaMemcpyAsync").splitlines()
    assert said[0].startswith("[cudaMemcpyAsync (CUDA runtime 1")
    assert said[0].endswith(", cuda_runtime_api.h)]")
    assert said[1] == (
        "__host__ cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, "
        "cudaStream_t stream = 0);"
    )
    assert said[3] == "Copies data between host and device"
    assert [line.partition(":")[0] for line in said[4:9]] == ["dst", "src", "count", "kind", "stream"]
    text = "\n".join(said)
    assert "The memory areas may not overlap." in text
    assert "cudaMemcpy2D" not in text      # the list of relatives
    assert "\\" not in text
    assert "::" not in text


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("cuTensorMapEncodeTiled", [", cuda.h)]", "CUtensorMapSwizzle swizzle", "elementStrides: Array containing"]),
        ("__shfl_xor_sync", [", sm_30_intrinsics.h)]", "__device__ float __shfl_xor_sync(unsigned mask, float var, int"]),
        ("__expf", [", crt/device_functions.h)]", "__device__ float __expf(float x);", "fast approximate base e exponential"]),
        ("rsqrtf", ["__device__ float rsqrtf(float x);", "- rsqrtf(± 0) returns ± infinity."]),
        ("atomicAdd", ["__device__ float atomicAdd(float *address, float val);", "double *address"]),
        ("__float2half", [", cuda_fp16.h)]", "__half __float2half(const float a);", "round-to-nearest-even"]),
        ("make_float4", ["__host__ __device__ float4 make_float4(float x, float y, float z, float w);"]),
        ("threadIdx", ["uint3 threadIdx;", ", device_launch_parameters.h)]"]),
        ("cudaMemcpyKind", ["enum cudaMemcpyKind", "  cudaMemcpyDeviceToHost = 2 - Device -> Host"]),
        ("cudaMemcpyDeviceToHost", ["Value of cudaMemcpyKind", ", driver_types.h)]", "Device -> Host"]),
        ("cudaMemAttachGlobal", ["#define cudaMemAttachGlobal 0x01", "Memory can be accessed by any stream"]),
        ("cudaError_t", ["enum cudaError {...};", "  cudaErrorInvalidValue = 1", "  cudaErrorMemoryAllocation = 2"]),
        ("multiProcessorCount", ["[cudaDeviceProp (", "  int multiProcessorCount - Number of multiprocessors on device"]),
        ("cudaStream_t", ["typedef struct CUstream_st *cudaStream_t;"]),
        ("cooperative_groups::this_thread_block", ["cooperative_groups.h", "__device__ thread_block this_thread_block();"]),
        ("cg::reduce", ["[cooperative_groups::reduce (", "cooperative_groups/details/reduce.h", "const TyGroup& group"]),
        ("wmma::load_matrix_sync", ["[nvcuda::wmma::load_matrix_sync (", "crt/mma.h", "const __half* p, unsigned ldm);"]),
        ("cub::BlockReduce", [", cub/block/block_reduce.cuh)]", "class BlockReduce", "TempStorage"]),
        ("BlockReduce<float, 128>::Sum", ["[cub::BlockReduce::Sum ("]),
        ("BlockReduce::Sum", ["__device__ T Sum(T input, int num_valid);", "BlockReduce(temp_storage).Sum(thread_data);"]),
        ("cp.async.bulk", ["cuda::ptx::cp_async_bulk", "PTX ISA"]),
        ("cp.async.bulk.commit_group.sync", ["cuda::ptx::cp_async_bulk_commit_group"]),
    ],
)
def test_names_of_every_kind(asked: Docs, query: str, parts: list[str]) -> None:
    said = documentation(query)
    for part in parts:
        assert part in said
    assert words(said) <= TOKENS


def test_a_name_is_found_however_it_is_written(asked: Docs) -> None:
    plain = documentation("cudaMalloc")
    assert "devPtr: Pointer to allocated device memory" in plain
    for written in ("  cudaMalloc() ", "::cudaMalloc", "&cudaMalloc", "cudaMalloc(&p, n * sizeof(float));", "cudamalloc"):
        assert documentation(written) == plain
    assert documentation("can you explain cudaMalloc politely").startswith(plain.splitlines()[0])


def test_words_list_entries_and_further_ones(asked: Docs) -> None:
    said = documentation("wait for an event in a stream")
    assert "[cudaStreamWaitEvent (" in said
    assert "\n\nAlso: " in said


def test_a_name_that_does_not_exist_brings_the_nearest(asked: Docs) -> None:
    said = documentation("cudaMemcpyAsnc")
    assert said.startswith(
        "nothing is called 'cudaMemcpyAsnc' in the documentation of this machine; "
        "nearest names: cudaMemcpyAsync, cudaMemcpy, cudaMemcpy2D\n"
    )
    assert "[cudaMemcpyAsync (CUDA runtime" in said
    assert documentation("  ") == "there was no question"


def test_of_several_questions_each_brings_its_share(asked: Docs) -> None:
    queries = [DocsQuery("cublasLtMatmul returned 7", 3, error=True), DocsQuery("fewer launches", 1, ("playbook",))]
    found = lookup.search_all(queries)
    assert {"cublasLtMatmul", "CUBLAS_STATUS_INVALID_VALUE"} <= {chunk.title for chunk in found.chunks[:3]}
    assert {chunk.title for chunk in found.named} == {"cublasLtMatmul", "CUBLAS_STATUS_INVALID_VALUE"}
    assert found.chunks[3].library == "playbook"


def test_a_librarys_headers_are_those_that_a_build_finds(small: Path) -> None:
    assert documentation("cublasLtMatmul") == (
        "[cublasLtMatmul (cuBLASLt 12.8.4, cublasLt.h)]\n"
        "cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, const void* alpha, /* host or device pointer */ "
        "const void* A, cudaStream_t stream);\n"
        "Multiplies two small matrices of ours, and nothing else.\n"
        "Returns: CUBLAS_STATUS_INVALID_VALUE: when two shapes do not fit; "
        "CUBLAS_STATUS_SUCCESS: when all went well"
    )
    assert documentation("CUBLASLT_EPILOGUE_GELU_BIAS") == (
        "[CUBLASLT_EPILOGUE_GELU_BIAS (cuBLASLt 12.8.4, cublasLt.h)]\n"
        "CUBLASLT_EPILOGUE_GELU_BIAS = (CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_BIAS)\n"
        "First the bias is added, then comes GELU\n"
        "Value of cublasLtEpilogue_t: What happens behind a product"
    )
    assert documentation("gelu bias epilogue").startswith("[CUBLASLT_EPILOGUE_GELU_BIAS (")
    assert "  CUBLAS_STATUS_SUCCESS = 0 - all is well" in documentation("cublasStatus_t")
    assert "__host__ __device__ int cublasLtRows(int count = 1);\nRows of a matrix" in documentation("cublasLtRows")
    assert documentation("cublasSgemm").startswith("[cublasSgemm (cublasSgemm_v2) (cuBLAS 12.8.4, cublas_api.h)]\n")


def test_a_library_that_is_not_there_is_missed(small: Path) -> None:
    said = documentation("cudnnCreate")
    assert said.startswith("nothing is called 'cudnnCreate' in the documentation of this machine; cuDNN is not on this mach")
    assert "install it with: " in said


def test_the_first_question_makes_an_index_and_later_ones_use_it_as_it_is(small: Path) -> None:
    first = documentation("cublasLtRows")
    (small / "cublasLt.h").write_text((small / "cublasLt.h").read_text().replace("Rows of a matrix", "How many rows"))
    assert documentation("cublasLtRows") == first
    lookup.forget()                        # as in another process
    assert documentation("cublasLtRows") == first
    (note,) = lookup.of_this_machine().notes
    assert note == "documentation has changed since its index was made (`stitchcuda docs build` brings it up to date)"


def test_a_damaged_index_with_none_before_it_is_made_anew(small: Path) -> None:
    first = documentation("cublasLtRows")
    lookup.forget()                        # as in another process
    (index,) = index_store.indexes(place_here())
    (index / "chunks.db").write_bytes(b"")
    assert documentation("cublasLtRows") == first
    assert lookup.of_this_machine().notes == ()


def test_switched_off_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_DOCS", "off")
    lookup.forget()
    assert documentation("cudaMalloc") == (
        "documentation cannot be searched: documentation is switched off (STITCHCUDA_DOCS=off)"
    )
    assert lookup.search_all([DocsQuery("cudaMalloc", 3)]).chunks == ()
    lookup.forget()


def test_without_a_toolkit_only_the_playbook_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STITCHCUDA_DOCS", str(tmp_path / "docs"))
    lookup.forget()
    assert "nothing is called 'cudaMalloc' in the documentation of this machine; no CUDA toolkit" in documentation("cudaMalloc")
    assert "playbook:split-k" in documentation("split the k dimension of a product over blocks")
    lookup.forget()
    assert toolkit.missing().startswith("no CUDA toolkit (")


PIECES = [
    "cuda", "Memcpy", "::", ".", "<", ">", "(", ")", " ", "_", "*", "&", "cublasLt", "~", "\\", "[", "{", "\n", "\x00",
    "\ud800", "*/", '"', "'", "%", "status 7",
]  # fmt: skip


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=8).map("".join)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_answered(small: Path, query: str) -> None:
    said = documentation(query)
    assert said.strip()
    assert len(said) <= 5 * TOKENS
    said.encode()
    lookup.search_all([DocsQuery(query, 3, error=True)])
