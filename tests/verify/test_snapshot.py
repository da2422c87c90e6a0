"""What is judged is a copy that nobody can change, made of plain files."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.verify.integrity.snapshot import check_readable, snapshot
from tests.verify import programs


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
    (program / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(program / "here"))
        with pytest.raises(BadInput, match="here in the program is no regular file"):
            snapshot(program, tmp_path / "copy")
    for device in ("/dev/null", "/dev/zero"):
        with pytest.raises(BadInput, match="is no regular file"):
            snapshot(Path(device), tmp_path / device[-4:])


def test_a_link_to_itself_is_a_link(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    os.symlink("..", program / "kernels" / "up")
    with pytest.raises(BadInput, match="kernels/up in the program is a link"):
        snapshot(program, tmp_path / "copy")


@pytest.mark.parametrize("kind", ["file", "folder", "program"])
def test_what_may_not_be_read_is_said(kind: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o777)
        program = programs.kernel_program(folder / "program")
        locked = {"file": program / "kernels" / "gate.cu", "folder": program / "kernels", "program": program}[kind]
        locked.chmod(0)
        before = os.geteuid()
        if before == 0:                    # who may read everything
            os.seteuid(65534)
        try:
            for read in (check_readable, lambda program: snapshot(program, folder / "copy")):
                with pytest.raises(BadInput, match=f"{locked.name}.* cannot be read .Permission denied.: allow reading it"):
                    read(program)
        finally:
            os.seteuid(before)
            locked.chmod(0o755)


def test_what_fails_while_it_is_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"mem cannot be read \(Input/output error\)"):
        snapshot(Path("/proc/self/mem"), tmp_path / "copy")


def test_an_odd_path_is_said_before_anything_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for odd in (tmp_path / "pipe.py", Path("/dev/null")):
        with pytest.raises(BadInput, match=f"{odd} is no regular file: give a folder with model_new.py"):
            check_readable(odd)
    with pytest.raises(BadInput, match="mem cannot be read"):
        check_readable(Path("/proc/self/mem"))
    with open(tmp_path / "large.py", "wb") as large:
        large.truncate(300 * 2**20)
    with pytest.raises(BadInput, match="it has over 256 MiB"):
        check_readable(tmp_path / "large.py")


@pytest.mark.parametrize("moment", ["listed", "copied"])
def test_what_vanishes_is_said(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs.kernel_program(tmp_path / "program")
    name = {"listed": "access", "copied": "open"}[moment]
    real = getattr(os, name)

    def late(path: Path, flags: int, **more: bool) -> int | bool:
        if Path(path).name == "gate.cu":
            Path(path).unlink()
        found: int | bool = real(path, flags, **more)
        return found

    monkeypatch.setattr(os, name, late)
    with pytest.raises(BadInput, match=r"gate\.cu in the program has vanished"):
        snapshot(program, tmp_path / "copy")


@pytest.mark.parametrize("much", ["files", "folders", "bytes", "depth"])
def test_too_much_is_refused_at_once(much: str, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    (program / "more").mkdir()
    if much == "bytes":
        with open(program / "more" / "weights.safetensors", "wb") as file:
            file.truncate(10 * 2**30)
    elif much == "depth":
        (program / "/".join("d" * 100)).mkdir(parents=True)
    for number in range(3000 if much in ("files", "folders") else 0):
        path = program / "more" / f"{number}"
        path.touch() if much == "files" else path.mkdir()
    started = time.monotonic()
    with pytest.raises(BadInput, match=r"is no program: .* Give the folder with model_new.py alone"):
        snapshot(program, tmp_path / "copy")
    assert time.monotonic() - started < 5
    assert not (tmp_path / "copy").exists(), "nothing is copied before all is looked through"


def test_a_name_that_nobody_can_print_is_said(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    (program / os.fsdecode(b"odd\xff.cu")).touch()
    with pytest.raises(BadInput, match="name no terminal can show") as caught:
        snapshot(program, tmp_path / "copy")
    str(caught.value).encode()
