"""Two sessions side by side, or two moments of one: what was asked differently, where they part, what is different of them."""

from __future__ import annotations

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.sessions.compare import compare
from stitchcuda.sessions.fork import fork
from stitchcuda.store import Workspace
from tests.graph.tiny import ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, begun, ended, opened

OTHER = THREE | {"c": ["saves 0.4"]}


def test_the_same_twice(home: Workspace) -> None:
    ended(home, "one")
    ended(home, "two")
    start = compare("one@0", "one", workspace=home)
    assert (start.a.attempts, start.a.kept, start.parts) == (0, (), 1)
    assert any("saves" in text for text in start.files.values()), "what the first program lacks"
    found = compare("one", "two", workspace=home)
    assert (found.parts, found.files, found.reference, found.settings) == (None, {}, True, {})
    assert found.a.kept == found.b.kept == ("a", "b", "c")
    assert found.a.program == found.b.program
    assert found.a.predicted_speedup is not None
    assert compare("one", "one", workspace=home).files == {}


def test_a_fork_parts_where_it_did_something_else(home: Workspace) -> None:
    ended(home, "one")
    made = fork("one", 3, to="two", workspace=home, settings={"max_attempts": 5, "goal": 2.0})
    opened(made).run(engineer=ScriptedEngineer(OTHER), tools=TinyHands())
    found = compare("one", "two", workspace=home)
    assert found.parts == 4
    assert (found.a.attempts, found.b.attempts) == (6, 4)
    assert found.settings == {"max_attempts": ("30", "5"), "goal": ("None", "2.0")}
    (text,) = found.files.values()
    assert text.splitlines()[:2] == ["--- one/drafts.txt", "+++ two/drafts.txt"]
    assert "-c saves 0.1\n" in text
    assert "+c saves 0.4\n" in text


def test_moments_of_one_session(home: Workspace) -> None:
    ended(home)
    found = compare("tiny@1", "tiny@4", workspace=home)
    assert (found.a.name, found.a.attempts, found.b.attempts, found.parts) == ("tiny@1", 1, 4, 2)
    assert (found.a.kept, found.b.kept) == (("a",), ("a", "b"))
    assert "+b saves 0.3\n" in found.files["drafts.txt"]
    assert compare("tiny@6", "tiny", workspace=home).files == {}
    assert compare("tiny@1", "tiny@2", workspace=home).files == {}, "the second was not kept"


def test_before_anything_was_kept(home: Workspace) -> None:
    ended(home, script={"a": ["wrong", "saves 0.2"]})
    found = compare("tiny@1", "tiny@2", workspace=home)
    assert found.a.kept == ()
    assert found.files.keys() == {"drafts.txt"}
    assert found.files["drafts.txt"].startswith("--- /dev/null\n+++ tiny@2/drafts.txt\n")


def test_one_that_has_not_run_and_another_reference(home: Workspace) -> None:
    ended(home, "one")
    begun(home, "two")
    found = compare("one", "two", workspace=home)
    assert (found.parts, found.b.attempts, found.b.program) == (1, 0, None)
    assert all("+++ /dev/null" in text for text in found.files.values())
    path = home.root / "reference.py"
    from stitchcuda.graph.opening import open_record

    path.write_text(path.read_text().replace("relu", "gelu"))
    open_record(home, path, None, name="three", device="sim", settings={})
    assert not compare("one", "three", workspace=home).reference


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("gone", "there is no session 'gone'"), ("tiny@7", "has no attempt 7: give tiny@0 .the start. to tiny@6"),
        ("tiny@-1", "has no attempt -1"), ("tiny@", "has no attempt without a number"), ("tiny@x", "has no attempt x"),
    ],
)  # fmt: skip
def test_what_is_not_there(home: Workspace, named: str, words: str) -> None:
    ended(home)
    with pytest.raises(BadInput, match=words):
        compare("tiny", named, workspace=home)
