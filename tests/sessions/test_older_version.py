"""A session that the version before (6981e15) parked at its plan: an answer to the question of then is followed now."""

from __future__ import annotations

from pathlib import Path

from stitchcuda.sessions.archive import import_
from stitchcuda.sessions.session import resume
from stitchcuda.store import Workspace

PARKED = Path(__file__).parent.parent / "recordings" / "parked_at_a_plan.stitch.tar.gz"


def test_a_plan_of_then_is_accepted(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    parked = import_(PARKED, workspace=home)
    assert [question.kind for question in parked.waiting] == ["plan"]
    done = resume(parked.name, workspace=home, device="elsewhere", answer="accept", progress=False)
    assert done.plan is not None
    assert len(done.plan.tasks) == 4
    assert (done.status, done.waiting) == ("parked", ()), "what comes next is a build"


def test_an_edited_plan_of_then_is_followed(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    parked = import_(PARKED, workspace=home)
    done = resume(parked.name, workspace=home, device="elsewhere", answer={"tasks": ["r00", "host:cuda_graph"]}, progress=False)
    assert done.plan is not None
    assert [task.id for task in done.plan.tasks] == ["r00", "host:cuda_graph"]
