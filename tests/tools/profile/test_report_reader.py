"""A report read in a process of its own: the same profiles, the same refusals, and a reader that dies is survived."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command
from stitchcuda.sandbox.command import Finished
from stitchcuda.tools.profile import ncu_report, report_reader
from tests.tools.profile.ncu_files import Launch, Rule, write


def test_it_gives_what_is_read_in_the_process_itself(tmp_path: Path) -> None:
    rules = (Rule("CPIStall", "Long Scoreboard", "Warps wait.", speedup=9.5),)
    launches = [Launch("_Z5triadPf", {"gpu__time_duration.sum": 5000.0, "launch__registers_per_thread": 32.0}, rules=rules)]
    report = write(tmp_path / "r.ncu-rep", launches)
    shares, origins = {"triad(float*)": 0.25}, {"triad(float*)": "own"}
    apart = report_reader.read_apart(report, shares=shares, origins=origins, root=tmp_path)
    assert apart == ncu_report.read(report, shares=shares, origins=origins, root=tmp_path)
    assert (apart[0].share, apart[0].origin, apart[0].registers) == (0.25, "own", 32)


def test_another_file_is_refused_with_the_same_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.ncu-rep").write_text("no report")
    with pytest.raises(Unavailable, match=r"other\.ncu-rep is no report of Nsight Compute; give the \.ncu-rep file"):
        report_reader.read_apart(tmp_path / "other.ncu-rep")


def test_a_reader_that_dies_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run", lambda *_, **__: Finished(-11, "free(): invalid pointer\n", 0.1))
    with pytest.raises(Unavailable, match=r"ended with -11 \(free\(\): invalid pointer\); profile the kernels again"):
        report_reader.read_apart(tmp_path / "r.ncu-rep")
