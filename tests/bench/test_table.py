"""The figures of a run, and what its folder keeps."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from stitchcuda.bench.page import bench_page, curves
from stitchcuda.bench.results import Asked, Result, RunFolder, baselines_of, beside
from stitchcuda.bench.table import make_table, markdown, read_table
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings
from stitchcuda.verify.reference.baseline_times import BaselineTime

ASKED = Asked(kind="run", source="folder", path="/problems", problems=("a", "b", "c", "d", "e"), contents=tuple("12345"),
    settings=Settings(),
)
RESULTS = {
    "a": Result(id="a", problem="a", end="accepted", speedups={"eager": 4.0, "compile": 2.0}, tier="timed", device="GPU X"),
    "b": Result(id="b", problem="b", end="accepted", speedups={"eager": 1.0}, tier="timed", device="GPU X"),
    "c": Result(id="c", problem="c", end="refused", reasons=("it is | wrong",), speedups={}),
    "d": Result(id="d", problem="d", end="broken", reasons=("constant",)),
}


def test_figures_are_over_problems_that_can_be_judged() -> None:
    table = make_table(ASKED, RESULTS)
    assert (table.total, table.judged, table.correct, table.broken, table.missing) == (5, 3, 2, 1, 1)
    eager, compiled, best = table.against
    assert (eager.baseline, eager.timed) == ("eager", 2)
    assert (eager.counted, compiled.counted) == (3, 2)   # b is correct, and torch.compile was not timed for it
    assert eager.fast["0"] == pytest.approx(2 / 3)
    assert eager.fast["1"] == pytest.approx(1 / 3)   # 1.0 is not above 1
    assert eager.mean_of_all == pytest.approx(4 ** (1 / 3))
    assert eager.mean_of_correct == pytest.approx(2.0)
    assert compiled.timed == 1
    assert compiled.mean_of_correct == pytest.approx(2.0)
    assert best.mean_of_correct == pytest.approx(2.0)  # of b eager alone was timed, which is no best of several
    assert best.mean_of_all == pytest.approx(math.sqrt(2.0))


def test_each_problem_has_a_row() -> None:
    table = make_table(ASKED, RESULTS)
    rows = {row.name: row for row in table.problems}
    assert rows["a"].speedups == {"eager": 4.0, "compile": 2.0, "best": 2.0}
    assert (rows["d"].broken, rows["d"].correct, rows["d"].reasons) == (True, False, ("constant",))
    assert rows["e"].reasons == ("no result yet",)
    text = markdown(table)
    assert "| a | accepted | 4.00× | 2.00× | 2.00× |" in text
    assert "it is / wrong" in text                    # a bar would end the cell
    rows_of = [line.count("|") for line in text.splitlines() if line.startswith(("| problem |", "| a |", "| c |", "| e |"))]
    assert len(set(rows_of)) == 1


def test_an_empty_run_has_no_means() -> None:
    table = make_table(ASKED, {})
    assert (table.judged, table.missing, table.against, table.predicted_mean) == (0, 5, (), None)
    assert "0 of 0 correct" in markdown(table)


def test_a_run_s_folder_keeps_each_result_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "out")
    folder.begin(ASKED)
    folder.add(RESULTS["a"])
    assert folder.add(RESULTS["a"].model_copy(update={"end": "refused"})).end == "accepted"
    folder.keep_unfinished([Result(id="b", problem="b", end="failed", reasons=("the GPU is gone",)), RESULTS["a"]])
    with (tmp_path / "out" / "results.jsonl").open("ab") as file:
        file.write(b'{"sha256": "torn')               # by a kill
    again = RunFolder.open(tmp_path / "out")
    assert list(again.results()) == ["a"]
    assert list(again.unfinished()) == ["b"]
    again.add(RESULTS["c"])
    table = read_table(tmp_path / "out")
    assert [row.end for row in table.problems] == ["accepted", "failed", "refused", None, None]
    assert table.missing == 3
    assert json.loads(table.model_dump_json())["problems"][1]["reasons"] == ["the GPU is gone"]


def test_a_folder_goes_on_with_its_own_run_only(tmp_path: Path) -> None:
    RunFolder(tmp_path).begin(ASKED)
    RunFolder(tmp_path).begin(ASKED)
    with pytest.raises(BadInput, match=r"holds another run \(its policy is stitched, not strict\)"):
        RunFolder(tmp_path).begin(ASKED.model_copy(update={"settings": Settings(policy="strict")}))
    with pytest.raises(BadInput, match="holds no benchmark's run"):
        RunFolder.open(tmp_path / "other")


def test_the_page_shows_two_runs_and_runs_nothing(tmp_path: Path) -> None:
    marked = RESULTS["c"].model_copy(update={"reasons": ("<b>x</b>",)})
    table, other = make_table(ASKED, RESULTS), make_table(ASKED, {"c": marked})
    page = bench_page((table, other), ("first", "second")).decode()
    assert "<script" not in page
    assert "&lt;b&gt;x" in page
    assert page.count("<polyline") == 3               # eager, torch.compile and the best of the first run
    assert not re.search(r'(src|href)="(?!#)', page)  # it loads nothing
    (eager, *_) = curves(table)
    assert eager.path.split()[0] == "0.0,86.7"        # two of three problems are faster than nothing
    assert eager.path.split()[-2:] == ["213.3,173.3", "640.0,173.3"]  # one is more than three times faster


def test_the_bounds_that_each_program_passes_are_told() -> None:
    found = {
        "a": RESULTS["a"].model_copy(update={"within_bound": True, "tolerance": 3e-6}),
        "b": Result(id="b", problem="b", end="refused", within_bound=False, tolerance=5e-3, reasons=("TF32",)),
        "c": Result(id="c", problem="c", end="refused", within_bound=False, tolerance=math.inf),
        "d": RESULTS["d"],
    }
    table = make_table(ASKED, found)
    assert [row.within for row in table.problems] == [("1e-2", "1e-4", "ours"), ("1e-2",), (), None, None]
    assert (table.compared, table.within) == (3, {"1e-2": 2, "1e-4": 1, "ours": 1})
    sentence = "Of 3 programs whose outputs were compared at precision reference: 2 within atol = rtol = 1e-2, 1 within"
    assert sentence in markdown(table)
    assert "| 1e-2, 1e-4, ours |" in markdown(table)
    assert sentence in bench_page([table], ["run"]).decode()


def test_runs_at_two_precisions_have_tables_of_their_own() -> None:
    narrow = make_table(ASKED.model_copy(update={"settings": Settings(precision="tf32")}), RESULTS)
    page = bench_page([make_table(ASKED, RESULTS), narrow], ["exact", "narrow"]).decode()
    parts = page.partition('id="problems"')[2].split("<h3>")
    assert [part.partition("</h3>")[0] for part in parts[1:]] == ["Precision reference", "Precision tf32"]
    assert [part.count('<th scope="row">') for part in parts] == [0, 5, 5]
    alike = bench_page([narrow, narrow], ["one", "other"]).decode()
    assert alike.partition('id="problems"')[2].count('<th scope="row">') == 5, "at one precision they stand beside each other"


def test_a_baseline_that_disagrees_is_shown_and_counts_apart() -> None:
    results = RESULTS | {"b": RESULTS["b"].model_copy(update={"disagreeing": {"compile": 0.5, "max-autotune": 0.8}})}
    table = make_table(ASKED, results)
    figures = {row.baseline: row for row in table.against}
    assert "max-autotune" not in {name for name, row in figures.items() if row.timed}
    assert figures["compile"].timed == 1
    assert figures["fastest"].mean_of_correct == pytest.approx(1.0)  # 2.0 over a's compile, 0.5 over b's
    text = markdown(table)
    assert "| b | accepted | 1.00× | (0.50×) | (0.80×) |" in text
    assert "outside of the verifier's bound" in text
    page = bench_page([table], ["run"]).decode()
    assert "(0.50×)" in page
    assert "outside of the verifier&#39;s bound" in page


def test_baselines_are_kept_whether_they_agree_or_not() -> None:
    times = (
        BaselineTime(mode="eager", ms=2.0, eager_ms=2.0, agrees=True),
        BaselineTime(mode="graph", ms=1.0, eager_ms=2.0, agrees=True),
        BaselineTime(mode="compile", ms=0.5, eager_ms=2.0, agrees=False),
        BaselineTime(mode="max-autotune", failed="not done within 300 s"),
    )
    result = beside(RESULTS["a"].model_copy(update={"speedups": {"eager": 4.0}}), baselines_of("a", times))
    assert result.speedups == {"eager": 4.0, "graph": 2.0}
    assert result.disagreeing == {"compile": 1.0}
