"""Sessions in which a coding agent that was given a workbench and nothing else handed programs in, as they were recorded.

The archives are whole: they can be imported, shown and gone on with. `benchmarks/results/agent_workbenches.md` tells of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.sessions.archive import import_
from stitchcuda.sessions.session import Session
from stitchcuda.verify.api import verify

ARCHIVES = sorted((Path(__file__).parents[1] / "recordings/agents").glob("*.stitch.tar.gz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_recorded_session_is_whole(archive: Path, tmp_path: Path) -> None:
    session = imported(archive, tmp_path)
    mine = [attempt for attempt in session.attempts() if attempt.engineer == "workbench"]
    assert len(mine) >= 2
    assert all(attempt.kept and attempt.note for attempt in mine)
    assert session.outcome().accepted


@pytest.mark.more
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_what_an_agent_wrote_is_accepted_still(archive: Path, tmp_path: Path) -> None:
    session = imported(archive, tmp_path)
    program = session.program
    assert program is not None
    reference = session.folder / session.record.reference_name
    reference.write_bytes(session.home.store.get(session.record.reference))
    found = verify(program, reference, target="sim")
    assert found.accepted, found.reasons


def imported(archive: Path, folder: Path) -> Session:
    return import_(archive, workspace=folder / "workspace")


def test_there_are_recordings() -> None:
    assert len(ARCHIVES) >= 3
