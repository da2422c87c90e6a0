"""A memory on a real SQLite file: what is learnt is found again, by several processes at once, and never spoilt by an error."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.sqlite import SqliteStore

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.memory import FORMAT, LESSONS, ROOT, Memory, location, open_memory
from stitchcuda.store.checkpoints import Checkpoints
from tests.memory.lessons import STRATEGY, lesson, refuted, situation

ROOT_FOLDER = Path(__file__).resolve().parent.parent.parent
WARP = "one warp per row with shuffles"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.sqlite"


@pytest.fixture
def memory(file: Path) -> Iterator[Memory]:
    memory = Memory(file, wait_s=0.2)
    yield memory
    memory.close()


def writer(file: Path, name: str, count: int, **more: Any) -> subprocess.Popen[str]:
    """A process that remembers lessons `NAME0`, `NAME1`, … one by one and prints the number of each when it is kept."""
    code = (
        "from tests.memory.lessons import lesson\n"
        "from stitchcuda.memory import Memory\n"
        f"memory = Memory({str(file)!r})\n"
        f"for number in range({count}):\n"
        f"    assert memory.remember(lesson({name!r} + str(number)))\n"
        "    print(number, flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT_FOLDER, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def names(memory: Memory) -> set[str]:
    return {lesson.attempt for experience in memory.lessons() for lesson in experience.lessons}


def refused(kind: type[StitchError], memory: Memory, *words: str) -> None:
    """Reading and writing are both refused in one sentence with `words`."""
    for act in (memory.lessons, lambda: memory.remember(lesson("new"))):
        with pytest.raises(kind) as caught:
            act()
        told = str(caught.value)
        assert "\n" not in told
        for word in words:
            assert word in told


def test_a_lesson_is_found_again_by_another_process(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        assert memory.lessons() == ()
        assert not (tmp_path / "memory.sqlite").exists(), "who only looks makes nothing"
        assert memory.remember(lesson("a1"))
        assert not memory.remember(lesson("a1")), "the same attempt with the same evidence counts once"
    with open_memory(tmp_path) as memory:
        (experience,) = memory.lessons()
        assert experience.lessons == (lesson("a1"),)


def test_recall_prefers_what_is_alike(memory: Memory) -> None:
    for name, of in (
        ("same", situation()),
        ("near", situation(16384, 1024)),
        ("elsewhere", situation(arch="sm_80", device="NVIDIA A100")),
        ("half", situation(operators=(("aten.layer_norm.default", 1),), dtype="float32")),
        ("unrelated", situation(operators=(("aten.convolution.default", 1),))),
    ):
        memory.remember(lesson(name, of=of))
    found = memory.recall(situation())
    assert [recalled.experience.best.attempt for recalled in found] == ["same", "near", "elsewhere", "half"]
    assert found[0].similarity == 1.0
    assert found[0].score == found[0].experience.weight
    assert [recalled.experience.best.attempt for recalled in memory.recall(situation(), limit=2)] == ["same", "near"]
    assert memory.recall(situation(operators=(("aten.cumsum.default", 1),))) == ()


def test_a_lesson_that_fails_to_repeat_sinks(memory: Memory) -> None:
    memory.remember(lesson("a1", strategy=WARP))
    memory.remember(lesson("a2", strategy=WARP))
    memory.remember(lesson("b1", strategy=STRATEGY))
    first = memory.recall(situation())
    assert [recalled.experience.best.strategy for recalled in first] == [WARP, STRATEGY]
    memory.remember(refuted("a3", strategy="Shuffles, one warp per row, in other words"))
    memory.remember(refuted("a4", strategy=WARP))
    then = memory.recall(situation())
    assert [recalled.experience.best.strategy for recalled in then] == [STRATEGY, WARP]
    assert then[1].score < first[0].score
    assert [len(recalled.experience.lessons) for recalled in then] == [1, 4]


def test_processes_that_learn_at_once_lose_nothing(file: Path, memory: Memory) -> None:
    """All start on a file that is not there yet; the lessons are all of one key."""
    writers = [writer(file, name, 15) for name in "xyz"]
    for process in writers:
        _, complaints = process.communicate(timeout=120)
        assert process.returncode == 0, complaints
    assert names(memory) == {f"{name}{number}" for name in "xyz" for number in range(15)}
    (experience,) = memory.lessons()
    assert len(experience.lessons) == 45


def test_a_killed_process_loses_nothing_that_it_kept(file: Path, memory: Memory) -> None:
    process = writer(file, "k", 100_000)
    assert process.stdout is not None
    kept = [process.stdout.readline().strip() for _ in range(5)]
    process.send_signal(signal.SIGKILL)
    kept += process.communicate(timeout=60)[0].split()
    found = names(memory)
    assert {f"k{number}" for number in kept} <= found
    assert len(found) - len(kept) in (0, 1), "at most the one that it had no time to tell of"
    assert memory.remember(lesson("after"))


def test_a_full_disk_is_a_sentence_and_what_was_there_stays(file: Path, memory: Memory) -> None:
    memory.remember(lesson("before"))
    memory.close()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, resource.RLIM_INFINITY))

    process = writer(file, "f", 1000, preexec_fn=limit)
    _, complaints = process.communicate(timeout=120)
    assert "stitchcuda.errors.Unavailable: " in complaints.splitlines()[-1], complaints
    assert str(file) in complaints.splitlines()[-1]
    assert "before" in names(memory)
    assert memory.remember(lesson("after"))


@pytest.mark.parametrize("damage", ["garbage", "pages"])
def test_a_damaged_file_is_left_as_it_is(damage: str, file: Path, memory: Memory) -> None:
    memory.add(lesson(f"a{number}") for number in range(40))
    memory.close()
    data = bytearray(file.read_bytes())
    data[0 if damage == "garbage" else 4096 :] = b"\xa5" * (len(data) - (0 if damage == "garbage" else 4096))
    file.write_bytes(data)
    refused(Unavailable, memory, str(file), "damaged", "restore it from a copy")
    assert file.read_bytes() == data
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_an_empty_file_is_an_empty_memory(file: Path, memory: Memory) -> None:
    file.touch()
    assert memory.lessons() == ()
    assert memory.remember(lesson())


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.setup()
    (other,) = tmp_path.glob("*.sqlite")
    before = other.read_bytes()
    refused(BadInput, Memory(other), str(other), "something else", "STITCHCUDA_MEMORY")
    assert other.read_bytes() == before


def test_a_memory_that_another_process_holds(file: Path, memory: Memory) -> None:
    memory.remember(lesson("a1"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    refused(Unavailable, memory, str(file), "another process", "0.2 s", "try again")
    other.execute("ROLLBACK")
    other.execute("BEGIN")
    other.execute("SELECT * FROM store").fetchone()
    with pytest.raises(Unavailable, match="another process"):
        memory.remember(lesson("a2"))
    assert names(memory) == {"a1"}, "reading beside a reader is fine"
    other.close()
    assert memory.remember(lesson("a2")), "and nothing of the refused write is left to block it"


def test_what_a_newer_version_wrote_is_left_as_it_is(file: Path, memory: Memory) -> None:
    memory.remember(lesson("a1"))
    with SqliteStore.from_conn_string(str(file)) as store:
        store.put(ROOT, "format", {"version": FORMAT + 1})
    refused(Unavailable, memory, str(file), "newer StitchCUDA", "update stitchcuda")


@pytest.mark.parametrize("value", ['{"title": "not a lesson"}', "{torn"])
def test_a_lesson_that_cannot_be_read(value: str, file: Path, memory: Memory) -> None:
    memory.remember(lesson("a1"))
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE store SET value = ? WHERE prefix LIKE 'stitchcuda.lessons%'", (value,))
    connection.close()
    with pytest.raises(Unavailable, match="cannot be read and was left as it is"):
        memory.lessons()


def test_places_that_cannot_be_a_memory(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    refused(BadInput, Memory(tmp_path), str(tmp_path), "is a folder")
    with pytest.raises(BadInput, match="STITCHCUDA_MEMORY"):
        Memory(tmp_path / "plain" / "memory.sqlite").remember(lesson())
    with pytest.raises(BadInput, match="redis://"):
        Memory("redis://somewhere/0")


def test_several_workspaces_share_a_memory_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "deep" / "shared.sqlite"
    monkeypatch.setenv("STITCHCUDA_MEMORY", str(shared))
    for name in ("one", "two"):
        with open_memory(tmp_path / name) as memory:
            memory.remember(lesson(name))
            assert memory.where == str(shared)
    with open_memory(tmp_path / "three") as memory:
        assert names(memory) == {"one", "two"}
    monkeypatch.setenv("STITCHCUDA_MEMORY", " ")
    assert location(tmp_path / "one") == tmp_path / "one" / "memory.sqlite"


def test_lessons_are_items_of_langgraphs_store(file: Path, memory: Memory) -> None:
    memory.remember(lesson("a1"))
    with SqliteStore.from_conn_string(str(file)) as store:
        (item,) = store.search(LESSONS)
        assert (item.namespace[-1], item.key) == (lesson("a1").key, lesson("a1").id)
        assert json.dumps(item.value) == json.dumps(lesson("a1").model_dump(mode="json"))


def test_import_and_export(tmp_path: Path, memory: Memory) -> None:
    memory.add([lesson("a1"), refuted("a2"), lesson("b1", strategy=WARP)])
    assert memory.export(tmp_path / "lessons.jsonl") == 3
    other = Memory(tmp_path / "other.sqlite")
    other.remember(lesson("a1"))
    assert other.import_(tmp_path / "lessons.jsonl").model_dump() == {"added": 2, "known": 1}
    assert other.import_(tmp_path / "lessons.jsonl").model_dump() == {"added": 0, "known": 3}
    assert other.lessons() == memory.lessons()
    assert other.export_text() == memory.export_text() == (tmp_path / "lessons.jsonl").read_text()
    other.close()
