"""Opening a workbench whose session is at work already."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.agents.background import open_workbench
from stitchcuda.errors import BadInput
from tests.engineers.agents.working_session import working


def test_one_that_is_not_ready_yet_is_waited_for(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        place = made.bench / ".workbench/socket"
        place.unlink()                     # its session makes it again
        told: list[str] = []
        given = {"workspace": tmp_path / "workspace", "device": "sim", "settings": {}, "tell": told.append}
        found = open_workbench(tmp_path / "reference.py", made.bench, **given)  # type: ignore[arg-type]
        assert place.exists()
        assert found.session == made.session.name
        assert any("is served by" in line for line in told)
        (tmp_path / "other.py").write_text("class Model: ...\n")
        with pytest.raises(BadInput, match="for another reference"):
            open_workbench(tmp_path / "other.py", made.bench, **given)  # type: ignore[arg-type]
