"""Builds with switches run beside the ordinary ones, are there when they are needed, and end with the check."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stitchcuda.sandbox.limits import Limits
from stitchcuda.verify.processes.builder import Builder, SimulatorHome
from stitchcuda.verify.processes.early_builds import EarlyBuilds
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.processes.worker import Worker
from tests.simulator.programs import CACHE, HOME

ROOT = Path("/program")
KERNEL = """#include <cuda_runtime.h>
__global__ void k(int* x) { *x = 7; }
extern "C" int value() { int x = 0; k<<<1, 1>>>(&x); return x; }
"""


class Standing:
    """A builder that takes its time and says when it did what."""

    def __init__(self, cache: set[str], took: float = 0.2, *, fails: bool = False) -> None:
        self.cache, self.took, self.fails = cache, took, fails
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.stopped = threading.Event()
        self.closed = False

    def build(self, order: Mapping[str, Any], root: Path | None, seconds: float) -> dict[str, Any]:
        name = f"{order['name']}{'-skip' if order.get('skip') else ''}"
        self.begun[name] = time.monotonic()
        if name not in self.cache and self.stopped.wait(self.took):
            return {"error": "stopped", "kind": "build"}
        self.ended[name] = time.monotonic()
        if self.fails:
            return {"error": "no", "kind": "build"}
        self.cache.add(name)
        return {"path": name}

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.closed = True


def test_a_library_with_switches_is_made_beside_the_ordinary_one() -> None:
    cache: set[str] = set()
    first, second = Standing(cache), Standing(cache, 0.4)
    early = EarlyBuilds(first, second)
    assert early.build({"name": "a"}, ROOT, 60.0) == {"path": "a"}
    assert second.begun["a-skip"] < first.ended["a"]
    assert early.build({"name": "a"}, ROOT, 60.0) == {"path": "a"}  # once is enough
    assert early.build({"name": "a", "skip": True}, ROOT, 60.0) == {"path": "a-skip"}
    assert first.begun["a-skip"] >= second.ended["a-skip"]  # it was waited for, not made twice
    assert first.ended["a-skip"] - first.begun["a-skip"] < 0.1
    assert list(second.begun) == ["a-skip"]
    assert early.close() is second         # for the next check
    assert early.close() is None
    assert not second.closed


def test_what_fails_early_is_met_again_in_its_place() -> None:
    first, second = Standing(set()), Standing(set(), 0.01, fails=True)
    early = EarlyBuilds(first, second)
    early.build({"name": "a"}, ROOT, 60.0)
    assert early.build({"name": "a", "skip": True}, ROOT, 60.0) == {"path": "a-skip"}
    early.close()


def test_a_program_that_does_not_build_gets_no_second_build() -> None:
    first, second = Standing(set(), 0.05, fails=True), Standing(set(), 60.0)
    early = EarlyBuilds(first, second)
    assert early.build({"name": "a"}, ROOT, 60.0)["kind"] == "build"
    assert second.closed
    early.build({"name": "b"}, ROOT, 60.0)
    assert list(second.begun) == ["a-skip"]
    early.close()


def test_an_early_build_ends_with_the_check() -> None:
    second = Standing(set(), 60.0)
    early = EarlyBuilds(Standing(set(), 0.01), second)
    early.build({"name": "a"}, ROOT, 60.0)
    started = time.monotonic()
    assert early.close() is None
    assert early.close() is None
    assert time.monotonic() - started < 5.0
    assert second.closed
    assert early.build({"name": "a", "skip": True}, ROOT, 60.0)["error"] == "the verdict is over"
    assert early.build({"name": "b", "skip": True}, ROOT, 60.0)["error"] == "the verdict is over"
    assert early.build({"name": "a"}, ROOT, 60.0) == {"path": "a"}
    unused = Standing(set())
    assert EarlyBuilds(Standing(set()), unused).close() is unused  # nothing was ordered


def test_real_builders_share_a_cache_and_leave_no_process(tmp_path: Path) -> None:
    """On the simulator both orders make the same library: the second builder is then waited for, or stopped in the middle."""
    nursery = ForkServer()
    program = tmp_path / "program"
    program.mkdir()
    started: list[Worker] = []

    def builder() -> Builder:
        def start() -> Worker:
            started.append(Worker(nursery, "builder", tmp_path, "sim", Limits()))
            return started[-1]

        return Builder(start, cache=CACHE / "builder", arch="sm_90a", home=SimulatorHome(place=HOME))

    def order(text: str) -> dict[str, Any]:
        (program / "k.cu").write_text(f"{text}\n{KERNEL}")
        return {"style": "tvm", "name": "k", "sources": [str(program / "k.cu")]}

    try:
        first, second = builder(), builder()
        early = EarlyBuilds(first, second)
        wanted = order(f"// {tmp_path}")
        path = early.build(wanted, program, 120.0)["path"]
        answer = early.build({**wanted, "skip": True}, program, 120.0)
        assert answer["path"] == path
        assert answer["seconds"] < 0.5
        assert early.close() is second
        early = EarlyBuilds(first, second)
        early.build(order(f"// again {tmp_path}"), program, 120.0)
        assert early.build({**order(f"// again {tmp_path}"), "skip": True}, program, 120.0)["path"] != path
        assert early.close() is second
        second.close()
        assert len(started) == 2           # the same two for both
        stopped = EarlyBuilds(_Elsewhere(), builder())
        stopped.build(order(f"#include <regex>  // {tmp_path}"), program, 120.0)
        for _ in range(500):
            if len(started) == 3:
                break
            time.sleep(0.01)
        stopped.close()
        assert len(started) == 3           # one that was stopped is not started again
        first.close()
        assert [Path(f"/proc/{one.pid}").exists() for one in started] == [False] * 3
        assert [one.scratch.exists() for one in started] == [False] * 3
    finally:
        nursery.close()


class _Elsewhere:
    """A builder that has everything already."""

    def build(self, order: Mapping[str, Any], root: Path | None, seconds: float) -> dict[str, Any]:
        return {"path": "there"}

    def stop(self) -> None: ...

    def close(self) -> None: ...
