"""Many builds at once: each program's own result, nothing compiled twice, never more compilers than allowed."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox import command
from stitchcuda.tools.build import build_pool, compilers
from stitchcuda.tools.device import toolkit
from tests.verify import programs

ARCH = "sm_90a"
NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")


class Watched:
    """Counts the compilers that tools/build/nvcc.py runs, and how many of them ran at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.orders: list[Sequence[str]] = []
        self.most = self._now = 0
        self._lock = threading.Lock()
        self._run = command.run
        monkeypatch.setattr(command, "run", self.run)

    def run(self, order: Sequence[str], **options: Any) -> command.Finished:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.orders.append(order)
        try:
            return self._run(order, **options)
        finally:
            with self._lock:
                self._now -= 1

    def count(self, suffix: str) -> int:
        return sum(any(part.endswith(suffix) for part in order) and "-c" in order for order in self.orders)


@NVCC
def test_each_program_gets_its_own_result_in_order(tmp_path: Path) -> None:
    broken = programs.KERNEL.replace("y[i] * scale", "y[i] * skale")
    given = [
        programs.kernel_program(tmp_path / "good"),
        programs.kernel_program(tmp_path / "broken", kernel=broken),
        tmp_path / "nowhere",
        programs.model(tmp_path / "plain"),
        programs.kernel_program(tmp_path / "other", kernel=programs.KERNEL.replace("128, 0", "64, 0")),
    ]
    results = build_pool.build_many(given, arch=ARCH, cache=tmp_path / "cache")
    assert [one.ok for one in results] == [True, False, False, True, True]
    assert results[1].log.startswith("kernels/gate.cu(5): error")
    assert "there is no program" in results[2].log
    assert results[3].skipped == "the program has no CUDA source"
    assert len(list((tmp_path / "cache" / "libraries").rglob("*.so"))) == 2


@NVCC
def test_a_source_of_several_programs_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    given = [programs.kernel_program(tmp_path / f"program{number}") for number in range(4)]
    (given[3] / "model_new.py").write_text("# another program around the same kernel\n")
    results = build_pool.build_many(given, arch=ARCH, cache=tmp_path / "cache", jobs=4)
    assert [one.ok for one in results] == [True] * 4
    assert (watched.count("gate.cu"), watched.count("gate_binding.cc"), len(watched.orders)) == (1, 1, 3)
    assert not [path for path in (tmp_path / "cache").rglob(".*.lock") if path.name.endswith((".o.lock", ".so.lock"))]


@pytest.mark.more
@NVCC
def test_no_more_compilers_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    given = [
        programs.kernel_program(tmp_path / f"program{number}", kernel=programs.KERNEL.replace("4, 128", f"{number + 1}, 128"))
        for number in range(3)
    ]
    results = build_pool.build_many(given, arch=ARCH, cache=tmp_path / "cache", jobs=1)
    assert [one.ok for one in results] == [True] * 3
    assert watched.most == 1
    assert watched.count("gate.cu") == 3


def test_turns_are_shared_by_all_threads() -> None:
    """Each thread stays until two are inside, so two really were, and a third never."""
    lock, both = threading.Lock(), threading.Barrier(2)
    inside = most = 0

    def work() -> None:
        nonlocal inside, most
        with compilers.slot():
            with lock:
                inside += 1
                most = max(most, inside)
            both.wait(30)
            with lock:
                inside -= 1
            both.wait(30)

    with compilers.limit(2), compilers.limit(3):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert most == 2


def test_one_maker_of_a_file(tmp_path: Path) -> None:
    made, makers = tmp_path / "object.o", []

    def work() -> None:
        with compilers.file_lock(made):
            if not made.exists():
                makers.append(threading.get_ident())
                made.write_text("made")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(makers) == 1
    assert list(tmp_path.iterdir()) == [made]


def test_a_small_machine_still_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "free_gib", lambda: 0.2)
    assert compilers.default_jobs() == 1
    monkeypatch.setattr(compilers, "free_gib", lambda: 1000.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert compilers.default_jobs() == 16
    monkeypatch.setattr(compilers, "free_gib", lambda: 6.5)
    assert compilers.default_jobs() == 6
