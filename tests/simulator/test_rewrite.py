"""The rewriter, line by line: what each piece of CUDA syntax becomes, and that lines keep their numbers."""

from __future__ import annotations

import pytest

from stitchcuda.simulator.rewrite import rewrite
from stitchcuda.simulator.source import in_function, masked

LAUNCHES = [
    ("k<<<1, 2>>>(a);", "STITCHSIM_LAUNCH((k), (1, 2))(a);"),
    ("ns::k<T, (N > 2)><<<g, b, 0, s>>>(x, y);", "STITCHSIM_LAUNCH((ns::k<T, (N > 2)>), (g, b, 0, s))(x, y);"),
    ("k<A<B<1>>><<<g, b>>>(x);", "STITCHSIM_LAUNCH((k<A<B<1>>>), (g, b))(x);"),
    ("k<a->size><<<g, b>>>(x);", "STITCHSIM_LAUNCH((k<a->size>), (g, b))(x);"),
    ("if (ok) k<<<g, b>>>();", "if (ok) STITCHSIM_LAUNCH((k), (g, b))();"),
    ("else k<<<g, b>>>();", "else STITCHSIM_LAUNCH((k), (g, b))();"),
    ("return k<<<g, b>>>();", "return STITCHSIM_LAUNCH((k), (g, b))();"),
    ("if (ok) (*k)<<<g, b>>>();", "if (ok) STITCHSIM_LAUNCH(((*k)), (g, b))();"),
    ("(c ? k1 : k2)<<<g, b>>>();", "STITCHSIM_LAUNCH(((c ? k1 : k2)), (g, b))();"),
    ("table[i](n)<<<g, b>>>();", "STITCHSIM_LAUNCH((table[i](n)), (g, b))();"),
    ("this->kernel<<<g, b>>>();", "STITCHSIM_LAUNCH((this->kernel), (g, b))();"),
    ("::a::k<float><<<g, b>>>();", "STITCHSIM_LAUNCH((::a::k<float>), (g, b))();"),
    ("k<<<f<int>(1 >> 2), g[h(3)], (x >>> 1)>>>(y);", "STITCHSIM_LAUNCH((k), (f<int>(1 >> 2), g[h(3)], (x >>> 1)))(y);"),
    ("k<<<\n  1, // blocks <<<\n  2>>>\n  (x);", "STITCHSIM_LAUNCH((k), (\n  1, // blocks <<<\n  2))\n  (x);"),
    ('puts("k<<<1, 2>>>(a)"); // k<<<1, 2>>>(a)', 'puts("k<<<1, 2>>>(a)"); // k<<<1, 2>>>(a)'),
    ("#define GO(K, ...) K<<<g, b>>>(__VA_ARGS__)", "#define GO(K, ...) STITCHSIM_LAUNCH((K), (g, b))(__VA_ARGS__)"),
    ("cudaLaunchKernel((void *)k<float>, g, b, p);", "::stitchsim::launch_kernel(k<float>, g, b, p);"),
    ("::cudaLaunchKernel(reinterpret_cast<const void*>(&k), g, b, p);", "::stitchsim::launch_kernel((&k), g, b, p);"),
    ("cudaLaunchKernelEx(&config, k, 1);", "::stitchsim::launch_kernel_ex(&config, k, 1);"),
]
SHARED = [
    ("{ __shared__ float a[4]; }", "{ __shared__ float a[4]; STITCHSIM_BEGIN_SHARED(a) }"),
    (
        "{ static __shared__ T a[N][M + 1], b; }",
        "{  __shared__ T a[N][M + 1], b; STITCHSIM_BEGIN_SHARED(a) STITCHSIM_BEGIN_SHARED(b) }",
    ),
    ("{ float __shared__ a[f<1, 2>()]; }", "{ float __shared__ a[f<1, 2>()]; STITCHSIM_BEGIN_SHARED(a) }"),
    ("{ __shared__ typename B<T, 3>::Temp t; }", "{ __shared__ typename B<T, 3>::Temp t; STITCHSIM_BEGIN_SHARED(t) }"),
    (
        "{ __shared__ union { int i; float f[2]; } u; }",
        "{ __shared__ union { int i; float f[2]; } u; STITCHSIM_BEGIN_SHARED(u) }",
    ),
    ("{ __shared__ alignas(16) float a[4]; }", "{ __shared__ __align__(16) float a[4]; STITCHSIM_BEGIN_SHARED(a) }"),
    ("{ M(x, __shared__ float a[4]; a[0] = 1;) }", "{ M(x, __shared__ float a[4]; STITCHSIM_BEGIN_SHARED(a) a[0] = 1;) }"),
    ("__shared__ float a[4];\nvoid f();", "__shared__ float a[4];\nvoid f();"),
    ("{ extern __shared__ float s[]; }", "{ float* const s = ::stitchsim::dynamic_shared<float>(); }"),
    (
        "{ extern __shared__ __align__(sizeof(float4)) unsigned char s[]; }",
        "{ unsigned char* const s = ::stitchsim::dynamic_shared<unsigned char>(); }",
    ),
    ("{ extern\n__shared__ volatile T s[]; }", "{ volatile T* const s = ::stitchsim::dynamic_shared<volatile T>();\n }"),
    (
        "namespace a { extern __shared__ int s[]; }",
        "namespace a { static thread_local int* const s = ::stitchsim::dynamic_shared<int>(); }",
    ),
]
OTHERS = [
    ("static __constant__ float c[3];", " __constant__ float c[3];"),
    ("static const __device__ __constant__ int c = 1;", " const __device__ __constant__ int c = 1;"),
    ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800", "#if defined(STITCHSIM_CUDA_ARCH) && STITCHSIM_CUDA_ARCH >= 800"),
    ("#ifdef __CUDACC__", "#ifdef STITCHSIM_CUDACC"),
    ("int a = 1'000; char q = '\"'; f(a <b> c);", "int a = 1'000; char q = '\"'; f(a <b> c);"),
]


@pytest.mark.parametrize(("cuda", "expected"), LAUNCHES + SHARED + OTHERS)
def test_each_piece_of_syntax(cuda: str, expected: str) -> None:
    assert rewrite(cuda) == expected


@pytest.mark.parametrize(("cuda", "_"), LAUNCHES + SHARED + OTHERS)
def test_lines_keep_their_numbers(cuda: str, _: str) -> None:
    assert rewrite(f"{cuda}\n// end").split("\n").index("// end") == cuda.count("\n") + 1


def test_masking_keeps_every_position() -> None:
    text = 'a /* "x" */ "b // c" R"(<<<\n)" \'"\' // <<<\n<<< 1\'000'
    hidden = masked(text)
    assert len(hidden) == len(text)
    assert [i for i, c in enumerate(hidden) if c == "\n"] == [i for i, c in enumerate(text) if c == "\n"]
    assert hidden.index("<<<") == text.rindex("<<<")


def test_scopes() -> None:
    text = 'namespace a { extern "C" { int x; void f() { int y; } int z; } } struct S { void g() { int w; } };'
    hidden = masked(text)
    assert [in_function(hidden, text.index(f"int {name}")) for name in "xyzw"] == [False, True, False, True]
