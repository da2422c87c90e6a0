"""A function that no header has is told by name, with the nearest real ones; a correct program is never refused."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from stitchcuda.tools.build import libraries, nvcc
from stitchcuda.tools.build.api_names import unknown_calls
from stitchcuda.tools.device import toolkit
from stitchcuda.verify.program.builder_worker import BuilderWorker
from tests.verify import programs

ARCH = "sm_90a"
NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
INTEGRITY = Path(__file__).resolve().parents[2] / "integrity"
MADE_UP = """
#include <cuda_runtime.h>
__constant__ float factors[32];
extern "C" int upload(const float* from, cudaStream_t stream) {
  return static_cast<int>(cudaMemcpyAsyncToSymbol(factors, from, sizeof factors, 0, cudaMemcpyDeviceToDevice, stream));
}
"""
SAID = (
    "4: error: cudaMemcpyAsyncToSymbol is in no header of the CUDA runtime at hand; nearest: cudaMemcpyToSymbolAsync, "
    "cudaMemcpyToSymbol, "
)
RUNTIME = "cudaError_t cudaMalloc(void**, size_t);\ncudaError_t cudaFree(void*);\n"
LT = """
#include "cublas_api.h"
// cublasLtMatmulDescFoo() went long ago
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t type, cudaDataType_t);
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
static inline cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t made);
"""


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    """Those of a toolkit, as far as a few lines need them."""
    texts = {"cuda_runtime_api.h": RUNTIME, "cuda_runtime.h": "", "cublas_api.h": "", "cublasLt.h": LT}
    return programs.write(tmp_path / "cuda" / "include", texts)


def said(headers: Path, tmp_path: Path, *order: str, **files: str) -> str:
    """Of a program whose files are these; `_` in a name is its dot."""
    program = programs.write(tmp_path / "program", {name.replace("_", "."): text for name, text in files.items()})
    paths = sorted(program.iterdir())
    sources, own = [path for path in paths if path.suffix == ".cu"], [path for path in paths if path.suffix != ".cu"]
    return unknown_calls(sources, own, order=order, folders=(headers,), root=program, cache=tmp_path / "cache")


@NVCC
@pytest.mark.parametrize("link", [False, True])
def test_a_made_up_name_is_told_before_any_compiler_runs(tmp_path: Path, link: bool) -> None:
    program = programs.kernel_program(tmp_path / "program")
    programs.write(program, {"kernels/upload.cu": MADE_UP})
    built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=link)
    assert not built.ok
    assert built.log.startswith(f"kernels/upload.cu:{SAID}")
    assert built.log.splitlines()[1].strip().startswith("return static_cast<int>(cudaMemcpyAsyncToSymbol(")
    assert not (tmp_path / "cache" / "objects").exists()


@NVCC
def test_host_code_that_only_a_gpu_host_compiles_is_looked_at_everywhere(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    binding = program / "kernels" / "gate_binding.cc"
    binding.write_text(binding.read_text().replace("if (error)", "if (error || cudaGetLastErrors())"))
    built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert re.match(r"kernels/gate_binding\.cc:\d+: error: cudaGetLastErrors is in no header", built.log)
    assert "nearest: cudaGetLastError" in built.log


@NVCC
def test_an_inline_program_is_told_the_same(tmp_path: Path) -> None:
    builder = BuilderWorker("cuda", tmp_path / "cache", ARCH)
    order = {"style": "tvm", "name": "k", "sources": [], "inline": True, "cuda": [MADE_UP], "functions": []}
    answer = builder.build(order, programs.write(tmp_path / "program", {"model_new.py": ""}))
    assert answer["kind"] == "build"
    told = str(answer["error"])
    assert told.startswith("cuda.cu:")
    assert SAID.partition(": ")[2] in told


@NVCC
def test_a_driver_function_with_the_runtimes_prefix_is_found(tmp_path: Path) -> None:
    text = "#include <cuda.h>\nvoid f() { cuTensorMapEncodeTile(nullptr); }\n"
    program = programs.write(tmp_path / "program", {"k.cu": f"{text}int g() {{ return cudaTensorMapEncodeTiled(1); }}\n"})
    first, _, second, _ = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False).log.splitlines()
    assert first.startswith("k.cu:2: error: cuTensorMapEncodeTile is in no header of the CUDA driver at hand; nearest: cuT")
    assert "cudaTensorMapEncodeTiled is in no header of the CUDA runtime at hand; nearest: cuTensorMapEncodeTiled" in second


def test_a_librarys_name_is_looked_up_in_its_headers(headers: Path, tmp_path: Path) -> None:
    gemm = "#include <cublasLt.h>\nint f(void* d) {\n  return cublasLtMatmulDescFoo(d) + cublasLtMatmulDescInit(d);\n}\n"
    assert said(headers, tmp_path, gemm_cu=gemm) == (
        "gemm.cu:3: error: cublasLtMatmulDescFoo is in no header of cuBLASLt at hand; "
        "nearest: cublasLtMatmulDescInit, cublasLtMatmulDescCreate, cublasLtMatmulDescDestroy"
    )


def test_nothing_is_said_of_a_library_that_is_not_there(headers: Path, tmp_path: Path) -> None:
    """Whose header is missing is the compiler's to say, and `libraries.explained`'s."""
    convolve = "#include <cudnn.h>\nint f(void* d) { return cudnnMadeUp(d) + cudaMadeUp(d); }\n"
    assert said(headers, tmp_path, k_cu=convolve) == ""
    assert said(headers, tmp_path, k_cu=convolve.replace("#include <cudnn.h>\n", "")).count("error:") == 1


@NVCC
def test_a_missing_library_is_explained_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    nowhere = libraries.places(kit).model_copy(update={"variables": {}, "toolkit": (), "packages": (), "system": (tmp_path,)})
    monkeypatch.setattr(libraries, "places", lambda kit: nowhere)
    text = "#include <cutlass/nowhere.h>\nint f(void* d) { return cudaMadeUp(d); }\n"
    program = programs.write(tmp_path / "program", {"k.cu": text})
    built = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert built.log.startswith("CUTLASS is not on this machine")
    assert "is in no header" not in built.log


def test_a_header_that_cannot_be_seen_may_have_it(headers: Path, tmp_path: Path) -> None:
    call = "int f() { return cudaMadeUp(1); }\n"
    assert said(headers, tmp_path, k_cu=call)
    for include in ("<opencv2/core/cuda.hpp>", "<nccl.h>", '"helper_cuda.h"', "HEADER", "<../elsewhere/x.h>"):
        assert said(headers, tmp_path, k_cu=f"#include {include}\n{call}") == ""
    for include in ("<cuda_runtime.h>", "<cstdint>", "<vector>", "<math.h>", "<sys/mman.h>"):
        assert said(headers, tmp_path, k_cu=f"#include {include}\n{call}")


def test_names_of_everything_that_is_compiled_against_count(headers: Path, tmp_path: Path) -> None:
    """A function of torch's, of CCCL's or of an include folder that the program names."""
    call = "int f() { return cudaMadeUp(1); }\n"
    torch = programs.write(tmp_path / "torch", {"ATen/cuda/deep/inside.cuh": "int cudaMadeUp(int);\n"})
    assert said(headers, tmp_path, "-isystem", str(torch), k_cu=call) == ""
    (torch / "ATen/cuda/deep/inside.cuh").write_text("// int cudaMadeUp(int);\n")
    assert said(headers, tmp_path, "-isystem", str(torch), k_cu=call)
    programs.write(headers, {"cccl/cub/block.cuh": "int cudaMadeUp(int);\n"})
    assert said(headers, tmp_path, k_cu=call) == ""
    (headers / "cccl/cub/block.cuh").unlink()
    assert said(headers, tmp_path, f"-I{programs.write(tmp_path / 'more', {'x.h': 'int cudaMadeUp(int);'})}", k_cu=call) == ""
    assert said(headers, tmp_path, "-DcudaMadeUp=cudaFree", k_cu=call) == ""
    assert said(headers, tmp_path, k_cu=call)


def test_a_name_in_two_files_is_told_once_and_each_name_for_itself(headers: Path, tmp_path: Path) -> None:
    call = "int f() {\n  return cudaMadeUp(1);\n}\n"
    told = said(headers, tmp_path, a_cu=call, b_cu=f"{call}int g() {{ return cudaOther(2); }}\n")
    assert [line.split(" is in")[0] for line in told.splitlines()] == [
        "a.cu:2: error: cudaMadeUp", "b.cu:4: error: cudaOther",
    ]  # fmt: skip


def texts(program: Path) -> list[str]:
    """The sources of a program that is one Python file: its longer texts."""
    if program.is_dir():
        return [path.read_text() for path in sorted(program.rglob("*")) if path.suffix in (".cu", ".cc", ".cpp")]
    tree = ast.parse(program.read_text())
    found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in found if "(" in text and ";" in text]


@NVCC
@pytest.mark.parametrize("corpus", ["honest", "limited", "attacks"])
def test_no_program_of_the_corpora_is_refused(tmp_path: Path, corpus: str) -> None:
    """They all compile. Only names are looked at here, nothing is built."""
    kit = toolkit.find_toolkit()
    assert kit is not None
    folders = [path for path in (INTEGRITY / corpus).iterdir() if path.suffix == ".py" or (path / "model_new.py").is_file()]
    looked = 0
    for program in folders:
        written = programs.write(tmp_path / program.name, {f"{n}.cu": text for n, text in enumerate(texts(program))})
        sources = sorted(written.iterdir()) if written.is_dir() else []
        looked += any("cuda" in path.read_text() for path in sources)
        told = unknown_calls(sources, [], order=(), folders=kit.includes, root=written, cache=tmp_path / "cache")
        assert told == "", f"{program.name}: {told}"
    assert looked >= (1 if corpus == "limited" else len(folders) // 4)
