"""Sources that differ in comments and white space alone have one fingerprint; those that may do something else have two."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.tools.build import nvcc
from stitchcuda.tools.build.build_pool import build_many
from stitchcuda.tools.build.code_fingerprint import fingerprint
from stitchcuda.tools.device import toolkit
from tests.verify import programs

ARCH = "sm_90a"
SOURCE = """\
#include <cuda_runtime.h>
#define BLOCK 128

// Adds one.
static __global__ void shift(const float* from, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;   // the element
  if (i < n) y[i] = from[i] + 1.0f;
}

extern "C" int launch(const float* x, float* y, int n, cudaStream_t stream) {
  shift<<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(x, y, n);
  return static_cast<int>(cudaGetLastError());
}
"""
MODEL = '''\
"""A program."""

class ModelNew:
    def forward(self, x):
        # as it is
        return self.kernels.launch(x, 2)
'''


def code(folder: Path, source: str = SOURCE, model: str = MODEL, **more: str) -> str:
    """The fingerprint of a program with this source; `_` in a name of `more` is its dot."""
    number = len(list(folder.iterdir()))
    files = {"k.cu": source, "model_new.py": model} | {name.replace("_", "."): text for name, text in more.items()}
    return fingerprint(programs.write(folder / str(number), files))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// Adds one.", "/* adds\n one */"),
        ("// Adds one.\n", ""),
        ("   // the element", ""),
        ("  if (i < n) y[i] = from[i]", "\tif (i < n)   y[i] /* out */ = from[i]"),
        ("#define BLOCK 128", "#define BLOCK 128  // threads"),
        ("#define BLOCK 128", "#define BLOCK /* of\nthreads */ 128"),
        ("}\n\nextern", "}\n\n\n\nextern"),
    ],
)
def test_comments_and_white_space_do_not_count(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert code(tmp_path, SOURCE.replace(old, new)) == code(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1.0f", "+ 1.5f"),
        ("BLOCK 128", "BLOCK 64"),
        ("(x, y, n);\n  return", "(x, y, 7);\n  return"),
        ("from[i] + 1.0f;", "from[i];  // + 1.0f;"),
        ("#define BLOCK 128\n\n// Adds one.\n", "#define BLOCK 128 "),
        ("BLOCK 128\n", "BLOCK\n128\n"),
        ("shift", "moved"),
    ],
)
def test_everything_else_counts(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert code(tmp_path, SOURCE.replace(old, new)) != code(tmp_path)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('f("// x")', 'f("// y")'),
        ('f("a  b")', 'f("a b")'),
        ("f('\"', \"// x\")", "f('\"', \"// y\")"),
        ('f(1\'000, "it\'s // x")', 'f(1\'000, "it\'s // y")'),
        ("f(u8'\"' + g(\"// x\"))", "f(u8'\"' + g(\"// y\"))"),
        ('f(R"(" // x)")', 'f(R"(" // y)")'),
        ("// a \\\n f();", "// a \n f();"),
        ("// a \\ \n f();", "// a \n f();"),
        ("// a ??/\n f();", "// a \n f();"),
        ("/* *\\\n/ f(); /* */", "/* *\\\n/ g(); /* */"),
        ("#include <a//b.h>", "#include <a//c.h>"),
        ("a+ +b", "a++b"),
        ("int a;", "inta;"),
    ],
)
def test_no_text_is_taken_for_a_comment(tmp_path: Path, text: str, other: str) -> None:
    assert code(tmp_path, text) != code(tmp_path, other)


def test_python_counts_by_its_syntax(tmp_path: Path) -> None:
    assert code(tmp_path, model=MODEL.replace("# as it is\n        ", "")) == code(tmp_path)
    assert code(tmp_path, model=MODEL.replace("(x, 2)", "(x,   2)  # twice")) == code(tmp_path)
    assert code(tmp_path, model=MODEL.replace("(x, 2)", "(x, 3)")) != code(tmp_path)
    for strange in (f"{MODEL}x = {'+'.join(['1'] * 5000)}\n", f"{MODEL}x = \n"):
        assert code(tmp_path, model=strange) == code(tmp_path, model=strange) != code(tmp_path)


def test_other_files_count_byte_by_byte(tmp_path: Path) -> None:
    assert code(tmp_path, constants_bin="1") != code(tmp_path)
    assert code(tmp_path, constants_bin="1") != code(tmp_path, constants_bin="2")
    assert code(tmp_path, constants_bin="1 // x") != code(tmp_path, constants_bin="1")


def test_what_the_manifest_says_of_kernels_does_not_count(tmp_path: Path) -> None:
    says = '{"host": [], "kernels": [{"strategy": "STRATEGY"}]}'
    plain = code(tmp_path, program_json=says)
    assert code(tmp_path, program_json=says.replace("STRATEGY", "tiles")) == plain
    assert code(tmp_path, program_json=says.replace("[],", '["cuda_graph"],')) != plain
    reads = MODEL + "TEXT = open('program.json').read()\n"
    plain = code(tmp_path, model=reads, program_json=says)
    assert code(tmp_path, model=reads, program_json=says.replace("STRATEGY", "tiles")) != plain


def test_a_link_has_no_fingerprint(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": SOURCE})
    assert len(fingerprint(program)) == 32
    (program / "more.cuh").symlink_to("/etc/passwd")
    assert fingerprint(program) == ""


@pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
def test_a_build_says_it_with_and_without_linking(tmp_path: Path) -> None:
    program = programs.write(tmp_path / "program", {"k.cu": SOURCE, "model_new.py": MODEL})
    copy = programs.write(tmp_path / "copy", {"k.cu": SOURCE.replace("// Adds one.", ""), "model_new.py": MODEL})
    cache = tmp_path / "cache"
    library = nvcc.build(program, arch=ARCH, cache=cache, link=True, machine=True)
    cubin, again = build_many([program, copy], arch=ARCH, cache=cache, link=False, machine=True)
    assert len(cubin.code) == 32
    assert cubin.code == library.code == again.code
    assert cubin.kernels[0].machine == again.kernels[0].machine != ""
    assert nvcc.build(program, arch=ARCH, cache=cache, link=False).code == ""
    programs.write(program, {"k.cu": SOURCE.replace("blockIdx.x", "blockIndex.x")})
    broken = nvcc.build(program, arch=ARCH, cache=cache, link=False, machine=True)
    assert (broken.ok, broken.code) == (False, "")
