"""A session as one file: what comes out of it is what went in, and what is no whole archive adds nothing."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sessions import archive
from stitchcuda.sessions.archive import export, import_
from stitchcuda.sessions.fork import fork
from stitchcuda.sessions.session import Session
from stitchcuda.state import State
from stitchcuda.store import Workspace
from stitchcuda.store.checkpoints import Checkpoints
from stitchcuda.store.session_snapshot import read_snapshot
from tests.engineers.metered_chats import assert_one_sentence
from tests.fake_model import answer_all, calls, ledger, requests, run, story
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, begun, ended, opened, program, record, remains, stopped

Members = dict[str, bytes]


def members(path: Path) -> Members:
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


def packed(path: Path, files: Members, *more: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for entry, data in more:
            tar.addfile(entry, io.BytesIO(data))
    return path


def history(session: Session) -> list[dict[str, object]]:
    """The states at all checkpoints, without what a checkpoint of another kind of store need not hold."""
    return [{name: value for name, value in one.values.items() if value is not None} for one in session.history()]


def test_it_comes_back_as_it_was(home: Workspace, tmp_path: Path) -> None:
    session = ended(home)
    path = export("tiny", tmp_path / "tiny.gz", workspace=home)
    assert path.read_bytes() == export("tiny", tmp_path / "again.gz", workspace=home).read_bytes()
    there = Workspace(tmp_path / "there")
    made = import_(path, workspace=there)
    assert (made.name, made.status) == ("tiny", "done")
    assert record(made) == record(session)
    assert history(made) == history(session)
    assert program(made) == program(session) == "a saves 0.2\nb saves 0.3\nc saves 0.1\n"
    assert (made.folder / "report.md").read_bytes() == (session.folder / "report.md").read_bytes()
    assert made.outcome().accepted
    assert import_(export("tiny", tmp_path / "back.gz", workspace=there), to="back", workspace=home).outcome().accepted
    assert history(fork("tiny", 3, workspace=there)) != []


@pytest.mark.more
def test_from_a_folder_into_a_database_and_back(database: str, tmp_path: Path) -> None:
    here, shared, there = Workspace(tmp_path / "a"), Workspace(tmp_path / "b", checkpoint=database), Workspace(tmp_path / "c")
    session = stopped(here, before=lambda tool, number: number == 12)
    first = export("tiny", tmp_path / "1.gz", workspace=here)
    there_now = import_(first, workspace=shared)
    second = export("tiny", tmp_path / "2.gz", workspace=shared)
    back = import_(second, workspace=there)
    assert record(session) == record(there_now) == record(back)
    assert history(session) == history(there_now) == history(back)
    one, other = members(first), members(second)
    for files in (one, other):             # a database keeps the parts of a value in an order of its own
        del files["checkpoints.sqlite"]
    assert one == other, "to the byte"
    for made in (session, there_now, back):
        assert made.run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).outcome().accepted
    assert session.state()["program"] == there_now.state()["program"] == back.state()["program"]
    shared.close()


@pytest.mark.more
@pytest.mark.parametrize("at", [1, 5, 9, 14])
def test_an_interrupted_one_goes_on_as_without(tmp_path: Path, at: int) -> None:
    home, there = Workspace(tmp_path / "here"), Workspace(tmp_path / "there")
    session = stopped(home, before=lambda tool, number: number == at)
    made = import_(export("tiny", tmp_path / "tiny.gz", workspace=home), to="other", workspace=there)
    results = []
    for one in (opened(session), opened(made)):
        engineer, tools = ScriptedEngineer(THREE), TinyHands()
        one.run(engineer=engineer, tools=tools)
        attempts, _, state = record(one)
        asked = [(given.task.id, given.ordinal) for given in engineer.assignments]
        made_so = [(attempt.id, attempt.program, attempt.route) for attempt in attempts]
        results.append((made_so, state["program"], asked, tools.calls, one.outcome().accepted))
    assert results[0] == results[1]


def test_one_that_has_not_run(home: Workspace, tmp_path: Path) -> None:
    begun(home)
    made = import_(export("tiny", tmp_path / "tiny.gz", workspace=home), to="other", workspace=home)
    assert made.attempts() == ()
    assert made.run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).outcome().accepted


def test_a_parked_chat_session_goes_on_elsewhere_with_what_was_answered(tmp_path: Path) -> None:
    session = story(tmp_path / "here", candidates=1, max_attempts=3)
    box = session.home.root / "box"
    for _ in range(4):
        run(session)
        answer_all(box)
    path = export("story", tmp_path / "story.gz", workspace=session.home)
    there = Workspace(tmp_path / "there")
    made = import_(path, workspace=there)
    shutil.copytree(box, there.root / "box")
    for one in (session, made):
        run(one)
        while answer_all(one.home.root / "box"):
            run(one)
        assert one.status == "done"
    assert ledger(made) == ledger(session)
    assert calls(made) == calls(session)
    assert requests(there.root / "box").keys() == requests(box).keys(), "nothing was asked twice"


def test_no_key_is_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-carried")
    home = Workspace(tmp_path / "here")
    ended(home, model="openai:local", base_url="http://localhost:1/v1")
    path = export("tiny", tmp_path / "tiny.gz", workspace=home)
    assert all(b"not-to-be-carried" not in data for data in members(path).values())
    assert b"localhost:1" in members(path)["session.json"]


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "here")
    session = ended(home)
    target = tmp_path / "tiny.gz"
    target.write_bytes(b"what was there")
    with pytest.raises(BadInput, match="cannot write"):
        export("tiny", tmp_path / "here" / "reference.py" / "x.gz", workspace=home)
    evidence = session.attempts()[1].evidence
    place = home.root / "artefacts" / evidence[:2] / evidence[2:]
    place.write_bytes(b"flipped")
    words = r"is not whole \(the evidence of attempt 2 .* is missing or damaged\): resume it"
    with pytest.raises(Unavailable, match=words):
        export("tiny", target, workspace=home)
    place.unlink()
    with pytest.raises(Unavailable, match=words):
        export("tiny", target, workspace=home)
    assert target.read_bytes() == b"what was there"


def test_a_name_that_is_taken_and_another_one(home: Workspace, tmp_path: Path) -> None:
    session = ended(home)
    path = export("tiny", tmp_path / "tiny.gz", workspace=home)
    before = record(session)
    with pytest.raises(BadInput, match="'tiny' exists already"):
        import_(path, workspace=home)
    with pytest.raises(BadInput, match="cannot name a session"):
        import_(path, to="../up", workspace=home)
    assert home.store.names() == ["tiny"]
    made = import_(path, to="other", workspace=home)
    assert made.state()["session"] == "other"
    assert made.state()["report"] == "sessions/other/report.md"
    assert made.outcome().report == str(made.folder / "report.md")
    assert record(session) == before
    assert import_(path, to="copy-", workspace=home).name == "copy-1"


def test_a_reference_that_lies_elsewhere_here_is_no_change(tmp_path: Path) -> None:
    """Where the file came from there says nothing here."""
    from stitchcuda.sessions.session import resume

    home = Workspace(tmp_path / "one" / "ws")
    ended(home)
    there = Workspace(tmp_path / "two" / "ws")
    (there.root / "reference.py").write_text("print('something else')\n")
    made = import_(export("tiny", tmp_path / "tiny.gz", workspace=home), workspace=there)
    assert made.record.reference_path == ""
    assert resume("tiny", workspace=there, device="elsewhere").status == "done"


# archives that are none


def with_entry(name: str, data: bytes = b"x", **facts: object) -> Callable[[Path, Members], None]:
    def make(path: Path, files: Members) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = 0 if facts else len(data)
        for fact, value in facts.items():
            setattr(entry, fact, value)
        packed(path, files, (entry, b"" if facts else data))

    return make


def changed(name: str, change: Callable[[bytes], bytes | None]) -> Callable[[Path, Members], None]:
    def make(path: Path, files: Members) -> None:
        data = change(files.pop(name))
        packed(path, files if data is None else files | {name: data})

    return make


def renamed_reference(name: str) -> Callable[[Path, Members], None]:
    return changed("session.json", lambda data: json.dumps(json.loads(data) | {"reference_name": name}).encode())


def without_reference(path: Path, files: Members) -> None:
    del files[f"artefacts/{json.loads(files['session.json'])['reference']}"]
    packed(path, files)


def without_a_program(path: Path, files: Members) -> None:
    line = json.loads(json.loads(files["ledger.jsonl"].splitlines()[0])["attempt"])
    del files[f"artefacts/{line['program']}"]
    packed(path, files)


def state(folder: Path, files: Members) -> State:
    """Where the session in an archive stands."""
    place = folder / "state"
    place.mkdir()
    (place / "checkpoints.sqlite").write_bytes(files["checkpoints.sqlite"])
    with Checkpoints(place) as saver:
        found = read_snapshot(saver, "tiny").state
    shutil.rmtree(place)
    return found


def without(which: Callable[[State, Members], str]) -> Callable[[Path, Members], None]:
    """An archive without one artefact."""
    def make(path: Path, files: Members) -> None:
        del files[f"artefacts/{which(state(path.parent, files), files)}"]
        packed(path, files)

    return make


def part_of(program: str | None, files: Members) -> str:
    """A file of a program."""
    return str(min(json.loads(files[f"artefacts/{program}"])["files"].values()))


def attempts(files: Members) -> list[dict[str, str]]:
    return [json.loads(json.loads(line)["attempt"]) for line in files["ledger.jsonl"].splitlines()]


def sparse(path: Path, files: Members) -> None:
    """As `tar --format=gnu -S` writes them: 20 MB, of which one byte is in the archive."""
    entry = tarfile.TarInfo("files/report.html")
    entry.size, entry.type = 1, tarfile.GNUTYPE_SPARSE
    block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    block[386:410] = b"%011o\0%011o\0" % (20_000_000 - 1, 1)
    block[483:495] = b"%011o\0" % 20_000_000
    block[148:156] = b"%06o\0 " % (256 + sum(block[:148]) + sum(block[156:]))
    packed(path, files)
    whole = gzip.decompress(path.read_bytes()).rstrip(b"\0")
    whole += bytes(-len(whole) % 512)
    path.write_bytes(gzip.compress(whole + bytes(block) + b"x" + bytes(511) + bytes(1024)))


def sparse_by_pax(path: Path, files: Members) -> None:
    entry = tarfile.TarInfo("files/report.html")
    entry.size = 1
    size = str(20_000_000)
    entry.pax_headers = {"GNU.sparse.map": f"{20_000_000 - 1},1", "GNU.sparse.size": size, "GNU.sparse.numblocks": "1"}
    packed(path, files, (entry, b"x"))


def forged(path: Path, files: Members) -> None:
    name = next(name for name in files if name.startswith("artefacts/"))
    packed(path, files | {name: files[name] + b" "})


def cut(path: Path, files: Members) -> None:
    whole = packed(path, files).read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])


def one_byte_less(path: Path, files: Members) -> None:
    path.write_bytes(packed(path, files).read_bytes()[:-1])


def flipped(path: Path, files: Members) -> None:
    whole = bytearray(packed(path, files).read_bytes())
    whole[len(whole) // 2] ^= 4
    path.write_bytes(whole)


def other_table(data: bytes, statement: str, folder: Path) -> bytes:
    file = folder / "changed.sqlite"
    file.write_bytes(data)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.executescript(statement)
    connection.close()
    found = file.read_bytes()
    file.unlink()
    return found


def schema(statement: str) -> Callable[[Path, Members], None]:
    def make(path: Path, files: Members) -> None:
        data = other_table(files["checkpoints.sqlite"], statement, path.parent)
        packed(path, files | {"checkpoints.sqlite": data})

    return make


def bomb(path: Path, files: Members) -> None:
    packed(path, files | {"files/report.html": b"\0" * 30_000_000})


def long_header(path: Path, files: Members) -> None:
    """A header that the reader of archives would take into memory as it is."""
    entry = tarfile.TarInfo("x" * 20_000_000)
    packed(path, files, (entry, b""))


def no_archive(path: Path, files: Members) -> None:
    path.write_text("This is a letter.\n")


def squeezed_letter(path: Path, files: Members) -> None:
    path.write_bytes(gzip.compress(b"This is a letter.\n" * 100))


def nothing(path: Path, files: Members) -> None:
    path.write_bytes(b"")


DAMAGE: dict[str, Callable[[Path, Members], None]] = {
    "up": with_entry("../../evil"),
    "up below": with_entry("artefacts/../../evil"),
    "absolute": with_entry("/tmp/evil"),
    "unknown": with_entry("lock"),
    "symlink": with_entry("files/report.html", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": with_entry("files/report.html", type=tarfile.LNKTYPE, linkname="session.json"),
    "folder": with_entry("artefacts", type=tarfile.DIRTYPE),
    "device": with_entry("files/report.html", type=tarfile.CHRTYPE),
    "twice": with_entry("session.json", b"{}"),
    "forged": forged,
    "cut": cut,
    "one byte less": one_byte_less,
    "flipped": flipped,
    "no archive": no_archive,
    "a letter": squeezed_letter,
    "nothing": nothing,
    "bomb": bomb,
    "long header": long_header,
    "no record": changed("session.json", lambda data: None),
    "record": changed("session.json", lambda data: data[:-10]),
    "record of another kind": changed("session.json", lambda data: b"[]"),
    "ledger": changed("ledger.jsonl", lambda data: data.replace(b"saves", b"salves").replace(b"kept", b"left", 1)),
    "transcript": changed("ledger.jsonl", lambda data: b"{}\n" + data),
    "checkpoints": changed("checkpoints.sqlite", lambda data: b"SQLite format 3\0" + b"\1" * 5000),
    "cut checkpoints": changed("checkpoints.sqlite", lambda data: data[:5000]),
    "a trigger": schema("CREATE TRIGGER t AFTER INSERT ON milestones BEGIN DELETE FROM checkpoints; END;"),
    "a view": schema("DROP TABLE writes; CREATE VIEW writes AS SELECT * FROM checkpoints;"),
    "reference up": renamed_reference("../../evil.py"),
    "reference with a slash": renamed_reference("a/b.py"),
    "reference above": renamed_reference(".."),
    "reference hidden": renamed_reference(".bashrc.py"),
    "reference as a ledger": renamed_reference("ledger.jsonl"),
    "reference without a name": renamed_reference(""),
    "no reference": without_reference,
    "no program": without_a_program,
    "a program's file": without(lambda state, files: part_of(attempts(files)[1]["program"], files)),
    "a base": without(lambda state, files: attempts(files)[0]["base"]),
    "a review": without(lambda state, files: attempts(files)[2]["review"]),
    "a plan": without(lambda state, files: state["plan"] or ""),
    "the capture": without(lambda state, files: state["baseline"].capture if state["baseline"] else ""),
    "the regions": without(lambda state, files: state["baseline"].regions if state["baseline"] else ""),
    "the first program": without(lambda state, files: part_of(state["first"], files)),
    "no ledger": changed("ledger.jsonl", lambda data: None),
    "a cut ledger": changed("ledger.jsonl", lambda data: data[:-300]),
    "a ledger without its beginning": changed("ledger.jsonl", lambda data: data.partition(b"\n")[2]),
    "no checkpoint": schema("DELETE FROM checkpoints; DELETE FROM writes;"),
    "checkpoints of another session": schema("UPDATE checkpoints SET thread_id = 'x'; UPDATE writes SET thread_id = 'x';"),
    "another name": changed("session.json", lambda data: data.replace(b'"name": "tiny"', b'"name": "other"')),
    "sparse": sparse,
    "sparse by pax": sparse_by_pax,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Members:
    folder = tmp_path_factory.mktemp("whole")
    home = Workspace(folder / "home")
    ended(home)
    found = members(export("tiny", folder / "tiny.gz", workspace=home))
    assert hashlib.sha256(found[next(name for name in found if "artefacts" in name)]).hexdigest() in str(found.keys())
    return found


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_whole_archive_adds_nothing(
    whole: Members, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST", 10_000_000)
    place = tmp_path / "in"
    place.mkdir()
    DAMAGE[damage](place / "tiny.gz", dict(whole))
    home = Workspace(tmp_path / "ws")
    before = remains(tmp_path)
    with pytest.raises(BadInput) as said:
        import_(place / "tiny.gz", workspace=home)
    assert_one_sentence(said.value)
    assert str(place / "tiny.gz") in str(said.value)
    assert "import-" not in str(said.value), "no path of ours that is gone by now"
    assert remains(tmp_path) == before
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize("make", [sparse, sparse_by_pax])
def test_what_is_written_counts_too(
    whole: Members, make: Callable[[Path, Members], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "tiny.gz", dict(whole))
    with pytest.raises(BadInput, match=r"'files/report\.html' does not belong into one"):
        import_(tmp_path / "tiny.gz", workspace=tmp_path / "ws")
    monkeypatch.setattr(archive, "MOST", 10_000_000)
    monkeypatch.setattr(tarfile.TarInfo, "issparse", lambda entry: False)
    with pytest.raises(BadInput, match="far larger unpacked than packed"):
        import_(tmp_path / "tiny.gz", workspace=tmp_path / "ws")


def test_a_draft_under_way_is_needed(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "ws")
    stopped(home, before=lambda tool, number: tool == "build" and number > 4)
    files = members(export("tiny", tmp_path / "tiny.gz", workspace=home))
    program = next(work.program for work in state(tmp_path, files)["drafts"] if work.program)
    assert import_(tmp_path / "tiny.gz", to="whole", workspace=home).status == "parked"
    del files[f"artefacts/{program}"]
    with pytest.raises(BadInput, match=r"the draft under way .* is missing or damaged"):
        import_(packed(tmp_path / "cut.gz", files), to="other", workspace=home)
    assert home.store.names() == ["tiny", "whole"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("session.json", lambda data: data.replace(b'"max_attempts": 30', b'"max_attempts": "x"')),
         "(session.json: settings.max_attempts: "),
        (changed("checkpoints.sqlite", lambda data: data[:5000]), "(checkpoints.sqlite is damaged ("),
        (changed("ledger.jsonl", lambda data: b"{}\n" + data), "(ledger.jsonl is damaged at line 1)"),
        (schema("UPDATE checkpoints SET checkpoint = x'00'"), "(checkpoints.sqlite is damaged ("),
    ],
)  # fmt: skip
def test_which_file_is_wrong_and_what_to_do(
    whole: Members, change: Callable[[Path, Members], None], words: str, tmp_path: Path
) -> None:
    change(tmp_path / "tiny.gz", dict(whole))
    with pytest.raises(BadInput) as said:
        import_(tmp_path / "tiny.gz", workspace=tmp_path / "ws")
    assert_one_sentence(said.value)
    assert words in str(said.value)
    assert str(said.value).startswith(f"{tmp_path / 'tiny.gz'} is ")
    assert str(said.value).endswith("): export it again")


def test_a_session_that_is_not_whole_is_not_exported(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "ws")
    session = ended(home)
    plan = session.state()["plan"]
    assert plan
    (home.root / "artefacts" / plan[:2] / plan[2:]).unlink()
    with pytest.raises(Unavailable, match=r"'tiny' is not whole \(a plan is missing or damaged\): resume it"):
        export("tiny", tmp_path / "tiny.gz", workspace=home)
    opened(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert import_(export("tiny", tmp_path / "tiny.gz", workspace=home), workspace=tmp_path / "there").outcome().accepted


def test_where_an_archive_is_written(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "ws")
    begun(home)
    with pytest.raises(BadInput, match=r"is a folder: name a file with -o, such as .*/ws/tiny.stitch.tar.gz"):
        export("tiny", tmp_path / "ws", workspace=home)
    with pytest.raises(BadInput, match=r"there is no folder .*/none/more\): make it, or name another file with -o"):
        export("tiny", tmp_path / "none" / "more" / "x.gz", workspace=home)
    assert not (tmp_path / "none").exists()


def test_a_page_that_can_be_made_again_is_not_carried(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "ws")
    page = ended(home).folder / "report.html"
    page.write_text("<html>")
    found = members(export("tiny", tmp_path / "tiny.gz", workspace=home))
    assert [name for name in found if name.startswith("files/")] == ["files/report.md"]
    old = packed(tmp_path / "old.gz", found | {"files/report.html": b"<html>"})
    assert (import_(old, to="old", workspace=home).folder / "report.html").read_text() == "<html>"


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "ws")
    for path, words in ((tmp_path / "none.gz", "there is no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(BadInput, match=words) as said:
            import_(path, workspace=home)
        assert_one_sentence(said.value)


def test_a_large_session_is_no_bomb(whole: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be squeezed further may be as large as it is."""
    monkeypatch.setattr(archive, "MOST", 1000)
    made = import_(packed(tmp_path / "tiny.gz", whole), workspace=tmp_path / "ws")
    assert made.outcome().accepted
