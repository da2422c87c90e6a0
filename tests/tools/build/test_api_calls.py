"""Which calls are certain to be looked up outside of the program: the plain ones, and none of those that may be its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.tools.build import api_calls
from stitchcuda.tools.build.program_text import Text

NAMES = {"cudaFoo", "cuFoo", "cublasFoo", "curand_foo"}


def found(*files: str, sources: int = 1) -> list[tuple[str, str, int]]:
    """(name, file, line); the first files are compiled, the others are headers of the program."""
    texts = [Text(Path(f"{number}.{'cu' if number < sources else 'cuh'}"), text) for number, text in enumerate(files)]
    compiled = {text.file for text in texts[:sources]}
    return [(call.name, call.file.name, call.line) for call in api_calls.certain(NAMES, texts, compiled)]


@pytest.mark.parametrize(
    "statement",
    [
        "cudaFoo(1);", "int e = cudaFoo(1);", "if (x) cudaFoo(1);", "else cudaFoo(1);", "return cudaFoo(1);",
        "(void)cudaFoo(1);", "::cudaFoo(1);", "return ::cudaFoo(1);", "f(cudaFoo(1), 2);", "while (!cudaFoo(1)) {}",
        "auto g = [&] { cudaFoo(1); };", "cudaFoo /* why */ (1);", "cudaFoo\n(1);", "kernel<<<1, cudaFoo(2)>>>();",
        "x ? cudaFoo(1) : cudaFoo(2);",
    ],
)  # fmt: skip
def test_a_plain_call_is_certain(statement: str) -> None:
    assert found(f"int f(int x) {{\n{statement}\n}}\n") == [("cudaFoo", "0.cu", 2)]


@pytest.mark.parametrize(
    "before",
    [
        "int cudaFoo(int);",
        "static __device__ float* cudaFoo(int x) { return 0; }",
        "template <class T> T cudaFoo(T x);",
        "template <auto cudaFoo> int g();",
        "__global__ void __launch_bounds__(256) cudaFoo(int x) {}",
        "[[nodiscard]] cudaFoo(int);",
        "API(int) cudaFoo(int);",
        "std::vector<int>\ncudaFoo(int);",
        "int other(int), cudaFoo(int);",
        'extern "C" {\nint cudaFoo(int);\n}',
        "auto cudaFoo = [](int x) { return x; };",
        "int (*cudaFoo)(int);",
        "PFN_x cudaFoo;",
        "struct cudaFoo { cudaFoo(int); };",
        "using mine::cudaFoo;",
        "namespace mine { int cudaFoo(int); }\nusing namespace mine;",
        "#define cudaFoo(x) (x)",
        "#define cudaFoo other",
        "#undef cudaFoo",
        "#define MAKE(name) int name(int x)\nMAKE(cudaFoo) {}",
        "#define MAKE(name) int cuda##name(int x)\nMAKE(Foo) {}",
        "#ifdef HAVE\nint cudaFoo(int);\n#endif",
        "template <class T> concept C = requires(T x) { cudaFoo(x); };",
    ],
)  # fmt: skip
def test_what_the_program_may_declare_is_its_own(before: str) -> None:
    call = "int g() {\nreturn cudaFoo(1);\n}\n"
    assert found(call)
    assert found(f"{before}\n{call}") == []
    assert found(f'#include "1.cuh"\n{call}', before) == []
    assert found(call, before, sources=2) == []


@pytest.mark.parametrize(
    "statement",
    [
        "x.cudaFoo(1);", "x->cudaFoo(1);", "mine::cudaFoo(1);", "mine<int>::cudaFoo(1);", "// cudaFoo(1);", "/* cudaFoo(1); */",
        'load("cudaFoo(1)");', 'R"(cudaFoo(1);)";', "decltype(cudaFoo(1)) y;", "assert(cudaFoo(1) == 0);", "int cudaFoo(1);",
        "mycudaFoo(1);", "cudaFoo<int>(1);", "&cudaFoo;", "cudafoo(1);", "cudaFoo;",
        "\n#if CUDART_VERSION < 12000\ncudaFoo(1);\n#endif\n", "\n#ifdef OLD\n#else\ncudaFoo(1);\n#endif\n",
        "\n#if 0\ndon't cudaFoo(1);\n#endif\n",
    ],
)  # fmt: skip
def test_what_is_no_call_of_the_api_or_not_certain_is_none(statement: str) -> None:
    assert found(f"int f() {{\n{statement}\n}}\n") == []


def test_a_macro_that_is_used_is_its_text() -> None:
    """Calls hide there more than anywhere: whoever makes up a name makes it up for the check of errors."""
    check = '#define CHECK(x) \\\n  do { int e = (x); if (e) fail(cudaFoo(e)); } while (0)\n'
    use = "int f() { CHECK(cuFoo(1)); }\n"
    assert found(check) == []
    assert found(check + use) == [("cudaFoo", "0.cu", 2), ("cuFoo", "0.cu", 3)]
    assert found(f"#ifdef DEBUG\n{check}#else\n#define CHECK(x)\n#endif\n{use}") == []
    assert found(f"#define CHECK(x) say(#x)\n{use}") == []
    assert found(f"#define CHECK(...) run(__VA_ARGS__)\n{use}") == [("cuFoo", "0.cu", 2)]
    assert found(f'#define SAY(f, ...) printf(f, ##__VA_ARGS__)\n{use}') == [("cuFoo", "0.cu", 2)]


def test_a_template_that_nobody_instantiates_may_call_anything() -> None:
    template = "template <typename T>\nvoid launch(const T* x) {\n  if (x) { cudaFoo(x); }\n}\n"
    told = [("cudaFoo", "0.cu", 3)]
    assert found(template) == []
    assert found(template + "template void launch<float>(const float*);\n") == told
    assert found(template, "int f(float* x) { launch(x); }\n", sources=2) == told
    methods = "template <int N> struct Tile {\n  void load(int x) {\n    cudaFoo(x);\n  }\n};\n"
    assert found(methods) == []
    assert found(methods + "int f() { Tile<3>{}.load(1); }\n") == told
    assert found("void launch(auto x) {\n  cudaFoo(x);\n}\n") == []
    assert found("int f() {\n  auto g = [](auto x) {\n    cudaFoo(x);\n  };\n}\n") == []
    assert found("int f() {\n  for (auto x : all(3)) {\n    cudaFoo(x);\n  }\n}\n") == told
    chosen = "void launch() {\n  if constexpr (N < 12) {\n    cudaFoo(N);\n  }\n}\nint f() { launch(); }\n"
    assert found(chosen) == told
    assert found(f"template <int N> {chosen}") == []


def test_a_header_counts_where_it_is_included_for_certain() -> None:
    header = "#ifndef MINE_H\n#define MINE_H\ninline int f() {\n  return cublasFoo(1);\n}\n#endif\n"
    told = [("cublasFoo", "1.cuh", 4)]
    assert found('#include "1.cuh"\n', header) == told
    assert found('#include "2.cuh"\n', header, '#pragma once\n#include "../include/1.cuh"\n') == told
    assert found('// #include "1.cuh"\n', header) == []
    assert found('#ifdef OLD\n#include "1.cuh"\n#endif\n', header) == []
    assert found('#include "1.cuh"\n', header.replace("#endif", "#else\n#endif")) == told
    assert found('#include "1.cuh"\n', f"int x;\n{header}") == []         # no guard: a condition


def test_device_functions_and_prefixes() -> None:
    assert found("__global__ void k(float* x) { *x = curand_foo(x) + cublasFoo(1); }\n") == [
        ("curand_foo", "0.cu", 1), ("cublasFoo", "0.cu", 1),
    ]  # fmt: skip
    others = "cub(1); cuda(2); cudagraph(3); xcuInit(4); curandom(5); cu_init(6);"
    text = Text(Path("k.cu"), f"cudaMalloc(p); cuInit(0); cudnnCreate(&h); {others}")
    assert api_calls.possible([text]) == {"cudaMalloc", "cuInit", "cudnnCreate"}
