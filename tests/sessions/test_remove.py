"""Removing sessions: all or none, and nothing that another one needs goes with them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, SessionBusy
from stitchcuda.sessions.fork import fork
from stitchcuda.sessions.remove import digests, find_referenced, remove, sweep
from stitchcuda.store import Workspace
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, begun, ended, named, opened, record, stopped
from tests.store.test_lines import ROOT


def artefacts(home: Workspace) -> set[str]:
    return {digest for digest, _ in home.store.artefacts()}


def test_what_only_the_removed_one_used_goes_with_it(home: Workspace) -> None:
    ended(home, "one")
    ended(home, "other", {"x": ["wrong", "saves 0.4"]})
    needed, before = find_referenced(home, ["other"]), artefacts(home)
    assert needed < before
    swept = remove(["one"], workspace=home)
    assert (swept.artefacts, swept.waits_for) == (len(before - needed), "")
    assert swept.bytes > 0
    assert artefacts(home) == needed
    other = opened(named(home, "other"))
    assert other.outcome().accepted
    for digest in needed:
        assert home.store.get(digest)
    remove(["other"], workspace=home)
    assert (artefacts(home), home.store.names()) == (set(), [])


def test_a_fork_keeps_what_it_shares(home: Workspace) -> None:
    ended(home, "one")
    made = fork("one", 3, workspace=home)
    kept = record(made)
    remove(["one"], workspace=home)
    assert record(opened(made)) == kept
    for attempt in kept[0]:
        for digest in (attempt.program, attempt.evidence, attempt.review):
            assert home.store.get(digest)
    again = opened(made)
    assert again.run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).outcome().accepted


def test_an_interrupted_one_keeps_what_it_has_in_hand(home: Workspace) -> None:
    """Its draft is named by the checkpoint alone."""
    session = stopped(home, before=lambda tool, number: tool == "build")
    draft = session.state()["drafts"][0].program
    assert draft
    assert sweep(home).artefacts == 0
    assert home.store.get(draft)


def test_a_running_session_is_not_removed_nor_any_other_with_it(home: Workspace) -> None:
    ended(home, "one")
    ended(home, "other")
    before = artefacts(home)
    theirs = opened(named(home, "other")).home
    with theirs.store.owning("other"), pytest.raises(SessionBusy, match="'other' is being run by process"):
        remove(["one", "other"], workspace=home)
    assert home.store.names() == ["one", "other"]
    assert artefacts(home) == before
    assert opened(named(home, "one")).outcome().accepted


def test_nothing_is_swept_while_one_runs(home: Workspace) -> None:
    ended(home, "one")
    begun(home, "other")
    before = artefacts(home)
    theirs = opened(named(home, "other")).home
    with theirs.store.owning("other"):
        swept = remove(["one"], workspace=home)
        assert swept.artefacts == 0
        assert swept.waits_for.startswith("this runs: other (process ")
        assert artefacts(home) == before
    assert sweep(home).artefacts > 0
    assert find_referenced(home, ["other"]) == artefacts(home)


def test_nothing_is_swept_while_one_is_made(home: Workspace) -> None:
    ended(home, "one")
    theirs = opened(named(home, "one")).home
    with theirs.store.adding():
        digest = theirs.store.put(b"of a session that is not there yet")
        assert remove(["one"], workspace=home).waits_for == "this runs: a session that is being made"
    assert home.store.get(digest)


def test_an_unknown_name_removes_none(home: Workspace) -> None:
    ended(home, "one")
    with pytest.raises(BadInput, match="there is no session 'gone'"):
        remove(["one", "gone"], workspace=home)
    with pytest.raises(BadInput, match=r"there is no session '\.\./one'"):
        remove(["../one"], workspace=home)
    assert home.store.names() == ["one"]


def test_a_damaged_session_can_be_removed_and_keeps_others_whole(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    for name in ("one", "other", "third"):
        ended(home, name)
    (home.folder("one") / "session.json").write_text("{")
    ledger = home.folder("other") / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[50:])
    before = artefacts(home)
    swept = remove(["third"], workspace=home)
    assert swept.artefacts == 0
    assert "cannot be read, so what it needs is not known" in swept.waits_for
    assert artefacts(home) == before
    assert remove(["one"], workspace=home).waits_for.startswith("session 'other' cannot be read")
    assert remove(["other"], workspace=home).waits_for == ""
    assert artefacts(home) == set()


def test_what_killed_processes_left_half_written_goes_too(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    ended(home, "one")
    left = tmp_path / "sessions" / ".tmp-abc"
    (left / "two").mkdir(parents=True)
    (left / "two" / "session.json").write_text("{}")
    place = next((tmp_path / "artefacts").iterdir())
    (place / ".tmp-def").write_bytes(b"half")
    needed = artefacts(home)
    assert sweep(home).artefacts == 0
    assert not left.exists()
    assert not (place / ".tmp-def").exists()
    assert artefacts(home) == needed


def test_digests_are_found_in_anything() -> None:
    one, other = "0123456789abcdef" * 4, "f" * 64
    assert list(digests(f'{{"a": "{one}"}}'.encode())) == [one]
    assert set(digests(b"\xd9\x40" + one.encode() + b"\xd9\x40" + other.encode())) == {one, other}
    assert one in set(digests(b"ab" + one.encode() + b"0"))
    assert list(digests(one[:63].encode())) == []


ACTOR = """
import random, sys
from pathlib import Path
from stitchcuda.errors import BadInput, SessionBusy
from stitchcuda.sessions.fork import fork
from stitchcuda.sessions.remove import remove
from stitchcuda.store import Workspace
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, ended
folder, url, who = Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3]
home = Workspace(folder, checkpoint=url)
chance = random.Random(who)
done = 0
for turn in range(3):
    mine = ended(home, f"{who}-", {who: ["wrong", f"saves 0.{turn + 1}"]})
    made = fork("shared", chance.randrange(7), workspace=home)
    made.run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert made.outcome().accepted and mine.outcome().accepted
    try:
        remove([mine.name if turn % 2 else made.name], workspace=home)
    except (SessionBusy, BadInput) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    done += 1
print(done)
"""


@pytest.mark.more
def test_processes_make_fork_and_remove_at_once(home: Workspace) -> None:
    """Each removes its own; the workspace is whole in the end."""
    ended(home, "shared")
    url = home.database.database.url if home.database else ""
    folder = home.root.parent.parent if url else home.root
    actors = [
        subprocess.Popen(
            [sys.executable, "-c", ACTOR, str(folder), url, who], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for who in ("anna", "bert")
    ]  # fmt: skip
    for actor in actors:
        out, complaints = actor.communicate(timeout=200)
        assert (actor.returncode, out) == (0, "3\n"), complaints
    names = home.store.names()
    assert len(names) == 1 + 2 * 3
    for name in names:
        assert opened(named(home, name)).outcome().accepted
    assert sweep(home).waits_for == ""
    whole = find_referenced(home, names)
    assert artefacts(home) == whole
    for digest in whole:
        assert home.store.get(digest)


def test_two_remove_the_same(home: Workspace) -> None:
    """One of them does; the other is told that it is gone or that somebody is at it."""
    for turn in range(3):
        ended(home, "one", {"x": ["saves 0.1"]})
        said: list[str] = []
        ready = threading.Barrier(2)

        def act(home: Workspace, said: list[str] = said, ready: threading.Barrier = ready) -> None:
            ready.wait()
            try:
                remove(["one"], workspace=home)
                said.append("")
            except (BadInput, SessionBusy) as error:
                said.append(str(error))

        homes = [opened(named(home, "one")).home for _ in range(2)]
        threads = [threading.Thread(target=act, args=(one,)) for one in homes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "" in said, turn
        assert all(not one or "'one'" in one for one in said), said
        assert home.store.names() == []
