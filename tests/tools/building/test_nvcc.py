"""Builds with the real nvcc: cubins and libraries, never twice, errors that a reader can act on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from stitchcuda.state import BuildResult
from stitchcuda.tools.building import compiler_log, nvcc
from stitchcuda.tools.machine import toolkit
from tests.tools import programs

ARCH = "sm_90a"

pytestmark = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")


def test_cubin_reports_resources_and_is_built_once(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    first = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert first.ok, first.log
    assert not first.cached
    (kernel,) = first.kernels
    assert kernel.name.startswith("gate_kernel(float const*")
    assert kernel.registers > 0
    assert kernel.spill_bytes == 0
    copy = Path(shutil.copytree(program, tmp_path / "elsewhere"))
    again = nvcc.build(copy, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert again.cached
    assert again.seconds < 0.1 + first.seconds / 2
    assert again.kernels == first.kernels


def test_shared_memory_and_stack_are_read(tmp_path: Path) -> None:
    kernel = """
    __global__ void tile_kernel(float* x, int n) {
      __shared__ float tile[256];
      volatile float kept[64];
      for (int i = 0; i < 64; ++i) kept[(i * n) % 64] = x[i];
      tile[threadIdx.x] = kept[n % 64];
      __syncthreads();
      x[threadIdx.x] = tile[255 - threadIdx.x];
    }
    """
    program = programs.write(tmp_path / "program", {"kernels/tile.cu": kernel})
    (usage,) = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False).kernels
    assert usage.shared_bytes >= 1024
    assert usage.stack_bytes >= 256


def test_errors_name_file_line_and_source(tmp_path: Path) -> None:
    broken = programs.KERNEL.replace("y[i] * scale", "y[i] * skale")
    program = programs.kernel_program(tmp_path / "program", kernel=broken)
    result = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert not result.ok
    assert result.log.startswith("kernels/gate.cu(5): error")
    assert "y[i] * skale" in result.log
    assert str(tmp_path) not in result.log
    copy = Path(shutil.copytree(program, tmp_path / "elsewhere"))
    again = nvcc.build(copy, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert (again.ok, again.log, again.cached) == (False, result.log, True)


def test_a_header_is_part_of_the_source(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program", kernel='#include "tile.cuh"\n' + programs.KERNEL)
    (program / "kernels" / "tile.cuh").write_text("#define TILE 1\n")
    assert nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False).ok
    (program / "kernels" / "tile.cuh").write_text("#error no tile\n")
    result = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False)
    assert not result.ok
    assert "no tile" in result.log


def test_racing_builders_agree(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    results: list[BuildResult] = []

    def work() -> None:
        results.append(nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=False))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.ok for result in results] == [True] * 3
    assert len(list((tmp_path / "cache").rglob("*.cubin"))) == 1
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_a_library_links_without_a_gpu(tmp_path: Path) -> None:
    """nvcc's object, g++'s binding and the CUDA runtime in one file, as the program loads it on a GPU host."""
    program = programs.kernel_program(tmp_path / "program")
    result = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=True)
    assert result.ok, result.log
    (library,) = (tmp_path / "cache" / "libraries").rglob("*.so")
    assert b"__tvm_ffi_gate" in library.read_bytes()
    assert nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=True).cached


def test_nothing_to_build_says_so(tmp_path: Path) -> None:
    result = nvcc.build(programs.model(tmp_path), arch=ARCH, cache=tmp_path, link=False)
    assert (result.ok, result.skipped) == (True, "the program has no CUDA source")


def test_without_a_toolkit_the_build_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "find_toolkit", lambda: None)
    monkeypatch.setattr(toolkit, "missing", lambda: "no CUDA toolkit (nothing)")
    result = nvcc.build(programs.kernel_program(tmp_path), arch=ARCH, cache=tmp_path, link=False)
    assert (result.ok, result.skipped) == (True, "no CUDA toolkit (nothing)")


def test_warnings_are_left_out(tmp_path: Path) -> None:
    log = (
        f"{tmp_path}/a.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n  int x;\n      ^\n\n"
        f"{tmp_path}/a.cu(5): error: identifier \"y\" is undefined\n  y = 1;\n  ^\n\n1 error detected in the compilation.\n"
    )
    assert compiler_log.trimmed(log, tmp_path) == 'a.cu(5): error: identifier "y" is undefined\n  y = 1;\n  ^'
