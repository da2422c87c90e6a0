"""Sessions that wait for replies: several at once, several requests at once, in any order, with everything asked once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.cli.summary import summary
from stitchcuda.errors import BadInput
from stitchcuda.sessions.outcome_text import headline
from stitchcuda.sessions.session import Session, resume
from tests.cli.test_app import REFERENCE, stitchcuda
from tests.fake_model import answer_all, batch_line, calls, ledger, put, requests, run, story, unanswered, usage


def files(box: Path) -> dict[str, tuple[int, bytes]]:
    """What lies in a mailbox's requests: when it was written, and what it holds."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted((box / "requests").iterdir())}


def to_the_end(session: Session) -> Session:
    """Answers whatever is asked until the session is done."""
    run(session)
    while answer_all(session.home.root / "box"):
        run(session)
    assert session.status == "done"
    return session


def parked_at_candidates(folder: Path, **settings: Any) -> tuple[Session, Path]:
    """A session that waits for the drafts of its first step, and its mailbox."""
    session = story(folder, **settings)
    box = session.home.root / "box"
    run(session)
    answer_all(box)
    run(session)
    return session, box


def parked_at_the_second_task(folder: Path, **settings: Any) -> tuple[Session, Path]:
    """The same, one step later: two programs were judged, and it waits for the next."""
    session, box = parked_at_candidates(folder, **settings)
    while len(ledger(session)) < 2:
        answer_all(box)
        run(session)
    assert all("-coder-" in name for name in unanswered(box)), "for the next drafts"
    return session, box


def test_a_lower_budget_ends_a_session_with_what_it_has(tmp_path: Path) -> None:
    session, box = parked_at_the_second_task(tmp_path)
    asked, best = requests(box), session.state()["program"]
    resume("story", workspace=session.home.root, device="elsewhere", max_attempts=1)
    ended = run(session)
    assert (ended.status, ended.outcome().accepted) == ("done", True)
    assert ended.outcome().stop_reason == "budget: 2 attempts of 1"
    assert ended.state()["program"] == best
    assert ended.settings.max_attempts == 1
    assert requests(box) == asked, "nobody is asked for more"
    with pytest.raises(BadInput, match="'story' is done, and its budgets with it"):
        resume("story", workspace=session.home.root, max_tokens=1000)


def test_a_higher_budget_lets_a_session_go_on(tmp_path: Path) -> None:
    session, _ = parked_at_the_second_task(tmp_path, max_attempts=3)
    assert resume("story", workspace=session.home.root, device="elsewhere", max_attempts=30).status == "parked"
    to_the_end(session)
    assert len(ledger(session)) > 4
    assert session.outcome().accepted


def as_answered_before(session: Session, folder: Path) -> Session:
    """The same session anew, with every reply there from the start: one run."""
    fresh = story(folder, candidates=session.settings.candidates, max_attempts=session.settings.max_attempts)
    shutil.copytree(session.home.root / "box" / "replies", fresh.home.root / "box" / "replies")
    assert run(fresh).status == "done"
    return fresh


def test_it_says_what_it_waits_for_and_nothing_changes_until_it_is_there(tmp_path: Path) -> None:
    session = story(tmp_path)
    box = session.home.root / "box"
    run(session)
    (name,) = requests(box)
    outcome = session.outcome()
    assert (session.status, outcome.status, outcome.accepted, outcome.attempts) == ("parked", "parked", False, 0)
    assert outcome.stop_reason == f"waits for a reply to {box / 'requests' / name}.md"
    before = files(box), calls(session)
    for _ in range(2):
        assert run(session).outcome().stop_reason == outcome.stop_reason
    assert (files(box), calls(session)) == before
    answer_all(box)
    assert run(session).outcome().stop_reason != outcome.stop_reason
    assert {key: found for key, found in files(box).items() if key in before[0]} == before[0]


def test_sessions_whose_names_begin_alike_share_a_mailbox(tmp_path: Path) -> None:
    box = tmp_path / "box"
    made = [
        story(tmp_path, f"transformer-block-of-length-{number}", model=f"mailbox:{box}", candidates=1, max_attempts=1)
        for number in range(3)
    ]
    for count in (3, 6, 9):                # plans, drafts, reviews
        for session in made:
            run(session)
        assert len(requests(box)) == count
        if count == 3:
            waits = [session.outcome() for session in made]
            assert {one.status for one in waits} == {"parked"}
            assert len({one.stop_reason for one in waits}) == 3
        answer_all(box)
    for session in made:
        assert run(session).status == "done"
        assert (len(ledger(session)), sum(bool(call.model) for call in calls(session))) == (1, 3)
    assert len(requests(box)) == 9


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0)])
def test_candidates_are_asked_at_once_and_answered_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Resumed after each reply: what waits gets less, no request changes, and the record is as if all had been there."""
    session, box = parked_at_candidates(tmp_path / "one", candidates=3, max_attempts=3)
    asked = sorted(unanswered(box))
    assert len(asked) == 3
    assert {name.split("-")[1] for name in asked} == {"coder"}
    before = files(box)
    for at in order:
        waits = str(session.outcome().stop_reason)
        assert [name in waits for name in asked] == [name in unanswered(box) for name in asked]
        answer_all(box, [asked[at]])
        assert run(session).status == "parked"
        assert sum(call.id in asked[at] for call in calls(session)) == 1, "read at once, and kept"
        assert {key: found for key, found in files(box).items() if key in before} == before
        looked = sum("-1-" in name for name in requests(box))  # one of them looks, and asks again with what it saw
        assert len(requests(box)) == 4 + looked
    assert looked == 1
    to_the_end(session)
    all_there = as_answered_before(session, tmp_path / "other")
    assert ledger(session) == ledger(all_there)
    assert len(ledger(session)) == 3
    assert calls(session) == calls(all_there)
    assert usage(session) == usage(all_there)
    assert requests(box).keys() == {f"story-{call.id}" for call in calls(session) if call.model}, "each once"
    assert session.state()["program"] == all_there.state()["program"]


def test_one_candidates_bad_reply_costs_the_others_nothing(tmp_path: Path) -> None:
    session, box = parked_at_candidates(tmp_path / "one", candidates=3, max_attempts=3)
    first, second, third = sorted(unanswered(box))
    before = files(box)
    answer_all(box, [first, third])
    put(box / "replies" / f"{second}.json", "{")
    for _ in range(2):
        with pytest.raises(BadInput, match=f"{second}.json is not valid JSON"):
            run(session)
    assert "is not valid JSON" in str(session.outcome().stop_reason)
    (box / "replies" / f"{second}.json").unlink()
    answer_all(box, [second])
    to_the_end(session)
    assert {key: found for key, found in files(box).items() if key in before} == before
    all_there = as_answered_before(session, tmp_path / "other")
    assert ledger(session) == ledger(all_there)
    assert calls(session) == calls(all_there)


def test_candidates_that_write_the_same_are_one_program(tmp_path: Path) -> None:
    session, box = parked_at_candidates(tmp_path, candidates=8, max_attempts=8)
    for name, request in unanswered(box).items():
        put(box / "replies" / f"{name}.json", json.dumps(batch_line(request, "Same.\n```kernels/alpha.cu\n// saves 0.2\n```")))
    to_the_end(session)
    assert len({attempt.program for attempt in ledger(session)}) == 1
    assert session.outcome().accepted


def test_a_parked_workspace_goes_on_where_it_was_moved_to(tmp_path: Path) -> None:
    session, box = parked_at_candidates(tmp_path / "here", max_attempts=2)
    before = files(box)
    there = tmp_path / "elsewhere" / "deeper" / "ws"
    there.parent.mkdir(parents=True)
    session.home.root.rename(there)
    moved = Session.open("story", there)
    assert moved.status == "parked"
    assert run(moved).status == "parked"
    assert files(there / "box") == before
    assert str(there / "box" / "requests") in str(moved.outcome().stop_reason)
    to_the_end(moved)
    assert not session.home.root.exists(), "nothing is written where it was"
    all_there = as_answered_before(moved, tmp_path / "other")
    assert ledger(moved) == ledger(all_there)
    assert calls(moved) == calls(all_there)


def test_what_a_moved_session_waits_for_is_where_it_is_now(tmp_path: Path) -> None:
    session, box = parked_at_candidates(tmp_path, max_attempts=2)
    session.home.root.rename(tmp_path / "moved")
    waits = str(Session.open("story", tmp_path / "moved").outcome().stop_reason)
    assert str(box) not in waits
    assert all(name in waits for name in unanswered(tmp_path / "moved" / "box"))


def test_a_mailbox_named_through_a_link_moves_with_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    session = story(tmp_path / "link", model=f"mailbox:{tmp_path / 'link' / 'workspace' / 'box'}", max_attempts=2)
    run(session)
    session.home.root.rename(tmp_path / "moved")
    moved = Session.open("story", tmp_path / "moved")
    answer_all(tmp_path / "moved" / "box")
    run(moved)
    assert len(requests(tmp_path / "moved" / "box")) == 3


def test_after_a_bad_reply_was_removed_it_waits_again(tmp_path: Path) -> None:
    session = story(tmp_path)
    box = session.home.root / "box"
    run(session)
    (name,) = requests(box)
    put(box / "replies" / f"{name}.json", "{")
    with pytest.raises(BadInput, match="not valid JSON"):
        run(session)
    assert session.outcome().status == "failed"
    (box / "replies" / f"{name}.json").unlink()
    assert run(session).outcome().stop_reason == f"waits for a reply to {box / 'requests' / name}.md"
    assert session.outcome().status == "parked"


def test_what_failed_is_told_as_it_was_said(tmp_path: Path) -> None:
    session = story(tmp_path)
    box = session.home.root / "box"
    run(session)
    (name,) = requests(box)
    put(box / "replies" / f"{name}.json", "{")
    with pytest.raises(BadInput) as said:
        run(session)
    assert session.outcome().stop_reason == str(said.value)


@pytest.mark.more
def test_exit_code_3_with_json_and_without(tmp_path: Path) -> None:
    """The command line on the simulator: parked at its first plan."""
    reference, workspace = tmp_path / "norm.py", tmp_path / "ws"
    reference.write_text(REFERENCE)
    asked = ["--model", f"mailbox:{tmp_path / 'box'}", "--from-scratch", "--device", "sim", "--session", "first"]
    started = stitchcuda("optimize", reference, *asked, "--workspace", workspace)
    assert started.returncode == 3, started.stderr
    (name,) = requests(tmp_path / "box")
    told = " ".join(started.stdout.split())
    assert "parked" in told
    assert "stitchcuda resume first" in told
    assert name in told.replace(" ", "")
    resumed = stitchcuda("resume", "first", "--workspace", workspace, "--json")
    assert resumed.returncode == 3, resumed.stderr
    outcome = json.loads(resumed.stdout)
    assert (outcome["status"], outcome["accepted"]) == ("parked", False)
    assert outcome["stop_reason"].endswith(f"{name}.md")
    assert "Traceback" not in started.stderr + resumed.stderr


def test_a_budget_lowered_while_a_review_is_awaited_says_that_the_program_was_not_reviewed(tmp_path: Path) -> None:
    session, box = parked_at_the_second_task(tmp_path)
    for _ in range(20):
        if any("verifier" in name for name in unanswered(box)):
            break
        answer_all(box)
        run(session)
    assert all("verifier" in name for name in unanswered(box))
    assert headline(session.outcome()).startswith(f"parked: it waits for a reply to {box / 'requests'}")
    assert "planned tasks done, " in headline(session.outcome())
    before = len(session.attempts())
    resume("story", workspace=session.home.root, device="elsewhere", max_attempts=1)
    done = run(session)
    assert done.status == "done"
    assert len(done.attempts()) > before, "what waited for its review is recorded"
    last, review = done.reviewed()[-1]
    assert review.skipped, "the record says that nobody has reviewed it"
    assert bool(last.unreviewed) is last.correct, "a wrong program needs no review where the session ends"
    assert (f"{last.task} #{last.ordinal}: this program was not reviewed" in summary(done)) is last.kept
