"""A folder that a program can write holds whatever it likes: only a bounded regular file is opened, no pipe is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.tools.profile.untrusted_file import open_foreign


def test_a_file_of_at_most_so_many_bytes_is_read(tmp_path: Path) -> None:
    (place := tmp_path / "file").write_bytes(b"1234")
    with open_foreign(place, 4) as file:
        assert file.read() == b"1234"
    with pytest.raises(Unavailable, match="is larger than 0 KiB"):
        open_foreign(place, 3)
    with pytest.raises(Unavailable, match="cannot be read: no such file"):
        open_foreign(tmp_path / "none")


@pytest.mark.parametrize("kind", ["pipe", "link to a device", "link to a file", "folder"])
def test_nothing_else_is(kind: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the user's")
    place = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero" if kind.endswith("device") else tmp_path / "secret")
    with pytest.raises(Unavailable, match="cannot be read"):
        open_foreign(place)
