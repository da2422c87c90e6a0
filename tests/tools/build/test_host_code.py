"""What of a source counts for the host: all that its compiler could make something of, however unusual the text is."""

from __future__ import annotations

import pytest

from stitchcuda.tools.build import host_code


def left(text: str, *kernels: str, **others: str) -> str:
    """The tokens of k.cu that count."""
    sources = {"k.cu": text} | {name.replace("__", "."): other for name, other in others.items()}
    return " ".join(host_code.tokens(sources, kernels=kernels)["k.cu"])


def test_what_the_machine_code_says_is_left_out() -> None:
    text = """
    #define SCALE 2.0f
    namespace { __device__ __forceinline__ float twice(float v) { return SCALE * v; } }
    template <int N> __global__ void __launch_bounds__(N) k(float* x) { x[threadIdx.x] = twice(x[N]); }
    void go(float* x) { k<4><<<1, 4>>>(x); }
    """
    assert left(text, "k") == "namespace { } void go ( float * x ) { k < 4 > <<< 1 , 4 >>> ( x ) ; }"


@pytest.mark.parametrize(
    "text",
    [
        "__host__ __device__ float twice(float v) { return 2 * v; }",
        "constexpr __device__ int size() { return 4; }",
        "__device__ auto size() { return 4; }",
        "__device__ float table[2] = {1.0f, 2.0f};",
        "__device__ int limit{3};",
        "__device__ bool operator==(float2 a, float2 b) { return a.x == b.x; }",
        "void go() { run([=] __device__ (int i) { use(i); }); }",
        "auto one = [] __device__ (int i) { return i; };",
        "DEFINE(__device__ float twice(float v) { return 2 * v; })",
        "__device__ int size(float x) { return 4; } int there = sizeof(decltype(size(1.0f)));",
        "#define PASTE(a, b) a##b\n__device__ int size(float x) { return 4; }",
    ],
)
def test_what_the_host_may_look_at_counts(text: str) -> None:
    whole = " ".join(host_code.tokens({"k.cu": text}, kernels=None)["k.cu"])
    assert left(text) == whole


def test_heads_count_where_a_caller_could_tell() -> None:
    assert left("__global__ void k(float* x, int n = 4) { *x = n; }", "k") == "__global__ void k ( float * x , int n = 4 )"
    assert left('extern "C" __global__ void k(float* x) { *x = 1; }') == 'extern "C" __global__ void k ( float * x )'
    inside = "struct Sum { int n; __device__ float operator()(float a) const { return a + n; } };"
    assert left(inside) == "struct Sum { int n ; __device__ float operator ( ) ( float a ) const } ;"


def test_a_macro_in_front_of_a_kernel_is_not_its_head() -> None:
    assert left("EXPORT(gate)\nstatic __global__ void k(float* x) { *x = 1; }", "k") == "EXPORT ( gate )"


def test_directives_in_a_kernel_reach_beyond_it() -> None:
    text = "__global__ void k(float* x) {\n#define BLOCK 64\n#pragma unroll\n *x = BLOCK;\n}\nint size = BLOCK;"
    assert left(text, "k") == "# define BLOCK 64  \n int size = BLOCK ;"


def test_macros_count_where_they_are_named_or_headers_may_ask() -> None:
    text = "#define NDEBUG\n#include <cassert>\n#define A B\n#define B 1\n#define C 2\nint x = A;"
    assert left(text) == "# define NDEBUG  \n # include < cassert >  \n # define A B  \n # define B 1  \n int x = A ;"
    assert left("#define F(x) x\nF(1)") != left("#define F (x) x\nF(1)")


@pytest.mark.parametrize(
    "text",
    [
        "#define BEGIN {\n__global__ void k(float* x) BEGIN for (;;) { *x = 1; } } void go() { }",
        "__global__ void k(float* x) {\n#if A\n *x = 1; } void go() {\n#endif\n}",
        "__global__ void k(float* x) {\n#if A\n if (*x) {\n#else\n if (!*x) {\n#endif\n *x = 1; } }\nvoid go() { }",
        "__global__ void k(float* x) { *x = 1; } void go() { %:define X 1\n }",
    ],
)
def test_a_text_whose_brackets_cannot_be_trusted_stays_whole(text: str) -> None:
    assert left(text, "k") == " ".join(host_code.tokens({"k.cu": text}, kernels=None)["k.cu"])


def test_a_header_that_the_hosts_compiler_reads_stays_whole() -> None:
    """Without nvcc a device function is a plain one."""
    sources = {"k.cu": '#include "f.cuh"', "f.cuh": "__device__ inline int f(int i) { return i; }"}
    assert host_code.tokens(sources, kernels=())["f.cuh"] == []
    both = host_code.tokens(sources | {"b.cc": '#include "f.cuh"'}, kernels=())
    assert "".join(both["f.cuh"]) == "__device__inlineintf(inti){returni;}"


def test_tokens_are_those_of_the_language() -> None:
    first, second = (host_code.tokens({"b.cc": text}, kernels=None)["b.cc"] for text in ("x=-1;a+ ++b;", "x = -1 ; a + ++ b ;"))
    assert first == second
    assert first != host_code.tokens({"b.cc": "x=-1;a++ +b;"}, kernels=None)["b.cc"]
    literals = host_code.tokens({"b.cc": 'R"(// no)" "a  b" 1\'000 // c'}, kernels=None)["b.cc"]
    assert literals == ['R"(// no)"', '"a  b"', "1'000"]
