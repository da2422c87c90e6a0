"""Which files count as part of a source: whatever it includes, however that is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.tools.build import program_sources


def reached(root: Path, includes: tuple[Path, ...] = ()) -> list[str]:
    return [str(path.relative_to(root)) for path in program_sources.headers(root / "k.cu", root, includes)]


def written(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("name", ["factor.hh", "part.cu", "part.hxx", "part.tcc", "part.ipp", "factor", "deep/er/table.txt"])
def test_an_included_file_counts_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    written(tmp_path, **{"k.cu": f'#include "{name}"\n', name: "", "model_new.py": "", "other.cuh": ""})
    assert reached(tmp_path) == [name]


@pytest.mark.parametrize(
    "line",
    [
        "#include <inner.hh>", "  #  include/**/ \"inner.hh\"", "%:include \"inner.hh\"", "#incl\\\nude \"inner.hh\"",
        "#include_next <inner.hh>", "#import \"inner.hh\"", "#include \"sub/../inner.hh\"", "#include \\\n  \"inner.hh\"",
        "#if defined(__has_include) && __has_include(\"inner.hh\")\n#endif", "/*\n*/ #include \"inner.hh\"",
    ],
)  # fmt: skip
def test_includes_are_followed_however_they_are_written(tmp_path: Path, line: str) -> None:
    texts = {"k.cu": '#include "outer"\n', "outer": f"{line}\n", "inner.hh": '#include "k.cu"\n', "model_new.py": ""}
    assert reached(written(tmp_path, **texts)) == ["inner.hh", "outer"]


@pytest.mark.parametrize("line", ["#include NAME", "# include NAME(x) // \"a.hh\"", "#if __has_include(NAME)\n#endif"])
def test_where_a_macro_composes_the_name_every_file_counts(tmp_path: Path, line: str) -> None:
    assert reached(written(tmp_path, **{"k.cu": line, "a.hh": "", "b/c": ""})) == ["a.hh", "b/c"]


def test_prose_about_includes_does_not_count(tmp_path: Path) -> None:
    assert reached(written(tmp_path, **{"k.cu": "// the # of elements, to include padding\n", "a.hh": ""})) == []


def test_files_of_include_folders_and_of_one_name_count(tmp_path: Path) -> None:
    written(tmp_path, **{"k.cu": "#include <tile.hh>\n", "one/tile.hh": "", "two/tile.hh": ""})
    assert reached(tmp_path, (tmp_path / "one",)) == ["one/tile.hh", "two/tile.hh"]


def test_what_lies_outside_or_is_no_file_does_not_count(tmp_path: Path) -> None:
    root = written(tmp_path / "program", **{"k.cu": '#include "out.hh"\n#include "../beside.hh"\n#include "folder"\n'})
    (tmp_path / "beside.hh").write_text("")
    (root / "out.hh").symlink_to(tmp_path / "beside.hh")
    (root / "folder").mkdir()
    assert reached(root) == []


TORCH = "#include <torch/extension.h>\n"


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        ({"a.cu": "", "a_binding.cc": "", "b.cu": ""}, [["a.cu", "a_binding.cc"], ["b.cu"]]),
        ({"a.cu": "", "bind.cpp": ""}, [["a.cu", "bind.cpp"]]),
        ({"scan.cu": TORCH, "a.cu": "", "a_binding.cc": ""}, [["a.cu", "a_binding.cc"]]),
        ({"scan.cu": "", "scan.cpp": "#include <pybind11/pybind11.h>\n"}, []),
        ({"csrc/k.cu": "", "bind.cpp": TORCH}, []),
        ({"csrc/k.cu": '#include "all.h"\n', "include/all.h": "#include <ATen/ATen.h>\n"}, []),
        ({"csrc/k.cu": '#include "torch_free.h"\n', "csrc/torch_free.h": ""}, [["csrc/k.cu"]]),
    ],
)
def test_torch_extensions_are_left_to_torchs_load(tmp_path: Path, texts: dict[str, str], kept: list[list[str]]) -> None:
    root = written(tmp_path, **texts)
    groups = program_sources.groups(program_sources.sources(root), root)
    assert [[str(path.relative_to(root)) for path in group] for group in groups] == kept


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("load('k', cuda_files=['k.cu'])", False), ("load('k', cuda_files=['k.cu'], extra_ldflags=['-lcublasLt'])", False),
        ("load('k', cuda_files=['k.cu'], extra_cuda_cflags=['-DN=4'])", True), ("load('k', [], extra_cflags=FLAGS)", True),
        ("load('k', cuda_files=['k.cu'], extra_include_paths=[HERE])", True),
    ],
)  # fmt: skip
def test_flags_of_the_programs_own_are_seen(tmp_path: Path, call: str, expected: bool) -> None:
    assert program_sources.has_settings(written(tmp_path, **{"model_new.py": call, "k.cu": ""})) is expected
