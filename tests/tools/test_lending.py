"""A worker can read what it is asked about while it is asked, and nothing else of an exam."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.tools import sitting
from stitchcuda.tools.lending import lent
from tests.tools import programs
from tests.tools.seats import Bench

# Files that can be read beside the program's own and those of its scratch folder.
LOOK = '''
def look(own=__file__):
    scratch = os.environ["TMPDIR"]
    found = []
    for folder, _, names in os.walk(os.path.dirname(scratch)):
        for name in names:
            path = os.path.join(folder, name)
            if not path.startswith((scratch, os.path.dirname(own))) and os.access(path, os.R_OK):
                found.append(os.path.relpath(path, os.path.dirname(scratch)))
    return sorted(found)
'''
NOTHING_TO_COME = """seen = look()
        if len(seen) > 1 or any("input" in name or "state" in name for name in seen):
            raise RuntimeError(f"I can read {seen}")"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), programs.REFERENCE)
    yield made
    made.close()


def test_a_file_is_there_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, file = tmp_path / "desk", tmp_path / "inputs-1"
    desk.mkdir()
    file.write_bytes(b"x" * 9)
    for linked in (True, False):
        if not linked:                     # as on a file system without second names
            monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError))
        with lent(desk, file, file) as places:
            assert [Path(place).read_bytes() for place in places] == [b"x" * 9] * 2
            assert len(set(places)) == 2
            assert not any("input" in Path(place).name for place in places)
        assert list(desk.iterdir()) == []
    assert file.read_bytes() == b"x" * 9


def test_no_input_can_be_read_before_it_is_asked_about(bench: Bench, tmp_path: Path) -> None:
    program = programs.model(tmp_path, imports=LOOK, before=NOTHING_TO_COME)
    with bench.seat(program) as seat:
        result = sitting.sit(seat.trial, bench.exam, 3, final=True, profile=False)
        assert list(seat.worker.desk.iterdir()) == []
    assert result.reasons == ()


def test_other_outputs_on_a_second_call_are_a_reason(bench: Bench, tmp_path: Path) -> None:
    program = programs.model(tmp_path, after="if self.calls == 2: return out, out")
    with bench.seat(program) as seat:
        result = sitting.sit(seat.trial, bench.exam, 1, final=False, profile=False)
    assert "on a second call with the same inputs, the program returns 2 tensors" in result.reasons[0]
