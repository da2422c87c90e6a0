"""Builds with the real nvcc: cubins and libraries, never twice, errors that a reader can act on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import BuildResult
from stitchcuda.tools.build import compiler_log, compilers, nvcc
from stitchcuda.tools.build.simulated_build import compile_simulated
from stitchcuda.tools.device import toolkit
from tests.verify import programs

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


@pytest.mark.parametrize("link", [False, True])
def test_a_torch_extension_is_built_when_it_is_loaded(tmp_path: Path, link: bool) -> None:
    files = {"scan.cu": "#include <torch/extension.h>\n", "model_new.py": "load(name='scan', sources=['scan.cu'])\n"}
    result = nvcc.build(programs.write(tmp_path / "program", files), arch=ARCH, cache=tmp_path, link=link)
    assert (result.ok, result.skipped) == (True, nvcc.WHEN_LOADED)
    simulated = compile_simulated(tmp_path / "program", cache=tmp_path)
    assert (simulated.ok, simulated.skipped) == (True, nvcc.WHEN_LOADED)


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
    assert compiler_log.trim(log, tmp_path) == 'a.cu(5): error: identifier "y" is undefined\n  y = 1;\n  ^'


SMALL = "__global__ void fill(float* x) { *x = 1.0f; }\n"


def cubin(program: Path, cache: Path) -> BuildResult:
    return nvcc.build(program, arch=ARCH, cache=cache, link=False)


def test_an_included_file_of_any_name_is_part_of_the_source(tmp_path: Path) -> None:
    source = '#include "factor.hh"\n__global__ void fill(float* x) { *x = FACTOR; }\n'
    program = programs.write(tmp_path / "program", {"k.cu": source, "factor.hh": "#define FACTOR 1.0f\n"})
    assert cubin(program, tmp_path / "cache").ok
    (program / "factor.hh").write_text("#define FACTOR broken\n")
    result = cubin(program, tmp_path / "cache")
    assert (result.ok, result.cached) == (False, False)


def test_two_sources_of_one_text_have_headers_of_their_own(tmp_path: Path) -> None:
    """They differ in what lies beside them, and in nothing else."""
    source = '#include "size.hh"\n__global__ void fill(float* x) { __shared__ float y[SIZE]; y[*(int*)x] = 1; *x = y[3]; }\n'
    texts = {"a/k.cu": source, "a/size.hh": "#define SIZE 64\n", "b/k.cu": source, "b/size.hh": "#define SIZE 128\n"}
    result = cubin(programs.write(tmp_path / "program", texts), tmp_path / "cache")
    assert [kernel.shared_bytes for kernel in result.kernels] == [256, 512], result.log


def test_a_spoilt_entry_of_the_cache_is_built_again(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": SMALL})
    assert cubin(program, tmp_path / "cache").ok
    (entry,) = (tmp_path / "cache").rglob("*.json")
    for spoilt in (b"", b'{"ok": tr', b"[]", b'{"ok": true}', b'{"ok": "yes", "log": 3}', b"\xff\xfe", b"[" * 100_000):
        entry.write_bytes(spoilt)
        assert nvcc._cached(entry.with_suffix(".cubin")) is None
    assert cubin(program, tmp_path / "cache").ok
    assert cubin(program, tmp_path / "cache").cached


def test_a_header_that_is_missing_is_not_remembered(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": f"#include <to_be_installed.h>\n{SMALL}"})
    for _ in range(2):
        result = cubin(program, tmp_path / "cache")
        assert (result.ok, result.cached) == (False, False)
        assert "to_be_installed.h: No such file" in result.log


def test_a_note_that_follows_an_error_is_kept(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": "__global__ void fill(float* x) {\n  if (x) {\n}\n"})
    said = cubin(program, tmp_path / "cache").log.splitlines()
    assert said[0] == 'k.cu: at its end: error: expected a "}"'
    assert said[1].startswith("k.cu(1): note")
    assert 'to match this "{"' in said[1]


def test_notes_without_an_error_before_them_are_left_out(tmp_path: Path) -> None:
    lines = ("a.cu(3): warning: w", "a.cu(4): note: of it", "a.cu(5): error: e", "a.cu(6): note: one", "a.cu(7): note: two")
    log = "\n\n".join(lines)
    assert compiler_log.trim(log, tmp_path) == "a.cu(5): error: e\na.cu(6): note: one"


def test_ptxas_is_told_at_the_line_of_the_source(tmp_path: Path) -> None:
    kernel = '__global__ void one(float* x) { *x = 1; }\n__global__ void two(float* x) {\n  asm volatile("bogus;");\n}\n'
    program = programs.write(tmp_path / "program", {"k.cu": kernel})
    said = cubin(program, tmp_path / "cache").log.splitlines()
    assert said[0].startswith("k.cu(3): error: ptxas: ")
    assert said[1].strip() == 'asm volatile("bogus;");'
    assert "building-" not in "".join(said)


def test_without_lines_in_the_ptx_its_text_is_shown(tmp_path: Path) -> None:
    log = "ptxas /s/k.ptx, line 2; error   : Unknown modifier '.bogus'\nptxas fatal   : Ptx assembly aborted due to errors\n"
    said = compiler_log.locate(log, tmp_path / "k.cu", lambda: ".loc 1 9 9\n\twgmma.bogus %f1;\n")
    assert compiler_log.trim(said, tmp_path) == "k.cu: error: ptxas: Unknown modifier '.bogus'\n    wgmma.bogus %f1;"


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("__global__ void k(float* x) { __shared__ float y[99999]; y[threadIdx.x] = *x; *x = y[5]; }", "too much shared data"),
        ("__device__ float f(float);\n__global__ void k(float* x) { *x = f(*x); }", "Unresolved extern"),
    ],
)
def test_an_error_without_a_file_names_the_source(tmp_path: Path, kernel: str, said: str) -> None:
    result = cubin(programs.write(tmp_path / "program", {"a.cu": SMALL, "k.cu": kernel}), tmp_path / "cache")
    assert result.log.startswith("k.cu: error: ptxas: ")
    assert said in result.log


def test_a_relative_folder_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.write(tmp_path / "program", {"k.cu": SMALL})
    monkeypatch.chdir(tmp_path)
    result = cubin(Path("program"), Path("cache"))
    assert result.ok, result.log


@pytest.mark.parametrize("name", ["a$b.cu", "a`b.cu", "sub$/b.cu", "-k.cu", "new\nline.cu"])
def test_a_name_that_a_shell_would_expand_is_refused(tmp_path: Path, name: str) -> None:
    result = cubin(programs.write(tmp_path / "program", {name: SMALL}), tmp_path / "cache")
    assert not result.ok
    assert result.log.startswith(f"error: {name!r} is no name for a source file")


@pytest.mark.parametrize("link", [False, True])
def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, link: bool) -> None:
    (tmp_path / "cache").write_text("a file")
    program = programs.write(tmp_path / "program", {"k.cu": SMALL})
    with pytest.raises(Unavailable, match=r"cannot write to the cache .*cache: .*choose another folder"):
        nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=link)


@pytest.mark.parametrize("arch", ["nonsense", "sm_", "90", "sm_90a;x"])
def test_what_is_no_architecture_is_said(tmp_path: Path, arch: str) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": SMALL})
    with pytest.raises(BadInput, match="is no architecture of a GPU; name it as nvcc does"):
        nvcc.build(program, arch=arch, cache=tmp_path / "cache", link=False)


def test_cuda_is_keyed_by_the_compiler_that_nvcc_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc does not look at $CXX."""
    program = programs.write(tmp_path / "program", {"k.cu": SMALL})
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert cubin(program, tmp_path / "cache").ok
    monkeypatch.setattr(compilers, "version_of", {"gcc": "another version"}.__getitem__)
    assert not cubin(program, tmp_path / "cache").cached
