"""What is damaged in a database is gone back behind as in a folder: line by line, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from stitchcuda.errors import Damaged
from stitchcuda.sessions.session import Session
from stitchcuda.store import Workspace
from tests.engineers.metered_chats import assert_one_sentence
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, ended, opened, program


@pytest.fixture
def session(database: str, tmp_path: Path) -> Iterator[Session]:
    home = Workspace(tmp_path / "workspace", checkpoint=database)
    yield ended(home)
    home.close()


def change(database: str, statement: str, *values: object) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute(statement, values).rowcount > 0


ATTEMPT = "session = 'tiny' AND field = 'attempt' AND key = %s"
HARM = {
    "a line": (f"UPDATE stitchcuda_line SET body = replace(body, 'correct', 'corrupt') WHERE {ATTEMPT}", "id", "is damaged"),
    "no line": (f"DELETE FROM stitchcuda_line WHERE {ATTEMPT}", "id", "made again"),
    "an artefact": (
        "UPDATE stitchcuda_artefact SET data = data || '\\x00'::bytea WHERE digest = %s", "evidence",
        "the evidence of attempt 4",
    ),
    "no artefact": ("DELETE FROM stitchcuda_artefact WHERE digest = %s", "evidence", "the evidence of attempt 4"),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARM)
def test_an_attempt_is_lost(session: Session, database: str, harm: str) -> None:
    statement, field, words = HARM[harm]
    change(database, statement, getattr(session.attempts()[3], field))
    told, asked = mended(session)
    assert any(words in text for text in told), told
    assert any("session 'tiny' goes on after attempt 3" in text for text in told), told
    assert asked == [("c", 0), ("c", 1), ("c", 2)], "what was whole is not made again"


CHECKPOINTS = {
    "none": "DELETE FROM checkpoints WHERE thread_id = 'tiny'",
    "values": "UPDATE checkpoint_blobs SET blob = set_byte(blob, 40, get_byte(blob, 40) # 1) "
              "WHERE thread_id = 'tiny' AND type <> 'empty' AND length(blob) > 60",
    "the newest": "UPDATE checkpoint_blobs SET blob = set_byte(blob, 40, get_byte(blob, 40) # 1) WHERE thread_id = 'tiny' "
                  "AND channel = 'final' AND length(blob) > 60",
}  # fmt: skip


@pytest.mark.parametrize("harm", CHECKPOINTS)
def test_checkpoints_are_damaged(session: Session, database: str, harm: str) -> None:
    change(database, CHECKPOINTS[harm])
    if harm != "none":
        with pytest.raises(Damaged, match="goes on from what is whole") as said:
            opened(session).outcome()
        assert_one_sentence(said.value)
    told, asked = mended(session)
    words = {"none": "hold nothing: it starts again and takes over 6 attempts", "values": "it starts again and takes over 6",
             "the newest": "goes on after attempt 6"}  # fmt: skip
    assert words[harm] in told[0]
    assert asked == []


def mended(session: Session) -> tuple[list[str], list[tuple[str, int]]]:
    """What was said, and what the engineer was asked for; the session came to what it would have come to."""
    engineer, told = ScriptedEngineer(THREE), []
    again = opened(session)
    again.run(
        engineer=engineer, tools=TinyHands(),
        on_event=lambda event: told.append(event["text"]) if event["kind"] == "note" else None,
    )  # fmt: skip
    assert again.outcome().accepted
    assert len(again.attempts()) == 6
    assert program(again) == "a saves 0.2\nb saves 0.3\nc saves 0.1\n"
    again.home.close()
    return told, [(given.task.id, given.ordinal) for given in engineer.assignments]
