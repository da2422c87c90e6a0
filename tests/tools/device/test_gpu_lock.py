"""Whose turn it is on a GPU: timings wait for everybody, others only for timings, and devices do not wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from stitchcuda.tools.device import gpu_lock

Turn = Callable[[str], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def waits(turn: Turn, device: str, release: Callable[[], object]) -> bool:
    """Whether somebody who wants this turn has to wait until `release` was called."""
    there = threading.Event()

    def enter() -> None:
        with turn(device):
            there.set()

    thread = threading.Thread(target=enter)
    thread.start()
    waited = not there.wait(0.3)
    release()
    thread.join(10)
    assert there.is_set()
    return waited


@pytest.mark.parametrize(
    ("first", "second", "device", "expected"),
    [
        (gpu_lock.exclusive, gpu_lock.exclusive, "a", True),
        (gpu_lock.exclusive, gpu_lock.shared, "a", True),
        (gpu_lock.shared, gpu_lock.exclusive, "a", True),
        (gpu_lock.shared, gpu_lock.shared, "a", False),
        (gpu_lock.exclusive, gpu_lock.exclusive, "b", False),
    ],
)
def test_who_waits_for_whom(first: Turn, second: Turn, device: str, expected: bool) -> None:
    held = first("a")
    held.__enter__()
    assert waits(second, device, lambda: held.__exit__(None, None, None)) is expected


def test_nobody_new_starts_while_a_timing_waits() -> None:
    held = gpu_lock.shared("a")
    held.__enter__()
    begun, timed = threading.Event(), threading.Event()

    def timing() -> None:
        begun.set()
        with gpu_lock.exclusive("a"):
            timed.set()

    thread = threading.Thread(target=timing)
    thread.start()
    begun.wait(10)
    assert not timed.wait(0.3)

    assert waits(gpu_lock.shared, "a", lambda: held.__exit__(None, None, None))
    thread.join(10)
    assert timed.is_set()


def test_who_came_late_is_told_how_late() -> None:
    late: list[float] = []

    def together(device: str) -> AbstractContextManager[None]:
        return gpu_lock.shared(device, late.append)

    held = gpu_lock.exclusive("a")
    held.__enter__()
    assert waits(together, "a", lambda: held.__exit__(None, None, None))
    assert 0.2 < late[0] < 10


def test_a_lock_counts_what_its_process_waited() -> None:
    turn, held = gpu_lock.GpuLock("a"), gpu_lock.exclusive("a")
    held.__enter__()
    assert waits(lambda device: turn.hold(alone=False), "a", lambda: held.__exit__(None, None, None))
    assert 0.2 < turn.waited_s < 10


def test_threads_of_one_process_share_its_turn() -> None:
    """Or one would wait for somebody who waits for the other."""
    turn, inside, enough = gpu_lock.GpuLock("a"), threading.Event(), threading.Event()

    def beside() -> None:
        with turn.hold(alone=False):
            inside.set()
            enough.wait(10)

    def other() -> None:
        with gpu_lock.exclusive("a"):
            timed.set()

    timed, thread = threading.Event(), threading.Thread(target=beside)
    with turn.hold(alone=False):
        somebody = threading.Thread(target=other)
        somebody.start()                   # from here on nobody new gets a turn
        assert not timed.wait(0.3)
        thread.start()
        assert inside.wait(10)
    assert not timed.wait(0.3)             # the thread is still in it
    enough.set()
    assert timed.wait(10)
    somebody.join(10)
    thread.join(10)


def test_a_turn_alone_holds_what_is_asked_inside() -> None:
    turn = gpu_lock.GpuLock("a")
    with turn.hold(alone=True), turn.hold(alone=False):
        assert waits(gpu_lock.shared, "b", lambda: None) is False
    assert waits(gpu_lock.exclusive, "a", lambda: None) is False
