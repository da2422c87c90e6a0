"""Every kernel of a source gets a switch, however it is written, and the source still compiles."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.sandbox import command
from stitchcuda.tools.build import kernel_names, masks
from stitchcuda.tools.device import toolkit
from tests.compiler.pipeline import captured, case, stitched
from tests.verify import programs

TRICKY = r'''
#define ALIAS __global__ void
#define NAMED(name, ...) __global__ void name(__VA_ARGS__)
#define WHOLE(name, op) \
  __global__ void name(float* x, int n) { \
    if (threadIdx.x < n) x[threadIdx.x] = x[threadIdx.x] op 2.0f; \
  }
#define BOUNDS(n) __launch_bounds__(n)
#include <cuda_fp16.h>
// __global__ void commented(float* x) { }
/* __global__ void also_commented(int) {} */
const char* text = "__global__ void in_text() {}";
const char* raw = R"cuda(
__global__ void in_raw(float* x) { }
)cuda";
__global__ void forward(float* x, int n);
template <typename T> __global__ void templated(T* x, int n);
namespace a { namespace {
template <typename T, int N = (3 > 2 ? 4 : 5)>
__global__ void __launch_bounds__(256, 2) templated_in(const T* __restrict__ x, T* y) {
  y[threadIdx.x] = x[threadIdx.x] * T(N); }
template <>
__global__ void templated_in<double, 4>(const double* __restrict__ x, double* y) { y[threadIdx.x] = 0; }
} }
__global__ void forward(float* x, int n) {
  __shared__ float s[32];
  s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  x[threadIdx.x] = s[31 - threadIdx.x]; }
template <typename T> __global__ void templated(T* x, int n)
{ x[0] = n; }
ALIAS by_alias(float* x) { x[0] = 1; }
NAMED(by_named, float* x, int n) { x[0] = n; }
WHOLE(add_two, +)
WHOLE(mul_two, *)
static __global__ BOUNDS(128) void bounded(int* x) { x[0] = 1'000; }
extern "C" __global__ void __launch_bounds__(
    1024) extern_c(int* x) { x[0] = '{'; }
__global__ void overloaded(int* x) { x[0] = 1; }
__global__ void overloaded(float* x) { x[0] = 1; }
#ifdef NOPE
__global__ void conditional(int* x) {
#else
__global__ void conditional(float* x) {
#endif
  x[0] = __LINE__;
}
template __global__ void templated<int>(int*, int);
struct Holder { template <class T> friend __global__ void friendly(T* x); int v; };
template <class T> __global__ void friendly(T* x) { x[0] = 3; }
template <typename F> __global__ void apply_fn(F f, float* x) { x[threadIdx.x] = f(x[threadIdx.x]); }
void run(float* x, double* d) {
  a::templated_in<float><<<1, 32>>>(x, x); a::templated_in<double, 4><<<1, 32>>>(d, d);
  templated<float><<<1,1>>>(x, 1); add_two<<<1,32>>>(x, 3); friendly<<<1,1>>>(x); bounded<<<1,1>>>(nullptr);
}
'''


def compiled(folder: Path, text: str, *, kind: str = "-c", name: str = "masked.cu") -> Path:
    kit = toolkit.find_toolkit()
    if kit is None:
        pytest.skip(toolkit.missing())
    source, made = folder / name, folder / "masked.o"
    source.write_text(text)
    order = (str(kit.nvcc), kind, "-arch=sm_90", "-std=c++17", "-Xcompiler", "-fPIC", "-w", "-o", str(made), str(source))
    finished = command.run(order, seconds=120, read=[folder], write=[folder])
    assert finished.code == 0, finished.output
    return made


def test_every_spelling_gets_a_switch_and_compiles(tmp_path: Path) -> None:
    text, names = masks.add_switches(TRICKY, "t")
    assert names == (
        "WHOLE", "templated_in", "templated_in#2", "forward", "templated", "by_alias", "by_named", "bounded", "extern_c",
        "overloaded", "overloaded#2", "conditional", "conditional#2", "friendly", "apply_fn",
    )  # fmt: skip
    assert text.endswith("x); bounded<<<1,1>>>(nullptr);\n}\n")
    assert text.partition("#line 1\n")[2].count("\n") == TRICKY.count("\n")
    made = compiled(tmp_path, text)
    found = {kernel_names.base_name(name) for name in kernel_names.in_library(made)}
    assert found == {
        "templated_in", "forward", "templated", "by_alias", "by_named", "add_two", "mul_two", "bounded", "extern_c",
        "overloaded", "conditional", "friendly",
    }  # fmt: skip


def test_more_than_64_kernels_and_none_at_all() -> None:
    many = "\n".join(f"__global__ void kernel_{i}(float* x) {{ x[0] = {i}; }}" for i in range(100))
    text, names = masks.add_switches(many, "many")
    assert len(names) == 100
    assert "stitchcuda_skipped_many(99)" in text
    assert "stitchcuda_skip_many[100]" in text
    assert masks.add_switches("int host() { return 0; }", "none") == ("int host() { return 0; }", ())


def test_headers_with_kernels_are_masked_too(tmp_path: Path) -> None:
    header = "#pragma once\n#define GLOBAL __global__\n__global__ inline void in_header(float* x) { x[0] = 1; }\n"
    source = '#include "sub/part.cuh"\n#include "plain.h"\nGLOBAL void in_source(float* x) { x[0] = ONE; }\n'
    programs.write(tmp_path, {"k/a.cu": source, "k/sub/part.cuh": header, "k/plain.h": "#define ONE 1\n", "k/b.cc": "int b;\n"})
    (copy, other), names = masks.add_switches_to_files([tmp_path / "k/a.cu", tmp_path / "k/b.cc"], folder=tmp_path / "out")
    assert names == ("in_source", "in_header")
    assert other == tmp_path / "k/b.cc"
    text = copy.read_text()
    assert str(tmp_path / "out") in text
    assert f'"{tmp_path}/k/plain.h"' in text
    made = compiled(tmp_path, text)
    symbols = made.read_bytes()
    assert symbols.count(b"stitchcuda_mask_m") >= 2
    assert masks.ENTRIES.encode() in symbols


def test_headers_in_a_circle_and_between_angles(tmp_path: Path) -> None:
    """Whoever includes what how often: each file has one copy, so that `#pragma once` and guards still hold."""
    programs.write(tmp_path, {
        "k/a.cu": '#include "b.cuh"\n#include <angled.cuh>\n#include <cuda_fp16.h>\n#include "b.cuh"\n'
                  "KERNEL in_source(float* x) { x[0] = 1; }\n",
        "k/b.cuh": '#pragma once\n#include "sub/c.cuh"\n__global__ inline void in_b(float* x) { x[0] = 2; }\n',
        "k/sub/c.cuh": '#pragma once\n#include "../b.cuh"\n#define KERNEL __global__ void\n'
                       "KERNEL in_c(float* x) { x[0] = 3; }\n",
        "k/inc/angled.cuh": "__global__ inline void in_angled(float* x) { x[0] = 4; }\n",
    })  # fmt: skip
    (copy,), names = masks.add_switches_to_files(
        [tmp_path / "k/a.cu"], folder=tmp_path / "out", include_dirs=[tmp_path / "k/inc"], within=tmp_path / "k"
    )
    assert sorted(names) == ["in_angled", "in_b", "in_c", "in_source"]
    assert "#include <cuda_fp16.h>" in copy.read_text()
    made = compiled(tmp_path, copy.read_text())
    assert {kernel_names.base_name(name) for name in kernel_names.in_library(made)} == set(names)


def test_deep_and_branching_headers_are_read_once(tmp_path: Path) -> None:
    """Each of a hundred levels includes both files of the next, thrice: 6 to the power of 100 ways to the last one."""
    levels = 100
    for number in range(levels):
        below = "".join(f'#include "{side}{number + 1}.cuh"\n' for side in "ab") * 3 if number + 1 < levels else ""
        for side in "ab":
            (tmp_path / f"{side}{number}.cuh").write_text(f"#pragma once\n{below}__global__ void {side}{number}() {{}}\n")
    (tmp_path / "k.cu").write_text('#include "a0.cuh"\n#include "missing.cuh"\n')
    started = time.process_time()
    (copy,), names = masks.add_switches_to_files([tmp_path / "k.cu"], folder=tmp_path / "out")
    assert time.process_time() - started < 5
    assert len(names) == 2 * levels - 1
    assert '#include "missing.cuh"' in copy.read_text()


def test_headers_outside_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "secret.cuh").write_text("__global__ void secret() {}\n")
    (tmp_path / "k").mkdir()
    (tmp_path / "k/a.cu").write_text(f'#include "../secret.cuh"\n#include "{tmp_path}/secret.cuh"\n__global__ void k() {{}}\n')
    (copy,), names = masks.add_switches_to_files([tmp_path / "k/a.cu"], folder=tmp_path / "out")
    assert names == ("k",)
    assert '#include "../secret.cuh"' in copy.read_text()
    with pytest.raises(BadInput, match=r"cannot read .*gone\.cu: No such file"):
        masks.add_switches_to_files([tmp_path / "gone.cu"], folder=tmp_path / "out")


@pytest.mark.parametrize(("piece", "kernels"), [
    ("__global__ ", 0), ("__global__ void k(float* x) { x[0] = 1; } ", 6241), ("__global__ void k(", 0), ("__global__ (", 0),
    ("{", 0), ("}", 0), ("(", 0), ("__launch_bounds__(1) ", 0), ('R"(', 0), ('"\\"', 0), ("/* ", 0), ('#include "a.h"\n', 0),
    ("#define K __global__ \\\n", 0), ("__global__\n#define K __global__\n", 0), ("__global__ void k() )->", 0),
    ("__global__ void k();", 0),
])  # fmt: skip
def test_its_time_grows_with_the_length_alone(piece: str, kernels: int) -> None:
    text = piece * (2**18 // len(piece))
    started = time.process_time()
    assert len(masks.add_switches(text, "p")[1]) == kernels
    assert time.process_time() - started < 3


def test_macros_of_macros() -> None:
    """A chain of ten thousand names for `__global__`, the last first."""
    chain = "".join(f"#define K{number + 1} K{number}\n" for number in reversed(range(10_000)))
    started = time.process_time()
    assert masks.add_switches(f"{chain}#define K0 __global__\nK10000 void k() {{}}\n", "p")[1] == ("k",)
    assert time.process_time() - started < 3


def test_kernels_of_a_library_are_read_from_its_stubs_as_well(tmp_path: Path) -> None:
    made = compiled(tmp_path, programs.KERNEL)
    data = made.read_bytes()
    stubs = [stub for name, kind, _ in kernel_names._symbols(data, 0) if kind == 2 for stub in kernel_names._stubbed(name)]
    assert tuple(map(kernel_names.demangled, stubs)) == kernel_names.in_library(made)
    cut = tmp_path / "cut.so"
    for end in range(64, len(data), len(data) // 40):
        cut.write_bytes(data[:end])
        kernel_names.in_library(cut)       # cut short anywhere: an answer, never an exception


@pytest.mark.long
@pytest.mark.parametrize("name", ["transformer", "rotary", "residual_train", "reductions", "stateful"])
def test_generated_kernels_compile_with_switches(name: str, tmp_path: Path) -> None:
    module, call = case(name)
    for stitch in stitched(captured(module, call)):
        text, names = masks.add_switches(stitch.source.cuda, stitch.source.name)
        assert len(names) == stitch.source.launches or not stitch.source.launches
        compiled(tmp_path, text, kind="-cubin", name=f"{stitch.source.name}.cu")


def test_switches_come_before_all_that_is_the_program_s(tmp_path: Path) -> None:
    first = "#define _GNU_SOURCE\n/* swish\n */ #include <cmath>  // erf\n"
    text = f"{first}#define N 2\n__global__ void own(float* x) {{ *x = N; }}\n"
    said, names = masks.add_switches(text, "t", file=Path("/program/own.cu"))
    assert names == ("own",)
    assert said.startswith("#if defined(__CUDACC__)")
    assert f'\n#line 1 "/program/own.cu"\n{first}' in said
    compiled(tmp_path, said)


def test_a_comment_that_ends_in_code_compiles_with_switches(tmp_path: Path) -> None:
    text = "#include <cmath>\n/* the kernel\n of it */ static const int N = 4;\n__global__ void own(float* x) { *x = N; }\n"
    compiled(tmp_path, masks.add_switches(text, "t")[0])
