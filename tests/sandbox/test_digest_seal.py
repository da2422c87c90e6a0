"""Files are handed out as they were put there, from a cache that can be written and from one that cannot."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox import digest_seal


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    (tmp_path / "made").write_text("a library")
    (tmp_path / "cache").mkdir()
    digest_seal.put(tmp_path / "made", tmp_path / "cache" / "target")
    return tmp_path / "cache" / "target"


def test_what_was_put_there_is_intact_until_somebody_changes_it(sealed: Path) -> None:
    assert digest_seal.state(sealed) == "intact"
    assert digest_seal.state(sealed.parent / "other") == "missing"
    sealed.write_text("another library")
    assert digest_seal.state(sealed) == "changed"
    assert digest_seal.notes() == ("target in the cache had been changed and was built again",)


@pytest.mark.parametrize("why", [errno.EACCES, errno.EROFS])
def test_a_cache_that_can_only_be_read_is_read(sealed: Path, monkeypatch: pytest.MonkeyPatch, why: int) -> None:
    really = os.open

    def only_read(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(why, os.strerror(why))
        return really(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", only_read)
    assert digest_seal.state(sealed) == "intact"


def test_another_failure_of_the_lock_is_told(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="no space"):
        digest_seal.state(sealed)
