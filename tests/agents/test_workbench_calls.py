"""What is read from a workbench's folder and sent, and what a caller is told when nobody answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stitchcuda.agents.workbench_calls import MOST_ENTRIES, ask, read_sources
from stitchcuda.engineers.agents.tools import MOST_CHARACTERS
from stitchcuda.engineers.agents.workbench_client import read_program
from stitchcuda.errors import BadInput, Unavailable


def test_the_same_files_are_sent_as_by_the_commands(tmp_path: Path) -> None:
    (tmp_path / "kernels/deep/er").mkdir(parents=True)
    (tmp_path / "kernels/__pycache__").mkdir()
    for name in ("model_new.py", "kernels/a.cu", "kernels/a_binding.cc", "kernels/deep/er/b.cuh"):
        (tmp_path / name).write_text(f"// {name}: ü\n", encoding="utf-8")
    for name in ("kernels/a.o", "kernels/notes.txt", "kernels/__pycache__/a.pyc", "TASK.md"):
        (tmp_path / name).write_bytes(b"\xff")
    assert read_sources(tmp_path) == read_program(tmp_path)
    assert len(read_sources(tmp_path)) == 4


def link(path: Path) -> None:
    (path / "kernels/a.cu").symlink_to("/etc/passwd")


def link_inside(path: Path) -> None:
    (path / "kernels/a.cu").symlink_to(path / "model_new.py")


def linked_folder(path: Path) -> None:
    (path / "kernels").rmdir()
    (path / "kernels").symlink_to("/etc")


def linked_model(path: Path) -> None:
    (path / "model_new.py").unlink()
    (path / "model_new.py").symlink_to("/etc/passwd")


def pipe(path: Path) -> None:
    os.mkfifo(path / "kernels/a.cu")


def binary(path: Path) -> None:
    (path / "kernels/a.cu").write_bytes(b"\xff\xfe\x00")


def too_long(path: Path) -> None:
    for number in range(5):
        (path / f"kernels/a{number}.cu").write_text("x" * MOST_CHARACTERS)


def endless(path: Path) -> None:
    with open(path / "kernels/a.cu", "wb") as file:
        file.truncate(1 << 40)


def too_many(path: Path) -> None:
    for number in range(MOST_ENTRIES + 1):
        (path / f"kernels/{number}.txt").touch()


def too_deep(path: Path) -> None:
    (path / "kernels" / "/".join("d" * 40)).mkdir(parents=True)


def no_model(path: Path) -> None:
    (path / "model_new.py").unlink()


@pytest.mark.parametrize(("spoil", "text"), [
    (link, "links are not followed"), (link_inside, "links are not followed"), (linked_folder, "links are not followed"),
    (linked_model, "links are not followed"), (pipe, "no regular file"), (binary, "no text in UTF-8"),
    (too_long, "at most 1,000,000 characters"), (endless, "at most 1,000,000 characters"),
    (too_many, "more than 2,000 files"), (too_deep, "too deep"), (no_model, "there is no model_new.py"),
])  # fmt: skip
def test_folders_that_are_not_read(tmp_path: Path, spoil: Callable[[Path], None], text: str) -> None:
    (tmp_path / "model_new.py").write_text("class ModelNew: ...\n")
    (tmp_path / "kernels").mkdir()
    spoil(tmp_path)
    with pytest.raises(BadInput, match=text):
        read_sources(tmp_path)


def test_a_workbench_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(BadInput, match="there is no workbench in"):
        read_sources(tmp_path / "link")


@pytest.mark.parametrize(("answer", "text"), [
    (b"", "stopped before it answered"), (b"garbage\n", "stopped before it answered"), (b'{"a', "stopped before it answered"),
])  # fmt: skip
def test_an_answer_that_is_none(tmp_path: Path, answer: bytes, text: str) -> None:
    folder = tmp_path / ("a long name " * 15)  # longer than a socket's address may be
    (folder / ".workbench").mkdir(parents=True)
    place = os.open(folder / ".workbench", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{place}/socket")
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Unavailable, match=text):
            anyio.run(ask, folder, {"tool": "status"})
        thread.join()
    os.close(place)
    with pytest.raises(Unavailable, match="nobody serves a workbench"):
        anyio.run(ask, folder, {"tool": "status"})


def test_a_socket_elsewhere_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "elsewhere/socket"))
        listener.listen()
        (tmp_path / "one/.workbench").mkdir(parents=True)
        (tmp_path / "one/.workbench/socket").symlink_to(tmp_path / "elsewhere/socket")
        with pytest.raises(Unavailable, match="has no socket of a session"):
            anyio.run(ask, tmp_path / "one", {"tool": "status"})
        (tmp_path / "two").mkdir()
        (tmp_path / "two/.workbench").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(Unavailable, match="nobody serves a workbench"):
            anyio.run(ask, tmp_path / "two", {"tool": "status"})
