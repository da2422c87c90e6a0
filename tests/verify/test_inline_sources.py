"""A line of an inline source is named where its author wrote it, or counted in the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.verify.messages.build_orders import BuildOrder
from stitchcuda.verify.program.inline_sources import find_place, first_error

TEXT = "\nvoid a() {\n  asm volatile(\"x\");\n}\n"
ELSEWHERE = "the source given to load_inline('k')"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"new.py": f'import torch\nCUDA = """{TEXT}"""\n'}, ("new.py", 4)),
        ({"new.py": f'CUDA = f"""{TEXT.replace("{", "{{").replace("}", "}}")} {{3}}"""\n'}, ("new.py", 3)),
        ({"new.py": "import torch\n", "parts/more.py": f'N = 3\nCUDA = """{TEXT}"""\n'}, ("parts/more.py", 4)),
        ({"new.py": f'A = """{TEXT.replace("a()", "b()").replace("}", "// b")}"""\nCUDA = """{TEXT}"""\n'}, ("new.py", 8)),
        ({"new.py": "# asm volatile(\"x\");\nCUDA = made()\n"}, (ELSEWHERE, 3)),
        ({"new.py": f'A = """{TEXT}"""\nB = """{TEXT}"""\n'}, (ELSEWHERE, 3)),
        ({"new.py": f"CUDA = {TEXT!r}\n".replace('"', '\\"')}, (ELSEWHERE, 3)),
        ({"new.py": "no Python ("}, (ELSEWHERE, 3)),
    ],
    ids=["string", "formatted", "beside", "like another", "built", "twice", "escaped", "no Python"],
)
def test_places(sources: dict[str, str], expected: tuple[str, int], tmp_path: Path) -> None:
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    written = f"#include <torch/types.h>\n#include <cuda.h>\n{TEXT}\nextra\n"
    assert find_place(written, 5, (TEXT,), tmp_path, "k") == expected


def test_lines_that_are_nobodys(tmp_path: Path) -> None:
    assert find_place(f"#include <cuda.h>\n{TEXT}", 1, (TEXT,), tmp_path, "k") is None
    assert find_place(TEXT, 50, (TEXT,), tmp_path, "k") is None
    assert find_place("something else", 1, (TEXT,), tmp_path, "k") is None
    assert find_place("", 1, (), tmp_path, "k") is None


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ('cuda.cu(4): warning #177-D: x\ncuda.cu(5): error: identifier "gone" is undefined',
         'new.py line 4: identifier "gone" is undefined'),
        ("cuda.cu: In function 'void a()':\ncuda.cu:5:3: error: 'gone' was not declared",
         "new.py line 4: 'gone' was not declared"),
        ("cuda.cu:1:10: fatal error: x.h: No such file", "the bindings that load_inline('k') writes: x.h: No such file"),
        ("main.cpp:3:9: error: 'run' was not declared", "the bindings that load_inline('k') writes: 'run' was not declared"),
        ("own.cuh(7): catastrophic error: x", "own.cuh line 7: x"),
        ("ld: a.o: in function `f':\na.cpp:(.text+0x1): undefined reference to `g()'", "undefined reference to `g()'"),
        (
            "ld: main.o:(.text+0x0): multiple definition of `PyInit_k'; cuda.o: first defined here",
            "multiple definition of `PyInit_k': the module is defined twice, as by PYBIND11_MODULE and by functions=...",
        ),
        ("the option -x is not allowed\nbecause", "the option -x is not allowed"),
        ("", "the compiler said nothing"),
    ],
)  # fmt: skip
def test_the_first_error_is_named_where_its_author_wrote_it(log: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(f'import torch\nCUDA = """{TEXT}"""\n')
    order = BuildOrder(style="torch", name="k", inline=True, cuda=(TEXT,), cpp=("void run();",))
    texts = {"cuda.cu": f"#include <torch/types.h>\n#include <cuda.h>\n{TEXT}", "main.cpp": "void run();\n{\nm.def(run);\n}"}
    assert first_error(log, order, lambda: texts, tmp_path) == said
