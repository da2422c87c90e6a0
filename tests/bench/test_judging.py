"""Programs that exist are judged and kept as rows, whatever is wrong with them."""

from __future__ import annotations

import json
import re
from concurrent.futures import Future
from pathlib import Path

import pytest

from stitchcuda.bench.judging import _result, judge
from stitchcuda.bench.programs import ExistingProgram, read_pairs
from stitchcuda.bench.results import RunFolder
from stitchcuda.bench.table import markdown, read_table
from stitchcuda.errors import BadInput, NotJudged, Unavailable
from stitchcuda.state import Settings
from stitchcuda.verify.api import Verdict
from tests.integrity.corpus import entries

SIM = Settings(target="sim")


@pytest.mark.more
def test_programs_of_a_table_are_judged_once(tmp_path: Path) -> None:
    entry = next(entry for entry in entries("honest") if entry.name == "h_dict_outputs")
    program, reference = entry.program(tmp_path).read_text(), entry.reference.read_text()
    wrong = program.replace("1e-5f", "1e-2f")
    elsewhere = re.sub(r"(__global__[^{]*{)", r'\1 asm volatile("griddepcontrol.wait;");', program)
    assert elsewhere != program
    rows = [
        {"name": "right", "reference": reference, "program": program, "claimed": 3.0},
        {"name": "wrong", "reference": reference, "program": wrong},
        {"name": "none", "reference": reference, "program": "x = 1\n"},
        {"name": "alone", "program": program},
        {"name": "elsewhere", "reference": reference, "program": elsewhere},
    ]
    table, out, told = tmp_path / "table.jsonl", tmp_path / "out", list[str]()
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read_pairs("jsonl", table, out / "programs")
    judge(pairs, out, SIM, source="jsonl", path=table, at_once=2, tell=told.append)
    found = {row.name: row for row in read_table(out).problems}
    assert {name: row.end for name, row in found.items()} == {
        "right": "accepted", "wrong": "refused", "none": "refused", "alone": "broken",
        "elsewhere": "could not judge",
    }  # fmt: skip
    assert found["right"].claimed == 3.0
    assert "wrong" in found["wrong"].reasons[0]
    assert found["right"].within == ("1e-2", "1e-4", "ours")
    assert found["wrong"].within is not None
    assert "ours" not in found["wrong"].within
    assert (found["none"].within, found["alone"].within) == (None, None)
    assert "defines no class ModelNew" in found["none"].reasons[0]
    assert "line 4 has no reference" in found["alone"].reasons[0]
    assert "simulator" in found["elsewhere"].reasons[0]
    assert read_table(out).not_judged == 1
    assert "1 that could not be judged, 0 without a result" in markdown(read_table(out))
    assert "| right | accepted | 3.00× |" in markdown(read_table(out))
    before = (out / "results.jsonl").read_bytes()
    judge(pairs, out, SIM, source="jsonl", path=table, at_once=2, tell=told.append)
    assert (out / "results.jsonl").read_bytes() == before
    assert told[-1] == "all 5 problems have results"
    assert len(RunFolder.open(out).results()) == 5


def test_what_this_machine_cannot_judge_is_not_tried_again_and_a_defect_is() -> None:
    pair = ExistingProgram(name="a", program=Path("a"), reference=Path("b"))
    ends = {}
    for error in (BadInput("needs more memory"), NotJudged("inline PTX"), Unavailable("the GPU is gone"), KeyError("x")):
        ended: Future[Verdict] = Future()
        ended.set_exception(error)
        result = _result(pair, ended, "simulator", Path("out"))
        ends[type(error).__name__] = (result.end, result.final)
    assert ends == {
        "BadInput": ("could not judge", True), "NotJudged": ("could not judge", True), "Unavailable": ("failed", False),
        "KeyError": ("failed", False),
    }  # fmt: skip
