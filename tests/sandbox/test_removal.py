"""A folder is removed whatever is in it, and nothing beyond it, also while somebody swaps folders for links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stitchcuda.sandbox import removal


def deep(folder: Path, levels: int) -> None:
    """Folders in folders, with a file in each and modes that forbid to look inside."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir("below", dir_fd=here)
        inner = os.open("below", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.fchmod(here, 0o000)
        os.close(here)
        here = inner
    os.close(here)


def test_what_is_nested_deep_is_removed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    deep(tmp_path / "folder", 600)
    removal.remove(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "sub").mkdir(parents=True)
    (victim / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(victim)
    removal.remove(tmp_path / "folder")
    removal.clear(tmp_path / "missing")
    (tmp_path / "link").symlink_to(victim)
    removal.remove(tmp_path / "link")
    removal.clear(tmp_path / "link")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "sub", "victim"]


@pytest.mark.parametrize("call", [1, 2])
def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """After the folder was listed (1), or a folder in it (2), what was found there is another one."""
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    (victim / "sub" / "deep").mkdir(parents=True)
    (victim / "sub" / "file").write_text("kept")
    (folder / "a" / "b" / "c").mkdir(parents=True)
    calls, listed = [0], removal._folders

    def swapping(held: int) -> list[str]:
        found = listed(held)
        calls[0] += 1
        if calls[0] == call:
            place = folder / "a" if call == 1 else folder / "a" / "b"
            place.rename(tmp_path / "elsewhere")
            place.symlink_to(victim)
        return found

    monkeypatch.setattr(removal, "_folders", swapping)
    removal.remove(folder)
    assert calls[0] > call
    assert not folder.exists()
    assert (victim / "sub" / "file").read_text() == "kept"
    assert (victim / "sub" / "deep").is_dir()


def test_a_folder_that_fills_again_and_again_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "first").mkdir()
    listed = removal._folders

    def filling(held: int) -> list[str]:
        os.makedirs(folder / "again", exist_ok=True)
        return listed(held)

    monkeypatch.setattr(removal, "_folders", filling)
    monkeypatch.setattr(removal, "_MOST_S", 0.2)
    removal.remove(folder)
    assert folder.is_dir()
