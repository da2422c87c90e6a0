"""What a session rests on, in a folder and in PostgreSQL: both keep the same promises and say in a sentence what is wrong."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.errors import BadInput, Damaged, SessionBusy, Unavailable
from stitchcuda.sessions.archive import export, import_
from stitchcuda.sessions.remove import remove
from stitchcuda.sessions.session import Session
from stitchcuda.state import Call, Settings
from stitchcuda.store import SessionRecord, Workspace, get_tree, put_tree
from stitchcuda.store.checkpoints import open_checkpoints
from stitchcuda.store.database import Database
from tests.engineers.metered_chats import assert_one_sentence
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.memory.postgres_server import PASSWORD, Server
from tests.sessions.made_sessions import THREE, begun, ended, opened
from tests.store.test_workspace import attempt


def record(home: Workspace, name: str = "mlp", **changes: object) -> SessionRecord:
    digest = home.store.put(b"class Model: ...")
    facts = {"name": name, "reference": digest, "reference_name": "mlp.py", "source": digest, "settings": Settings()}
    return SessionRecord.model_validate(facts | changes)


def test_artefacts_and_programs_come_back_by_their_digest(home: Workspace) -> None:
    digest = home.store.put(b"kernel\0\xff")
    assert digest == hashlib.sha256(b"kernel\0\xff").hexdigest() == home.store.put(b"kernel\0\xff")
    assert home.store.get(digest) == b"kernel\0\xff"
    tree = put_tree(home.store, {"model_new.py": "class M: ...", "constants.safetensors": b"\xff"})
    assert get_tree(home.store, tree) == {"model_new.py": b"class M: ...", "constants.safetensors": b"\xff"}
    with pytest.raises(Damaged, match=r"lacks"):
        home.store.get("0" * 64)
    assert {name for name, _ in home.store.artefacts()} >= {digest, tree}


def test_the_first_record_stays_and_all_come_in_order(home: Workspace) -> None:
    made = home.create(record(home))
    call = Call(id="coder-a-0", model="m", request="0" * 64, reply=None, outcome="größer als 4 µs")
    with home.store.owning(made.name):
        for number in range(3):
            assert home.store.append(made.name, attempt(number)) == attempt(number)
        assert home.store.append(made.name, attempt(1, route_reason="another")) == attempt(1)
        assert home.store.record(made.name, call) == call == home.store.record(made.name, call.model_copy(update={"usd": 1.0}))
    assert list(home.store.attempts(made.name).values()) == [attempt(number) for number in range(3)]
    assert list(home.store.calls(made.name)) == [call.id]
    with home.store.owning(made.name):
        home.discard(made.name)
    assert home.store.names() == []
    again = home.create(record(home))
    assert dict(home.store.attempts(again.name)) == {}, "a name that is used again begins anew"


def test_names_are_unique_and_numbered(home: Workspace) -> None:
    assert [home.create(record(home, "mlp-")).name for _ in range(3)] == ["mlp-1", "mlp-2", "mlp-3"]
    with pytest.raises(BadInput, match="exists already"):
        home.create(record(home, "mlp-2"))
    with pytest.raises(BadInput, match="cannot name a session"):
        home.create(record(home, "../x"))
    with pytest.raises(BadInput, match=r"there is no session 'other' in .*: it has mlp-1, mlp-2, mlp-3"):
        home.record("other")


def test_one_owner_at_a_time(home: Workspace) -> None:
    made = home.create(record(home))
    assert home.store.owner(made.name) == ""
    with home.store.owning(made.name):
        assert f"process {os.getpid()}" in home.store.owner(made.name)
        with pytest.raises(SessionBusy, match="is being run by process"), home.store.owning(made.name):
            pass
        home.store.set_failure(made.name, "the disk is full")
    assert home.store.owner(made.name) == ""
    assert home.store.failure(made.name) == "the disk is full"
    with home.store.owning(made.name):
        home.store.set_failure(made.name, None)
    assert home.store.failure(made.name) is None


def test_a_database_is_written_to_by_owners_alone(database: str, tmp_path: Path) -> None:
    home = Workspace(tmp_path, checkpoint=database)
    made = home.create(record(home))
    with pytest.raises(AssertionError, match="a process that does not own it"):
        home.store.append(made.name, attempt(0))
    home.close()


@pytest.mark.more
def test_checkpoints_in_a_database_are_thinned(database: str, tmp_path: Path) -> None:
    import psycopg

    home = Workspace(tmp_path, checkpoint=database)
    session = begun(home, max_attempts=40)
    script = {f"t{number:02}": ["saves 0.01"] for number in range(40)}
    session.run(engineer=ScriptedEngineer(script, predicted_ms=0.02), tools=TinyHands())
    with psycopg.connect(database) as connection:
        (checkpoints,), (blobs,), (size,), (unused,) = (
            connection.execute(statement).fetchone() or (0,)
            for statement in (
                "SELECT count(*) FROM checkpoints",
                "SELECT count(*) FROM checkpoint_blobs",
                "SELECT sum(octet_length(blob)) FROM checkpoint_blobs",
                "SELECT count(*) FROM checkpoint_blobs b WHERE NOT EXISTS (SELECT 1 FROM checkpoints c "
                "WHERE c.checkpoint -> 'channel_versions' ->> b.channel = b.version)",
            )
        )
    assert 40 <= checkpoints < 50
    assert blobs < 25 * checkpoints
    assert size < 20_000 * 40
    assert unused < 25, "what only thinned checkpoints had went with them"
    home.close()


def test_what_is_wrong_with_a_database_is_one_sentence(database: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        Workspace(tmp_path, checkpoint=database).store.put(b"first")
        connection.execute("UPDATE stitchcuda_format SET version = 99")
    with pytest.raises(Unavailable, match=r"by a newer StitchCUDA \(format 99, this one reads \d+\): update"):
        Workspace(tmp_path, checkpoint=database).store.names()
    for wrong in (database.replace(PASSWORD, "wrong-word"), "postgresql://tester:wrong-word@127.0.0.1:9/x"):
        with pytest.raises(Unavailable, match="cannot be used") as caught:
            Workspace(tmp_path, checkpoint=wrong).store.names()
        assert "wrong-word" not in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match=r"--checkpoint cannot be mysql://…: give postgresql://"):
        Workspace(tmp_path, checkpoint="mysql://x")


def tables(database: str) -> set[str]:
    import psycopg

    with psycopg.connect(database) as connection:
        return {row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def a_role(database: str, rights: str, sequences: str = "") -> str:
    """The URL of the database for somebody who has these rights on its tables, now and later, and may make none."""
    import psycopg

    role = f"{rights.split()[-1].lower()}_{database.rpartition('/')[2]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'another-word'")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {rights} ON TABLES TO {role}")
        if sequences:
            connection.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {sequences} ON SEQUENCES TO {role}")
    return database.replace(f"tester:{PASSWORD}", f"{role}:another-word")


def test_reading_makes_nothing_and_needs_no_right_to(database: str, tmp_path: Path) -> None:
    reader = a_role(database, "SELECT")
    for url in (database, reader):
        home = Workspace(tmp_path / "reading", create=False, checkpoint=url)
        assert (home.store.names(), home.sessions()) == ([], ())
        with pytest.raises(BadInput, match=r"there is no session 'tiny' in .*: it has none yet"):
            Session.open("tiny", home)
        with open_checkpoints(home, "tiny", reading=True) as saver:
            assert (saver.newest("tiny"), list(saver.list(None)), saver.milestones("tiny")) == (None, [], {})
        home.close()
    assert tables(database) == set()
    assert not (tmp_path / "reading").exists()

    home, there = Workspace(tmp_path / "ws", checkpoint=database), Workspace(tmp_path / "reading", checkpoint=reader)
    made = ended(home)
    read = Session.open("tiny", there)
    assert (read.status, len(read.attempts()), read.state()) == ("done", 6, made.state())
    assert export("tiny", tmp_path / "tiny.gz", workspace=there).exists()
    assert not (tmp_path / "reading").exists()
    with pytest.raises(Unavailable, match=r"\(permission denied for table .*\): have its owner grant the right, or") as caught:
        import_(tmp_path / "tiny.gz", to="other", workspace=there)
    assert_one_sentence(caught.value)
    home.close()
    there.close()


def test_who_may_write_need_not_make_tables(database: str, tmp_path: Path) -> None:
    url = a_role(database, "SELECT, INSERT, UPDATE, DELETE", "USAGE")
    home, there = Workspace(tmp_path / "ws", checkpoint=database), Workspace(tmp_path / "there", checkpoint=url)
    with pytest.raises(Unavailable, match=r"\(permission denied for schema public\): have its owner grant the right"):
        begun(there)
    ended(home)
    assert ended(there, "other").outcome().accepted
    assert remove(["tiny"], workspace=there).waits_for == ""
    home.close()
    there.close()


def test_who_waits_for_an_owner_is_as_patient(server: Server, database: str, tmp_path: Path) -> None:
    home, there = Workspace(tmp_path / "ws", checkpoint=database), Workspace(tmp_path / "there", checkpoint=database)
    made = home.create(record(home))
    with home.store.owning(made.name):
        owner = there.store.owner(made.name).partition(" (")[0]
        assert owner
        server.stop()
        starts = threading.Timer(1, server.start)
        starts.start()
        try:
            assert there.store.owner(made.name).startswith(owner)
        finally:
            starts.join()
    assert there.store.owner(made.name) == ""
    home.close()
    there.close()


def test_when_a_database_stays_away_it_is_said_how_to_go_on(
    server: Server, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STITCHCUDA_LEASE_S", "1")
    home = Workspace(tmp_path / "ws", checkpoint=database)
    session, tools = begun(home), TinyHands()
    tools.before = lambda tool: server.stop() if len(tools.calls) == 8 else None
    try:
        with pytest.raises(Unavailable, match="cannot be used") as caught:
            session.run(engineer=ScriptedEngineer(THREE), tools=tools)
    finally:
        server.start()
    assert_one_sentence(caught.value)
    told = str(caught.value)
    assert f": start that server, then go on with `stitchcuda resume tiny{home.option}`: what was done is saved there" in told
    assert PASSWORD not in told
    assert f"--workspace {tmp_path / 'ws'} --checkpoint postgresql://tester@" in told
    again = opened(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert again.outcome().accepted
    again.home.close()
    home.close()


def test_a_command_that_fails_makes_no_folder(tmp_path: Path) -> None:
    for command in (["sessions"], ["show", "one"], ["rm", "one"], ["export", "one"], ["resume", "one"]):
        url = "postgresql://tester@127.0.0.1:9/x"
        done = CliRunner().invoke(app, [*command, "--workspace", str(tmp_path / "ws"), "--checkpoint", url])
        assert done.exit_code == 2, (done.stdout, done.stderr)
        assert not (tmp_path / "ws").exists()


SECRET = "postgresql://adm:{}@127.0.0.1:9/base?connect_timeout=2"


@pytest.mark.parametrize(
    "url",
    [
        SECRET.format("sec/ret#pw"), SECRET.format("secret@pw"), SECRET.format("sec%zzret"), SECRET.format("sec?ret=pw"),
        SECRET.format("sec ret"), SECRET.format("sec:ret@pw:pw"), "postgresql://adm@firm:secret@127.0.0.1:9/base",
        "postgresql://adm:secret", "postgresql://127.0.0.1:9/base?password=sec@ret", "postgresql://127.0.0.1:9/base?secret",
        "postgresql://127.0.0.1:9/base?password=sec=ret", "postgresql://adm:sec[ret@[::1/base",
    ],
)  # fmt: skip
def test_a_password_that_needs_quoting_is_not_shown(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unavailable, match=r"@ as %40.* or keep the password in ~/.pgpass") as caught:
        Workspace(tmp_path, checkpoint=url).store.names()
    assert_one_sentence(caught.value)
    traceback.print_exception(caught.value)
    told = str(caught.value) + capsys.readouterr().err + Workspace(tmp_path, checkpoint=url).option
    assert not re.search("sec|ret\\b|pw@|@pw", told), told
    assert "has a URL that cannot be read" in told


@pytest.mark.parametrize("word", ["sec%2Fret%23pw", "secret%40pw", "sec:ret", "sec#ret", "sec[ret", "sec%25zzret"])
def test_a_password_that_is_quoted_is_not_shown(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Workspace(tmp_path, checkpoint=SECRET.format(word))
    with pytest.raises(Unavailable, match=r"postgresql://127.0.0.1:9/base cannot be used .*: start that server") as caught:
        home.store.names()
    traceback.print_exception(caught.value)
    told = str(caught.value) + capsys.readouterr().err + home.option
    assert not re.search("sec|ret\\b", told), told
    assert "--checkpoint postgresql://adm@127.0.0.1:9/base" in home.option


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=h password=secretpw", "host…"), ("password=secretpw", "that"), ("secretpw", "that"), ("sec ret", "that"),
        ("adm:secret@host/db", "that"), ("mysql://adm:secret@host", "mysql://…"), ("Postgres:/adm:secret@h", "that"),
    ],
)  # fmt: skip
def test_of_what_is_no_url_nothing_is_shown_that_may_be_secret(text: str, shown: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        Workspace(tmp_path, checkpoint=text)
    assert str(caught.value).startswith(f"--checkpoint cannot be {shown}: give postgresql://USER@HOST/DATABASE")


def test_what_the_driver_says_is_cleaned() -> None:
    """Also of passwords among the options, as they were written and as they are meant."""
    database = Database(
        "postgresql://adm:first%2Fword@h/db?password=other%20word", what="it", correct="correct it", without="leave it out"
    )
    said = database._reason(ValueError("no first/word, first%2Fword, other%20word, other word, h\nmore"))
    assert said == "no ***, ***, ***, ***, h"


def test_without_a_server_a_command_ends_with_2(tmp_path: Path) -> None:
    url = f"postgresql://tester:{PASSWORD}@127.0.0.1:9/x?connect_timeout=2"
    command = [sys.executable, "-m", "stitchcuda", "sessions", "--workspace", str(tmp_path), "--checkpoint", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert PASSWORD not in done.stderr
    assert "start that server, or correct --checkpoint" in done.stderr
