"""What is judged is a copy that nobody can change, made of plain files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.tools.snapshot import snapshot
from tests.tools import programs


def test_a_copy_of_the_bytes(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    (program / "__pycache__").mkdir()
    (program / "__pycache__" / "model_new.cpython-311.pyc").write_bytes(b"old code")
    copy = snapshot(program, tmp_path / "judge" / "copy")
    before = (copy / "kernels" / "gate.cu").read_text()
    (program / "kernels" / "gate.cu").write_text("changed between build and run")
    assert (copy / "kernels" / "gate.cu").read_text() == before
    assert not (copy / "__pycache__").exists()
    assert (copy / "model_new.py").stat().st_mode & 0o222 == 0


def test_one_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class ModelNew: ...")
    assert snapshot(tmp_path / "mine.py", tmp_path / "copy").name == "mine.py"


@pytest.mark.parametrize("inside", ["kernels/extra.cuh", "data"])
def test_links_are_refused(inside: str, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    os.symlink("/etc", program / inside)
    with pytest.raises(BadInput, match=f"{inside} in the program is a link"):
        snapshot(program, tmp_path / "copy")


def test_special_files_are_refused(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    os.mkfifo(program / "pipe")
    with pytest.raises(BadInput, match="pipe in the program is no regular file"):
        snapshot(program, tmp_path / "copy")
