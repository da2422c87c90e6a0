"""A line of an inline source is named where its author wrote it, or counted in the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.verify.program.inline_sources import find_place

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
