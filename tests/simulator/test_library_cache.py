"""The simulator's own libraries are built once for all workspaces, by one builder at a time, and never taken from strangers."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stitchcuda.sandbox import digest_seal
from stitchcuda.simulator import library_cache
from stitchcuda.simulator.build import build_simulated, runtime_library
from stitchcuda.simulator.library_cache import CacheUnusable, build_in_home, home
from stitchcuda.simulator.torch_extension import version
from tests.simulator.programs import HOME

KERNEL = '__global__ void k(int* x) { *x = 5; }\nextern "C" int value() { int x = 0; k<<<1, 1>>>(&x); return x; }\n'
DIES = """
import os, signal, sys, time
from pathlib import Path
from stitchcuda.simulator import library_cache as homes
place = homes.home(Path(sys.argv[1]), "v")
def make(place):
    (place / "objects" / "building-x").mkdir()
    (place / "shared" / "linking-x").mkdir()
    (place / "shared" / "lib.so").write_text("half of")
    print("building", flush=True)
    time.sleep(60)
homes.build_in_home(make, place, place)
"""
HOLDS = """
import sys, time
from pathlib import Path
from stitchcuda.simulator import library_cache as homes
homes.home(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def ran(program: str, *words: object) -> subprocess.Popen[str]:
    """A process of its own that has printed its first line."""
    command = [sys.executable, "-c", program, *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def put(place: Path, text: str = "made") -> Path:
    target, scratch = place / "shared" / "lib.so", place / "shared" / f"linking-{threading.get_ident()}"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    if digest_seal.state(target) != "intact":
        scratch.write_text(text)
        digest_seal.put(scratch, target)
    return target


def test_a_second_workspace_compiles_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    first, second = (build_simulated([tmp_path / "k.cu"], name="k", cache=tmp_path / one, home=HOME) for one in ("a", "b"))
    for library in (first, second):
        assert str(runtime_library(HOME.parent, HOME)).encode() in library.read_bytes()
        assert len(list((library.parents[1] / "objects").glob("*.o"))) == 1
        assert not (library.parents[1] / "shared").exists()


def test_a_library_that_was_changed_or_cut_short_is_made_again(tmp_path: Path) -> None:
    place = home(tmp_path, "v")
    shutil.copytree(HOME, place, dirs_exist_ok=True)
    library = runtime_library(tmp_path / "cache", place)
    good = library.read_bytes()
    digest_seal.notes()
    for bad in (good[: len(good) // 2], good[:-1] + b"x", b""):
        library.write_bytes(bad)
        assert runtime_library(tmp_path / "cache", place) == library
        assert len(library.read_bytes()) == len(good)
        assert digest_seal.state(library) == "intact"
        assert digest_seal.notes() == (f"{library.name} in the cache had been changed and was built again",)
    library.with_name(library.name + ".sha256").unlink()
    library.write_bytes(good[:100])
    assert len(runtime_library(tmp_path / "cache", place).read_bytes()) == len(good)


def test_one_builds_and_the_others_wait(tmp_path: Path) -> None:
    place, inside, built = home(tmp_path, "v"), [], []

    def make(place: Path) -> Path:
        inside.append(1)
        assert len(inside) == 1
        if digest_seal.state(place / "shared" / "lib.so") != "intact":
            built.append(1)
            time.sleep(0.1)
        target = put(place)
        inside.pop()
        return target

    with ThreadPoolExecutor(4) as pool:
        places = {one.result() for one in [pool.submit(build_in_home, make, place, tmp_path / "otherwise") for _ in range(8)]}
    assert places == {place / "shared" / "lib.so"}
    assert len(built) == 1


def test_a_builder_that_is_killed_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    process = ran(DIES, tmp_path)
    place = home(tmp_path, "v")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert build_in_home(put, place, tmp_path / "otherwise").read_text() == "made"
    assert sorted(os.listdir(place / "shared")) == ["lib.so", "lib.so.sha256"]
    assert os.listdir(place / "objects") == []


def test_a_builder_that_hangs_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ran(DIES, tmp_path)
    monkeypatch.setattr(library_cache, "WAIT_S", 0.2)
    digest_seal.notes()
    assert build_in_home(put, home(tmp_path, "v"), tmp_path / "otherwise") == tmp_path / "otherwise" / "shared" / "lib.so"
    assert "another process has been building" in digest_seal.notes()[0]
    process.kill()
    process.wait()


def test_who_may_read_the_libraries_keeps_no_builder_waiting(tmp_path: Path) -> None:
    place = home(tmp_path, "v")
    held = [os.open(path, os.O_RDONLY) for path in (place / "shared", put(place))]
    for handle in held:
        fcntl.flock(handle, fcntl.LOCK_EX)
    builder = threading.Thread(target=build_in_home, args=(put, place, tmp_path / "otherwise"), daemon=True)
    builder.start()
    builder.join(5)
    assert not builder.is_alive()
    for handle in held:
        os.close(handle)


def test_a_home_that_is_full_is_left_with_one_note(tmp_path: Path) -> None:
    place, tried = home(tmp_path, "v"), []

    def make(place: Path) -> Path:
        tried.append(place)
        if place.parent == tmp_path and place.name == "v":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return put(place)

    digest_seal.notes()
    for _ in range(2):
        assert build_in_home(make, place, tmp_path / "otherwise").is_relative_to(tmp_path / "otherwise")
    assert tried == [place, tmp_path / "otherwise", tmp_path / "otherwise"]
    assert digest_seal.notes() == (library_cache.unused_note("[Errno 28] No space left on device"),)


@pytest.mark.parametrize("inner", [".", "v", "v/shared", "v/objects"])
def test_what_others_may_write_to_is_not_used(tmp_path: Path, inner: str) -> None:
    (tmp_path / "kept" / inner).mkdir(parents=True, exist_ok=True)
    (tmp_path / "kept" / inner).chmod(0o775)
    with pytest.raises(CacheUnusable, match="others may write to"):
        home(tmp_path / "kept", "v")
    if os.geteuid() == 0:
        (tmp_path / "kept" / inner).chmod(0o755)
        os.chown(tmp_path / "kept" / inner, 12345, -1)
        with pytest.raises(CacheUnusable, match="belongs to another user"):
            home(tmp_path / "kept", "v")


def test_a_link_in_place_of_a_version_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "v").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheUnusable, match="cannot be used"):
        home(tmp_path / "kept", "v")


def test_what_cannot_be_made_is_a_sentence() -> None:
    with pytest.raises(CacheUnusable, match=r"/proc/nowhere cannot be used \(no such file or directory\)"):
        home(Path("/proc/nowhere"), "v")


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_whatever_the_users_mask_is_only_the_user_writes(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        place = home(tmp_path / "kept", "v")
        build_in_home(put, place, tmp_path / "otherwise")
    finally:
        os.umask(before)
    for path in (tmp_path / "kept", *(tmp_path / "kept").rglob("*")):
        assert not path.stat().st_mode & 0o022, path


def test_old_versions_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    oldest = ran(HOLDS, tmp_path, "0")
    for number in range(1, library_cache.KEPT + 2):
        ran(HOLDS, tmp_path, number).communicate("")
        os.utime(tmp_path / str(number), (number, number))
    os.utime(tmp_path / "0", (0, 0))
    (tmp_path / f".old-{'0a' * 8}").mkdir()
    others = [".old-papers", "photos", "project/shared", "project/objects", "project/src"]
    for name in others:                    # somebody made it a folder with other things in it
        (tmp_path / name).mkdir(parents=True)
        os.utime(tmp_path / name.split("/")[0], (0, 0))
    home(tmp_path, "new")
    newest = range(library_cache.KEPT + 2 - (library_cache.KEPT - 1), library_cache.KEPT + 2)
    kept = [*map(str, newest), "0", "new", ".old-papers", "photos", "project"]
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    assert all((tmp_path / name).is_dir() for name in others)
    oldest.communicate("")


def test_another_time_of_a_header_is_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from stitchcuda.simulator import torch_extension

    assert version() == HOME.name
    monkeypatch.setattr(torch_extension, "_STANDARD", "-std=c++23")
    assert version() != HOME.name
