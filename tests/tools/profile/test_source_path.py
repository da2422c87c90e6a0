"""Paths of copies that tools name become the paths that the program's author knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.tools.profile.source_path import own_path


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("/dev/shm/copy-1/program-2/kernels/norm.cu", "kernels/norm.cu"),
        ("kernels/norm.cu", "kernels/norm.cu"),
        ("/elsewhere/norm.cu", "norm.cu"),   # the longest end that is there, and there is one of that name at the top
        ("/usr/include/vector", "/usr/include/vector"),
        ("../kernels/norm.cu", "kernels/norm.cu"),
        ("/etc/passwd", "/etc/passwd"),
    ],
)
def test_own_files_go_by_their_place_in_the_program(file: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    for place in ("kernels/norm.cu", "norm.cu", "model_new.py"):
        (tmp_path / place).write_text("")
    assert own_path(file, tmp_path) == told
    assert own_path(file, tmp_path / "model_new.py") == told
    assert own_path(file, None) == file


def test_a_path_below_a_folder_that_is_gone() -> None:
    assert own_path("/gone/program/one.cu", Path("/gone/program")) == "one.cu"


@pytest.mark.parametrize("file", [f"/{'a' * 300}.cu", f"{'a/' * 5000}b.cu", "nul\0.cu"])
def test_what_no_file_is_called_stays_as_it_is(file: str, tmp_path: Path) -> None:
    assert own_path(file, tmp_path) == file
