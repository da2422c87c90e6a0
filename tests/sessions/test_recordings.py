"""Recorded sessions of a chat model on a GPU replay to the same ledger, offline: what was said and measured is what counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt
from stitchcuda.store import Workspace, get_tree
from tests.marks import more_but
from tests.replay import RecordedHands, Recording, engineers

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.json.gz"))


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


@pytest.mark.parametrize("path", more_but(RECORDINGS, "llama_mlp", "transformer_block", key=name_of), ids=name_of)
def test_a_recorded_session_replays_to_the_same_ledger(path: Path, tmp_path: Path) -> None:
    recording = Recording(path)
    home = Workspace(tmp_path)
    record = recording.reopened(home)
    crew, replies = engineers(recording, home, record.name, record.settings)
    session = Session(home, record).run(engineer=crew, tools=RecordedHands(recording))
    ledger = [one.model_dump(mode="json") for one in session.attempts()]
    # Some sessions were ended by a lowered budget before their last attempt was reviewed: a replay waits for that review.
    last = recording.ledger[-1]["id"]
    waits = session.outcome().stop_reason == f"waits for a reply to verifier-{last}-0"
    reviewed = recording.ledger[:-1] if waits else recording.ledger
    assert [one["id"] for one in ledger] == [one["id"] for one in reviewed]
    printed = {one: set(get_tree(home.store, one)) for one in (one["program"] for one in ledger)}
    for one, recorded in zip(ledger, reviewed, strict=True):
        other = Attempt.model_validate(recorded).model_dump(mode="json")  # with what attempts had not when it was recorded
        kernels = {recording.in_words_of_now(path) for path in recording.data["programs"][other["program"]]}
        assert printed[one["program"]] == kernels
        longer = ["defect", "route_reason"] if other["defect"] else []
        assert one["defect"].startswith(other["defect"].rstrip("…").rstrip())
        for name in ("review", "evidence", "base", "program", *(["note"] if one["engineer"] == "builtin" else []), *longer):
            del one[name], other[name]  # how programs are printed may change, and how much of a verifier's words is kept
        assert one == {name: pytest.approx(value) if isinstance(value, float) else value for name, value in other.items()}
    assert {ask.role for ask in replies.asked} == {"planner", "coder", "verifier"}
    assert crew.transcript is not None
    answered = {call["id"] for call in recording.data["calls"] if call["reply"]}
    replayed = {call.id.rpartition("-")[0] for call in crew.transcript.calls()}
    assert replayed <= answered
    # What is left was written for one more attempt, which the session's budget, lowered while it was parked, did not allow.
    assert {place.split("-")[1] for place in answered - replayed}.isdisjoint(one["id"] for one in recording.ledger)
    assert (session.status == "done") is (recording.data["final"] is not None and not waits)


def test_there_are_recordings() -> None:
    assert RECORDINGS
