"""The reference or a program, called in a process of its own behind another command, which sees all of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.state import Settings
from stitchcuda.tools.profile.ranges import CALL_RANGE, TRACED_RANGE
from stitchcuda.verify.client import Judge
from tests.simulator.programs import CACHE
from tests.verify import programs

PROFILER = """#!/bin/sh
# Writes what it was told and where it is, then becomes the command.
echo "$@" > "$REPORT"
exec "$@"
"""


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    (tmp_path / "reference.py").write_text(programs.REFERENCE)
    return Judge(tmp_path / "reference.py", Settings(), cache=CACHE)


@pytest.fixture
def profiler(tmp_path: Path) -> Path:
    place = tmp_path / "bin" / "profiler"
    place.parent.mkdir()
    place.write_text(PROFILER.replace("$REPORT", str(tmp_path / "out" / "report")))
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "out").mkdir()
    return place


@pytest.mark.more
@pytest.mark.parametrize("what", ["reference", "program"])
def test_calls_behind_a_profiler(what: str, judge: Judge, profiler: Path, tmp_path: Path) -> None:
    program = programs.model(tmp_path / "program") if what == "program" else None
    out = tmp_path / "out"
    with judge:
        done, kernels = judge.run_under(program, [str(profiler)], out, how="plain", calls=3, warm=1)
    assert kernels == ()
    assert done.code == 0, done.output
    assert json.loads(done.output.splitlines()[-1]) == {"calls": 3}
    assert "profiled_process.py" in (out / "report").read_text()
    assert os.listdir(out) == ["report"]   # the order is gone


@pytest.mark.more
def test_a_program_writes_nothing_but_the_report(judge: Judge, profiler: Path, tmp_path: Path) -> None:
    hook = "        try:\n            open(PLACE, 'w')\n        except OSError:\n            pass\n"
    elsewhere = tmp_path / "elsewhere"
    program = programs.model(tmp_path / "program")
    source = program / "model_new.py"
    text = source.read_text()
    assert text.count("    def forward(self, x, gain):\n") == 1
    body = hook.replace("PLACE", repr(str(elsewhere)))
    source.write_text(text.replace("    def forward(self, x, gain):\n", "    def forward(self, x, gain):\n" + body))
    with judge:
        done, _ = judge.run_under(program, [str(profiler)], tmp_path / "out", how="plain", calls=1, warm=0)
    assert done.code == 0, done.output
    assert not elsewhere.exists()


@pytest.mark.more
def test_libraries_that_are_built_at_the_first_call(judge: Judge, profiler: Path, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    source = program / "model_new.py"
    text = source.read_text()
    early = text[text.index("        self.kernels = tvm_ffi"):text.index("\n    def forward")]
    lazy = '        if not hasattr(self, "kernels"):\n' + "".join(f"    {line}\n" for line in early.splitlines())
    first = "        y = self.norm(self.linear(x))\n"
    source.write_text(text.replace(early, "").replace(first, lazy + first))
    with judge:
        done, kernels = judge.run_under(program, [str(profiler)], tmp_path / "out", how="plain", calls=1, warm=0)
    assert done.code == 0, done.output
    assert kernels == ()                   # a library of the simulator holds none by the name of a device's


@pytest.mark.more
def test_a_program_is_recorded_in_its_own_process(judge: Judge, tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    with judge:
        done, _ = judge.run_under(programs.model(tmp_path / "program"), [], out, how="cupti", calls=2, warm=0)
    assert done.code == 0, done.output
    names = [event.get("name") for event in json.loads((out / "trace.json").read_text())["traceEvents"]]
    assert names.count(CALL_RANGE) == names.count(TRACED_RANGE) == 2
    assert "aten::linear" in names


def test_a_profiler_that_fails_is_told(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with judge:
        failing = ["sh", "-c", "echo no counters here; exit 3"]
        done, _ = judge.run_under(None, failing, tmp_path / "out", how="plain", calls=1, warm=0)
    assert done.code == 3
    assert done.output == "no counters here\n"


@pytest.mark.more
def test_a_program_that_does_not_load(judge: Judge, tmp_path: Path) -> None:
    program = programs.model(tmp_path / "program")
    (program / "model_new.py").write_text("raise ImportError('no such thing')")
    (tmp_path / "out").mkdir()
    with judge, pytest.raises(Unavailable, match=r"could not be run: .*no such thing"):
        judge.run_under(program, [], tmp_path / "out", how="plain", calls=1, warm=0)
