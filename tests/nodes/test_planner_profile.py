"""What the profile costs that a session makes for its planner: it is time on the GPU, counted once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stitchcuda.sessions.session import Session
from stitchcuda.state import ProfileResult
from stitchcuda.store import Workspace
from stitchcuda.tools.profile.system_profile import SystemProfile
from tests.replay import RecordedHands, Recording, engineers

RECORDED = Path(__file__).parents[1] / "recordings" / "dense_transition.json.gz"
PROFILE_S = 5.0


class SlowProfiler(RecordedHands):
    """Takes PROFILE_S for the planner's profile; an attempt's own profile, like all else here, takes no time."""

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        found = super().profile_system(program)
        if program is not None and found[0].skipped:  # attempts of the start are not profiled
            time.sleep(PROFILE_S)
        return found


@pytest.mark.more
def test_the_planners_profile_is_time_on_the_gpu(tmp_path: Path) -> None:
    recording = Recording(RECORDED)
    told = recording.data["told"]
    (name,) = (name for name in told if name.startswith("profile-"))
    del told[name]                         # so that it is made anew
    home = Workspace(tmp_path)
    record = recording.reopened(home)
    crew, _ = engineers(recording, home, record.name, record.settings)
    session = Session(home, record).run(engineer=crew, tools=SlowProfiler(recording))
    assert crew.transcript is not None
    made = json.loads(crew.transcript.record_once(name, lambda: pytest.fail("the planner made no profile")))
    assert made["seconds"] == pytest.approx(PROFILE_S, abs=1.0)
    others = session.outcome().usage.gpu_s - PROFILE_S
    assert 0.0 <= others < PROFILE_S, "once, beside what the other nodes took"
