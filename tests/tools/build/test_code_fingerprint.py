"""Programs that do the same have one fingerprint, whatever they look like; those that differ in what they do have two."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stitchcuda.tools.build import nvcc
from stitchcuda.tools.build.build_pool import build_many
from stitchcuda.tools.build.code_fingerprint import fingerprint
from stitchcuda.tools.device import toolkit
from tests.verify import programs

ARCH = "sm_90a"

pytestmark = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")

SOURCE = """\
#include <cuda_runtime.h>
#define BLOCK 128
#define HALF 0.5f

// Twice the sum.
static __device__ float twice(float v) { return v * 2.0f; }

template <int N>
__global__ void __launch_bounds__(N) tile(const float* x, float* y, int n) {
  __shared__ float part[N];
  const int at = blockIdx.x * N + threadIdx.x;
  part[threadIdx.x] = at < n ? x[at] : 0.0f;   // the rest is zero
  __syncthreads();
  if (at < n) y[at] = twice(part[N - 1 - threadIdx.x]) + HALF;
}

static __global__ void shift(const float* from, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = from[i] + 1.0f;
}

extern "C" int launch(const float* x, float* y, int n, cudaStream_t stream) {
  tile<BLOCK><<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(x, y, n);
  shift<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
  return static_cast<int>(cudaGetLastError());
}
"""
MODEL = '''\
"""A program."""
import tvm_ffi.cpp
from pathlib import Path

class ModelNew:
    """Twice."""

    def __init__(self, scale: float = 2.0) -> None:
        self.kernels = tvm_ffi.cpp.load("k", cuda_files=[str(Path(__file__).parent / "k.cu")], extra_cuda_cflags=["-lineinfo"])

    def forward(self, x):
        # as it is
        return self.kernels.launch(x, 2)
'''
FIRST = "  tile<BLOCK><<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(x, y, n);\n"
SECOND = "  shift<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);\n"
SHIFT = SOURCE[SOURCE.index("static __global__ void shift") : SOURCE.index('extern "C"')]


class Programs:
    """Compiles each source once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._compiled: dict[str, Path] = {}

    def cubin(self, source: str) -> Path:
        if source not in self._compiled:
            place = self.folder / f"made-{len(self._compiled)}"
            program = programs.write(place / "program", {"k.cu": source})
            result = nvcc.build(program, arch=ARCH, cache=place / "cache", link=False)
            assert result.ok, result.log
            (self._compiled[source],) = (place / "cache").rglob("*.cubin")
        return self._compiled[source]

    def __call__(self, source: str = SOURCE, model: str = MODEL, more: dict[str, str] | None = None) -> str:
        """The fingerprint of a program with this source."""
        place = self.folder / "program"
        shutil.rmtree(place, ignore_errors=True)
        program = programs.write(place, {"k.cu": source, "model_new.py": model, **(more or {})})
        return fingerprint(program, [self.cubin(source)])


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"))


Edit = Callable[[str], str]


def swap(*pairs: str) -> Edit:
    def edit(text: str) -> str:
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        return text

    return edit


SAME: dict[str, Edit] = {
    "comments and white space": swap("// Twice the sum.", "/* the\n sum */\n", "(n + 255) / 256, 256", "( n+255 )/256,256"),
    "local variables": swap("const int at", "const int i", "at < n", "i < n", "x[at]", "x[i]", "y[at]", "y[i]"),
    "parameters of a kernel": swap(
        "const float* from, float* y, int n", "const float* a, float* b, int m", "(i < n) y[i] = from[i]", "(i < m) b[i] = a[i]"
    ),
    "order of kernels": lambda text: text.replace(SHIFT, "").replace("template <int N>", SHIFT + "template <int N>"),
    "a kernel's name": swap("shift", "moved"),
    "a device function's name": swap("twice(", "doubled("),
    "a device function written out": swap("twice(part[N - 1 - threadIdx.x])", "part[N - 1 - threadIdx.x] * 2.0f"),
    "a macro that nobody uses": swap("#define HALF 0.5f", "#define HALF 0.5f\n#define QUARTER 0.25f"),
    "a macro of kernels alone": swap("#define HALF 0.5f\n", "", "+ HALF", "+ 0.5f"),
    "a pragma of a kernel": swap("  if (i < n) y[i]", "#pragma unroll\n  if (i < n) y[i]"),
}
OTHER: dict[str, Edit] = {
    "arithmetic": swap("+ 1.0f", "+ 1.5f"),
    "what is read": swap("part[N - 1 - threadIdx.x]", "part[threadIdx.x]"),
    "launch configuration": swap("(n + 255) / 256, 256", "(n + 127) / 128, 128"),
    "a macro of the host": swap("#define BLOCK 128", "#define BLOCK 64"),
    "a template argument": swap("tile<BLOCK>", "tile<2 * BLOCK>", "BLOCK, 0", "2 * BLOCK, 0"),
    "order of launches": swap(SECOND, "", FIRST, SECOND + FIRST),
    "launch bounds": swap("__launch_bounds__(N)", "__launch_bounds__(N, 8)"),
    "a kernel that nobody calls": lambda text: text + "__global__ void more(float* x) { *x = 1.0f; }\n",
    "an argument": swap("(x, y, n);\n  return", "(x, y, 7);\n  return"),
}


@pytest.mark.parametrize("what", SAME)
def test_what_looks_different_is_the_same(code: Programs, what: str) -> None:
    assert code(SAME[what](SOURCE)) == code()


@pytest.mark.parametrize("what", OTHER)
def test_what_does_something_else_differs(code: Programs, what: str) -> None:
    assert code(OTHER[what](SOURCE)) != code()


def test_kernels_that_change_places_under_their_names_differ(code: Programs) -> None:
    """The same machine code under the same names in all, and the host calls another one first."""
    one = "__global__ void {}(float* x) {{ *x += 1.0f; }}\n"
    two = "__global__ void {}(float* x) {{ *x *= 3.0f; }}\n"
    host = "void go(float* x) { a<<<1, 1>>>(x); b<<<1, 1>>>(x); }\n"
    renamed = host.replace("a<", "c<").replace("b<", "a<").replace("c<", "b<")
    assert code(one.format("a") + two.format("b") + host) == code(two.format("a") + one.format("b") + renamed)
    assert code(one.format("a") + two.format("b") + host) != code(two.format("a") + one.format("b") + host)


def test_python_counts_by_its_syntax(code: Programs) -> None:
    assert code(model=MODEL.replace("# as it is", "# twice").replace("Twice.", "Two times.")) == code()
    assert code(model=MODEL.replace("scale: float = 2.0) -> None", "scale=2.0)")) == code()
    assert code(model=MODEL.replace("launch(x, 2)", "launch(x, 3)")) != code()
    assert code(model=MODEL.replace("scale: float = 2.0", "scale: float = 3.0")) != code()
    deep = MODEL + f"x = {'+'.join(['1'] * 5000)}\n"
    assert code(model=deep) == code(model=deep) != code()
    reads = MODEL + "print(ModelNew.__doc__)\n"
    assert code(model=reads.replace("Twice.", "Two times.")) != code(model=reads)


def test_a_program_with_flags_of_its_own_counts_by_its_sources(code: Programs) -> None:
    """They decide what becomes of a kernel, and nobody knows what its code is with them."""
    flags = MODEL.replace('"-lineinfo"', '"-DFAST"')
    renamed = SAME["a device function's name"](SOURCE)
    assert code(renamed, flags) != code(SOURCE, flags)
    assert code(SAME["comments and white space"](SOURCE), flags) == code(SOURCE, flags)


def test_other_files_count_byte_by_byte(code: Programs) -> None:
    assert code(more={"constants.bin": "1"}) != code()
    assert code(more={"constants.bin": "1"}) != code(more={"constants.bin": "2"})
    says = '{"host": [], "kernels": [{"strategy": "STRATEGY"}]}'
    plain = code(more={"program.json": says})
    assert code(more={"program.json": says.replace("STRATEGY", "tiles")}) == plain
    assert code(more={"program.json": says.replace("[],", '["cuda_graph"],')}) != plain


def test_a_link_has_no_fingerprint(code: Programs) -> None:
    assert code() != ""
    (code.folder / "program" / "more.cuh").symlink_to("/etc/passwd")
    assert fingerprint(code.folder / "program", [code.cubin(SOURCE)]) == ""


def test_code_that_cannot_be_read_leaves_the_sources(tmp_path: Path) -> None:
    """A library whose device code is not there plainly: kernels' bodies are part of the fingerprint again."""
    hidden = tmp_path / "hidden.so"
    hidden.write_bytes(b"\x7fELF.nv_fatbin" + b"\x50\xed\x55\xba" + bytes(40))
    found = []
    for number, source in enumerate((SOURCE, SAME["local variables"](SOURCE), SAME["comments and white space"](SOURCE))):
        found.append(fingerprint(programs.write(tmp_path / str(number), {"k.cu": source}), [hidden]))
    assert len(found[0]) == 32
    assert found[0] != found[1]
    assert found[0] == found[2]


def test_a_build_says_it_with_and_without_linking(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": SOURCE, "model_new.py": MODEL})
    copy = programs.write(tmp_path / "copy", {"k.cu": SAME["local variables"](SOURCE), "model_new.py": MODEL})
    cache = tmp_path / "cache"
    library = nvcc.build(program, arch=ARCH, cache=cache, link=True, machine=True)
    cubin, again = build_many([program, copy], arch=ARCH, cache=cache, link=False, machine=True)
    assert len(cubin.code) == 32
    assert cubin.code == library.code == again.code
    assert cubin.kernels[0].machine == again.kernels[0].machine != ""
    assert nvcc.build(program, arch=ARCH, cache=cache, link=False).code == ""
    programs.write(program, {"k.cu": SOURCE.replace("__syncthreads()", "syncthreads()")})
    broken = nvcc.build(program, arch=ARCH, cache=cache, link=False, machine=True)
    assert (broken.ok, broken.code) == (False, "")
