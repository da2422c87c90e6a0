"""Damage: whatever is lost of a session, it comes to the same program or says exactly what is missing; what was whole is not
made again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.cli.summary import session_tables
from stitchcuda.errors import BadInput, Damaged, StitchError, Unavailable
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.archive import export, import_
from stitchcuda.sessions.remove import remove
from stitchcuda.sessions.session import Session, outcomes, sessions
from stitchcuda.store import Workspace
from stitchcuda.store.checkpoints import Checkpoints
from tests.cli.test_app import stitchcuda
from tests.engineers.metered_chats import assert_one_sentence
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, ended, opened, program, stopped
from tests.store.test_lines import ROOT

PROGRAM = "a saves 0.2\nb saves 0.3\nc saves 0.1\n"
Told = list[str]


def mended(session: Session) -> tuple[Session, Told, list[tuple[str, int]]]:
    """The session gone on with by another process: itself, what was said, and for which attempts the engineer was asked."""
    engineer, told = ScriptedEngineer(THREE), []
    found = opened(session)
    found.run(
        engineer=engineer, tools=TinyHands(),
        on_event=lambda event: told.append(event["text"]) if event["kind"] == "note" else None,
    )  # fmt: skip
    return found, told, [(given.task.id, given.ordinal) for given in engineer.assignments]


def whole(session: Session) -> None:
    """It came to what an undisturbed one comes to."""
    outcome = session.outcome()
    assert (outcome.status, outcome.accepted, outcome.attempts) == ("done", True, 6)
    assert program(session) == PROGRAM
    assert [attempt.task for attempt in session.attempts()] == ["a", "b", "b", "c", "c", "c"]
    assert len(session.home.store.attempts(session.name)) == 6
    again, told, asked = mended(session)
    assert (told, asked) == ([], []), "and it stays so"
    assert again.outcome() == outcome


def artefact(session: Session, digest: str) -> Path:
    return session.home.root / "artefacts" / digest[:2] / digest[2:]


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


@pytest.fixture(params=["done", "interrupted", "in the middle of an attempt"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    """Six attempts on record, or four and a fifth under way: its draft is written, or its verdict just came."""
    home = Workspace(tmp_path / "ws")
    if request.param == "done":
        return ended(home)
    found = stopped(home, before=nth("build", 6) if request.param == "interrupted" else nth("check", 5))
    assert len(found.attempts()) >= 4
    return found


def nth(tool: str, number: int) -> Callable[[str, int], bool]:
    """Holds at the so many-th call of a tool."""
    calls: list[str] = []

    def holds(called: str, _: int) -> bool:
        calls.append(called)
        return called == tool and calls.count(tool) == number

    return holds


def made_before(session: Session) -> list[tuple[str, int]]:
    return [(attempt.task, attempt.ordinal) for attempt in session.attempts()]


# the ledger


def lines(session: Session) -> list[bytes]:
    return (session.folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def test_a_ledger_cut_in_its_last_line(session: Session) -> None:
    before, found = made_before(session), lines(session)
    (session.folder / "ledger.jsonl").write_bytes(b"".join(found)[:-100])
    with pytest.raises(Damaged, match="the ledger of session 'tiny' lacks attempt") as said:
        opened(session).outcome()
    assert_one_sentence(said.value)
    again, told, asked = mended(session)
    assert told[0].endswith(f"session 'tiny' goes on after attempt {len(before) - 1}")
    assert not set(asked) & set(before[:-1]), "what was whole is not made again"
    for text in told:                      # a colleague reads it too
        assert text in (again.folder / "report.md").read_text()
        assert any(note.endswith(text) for note in findings_of(again).card.notes)
    whole(again)


def test_a_ledger_without_its_last_line(session: Session) -> None:
    before, found = made_before(session), lines(session)
    (session.folder / "ledger.jsonl").write_bytes(b"".join(found[:-1]))
    again, told, asked = mended(session)
    assert told[0].startswith("the ledger lacks attempt ")
    assert not set(asked) & set(before[:-1])
    whole(again)


@pytest.mark.parametrize("at", [0, 2])
def test_a_ledger_that_lacks_a_line_in_the_middle(session: Session, at: int) -> None:
    before, found = made_before(session), lines(session)
    (session.folder / "ledger.jsonl").write_bytes(b"".join(found[:at] + found[at + 1 :]))
    again, told, asked = mended(session)
    lost = len(before) - at - 1
    what = "1 attempt that stood on what is lost is" if lost == 1 else f"{lost} attempts that stood on what is lost are"
    assert told[0] == f"{what} made again"
    assert f"session 'tiny' goes on after attempt {at}" in told[1] if at else "it starts again" in told[1]
    assert not set(asked) & set(before[:at])
    whole(again)
    assert (session.folder / "ledger.jsonl.damaged1").read_bytes() == b"".join(found[:at] + found[at + 1 :])


@pytest.mark.parametrize("at", [0, 3])
def test_a_flipped_byte_in_the_ledger(session: Session, at: int) -> None:
    before, found = made_before(session), lines(session)
    path = session.folder / "ledger.jsonl"
    flip(path, (len(b"".join(found[:at])) + len(found[at]) // 2) / len(b"".join(found)))
    with pytest.raises(Damaged, match=f"{path} is damaged at line {at + 1}: restore it from a copy, or resume without it"):
        opened(session).attempts()
    again, told, asked = mended(session)
    assert told[0] == f"{path} is damaged at line {at + 1}"
    assert not set(asked) & set(before[:at])
    whole(again)


def test_a_ledger_that_is_gone(session: Session) -> None:
    (session.folder / "ledger.jsonl").unlink()
    again, told, _ = mended(session)
    assert told[0].startswith("the ledger lacks attempt ")
    assert told[0].endswith("it starts again")
    whole(again)


# artefacts


def of_attempt(number: int, field: str) -> Callable[[Session], str]:
    def find(session: Session) -> str:
        digest: str = getattr(session.attempts()[number], field)
        return digest

    return find


def file_of_a_program(session: Session) -> str:
    digest: str = json.loads(session.home.store.get(session.attempts()[2].program))["files"]["drafts.txt"]
    return digest


def of_state(field: str) -> Callable[[Session], str]:
    return lambda session: str(session.state()[field])  # type: ignore[literal-required]


ARTEFACTS: dict[str, tuple[Callable[[Session], str], str, int]] = {
    "a program's manifest": (of_attempt(2, "program"), "the program of attempt 3", 2),
    "a file of a program": (file_of_a_program, "the program of attempt 3", 2),
    "evidence": (of_attempt(1, "evidence"), "the evidence of attempt 2", 1),
    "a review": (of_attempt(1, "review"), "the review of attempt 2", 1),
    "the first evidence": (of_attempt(0, "evidence"), "the evidence of attempt 1", 0),
    "the capture": (lambda session: session.state()["baseline"].capture, "what was captured of the reference", 6),  # type: ignore[union-attr]
    "the regions": (lambda session: session.state()["baseline"].regions, "what was captured of the reference", 6),  # type: ignore[union-attr]
    "the plan": (of_state("plan"), "a plan is missing or damaged", 6),
    "the reference": (lambda session: session.record.reference, "the reference was damaged and is restored from", 6),
}  # fmt: skip


@pytest.mark.parametrize("harm", ["flipped", pytest.param("missing", marks=pytest.mark.more)])
@pytest.mark.parametrize("what", ARTEFACTS)
def test_an_artefact_is_damaged(session: Session, what: str, harm: str) -> None:
    find, words, stands = ARTEFACTS[what]
    before, path = made_before(session), artefact(session, find(session))
    flip(path) if harm == "flipped" else path.unlink()
    again, told, asked = mended(session)
    assert any(words in text for text in told), told
    assert not set(asked) & set(before[:stands])
    whole(again)


def test_a_draft_that_nobody_has_looked_at_yet(tmp_path: Path) -> None:
    session = stopped(Workspace(tmp_path), before=nth("build", 6))
    draft = session.state()["drafts"][0].program
    assert draft
    artefact(session, draft).unlink()
    before = made_before(session)
    again, told, asked = mended(session)
    assert told[0].startswith("the draft under way (")
    assert told[0].endswith(f"session 'tiny' goes on after attempt {len(before)}")
    assert not set(asked) & set(before)
    whole(again)


def test_the_reference_itself_is_lost(session: Session) -> None:
    """The artefact, the session's own copy and the file it came from: nothing can be gone on from, and it is said."""
    path = artefact(session, session.record.reference)
    flip(path)
    flip(session.folder / session.record.reference_name)
    with pytest.raises(Damaged, match=f"{path} is damaged") as said:
        mended(session)
    assert_one_sentence(said.value)


def test_the_copy_of_the_reference_is_written_again(session: Session) -> None:
    (session.folder / session.record.reference_name).unlink()
    whole(mended(session)[0])
    assert (session.folder / session.record.reference_name).is_file()


# checkpoints


def deleted(path: Path) -> None:
    path.unlink()


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"This is no database.\n" * 400)


def another(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE checkpoints (what TEXT)")
    connection.close()


def value_changed(path: Path) -> None:
    """The database is whole, a value in it is not."""
    with sqlite3.connect(path) as connection:
        (place, value), *_ = connection.execute(
            "SELECT rowid, checkpoint FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1"
        ).fetchall()
        data = bytearray(value)
        data[len(data) // 2] ^= 1
        connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE rowid = ?", (bytes(data), place))
    connection.close()


def pages(number: int) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        data = bytearray(path.read_bytes())
        for at in range(4096 * number, min(4096 * (number + 1), len(data))):
            data[at] ^= 0xFF
        path.write_bytes(data)

    return harm


HARM = {
    "deleted": deleted, "cut": cut_in_half, "emptied": emptied, "garbage": garbage, "another database": another,
    "a value": value_changed, **{f"page {number}": pages(number) for number in (0, 1, 3, 8)},
}  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("harm", HARM)
def test_the_checkpoints_are_damaged(session: Session, harm: str) -> None:
    path = session.folder / "checkpoints.sqlite"
    before = made_before(session)
    close(path)
    HARM[harm](path)
    shown = stand(session)
    again, told, asked = mended(session)
    if harm in ("deleted", "emptied"):
        lost = f"the checkpoints of session 'tiny' are missing, its ledger has {len(before)} attempts"
        assert shown == f"{lost}: `stitchcuda resume` takes them over"
    if harm == "deleted":
        again_from = f"it starts again and takes over {len(before)} attempts from its ledger"
        assert told[0] == f"the checkpoints of session 'tiny' are missing: {again_from}"
    elif told:
        assert "is damaged" in told[0] or "hold nothing" in told[0] or "is not what was written" in told[0], told
    else:
        assert not isinstance(shown, str), "what could not be read is said"
    assert not set(asked) & set(before), "what was whole is not made again"
    whole(again)


def close(path: Path) -> None:
    """All that is in the log is in the file."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def stand(session: Session) -> Any:
    """What anybody may look at: an outcome, or one sentence."""
    try:
        return opened(session).outcome()
    except StitchError as error:
        assert_one_sentence(error)
        return str(error)


def test_reading_a_session_without_checkpoints_makes_none(session: Session, tmp_path: Path) -> None:
    path = session.folder / "checkpoints.sqlite"
    path.unlink()
    with pytest.raises(Damaged, match=r"are missing, its ledger has \d attempts: `stitchcuda resume` takes them over"):
        opened(session).outcome()
    with pytest.raises(StitchError, match="checkpoints"):
        export(session.name, tmp_path / "archive", workspace=session.home)
    assert not path.exists()
    ended(session.home, "other")
    assert remove(["other"], workspace=session.home).waits_for.startswith(f"session {session.name!r} cannot be read")


@pytest.mark.long
def test_a_log_of_checkpoints_that_is_lost(tmp_path: Path) -> None:
    """As after a power cut that lost what SQLite had not yet synchronised: the ledger knows every attempt."""
    code = (
        "import os, sys; from tests.graph.tiny import ScriptedEngineer, TinyHands; from tests.sessions.made_sessions import *\n"
        "hands = TinyHands(); session = begun(Workspace(sys.argv[1])); seen = []\n"
        "hands.before = lambda tool: (seen.append(tool), os._exit(9) if len(seen) == 15 else None)\n"
        "session.run(engineer=ScriptedEngineer(THREE), tools=hands)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    home = Workspace(tmp_path)
    session = Session(home, home.record("tiny"))
    log = session.folder / "checkpoints.sqlite-wal"
    assert log.stat().st_size > 0
    shutil.copytree(tmp_path, tmp_path.parent / "cut")
    before = len(home.store.attempts("tiny"))
    log.unlink()
    again, told, asked = mended(session)
    assert before >= 4
    assert f"takes over {before} attempts" in told[0]
    assert len(asked) == 6 - before
    whole(again)
    half = Workspace(tmp_path.parent / "cut")
    log = half.folder("tiny") / "checkpoints.sqlite-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    again, _, asked = mended(Session(half, half.record("tiny")))
    assert len(asked) == 6 - before
    whole(again)


# the record


@pytest.mark.long
@pytest.mark.parametrize("harm", [deleted, cut_in_half])
def test_a_damaged_record_is_said_and_hides_no_other(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    home = Workspace(tmp_path)
    ended(home, "one")
    ended(home, "other")
    path = home.folder("one") / "session.json"
    kept = path.read_bytes()
    harm(path)
    assert [found.name for found in sessions(home)] == ["other"]
    listed = stitchcuda("sessions", "--workspace", tmp_path)
    assert listed.returncode == 0, listed.stderr
    told = " ".join(listed.stdout.split())
    assert "other done yes" in told
    assert "one damaged" in told
    assert "session.json" in told
    for command in ("show", "resume"):
        refused(stitchcuda(command, "one", "--workspace", tmp_path), "session.json", "restore it from a copy")
    path.write_bytes(kept)
    assert [found.name for found in sessions(home)] == ["one", "other"]


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2 and one sentence."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_folder_that_was_copied_by_hand_is_told(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    ended(home, "one")
    shutil.copytree(home.folder("one"), home.folder("two"))
    assert "is of session 'one'" in home.unreadable()["two"]
    assert [found.name for found in sessions(home)] == ["one"]


@pytest.mark.more
def test_what_is_damaged_is_shown_in_one_sentence_each(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    for name in ("whole", "ledger", "checkpoints", "review"):
        ended(home, name)
    flip(home.folder("ledger") / "ledger.jsonl")
    garbage(home.folder("checkpoints") / "checkpoints.sqlite")
    for part in ("-wal", "-shm"):
        Path(f"{home.folder('checkpoints') / 'checkpoints.sqlite'}{part}").unlink(missing_ok=True)
    listed = stitchcuda("sessions", "--workspace", tmp_path)
    told = " ".join(listed.stdout.split())
    assert listed.returncode == 0, listed.stderr
    for words in ("whole done yes", "review done yes", "ledger damaged", "checkpoints damaged"):
        assert words in told
    found = json.loads(stitchcuda("sessions", "--workspace", tmp_path, "--json").stdout)
    assert sorted((one["session"], one["accepted"]) for one in found["sessions"]) == [("review", True), ("whole", True)]
    assert {name: "is damaged" in text for name, text in found["damaged"].items()} == {"ledger": True, "checkpoints": True}
    refused(stitchcuda("show", "ledger", "--workspace", tmp_path), "ledger.jsonl is damaged at line")
    refused(stitchcuda("show", "checkpoints", "--workspace", tmp_path), "checkpoints.sqlite is damaged", "stitchcuda resume")
    (home.folder("whole") / "report.md").unlink()
    shutil.rmtree(home.folder("whole") / "program")
    shown = stitchcuda("show", "whole", "--workspace", tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "report:" not in shown.stdout
    assert program(Session(home, home.record("whole"))) == PROGRAM, "it is written out again"


# the transcript


def test_a_damaged_transcript(tmp_path: Path) -> None:
    """A line of it is lost, of a call that nobody needs any more: nothing is asked twice, and the end is the same."""
    from tests.fake_model import KernelHands, answer_all, ledger, requests, run, story

    def to_the_end(session: Session) -> None:
        run(session)
        while answer_all(session.home.root / "box"):
            run(session)

    undisturbed = story(tmp_path / "one", candidates=1, max_attempts=3)
    to_the_end(undisturbed)
    session = story(tmp_path / "other", candidates=1, max_attempts=3)
    for _ in range(4):
        run(session)
        answer_all(session.home.root / "box")
    path, told = session.folder / "transcript.jsonl", []
    number = next(at for at, line in enumerate(path.read_bytes().splitlines(), 1) if b"planner-" in line)
    found = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*found[: number - 1], found[number - 1].replace(b"planner-", b"plunner-"), *found[number:]]))
    opened(session).run(
        tools=KernelHands(), on_event=lambda event: told.append(event["text"]) if event["kind"] == "note" else None
    )
    assert told[0] == f"{path} is damaged at line {number}"
    to_the_end(session)
    assert ledger(session) == ledger(undisturbed)
    assert requests(session.home.root / "box").keys() == requests(undisturbed.home.root / "box").keys()


def test_a_reply_that_is_lost_is_paid_for_and_asked_for_again(tmp_path: Path) -> None:
    from tests.fake_model import answer_all, calls, run, story, usage

    session = story(tmp_path, candidates=1, max_attempts=2)
    box = session.home.root / "box"
    for _ in range(3):
        run(session)
        answer_all(box)
    run(session)
    lost = next(call for call in calls(session) if call.model)
    assert lost.reply
    spent = usage(session)
    artefact(session, lost.reply).unlink()
    artefact(session, str(session.state()["plan"])).unlink()  # so that the planner asks for it again
    run(session)
    (again,) = [call for call in calls(session) if call.id.startswith(lost.id) and call.id.endswith("#lost")]
    assert (again.reply, again.input_tokens, again.outcome) == (None, lost.input_tokens, "its reply was lost")
    while answer_all(box):
        run(session)
    assert opened(session).status == "done"
    assert usage(session).input_tokens > spent.input_tokens


# disks and folders


def limited(folder: Path, size: int) -> subprocess.CompletedProcess[str]:
    """The session in a process of its own that may not write a file beyond so many bytes."""
    code = (
        "import resource, sys; from tests.graph.tiny import ScriptedEngineer, TinyHands\n"
        "from tests.sessions.made_sessions import *\n"
        "from stitchcuda.errors import StitchError; from tests.sessions.test_damage import *\n"
        "home = Workspace(sys.argv[1]); size = int(sys.argv[2])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "try: named(home, 'tiny').run(engineer=ScriptedEngineer(THREE), tools=TinyHands())\n"
        "except StitchError as error: print(error); sys.exit(error.exit_code)\n"
    )
    command = [sys.executable, "-c", code, str(folder), str(size)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("size", [0, *(pytest.param(size, marks=pytest.mark.long) for size in (100, 1000, 60_000)), 20_000])
def test_files_that_may_not_grow(tmp_path: Path, size: int) -> None:
    from tests.sessions.made_sessions import begun

    session = begun(Workspace(tmp_path))
    done = limited(tmp_path, size)
    assert (done.returncode, done.stderr) == (2, "")
    assert "no space left to write" in done.stdout
    assert str(tmp_path) in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1
    assert opened(session).status in ("parked", "failed")
    whole(mended(session)[0])


@pytest.fixture
def small(tmp_path: Path) -> Any:
    """A folder on a file system with room for little."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], capture_output=True, check=False
    ).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("room", [8, 40, 120, *(pytest.param(room, marks=pytest.mark.long) for room in (16, 24, 80, 160, 200))])
def test_a_disk_that_is_full_and_has_room_again(small: Path, room: int) -> None:
    """Kilobytes that are left when the session starts; what it said it had done stays done."""
    from tests.sessions.made_sessions import begun

    session = begun(Workspace(small))
    fill(small, room)
    told = ""
    try:
        session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    except Unavailable as error:
        told = str(error)
        assert_one_sentence(error)
    assert "no space left to write" in told
    before = [(one.task, one.ordinal) for one in session.home.store.attempts("tiny").values()]
    stand(session)
    (small / "ballast").unlink()
    again, _, asked = mended(session)
    assert not set(asked) & set(before)
    whole(again)


def fill(folder: Path, room: int) -> None:
    with (folder / "ballast").open("wb") as file:
        file.write(b"\0" * (shutil.disk_usage(folder).free - room * 1024))


def test_on_a_full_disk_sessions_are_shown_and_exported_elsewhere(small: Path, tmp_path: Path) -> None:
    ended(Workspace(small), "one")
    stopped(Workspace(small), "two", before=nth("build", 6))
    before = sorted(path.name for path in small.rglob("*"))
    fill(small, 0)
    found, damaged = outcomes(Workspace(small))
    assert damaged == {}
    assert sorted((outcome.session, outcome.status, outcome.attempts) for _, outcome in found) == [
        ("one", "done", 6), ("two", "parked", 5),
    ]  # fmt: skip
    for session, _ in found:
        assert session_tables(session)
        assert findings_of(session).lost == ()
    archive = export("one", tmp_path / "archive", workspace=small)
    assert import_(archive, workspace=tmp_path / "elsewhere").outcome().accepted
    (small / "ballast").unlink()
    assert sorted(path.name for path in small.rglob("*")) == before, "nothing is left behind"


def test_a_disk_that_is_full_while_the_ledger_is_cut(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is there until the new one is."""
    session = ended(Workspace(small))
    found = lines(session)
    (session.folder / "ledger.jsonl").write_bytes(b"".join([*found[:3], b"{}\n", *found[4:]]))
    fill(small, 8)
    with pytest.raises(Unavailable, match="no space left to write"):
        mended(session)
    assert len(opened(session).home.store.readable_records("tiny").attempts) == 5
    (small / "ballast").unlink()
    again, told, asked = mended(session)
    assert told[-1].endswith("session 'tiny' goes on after attempt 3")
    assert len(asked) == 3
    whole(again)


@pytest.mark.parametrize("grown", [0, 4, 12, 20])
def test_no_room_for_checkpoints_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grown: int) -> None:
    from tests.sessions.made_sessions import begun

    session = begun(Workspace(tmp_path))
    made = Checkpoints.__init__

    def limited(self: Checkpoints, folder: Path, **how: Any) -> None:
        made(self, folder, **how)
        self.conn.execute(f"PRAGMA max_page_count = {12 + grown}")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "__init__", limited)
        with pytest.raises(Unavailable, match=r"no space left to write .*checkpoints\.sqlite") as said:
            session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
        assert_one_sentence(said.value)
    before = [(one.task, one.ordinal) for one in session.home.store.attempts("tiny").values()]
    again, _, asked = mended(session)
    assert not set(asked) & set(before)
    whole(again)


READ_ONLY = """
import os, sys
from pathlib import Path
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import *
from stitchcuda.errors import BadInput
from stitchcuda.sessions.session import sessions
from stitchcuda.cli.summary import session_tables, summary
home = Workspace(sys.argv[1], create=False)
session = named(home, 'tiny')
print(session.status, len(session.attempts()), [one.outcome().attempts for one in sessions(home)])
session_tables(session), summary(session)
try:
    session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
except BadInput as error:
    print(error)
"""


def test_a_folder_that_may_not_be_written_to(session: Session, tmp_path: Path) -> None:
    """It is shown, it is not gone on with, and nothing changes."""
    there = tmp_path / "there"
    there.mkdir()
    if os.geteuid() != 0 or subprocess.run(
        ["mount", "--bind", str(session.home.root), str(there)], capture_output=True, check=False
    ).returncode:
        pytest.skip("a folder cannot be made read-only for this user here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(there)], check=True)
        before = {path: path.read_bytes() for path in session.home.root.rglob("*") if path.is_file()}
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(there)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        shown, said = done.stdout.strip().splitlines()
        attempts = len(session.attempts())
        assert shown == f"{session.status} {attempts} [{attempts}]"
        assert said.startswith(f"cannot write {there}")
        assert said.endswith("choose a folder you may write to with --workspace")
        assert {path: path.read_bytes() for path in session.home.root.rglob("*") if path.is_file()} == before
    finally:
        subprocess.run(["umount", "-l", str(there)], check=True)
    whole(mended(session)[0])


def test_a_write_that_fails_for_another_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ended(Workspace(tmp_path))

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(BadInput, match=r"cannot write .*input/output error"):
            session.home.store.put(b"something")


# clocks


YEARS = 3 * 365 * 86_400 * 10**9


@pytest.mark.parametrize("moved", [-YEARS, *(pytest.param(moved, marks=pytest.mark.long) for moved in (-3_600 * 10**9, YEARS))])
@pytest.mark.more
def test_a_clock_that_was_set_between_two_runs(tmp_path: Path, moved: int) -> None:
    """Each run in a process of its own, since LangGraph keeps its clock from going back within one."""
    code = (
        "import sys, time; now = time.time_ns; moved = int(sys.argv[2]); time.time_ns = lambda: now() + moved\n"
        "from tests.graph.tiny import ScriptedEngineer, TinyHands; from tests.sessions.made_sessions import *\n"
        "home = Workspace(sys.argv[1]); hands = TinyHands(); hands.before = lambda tool: stop(tool)\n"
        "session = named(home, 'tiny') if home.store.names() else begun(home)\n"
        "built = 0\n"
        "def stop(tool):\n"
        "    global built\n"
        "    built += tool == 'build'\n"
        "    if built == int(sys.argv[3]): raise KeyboardInterrupt\n"
        "engineer = ScriptedEngineer(THREE)\n"
        "try: session.run(engineer=engineer, tools=hands)\n"
        "except KeyboardInterrupt: pass\n"
        "print(session.status, len(session.attempts()), *[f'{one.task.id}{one.ordinal}' for one in engineer.assignments])\n"
    )

    def run(moved: int, stop: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(moved), str(stop)], cwd=ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run(0, 3) == ["parked", "2", "a0", "b0", "b1"]
    assert run(moved, 3) == ["parked", "4", "c0", "c1"], "the draft that was under way is not written again"
    assert run(0, 0) == ["done", "6", "c2"]
    assert run(moved, 0) == ["done", "6"]
    home = Workspace(tmp_path)
    whole(Session(home, home.record("tiny")))
