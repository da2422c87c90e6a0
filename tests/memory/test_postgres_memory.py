"""A memory on a real PostgreSQL server says and keeps the same as one on SQLite; no password is ever shown."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.memory import Memory, open_memory
from tests.memory.lessons import lesson, refuted, situation, untimed
from tests.memory.postgres_server import PASSWORD, Server, programs
from tests.memory.test_memory import names, writer

needs_driver = pytest.mark.skipif(importlib.util.find_spec("psycopg") is None, reason="stitchcuda[postgres] is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = programs()
    if found is None:
        pytest.skip("this machine has no PostgreSQL server (Debian: apt install postgresql)")
    with Server(found) as server:
        yield server


def refused(memory: Memory, *words: str) -> None:
    for act in (memory.lessons, lambda: memory.remember(lesson("new"))):
        with pytest.raises(StitchError) as caught:
            act()
        told = str(caught.value)
        assert PASSWORD not in told
        assert "\n" not in told
        for word in words:
            assert word in told


@needs_driver
def test_postgresql(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = [writer(server.url, name, 5) for name in "xyz"]  # type: ignore[arg-type]  # all three set the tables up
    for process in writers:
        _, complaints = process.communicate(timeout=120)
        assert process.returncode == 0, complaints
    monkeypatch.setenv("STITCHCUDA_MEMORY", server.url)
    sqlite = Memory(tmp_path / "memory.sqlite")
    with open_memory(tmp_path) as memory:
        assert memory.where == f"postgresql://127.0.0.1:{server.port}/postgres"
        assert names(memory) == {f"{name}{number}" for name in "xyz" for number in range(5)}
        for kept in (refuted("a1"), untimed("a2", of=situation(8, 512), note="größer als 4 µs", predicted_ms=1e-7)):
            assert memory.remember(kept)
            assert not memory.remember(kept)
        memory.export(tmp_path / "lessons.jsonl")
        assert sqlite.import_(tmp_path / "lessons.jsonl").added == 17
        assert sqlite.export_text() == memory.export_text(), "to the byte"
        assert sqlite.recall(situation()) == memory.recall(situation())
        assert memory.import_(tmp_path / "lessons.jsonl").model_dump() == {"added": 0, "known": 17}
        server.stop()
        refused(memory, f"postgresql://127.0.0.1:{server.port}/postgres", "start that server")
        server.start()
        assert len(names(memory)) == 17, "it connects again"
    refused(Memory(server.url.replace(PASSWORD, "wrong")), "authentication failed")
    sqlite.close()


@needs_driver
@pytest.mark.parametrize("url", [
    f"postgresql://tester:{PASSWORD}@127.0.0.1:1/postgres",
    f"postgresql://tester:{PASSWORD}@[::1/postgres",
    f"postgres://tester:{PASSWORD}@127.0.0.1/postgres?port=many",
])  # fmt: skip
def test_servers_that_cannot_be_had(url: str) -> None:
    refused(Memory(url, wait_s=2), "correct STITCHCUDA_MEMORY")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match=r"not installed \(psycopg\): .*pip install .*'psycopg\[binary\]>=3.2', or unset"):
        Memory("postgresql://127.0.0.1/postgres").lessons()
