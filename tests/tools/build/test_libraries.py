"""Libraries that a program includes: found where people and packages put them, linked by the name that is there."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from stitchcuda.sandbox import limits
from stitchcuda.tools.build import bindings, libraries, nvcc
from stitchcuda.tools.build.libraries import Places
from stitchcuda.tools.device import toolkit
from tests.verify import programs

NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
USER = """
#include <cublasLt.h>
__global__ void kernel(float* x) { *x = CUBLASLT_OF_A_TEST; }
extern "C" int asked() { return cublasLtOfATest(); }
"""


def tree(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {name}\n")
    return root


@pytest.fixture
def where(tmp_path: Path) -> Places:
    """A machine with nothing on it."""
    return Places(
        variables={},
        toolkit=(tmp_path / "cuda",),
        packages=(tmp_path / "site-packages",),
        system=(tmp_path / "usr",),
        version="13.0.88",
        included=(tmp_path / "cuda/include",),
    )


def test_the_toolkits_own_cublas_needs_only_its_name(tmp_path: Path, where: Places) -> None:
    tree(tmp_path / "cuda", "include/cublas_api.h", "include/cublasLt.h", "lib64/libcublasLt.so", "lib64/libcublas.so")
    found = libraries.find({"cublasLt.h", "cuda_fp16.h"}, where)
    assert found.names == ("cuBLAS",)
    assert found.includes == ()            # the compilers look there anyway
    assert found.link == (f"-L{tmp_path}/cuda/lib64", f"-Wl,-rpath,{tmp_path}/cuda/lib64", "-lcublasLt")
    assert libraries.find({"cublas_v2.h"}, where).link[-1] == "-lcublasLt"
    assert "-lcublas" in libraries.find({"cublas_v2.h"}, where).link


def test_a_wheel_has_versioned_names_only(tmp_path: Path, where: Places) -> None:
    wheel = tree(
        tmp_path / "site-packages/nvidia/cu13", "include/cublas_api.h", "lib/libcublasLt.so.13", "lib/libcublas.so.13",
    )  # fmt: skip
    found = libraries.find({"cublasLt.h"}, where, ldflags=("-lcublasLt", "-lm"))
    assert found.includes == (wheel / "include",)
    assert found.link == (f"-L{wheel}/lib", f"-Wl,-rpath,{wheel}/lib", "-l:libcublasLt.so.13")
    assert found.ldflags(("-lcublasLt", "-lm")) == ("-lm",)
    assert set(found.folders) == {wheel / "include", wheel / "lib"}


def test_the_highest_version_is_linked(tmp_path: Path, where: Places) -> None:
    tree(tmp_path / "usr", "include/cudnn_version.h", "lib64/libcudnn.so.9", "lib64/libcudnn.so.10", "lib64/libcudnn.so.9.1.0")
    assert libraries.find({"cudnn.h"}, where).link[-1] == "-l:libcudnn.so.10"


def test_another_major_versions_wheel_is_not_taken(tmp_path: Path, where: Places) -> None:
    tree(tmp_path / "site-packages/nvidia/cu14", "include/cublas_api.h", "lib/libcublasLt.so.14")
    assert "cuBLAS" in libraries.find({"cublasLt.h"}, where).missing


def test_cudnns_frontend_brings_cudnn_and_a_header_of_nvrtc(tmp_path: Path, where: Places) -> None:
    packages = tree(
        tmp_path / "site-packages", "include/cudnn_frontend.h", "include/cudnn_frontend_version.h",
        "nvidia/cudnn/include/cudnn_version.h", "nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cu13/include/nvrtc.h",
    )  # fmt: skip
    found = libraries.find({"cudnn_frontend.h"}, where)
    assert found.names == ("cuDNN", "cuDNN's frontend", "NVRTC")
    assert found.includes == (packages / "nvidia/cudnn/include", packages / "include", packages / "nvidia/cu13/include")
    assert [flag for flag in found.link if flag.startswith("-l")] == ["-l:libcudnn.so.9"]
    assert found.unlinked == {}


@pytest.mark.parametrize("place", ["variable", "wheel"])
def test_cutlass_is_headers_with_a_flag(place: str, tmp_path: Path, where: Places) -> None:
    root = tmp_path / ("mine" if place == "variable" else "site-packages/cutlass_library/source")
    tree(root, "include/cutlass/cutlass.h", "include/cutlass/version.h", "tools/util/include/cutlass/util/host_tensor.h")
    if place == "variable":
        tree(tmp_path / "site-packages/cutlass_library/source", "include/cutlass/cutlass.h", "include/cutlass/version.h")
        where = where.model_copy(update={"variables": {"CUTLASS_PATH": str(root)}})
    found = libraries.find({"cute/tensor.hpp"}, where)
    assert found.includes == (root / "include", root / "tools/util/include")
    assert (found.link, found.cuda_flags) == ((), ("--expt-relaxed-constexpr",))


def test_another_version_is_another_key(tmp_path: Path, where: Places) -> None:
    root = tree(tmp_path / "cuda", "include/cutlass/cutlass.h", "include/cutlass/version.h")
    first = libraries.find({"cutlass/gemm/gemm.h"}, where).version
    assert libraries.find({"cutlass/gemm/gemm.h"}, where).version == first
    (root / "include/cutlass/version.h").write_text("#define CUTLASS_MAJOR 5\n")
    assert libraries.find({"cutlass/gemm/gemm.h"}, where).version != first


def test_what_is_missing_is_one_sentence_before_the_compilers(where: Places) -> None:
    found = libraries.find({"cutlass/cutlass.h", "cublasLt.h"}, where)
    log = "gemm.cu:3:10: fatal error: cutlass/cutlass.h: No such file or directory"
    first, second = libraries.explain_missing(log, found, where).splitlines()
    assert first.startswith("CUTLASS is not on this machine (looked in the toolkit, Python's packages and ")
    assert first.endswith("pip install --no-deps nvidia-cutlass, or name its root in CUTLASS_PATH")
    assert second == log
    assert "pip install 'cuda-toolkit[cublas]==13.0.*'" in found.missing["cuBLAS"]
    assert libraries.explain_missing("gemm.cu(3): error: expected a ;", found, where) == "gemm.cu(3): error: expected a ;"


def test_an_older_toolkit_gets_its_own_packages(where: Places) -> None:
    found = libraries.find({"cublasLt.h", "cudnn.h"}, where.model_copy(update={"version": "12.8.93"}))
    assert found.missing["cuBLAS"].endswith("pip install nvidia-cublas-cu12")
    assert "pip install nvidia-cudnn-cu12" in found.missing["cuDNN"]


def test_headers_without_their_library_are_said(tmp_path: Path, where: Places) -> None:
    tree(tmp_path / "cuda", "include/cublas_api.h")
    found = libraries.find({"cublasLt.h"}, where)
    (said,) = found.unlinked.values()
    assert "has cuBLAS's headers, but libcublasLt.so is not with them; install it with: " in said
    tree(tmp_path / "site-packages/nvidia/cu13", "include/cublas_api.h", "lib/libcublasLt.so.13")
    assert libraries.find({"cublasLt.h"}, where).unlinked == {}


def test_the_systems_own_folders_are_not_named_again(where: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """-isystem /usr/include takes <stdlib.h> away from C++'s own headers."""
    tree(tmp_path / "usr", "include/cudnn_version.h", "lib/libcudnn.so")
    monkeypatch.setattr(libraries, "_DEFAULT", (tmp_path / "usr/include",))
    monkeypatch.setattr(libraries, "_DEFAULT_LIBRARIES", (tmp_path / "usr/lib",))
    found = libraries.find({"cudnn.h"}, where)
    assert (found.includes, found.link) == ((), ("-lcudnn",))


def test_torchs_cuda_headers_want_the_headers_of_others(tmp_path: Path, where: Places) -> None:
    wheel = tree(tmp_path / "site-packages/nvidia/cu13", "include/cublas_api.h", "include/cusparse.h", "include/cusolverDn.h")
    found = libraries.find({"ATen/cuda/CUDAContext.h"}, where)
    assert (found.includes, found.link, found.unlinked) == ((wheel / "include",), (), {})


def test_a_program_without_libraries_is_built_as_before(where: Places) -> None:
    found = libraries.find({"cuda_runtime.h", "cuda_fp16.h", "tile.cuh", "tvm/ffi/function.h"}, where, ldflags=("-lm",))
    assert found == libraries.Libraries()
    if toolkit.find_toolkit() is not None:
        assert libraries.extend(bindings.tvm(), found) == bindings.tvm()


def test_a_builder_hears_of_the_users_own_places() -> None:
    """It is a process with a clean environment."""
    named = {name for family in libraries.FAMILIES for name in family.variables}
    with pytest.MonkeyPatch.context() as environment:
        for name in named:
            environment.setenv(name, "/somewhere")
        assert named <= set(limits.clean_environment())


def test_includes_are_read_without_comments(tmp_path: Path) -> None:
    text = '#include <cublasLt.h>\n// #include <cudnn.h>\n/*\n#include <cute/tensor.hpp>\n*/\n # include "b.cuh"\n'
    (tmp_path / "a.cu").write_text(text)
    assert libraries.included_headers([tmp_path / "a.cu"]) == {"cublasLt.h", "b.cuh"}


@NVCC
def test_cub_comes_with_this_machines_toolkit() -> None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    found = libraries.find({"cub/block/block_reduce.cuh"}, libraries.places(kit))
    assert found.names == ("CCCL",)
    places = found.includes or kit.includes
    assert any((folder / "cub/block/block_reduce.cuh").is_file() for folder in places)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library that lies in Python's packages as cuBLAS does: no link for developers, and not where the system looks."""
    root = tree(tmp_path / "site-packages/nvidia/cu13", "include/cublas_api.h", "lib/made.cc")
    (root / "include/cublasLt.h").write_text('#define CUBLASLT_OF_A_TEST 4.f\nextern "C" int cublasLtOfATest();\n')
    (root / "lib/made.cc").write_text('extern "C" int cublasLtOfATest() { return 41; }\n')
    library = root / "lib/libcublasLt.so.13"
    order = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcublasLt.so.13", "-o", str(library), str(root / "lib/made.cc")]
    subprocess.run(order, check=True)
    kit = toolkit.find_toolkit()
    assert kit is not None
    here = libraries.places(kit).model_copy(update={"packages": (tmp_path / "site-packages",)})
    monkeypatch.setattr(libraries, "places", lambda kit: here)
    return root


@NVCC
def test_a_program_is_compiled_and_linked_with_what_was_found(tmp_path: Path, wheel: Path) -> None:
    program = programs.write(tmp_path / "program", {"gemm.cu": USER})
    made = nvcc.library([program / "gemm.cu"], arch="sm_90a", cache=tmp_path / "cache", root=program, ldflags=("-lcublasLt",))
    assert made.path is not None, made.log
    assert ctypes.CDLL(str(made.path)).asked() == 41
    again = nvcc.library([program / "gemm.cu"], arch="sm_90a", cache=tmp_path / "cache", root=program, ldflags=("-lcublasLt",))
    assert (again.path, again.cached) == (made.path, True)


@NVCC
def test_a_library_that_was_installed_since_is_used(tmp_path: Path, wheel: Path) -> None:
    """An error that was remembered is not told again."""
    program = programs.write(tmp_path / "program", {"gemm.cu": USER})
    hidden = wheel.rename(tmp_path / "elsewhere")
    first = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=False)
    assert not first.ok
    said, blamed = first.log.splitlines()[:2]
    assert said.startswith("cuBLAS is not on this machine")
    assert blamed.startswith("gemm.cu:1:10: fatal error: cublasLt.h: No such file")
    hidden.rename(wheel)
    assert nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=False).ok


@NVCC
def test_a_library_that_cannot_be_linked_is_said_before_it_is_loaded(tmp_path: Path, wheel: Path) -> None:
    (wheel / "lib/libcublasLt.so.13").unlink()
    program = programs.write(tmp_path / "program", {"gemm.cu": USER})
    assert nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=False).ok
    linked = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=True)
    assert not linked.ok
    assert "has cuBLAS's headers, but libcublasLt.so is not with them" in linked.log


@NVCC
def test_an_include_that_a_condition_leaves_out_needs_no_library(tmp_path: Path, wheel: Path) -> None:
    (wheel / "lib/libcublasLt.so.13").unlink()
    left_out = "#ifdef WANTED\n#include <cublasLt.h>\n#endif\n__global__ void fill(float* x) { *x = 1.0f; }\n"
    program = programs.write(tmp_path / "program", {"fill.cu": left_out})
    built = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=True)
    assert built.ok, built.log


@pytest.mark.more
@NVCC
def test_cub_and_libcu_compile_in_cuda_and_in_cpp(tmp_path: Path) -> None:
    kernel = """
    #include <cub/block/block_reduce.cuh>
    __global__ void sum(const float* x, float* y) {
      __shared__ typename cub::BlockReduce<float, 128>::TempStorage storage;
      const float total = cub::BlockReduce<float, 128>(storage).Sum(x[threadIdx.x]);
      if (threadIdx.x == 0) *y = total;
    }
    """
    host = '#include <cuda/std/array>\nextern "C" int three() { return cuda::std::array<int, 3>{}.size(); }\n'
    program = programs.write(tmp_path / "program", {"sum.cu": kernel, "sum_binding.cc": host})
    built = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=True)
    assert built.ok, built.log
    (library,) = (tmp_path / "cache" / "libraries").rglob("*.so")
    assert ctypes.CDLL(str(library)).three() == 3
