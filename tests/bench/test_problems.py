"""What sets of problems and of programs are read as, and what is said of those that cannot be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stitchcuda.bench.problems import file_name, parse_ids, read_problems
from stitchcuda.bench.programs import read_pairs
from stitchcuda.errors import BadInput

REFERENCE = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
PROGRAM = REFERENCE.replace("Model(", "ModelNew(")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small copy of KernelBench's folders."""
    for level, names in {1: ["10_C", "2_B", "1_A"], 3: ["21_Net"]}.items():
        folder = tmp_path / "checkout" / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.py").write_text(REFERENCE)
    return tmp_path / "checkout"


def test_levels_are_in_the_order_of_their_numbers(checkout: Path, tmp_path: Path) -> None:
    found = read_problems("kernelbench", checkout, tmp_path, levels=(1, 3))
    assert [problem.name for problem in found] == ["level1-1_A", "level1-2_B", "level1-10_C", "level3-21_Net"]
    assert found[1].reference == checkout.resolve() / "KernelBench" / "level1" / "2_B.py"


def test_level_3_is_the_default_and_ids_choose(checkout: Path, tmp_path: Path) -> None:
    assert [problem.name for problem in read_problems("kernelbench", checkout, tmp_path)] == ["level3-21_Net"]
    chosen = read_problems("kernelbench", checkout, tmp_path, levels=(1,), ids="2,5-10")
    assert [problem.name for problem in chosen] == ["level1-2_B", "level1-10_C"]


def test_a_folder_s_references_are_its_files_with_a_model(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text(REFERENCE)
    (tmp_path / "a.py").write_text("x = 1\n")
    assert [problem.name for problem in read_problems("folder", tmp_path, tmp_path)] == ["b"]


def test_a_table_s_references_are_written_out(tmp_path: Path) -> None:
    table = tmp_path / "tasks.jsonl"
    lines = [json.dumps({"name": "gelu / big", "source": REFERENCE}), "", json.dumps({"source": REFERENCE}), ""]
    table.write_text("\n".join(lines))
    found = read_problems("jsonl", table, tmp_path / "out")
    assert [problem.name for problem in found] == ["gelu-big", "3"]
    assert found[0].reference.read_text() == REFERENCE


@pytest.mark.parametrize(("text", "ranges"), [("1", [(1, 1)]), ("1,4-6", [(1, 1), (4, 6)]), (" 2 - 3 ", [(2, 3)])])
def test_ids(text: str, ranges: list[tuple[int, int]]) -> None:
    assert parse_ids(text) == ranges


def test_names_that_are_cut_or_not_of_ascii_stay_apart() -> None:
    long = "level1-63_conv_standard_2D__square_input__square_kernel-sample"
    names = [file_name(text) for text in (f"{long}0", f"{long}1", "问题一", "问题二", "gelu / big")]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,60}", name) for name in names)
    assert names[-1] == "gelu-big"


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1"])
def test_ids_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match=r"--ids"):
        parse_ids(text)


def test_what_cannot_be_read_is_told_in_one_sentence(checkout: Path, tmp_path: Path) -> None:
    table = tmp_path / "bad.jsonl"
    for text, said in (("{", "line 1 is no JSON"), ("[]", "is no JSON object"), ('{"name": "a"}', "has no reference")):
        table.write_text(text + "\n")
        with pytest.raises(BadInput, match=said):
            read_problems("jsonl", table, tmp_path)
    table.write_text((json.dumps({"name": "a", "source": REFERENCE}) + "\n") * 2)
    for source, path, levels, ids, said in (
        ("jsonl", table, (), None, "two entries that would both be called a"),
        ("kernelbench", tmp_path, (), None, "no checkout of KernelBench"),
        ("kernelbench", checkout, (7,), None, "levels 1 to 4"),
        ("kernelbench", checkout, (1,), "77", "has no problem 77"),
        ("kernelbench", checkout, (1,), "70-80", "has none of these problems"),
        ("folder", tmp_path / "none", (), None, "is no folder"),
        ("folder", checkout, (), None, "holds no problem"),
        ("folder", checkout, (1,), None, "folder has no levels"),
        ("table", checkout, (), None, "no source of problems"),
    ):
        with pytest.raises(BadInput, match=said):
            read_problems(source, path, tmp_path / "out", levels=levels, ids=ids)


def test_pairs_of_a_published_table(tmp_path: Path) -> None:
    row = {"level_id": 2, "task_id": 7, "ref_code": REFERENCE, "custom_code": PROGRAM, "score_default": 2.5}
    table = tmp_path / "h100.json"
    table.write_text("".join(json.dumps(line) + "\n" for line in (row, {**row, "task_id": 8, "custom_code": None})))
    (pair,) = read_pairs("jsonl", table, tmp_path / "out")
    assert (pair.name, pair.claimed) == ("level2-7", 2.5)
    assert pair.program.read_text() == PROGRAM
    assert pair.reference is not None
    assert pair.reference.read_text() == REFERENCE


def test_pairs_of_a_benchmark_s_run(checkout: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("level_1_problem_2_sample_0_kernel.py", "level_1_problem_9_sample_1_kernel.py", "config.yaml"):
        (run / name).write_text(PROGRAM)
    known, unknown = read_pairs("kernelbench", run, tmp_path, references=checkout)
    assert known.name == "level1-2_B-sample0"
    assert known.reference == checkout.resolve() / "KernelBench" / "level1" / "2_B.py"
    assert unknown.reference is None
    assert "has no problem 9" in unknown.why
    assert [pair.name for pair in read_pairs("kernelbench", run, tmp_path, references=checkout, ids="2")] == [known.name]
    with pytest.raises(BadInput, match="needs --references"):
        read_pairs("kernelbench", run, tmp_path)


def test_pairs_of_work_folders(tmp_path: Path) -> None:
    folders = {"a": ("model.py", "model_new.py"), "b": ("reference.py", "program.py"), "c": ("program.py",), "d": ()}
    for name, files in folders.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text(PROGRAM)
    found = read_pairs("pairs", tmp_path, tmp_path)
    assert [(pair.name, pair.program.name, pair.reference and pair.reference.name) for pair in found] == [
        ("a", "model_new.py", "model.py"), ("b", "program.py", "reference.py"), ("c", "program.py", None),
    ]  # fmt: skip
    with pytest.raises(BadInput, match="beside it"):
        read_pairs("pairs", tmp_path, tmp_path, references=tmp_path)
