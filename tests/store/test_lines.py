"""Append-only files of records: a record is there when its line is whole, the first with a key stays, and damage is told."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.state import Call
from stitchcuda.store import FolderStore
from stitchcuda.store.lines import Lines

ROOT = Path(__file__).resolve().parents[2]


def call(number: int, **facts: object) -> Call:
    return Call.model_validate({"id": f"c{number}", "model": "mailbox:box", "request": "0" * 64, "reply": None} | facts)


def transcript(folder: Path) -> Lines[Call]:
    """As another process would open it."""
    return Lines(folder / "session" / "transcript.jsonl", Call, "call")


def test_what_was_appended_is_there_in_order(tmp_path: Path) -> None:
    assert transcript(tmp_path).records() == {}
    calls = [call(number, outcome="line\nends \u2028 é " * number) for number in range(5)]
    for found in calls:
        assert transcript(tmp_path).append(found) == found
    assert list(transcript(tmp_path).records().items()) == [(found.id, found) for found in calls]
    assert len((tmp_path / "session" / "transcript.jsonl").read_bytes().splitlines()) == 5


def test_the_first_record_with_a_key_stays(tmp_path: Path) -> None:
    lines = transcript(tmp_path)
    first = lines.append(call(0, input_tokens=1))
    assert lines.append(call(0, input_tokens=2)) == first
    assert transcript(tmp_path).append(call(0, input_tokens=3)) == first
    whole = lines.path.read_bytes()
    assert whole.count(b"\n") == 1
    later = transcript(tmp_path / "elsewhere")
    later.append(call(0, input_tokens=2))
    lines.path.write_bytes(whole + later.path.read_bytes())
    assert transcript(tmp_path).records() == {"c0": first}, "also where a file holds it twice"


def test_a_line_cut_anywhere_never_was_and_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    lines = transcript(tmp_path)
    for number in range(3):
        lines.append(call(number))
    whole = lines.path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in [*range(start, len(whole), 9), len(whole) - 1]:  # the last byte is the end of the line
        lines.path.write_bytes(whole[:cut])
        opened = transcript(tmp_path)
        assert list(opened.records()) == ["c0", "c1"], cut
        assert lines.path.read_bytes() == whole[:cut], "reading changes nothing"
        opened.append(call(3))
        assert list(transcript(tmp_path).records()) == ["c0", "c1", "c3"], cut


def test_a_tail_of_nothing_as_a_power_cut_leaves_it(tmp_path: Path) -> None:
    lines = transcript(tmp_path)
    lines.append(call(0))
    with lines.path.open("ab") as file:
        file.write(b"\0" * 4096)
    assert list(transcript(tmp_path).records()) == ["c0"]
    transcript(tmp_path).append(call(1))
    assert list(transcript(tmp_path).records()) == ["c0", "c1"]


@pytest.mark.parametrize(
    ("what", "damage"),
    [
        ("a letter", lambda line: line.replace(b"mailbox", b"mailbix")),
        ("the checksum", lambda line: line.replace(b'"sha256": "', b'"sha256": "0')),
        ("the field", lambda line: line.replace(b'"call"', b'"attempt"')),
        ("half of it", lambda line: line[: len(line) // 2]),
        ("all of it", lambda line: b""),
        ("another kind", lambda line: b"[]"),
        ("no text", lambda line: b'{"call": 1, "sha256": "0"}'),
        ("bytes", lambda line: b"\xff\xfe" + line),
    ],
)
def test_a_damaged_line_is_told_with_its_number_and_nothing_is_written(tmp_path: Path, what: str, damage: object) -> None:
    lines = transcript(tmp_path)
    for number in range(3):
        lines.append(call(number))
    whole = lines.path.read_bytes().splitlines(keepends=True)
    assert callable(damage)
    harmed = b"".join([whole[0], damage(whole[1].rstrip(b"\n")) + b"\n", whole[2]])
    assert harmed != b"".join(whole), what
    lines.path.write_bytes(harmed)
    for act in (transcript(tmp_path).records, lambda: transcript(tmp_path).append(call(3))):
        with pytest.raises(Unavailable, match=f"{lines.path} is damaged at line 2: restore it from a copy"):
            act()
    assert lines.path.read_bytes() == harmed
    lines.path.write_bytes(b"".join(whole))
    assert len(transcript(tmp_path).records()) == 3


def test_threads_append_side_by_side(tmp_path: Path) -> None:
    """Eight threads, twenty keys each, every key by two of them with other words: all are given the same record."""
    lines = transcript(tmp_path)
    given: list[dict[str, Call]] = [{} for _ in range(8)]
    ready = threading.Barrier(8)

    def work(thread: int) -> None:
        ready.wait()
        for number in range(20):
            found = call(20 * (thread // 2) + number, outcome=f"by {thread}")
            given[thread][found.id] = lines.append(found)
            assert lines.records()[found.id] == given[thread][found.id]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(found) == 20 for found in given), "every thread came to its end"
    assert all(given[number] == given[number + 1] for number in range(0, 8, 2))
    assert transcript(tmp_path).records() == lines.records() == {key: one for found in given for key, one in found.items()}
    assert len(lines.path.read_bytes().splitlines()) == 80


def test_processes_take_turns_and_see_what_the_other_wrote(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.store.test_lines import call, transcript\n"
        "lines = transcript(Path(sys.argv[1]))\n"
        "for line in sys.stdin:\n"
        " lines.append(call(int(line), outcome='theirs')); print(' '.join(lines.records()), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        mine = transcript(tmp_path)
        for number in range(0, 10, 2):
            mine.append(call(number, outcome="mine"))
            other.stdin.write(f"{number}\n{number + 1}\n")
            other.stdin.flush()
            other.stdout.readline()
            expected = [f"c{known}" for known in range(number + 2)]
            assert other.stdout.readline().split() == expected
            assert list(mine.records()) == expected
        other.stdin.close()
        assert other.wait() == 0
    assert [found.outcome for found in mine.records().values()] == ["mine", "theirs"] * 5


def test_somebody_reads_while_another_process_writes(tmp_path: Path) -> None:
    """`show` on a running session: always a beginning of what is written, never a line in the middle of it."""

    def write() -> None:
        lines = transcript(tmp_path)
        for number in range(100):
            lines.append(call(number, outcome="x" * 20_000))

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    seen = 0
    while process.is_alive() or seen < 100:
        found = list(transcript(tmp_path).records())
        assert found == [f"c{number}" for number in range(len(found))]
        assert len(found) >= seen
        seen = len(found)
    process.join()
    assert process.exitcode == 0


def test_a_line_that_is_finished_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a line is seen, and before anything else is looked at the other half is there."""
    lines = transcript(tmp_path)
    for number in range(2):
        lines.append(call(number))
    whole = lines.path.read_bytes()
    lines.path.write_bytes(whole[:-20])
    read_bytes = Path.read_bytes

    def finished(path: Path) -> bytes:
        found = read_bytes(path)
        if path == lines.path:
            path.write_bytes(whole)
        return found

    reader = transcript(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", finished)
        assert list(reader.records()) == ["c0"]
    assert list(reader.records()) == ["c0", "c1"], "and now it is there"


def test_a_writer_that_is_killed_has_lost_nothing_that_it_was_told_is_there(tmp_path: Path) -> None:
    for turn in range(3):
        before = len(transcript(tmp_path).records())
        readable, writable = os.pipe()

        def write(into: int = writable, first: int = 1000 * turn) -> None:
            lines = transcript(tmp_path)
            for number in range(first, first + 1000):
                lines.append(call(number))
                os.write(into, f"c{number}\n".encode())

        process = multiprocessing.get_context("fork").Process(target=write)
        process.start()
        os.close(writable)
        told = b""
        while told.count(b"\n") < 5:
            told += os.read(readable, 100)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        told += os.read(readable, 100_000)
        os.close(readable)
        found = list(transcript(tmp_path).records())[before:]
        names = told.decode().split()
        assert found[: len(names)] == names
        assert len(found) <= len(names) + 1


def test_a_full_disk_leaves_what_was_there_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    def work() -> None:
        store = FolderStore(tmp_path)
        store.record("s", call(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"no space left to write .*transcript\.jsonl"):
                store.record("s", call(1, outcome="x" * 2000))
        assert list(store.calls("s")) == ["c0"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.record("s", call(2))
        assert list(store.calls("s")) == ["c0", "c2"]

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert list(FolderStore(tmp_path).calls("s")) == ["c0", "c2"]
