"""Programs that exist are judged and kept as rows, whatever is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stitchcuda.bench.judging import judge
from stitchcuda.bench.programs import read_pairs
from stitchcuda.bench.results import RunFolder
from stitchcuda.bench.table import markdown, read_table
from stitchcuda.state import Settings
from tests.integrity.corpus import entries

SIM = Settings(target="sim")


@pytest.mark.more
def test_programs_of_a_table_are_judged_once(tmp_path: Path) -> None:
    entry = next(entry for entry in entries("honest") if entry.name == "h_dict_outputs")
    program, reference = entry.program(tmp_path).read_text(), entry.reference.read_text()
    wrong = program.replace("1e-5f", "1e-2f")
    rows = [
        {"name": "right", "reference": reference, "program": program, "claimed": 3.0},
        {"name": "wrong", "reference": reference, "program": wrong},
        {"name": "none", "reference": reference, "program": "x = 1\n"},
        {"name": "alone", "program": program},
    ]
    table, out, told = tmp_path / "table.jsonl", tmp_path / "out", list[str]()
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read_pairs("jsonl", table, out / "programs")
    judge(pairs, out, SIM, source="jsonl", path=table, at_once=2, tell=told.append)
    found = {row.name: row for row in read_table(out).problems}
    assert {name: row.end for name, row in found.items()} == {
        "right": "accepted", "wrong": "refused", "none": "refused", "alone": "broken",
    }  # fmt: skip
    assert found["right"].claimed == 3.0
    assert "wrong" in found["wrong"].reasons[0]
    assert found["right"].within == ("1e-2", "1e-4", "ours")
    assert found["wrong"].within is not None
    assert "ours" not in found["wrong"].within
    assert (found["none"].within, found["alone"].within) == (None, None)
    assert "defines no class ModelNew" in found["none"].reasons[0]
    assert "line 4 has no reference" in found["alone"].reasons[0]
    assert "| right | accepted | 3.00× |" in markdown(read_table(out))
    before = (out / "results.jsonl").read_bytes()
    judge(pairs, out, SIM, source="jsonl", path=table, at_once=2, tell=told.append)
    assert (out / "results.jsonl").read_bytes() == before
    assert told[-1] == "all 4 problems have results"
    assert len(RunFolder.open(out).results()) == 4
