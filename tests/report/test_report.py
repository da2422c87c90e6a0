"""The report as its reader meets it, without a browser: what it says, that nothing in it acts, that it stays small, and that
damage leaves the rest readable. In a browser: `tests/report/test_browser.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects
import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.engineers import Brief
from stitchcuda.report.figure import attempts_axis
from stitchcuda.report.findings import TimeProfile
from stitchcuda.report.page import comparison_page, session_page
from stitchcuda.report.profile_figures import timeline
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.session import Session
from stitchcuda.state import Plan
from stitchcuda.store import SessionLock, Workspace
from tests.graph import tiny
from tests.graph.tiny import ScriptedEngineer, TinyHands, tiny_session
from tests.marks import more_but
from tests.replay import RecordedHands, Recording, engineers
from tests.report.hostile import RUN, hostile_session
from tests.report.long import many, timed
from tests.report.reading import Page
from tests.sessions.test_session import H200, THREE
from tests.tools.profiles import profile

RECORDINGS = sorted((Path(__file__).parent.parent / "recordings").glob("*.json.gz"))


def simulated(folder: Path, name: str = "tiny") -> Session:
    return tiny_session(folder, name).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())


def page_of(session: Session) -> Page:
    return Page(session_page(findings_of(session)))


def report(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, done.stdout


def sound(page: Page) -> None:
    """What holds for every page: internal links lead somewhere, ids are unique, figures are what plotly draws."""
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    for drawing in page.drawings.values():
        plotly.graph_objects.Figure(data=colourless(drawing["data"]), layout=colourless(drawing["layout"]))


    for name, drawing in page.drawings.items():
        across, down = drawing["layout"]["xaxis"], drawing["layout"]["yaxis"]
        if across["title"]["text"] == "attempt":
            assert (across["tick0"], across["dtick"] % 1) == (0, 0)
            assert across["dtick"] >= 1
        if down.get("type") == "category":
            assert {place for trace in drawing["data"] for place in trace["y"]} <= set(down["categoryarray"])
        if name == "roofline":             # each ceiling is seen to become flat
            ceilings = [one["x"] for one in drawing["data"] if one["mode"] == "lines"]
            assert all(low < ridge < high for low, ridge, high in ceilings)


def colourless(value: object) -> object:
    """With a colour that plotly knows in place of those that the page's style gives."""
    if isinstance(value, dict):
        return {name: colourless(each) for name, each in value.items()}
    if isinstance(value, list):
        return [colourless(each) for each in value]
    return "#123456" if isinstance(value, str) and re.fullmatch(r"@[a-z]+", value) else value


def test_on_the_simulator_everything_is_called_a_prediction(tmp_path: Path) -> None:
    page = page_of(simulated(tmp_path))
    sound(page)
    assert "simulated: kernels ran on the CPU simulator; every time here is a prediction" in page.text
    assert re.search(r"predicted \d+\.\d\d×", page.text)
    assert re.search(r"predicted \d+\.\d\d× over eager on NVIDIA H200 \(.*; nothing was timed here\)", page.text)
    assert "torch.compile is not predicted" in page.text
    assert "claims 0.2 ms" in page.text, "of a task, by its engineer"
    assert "Predicted: from" in page.text
    assert set(page.drawings) == {"best", "savings", "shares"}
    assert all("prediction" in trace["name"] or trace["mode"] == "markers" for trace in page.drawings["best"]["data"][:1])
    assert "there is no GPU here" in page.text  # why no timeline and no counters


def test_on_a_gpu_a_speed_up_states_its_tier_and_its_interval(tmp_path: Path) -> None:
    page = page_of(timed(tmp_path))
    sound(page)
    assert re.search(r"\d\.\d\d× over eager on NVIDIA H200, timed", page.text)
    assert "timed: timed on a GPU" in page.text
    assert "precision reference, policy stitched" in page.text
    assert "nothing was timed here" not in page.text
    names = [trace["name"] for trace in page.drawings["best"]["data"]]
    assert names[:4] == ["best program", "kept", "correct, not kept", "wrong"]
    assert "not built" in names
    assert "last verification" in names
    predicted, measured = page.drawings["savings"]["data"]
    assert (predicted["name"], measured["name"]) == ("predicted", "measured")
    assert max(measured["error_x"]["array"]) == pytest.approx(0.005)


@pytest.mark.parametrize("made", [simulated, timed])
def test_the_page_and_the_markdown_say_the_same(made: Callable[[Path], Session], tmp_path: Path) -> None:
    session = made(tmp_path)
    written = (session.folder / "report.md").read_text().splitlines()
    card = findings_of(session).card
    assert {label for label, _ in card.facts} >= {"tier", "rests on", "device", "tasks", "attempts", "cost", "ended"}
    assert {f"- {label}: {text}" for label, text in card.facts if label != "cost"} <= set(written)  # its time goes on


def test_the_axis_of_attempts_has_whole_numbers() -> None:
    assert [attempts_axis(last)["dtick"] for last in (0, 1, 16, 17, 100, 500)] == [1, 1, 1, 2, 10, 50]


def test_the_timeline_begins_with_the_reference_whoever_did_its_work(tmp_path: Path) -> None:
    before, after = profile(("gemm", "vendor", "(root)", 1, 0.5)), profile(("mine", "own", "a", 1, 0.2))
    seen = (TimeProfile(title="reference", profile=before), TimeProfile(title="final program", profile=after))
    figure = timeline(findings_of(simulated(tmp_path)).model_copy(update={"seen": seen}))
    assert figure.layout["yaxis"]["categoryarray"] == ["reference", "final program"]


def test_every_attempt_is_there_with_its_diff_its_log_and_its_evidence(tmp_path: Path) -> None:
    session = timed(tmp_path)
    page = page_of(session)
    numbers = range(1, len(session.attempts()) + 1)
    assert [one for one in page.ids if one.startswith("attempt-")] == [f"attempt-{number}" for number in numbers]
    assert "drafts.txt new +2 −0 @@ -0,0 +1,2 @@ +a saves 0.2" in page.text
    assert "-b wrong" not in page.text     # a draft is compared with the program that it started from, not with the last draft
    assert "error: expected a ';'" in page.text
    assert "y is off by 0.25" in page.text
    assert "95 % interval 0.195 ms to 0.205 ms" in page.text
    for attempt in session.attempts():
        assert f"artefacts/{attempt.evidence[:2]}/{attempt.evidence[2:]}" in page.text


def test_the_way_through_the_graph_is_counted(tmp_path: Path) -> None:
    page = page_of(timed(tmp_path, script={"a": ["saves 0.2"], "b": ["build error", "wrong", "saves 0.3"]}))
    for row in ("coder nvcc_build 4×", "nvcc_build verifier fail 1×", "check verifier fail 1×", "verifier report done 1×"):
        assert re.search(row.replace(" ", r"\s*"), page.text), row


@pytest.mark.parametrize("path", more_but(RECORDINGS, *RECORDINGS[::4]), ids=lambda path: path.name.partition(".")[0])
def test_recorded_sessions_have_reports(path: Path, tmp_path: Path) -> None:
    recording = Recording(path)
    home = Workspace(tmp_path)
    record = recording.reopened(home)
    crew, _ = engineers(recording, home, record.name, record.settings)
    session = Session(home, record).run(engineer=crew, tools=RecordedHands(recording))
    found = session_page(findings_of(session))
    page = Page(found)
    sound(page)
    assert len(found) < 3_000_000
    counters = session.outcome().tier == "measured"  # Nsight Compute's reports could be read where it was recorded
    replayed = [recording.data["evidence"][attempt["program"]] for attempt in recording.ledger[: len(session.attempts())]]
    profiled = any(evidence["system"] and evidence["system"]["digest"] for evidence in replayed)
    drawn = {"best", "savings", "shares"} | ({"timeline"} if profiled else set()) | ({"peaks"} if counters else set())
    assert set(page.drawings) >= drawn
    assert ("parked" in page.text) is (session.status == "parked")
    assert re.search(rf"\d\.\d\d× over eager on NVIDIA H200, {'measured' if counters else 'timed'}", page.text)


def test_hostile_text_is_shown_and_never_acts(tmp_path: Path) -> None:
    session = hostile_session(tmp_path)
    assert len(session.attempts()) == 4
    data = session_page(findings_of(session))
    page = Page(data)
    sound(page)
    assert page.handlers == []
    assert page.loading == []
    assert page.tags.isdisjoint({"img", "iframe", "object", "embed", "link", "form", "base", "textarea"})
    assert [attributes for attributes, _ in page.scripts] == [
        {"type": "application/json", "id": "drawings"}, {"type": "text/plain", "id": "plotly"}, {},
    ]  # fmt: skip
    assert all(RUN not in text for attributes, text in page.scripts if attributes.get("id") != "drawings")
    assert f"<script>{RUN}</script>" in page.text  # as text
    assert {link.partition(":")[0] for link in page.links if not link.startswith("#")} == {"https"}
    raw = data.decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", raw)
    assert "⟨U+202E⟩" in raw
    labels = json.dumps([drawing["data"] for drawing in page.drawings.values()])
    assert "<b>" not in labels
    assert "<script" not in labels
    other = Page(comparison_page(findings_of(session), findings_of(session), session.home.store))
    assert (other.handlers, other.loading, len(other.scripts)) == ([], [], 3)


def test_nothing_may_be_loaded_and_only_its_own_script_may_run(tmp_path: Path) -> None:
    raw = session_page(findings_of(simulated(tmp_path))).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', raw)
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"('sha256-[\w+/]{43}=' ?){2}", rules["script-src"])
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    assert not re.search(r"https?://(?!www\.w3\.org)", re.sub(r"<script.*?</script>", "", raw, flags=re.DOTALL))


def test_a_hundred_long_attempts_stay_below_three_megabytes(tmp_path: Path) -> None:
    data = session_page(findings_of(many(tmp_path, 100, lines=400)))
    page = Page(data)
    sound(page)
    assert len(data) < 3_000_000
    assert len([one for one in page.ids if one.startswith("attempt-")]) == 100
    assert re.search(r"\d+ more lines are left out here; the whole file is artefacts/", page.text)
    assert re.search(r"\d+ lines are left out", page.text)
    assert "constants.safetensors new binary: not shown" in page.text


def test_five_hundred_attempts_have_a_report(tmp_path: Path) -> None:
    data = session_page(findings_of(many(tmp_path, 500, lines=40)))
    page = Page(data)
    sound(page)
    assert "attempt-500" in page.ids
    assert len(data) < 6_000_000


def test_a_session_that_has_not_begun_and_one_that_runs_have_reports(tmp_path: Path) -> None:
    session = tiny_session(tmp_path, "new")
    page = page_of(session)
    sound(page)
    assert "No attempt has been judged yet." in page.text
    assert "no speed-up is claimed" in page.text
    assert page.drawings == {}
    ended = simulated(tmp_path, "busy")
    with SessionLock(ended.folder):
        assert "running" in page_of(ended).text


def test_a_session_that_was_refused_claims_nothing(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer({"a": ["wrong"] * 9}), tools=TinyHands())
    page = page_of(session)
    assert "no speed-up is claimed" in page.text
    assert "none: nothing was kept" in page.text
    assert "×" not in page.text.partition("Times")[0].partition("Notes")[2]


@pytest.mark.parametrize("gone", ["program", "evidence", "review", "plan", "regions"])
def test_what_is_gone_is_said_in_a_sentence(gone: str, tmp_path: Path) -> None:
    session = timed(tmp_path)
    whole, state = session.attempts()[0], session.state()
    baseline = state["baseline"]
    assert baseline is not None
    digests = {
        "program": whole.program, "evidence": whole.evidence, "review": whole.review, "plan": state["plan"],
        "regions": baseline.regions,
    }  # fmt: skip
    digest = digests[gone]
    assert digest is not None
    path = session.home.root / "artefacts" / digest[:2] / digest[2:]
    path.unlink()
    page = page_of(session)
    sound(page)
    assert "cannot be shown: " in page.text
    assert f"artefacts/{digest[:2]}/{digest[2:]}" in page.text
    assert str(tmp_path) not in page.text.replace(session.home.option, "").partition("What to run next")[0]
    path.write_bytes(b"not what it was")
    assert "is damaged" in page_of(session).text


def test_a_damaged_ledger_leaves_what_is_whole(tmp_path: Path) -> None:
    session = timed(tmp_path)
    path = session.folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"sha256", b"sha257"), *lines[2:]]))
    again = Session.open(session.name, session.home.root)
    page = page_of(again)
    sound(page)
    assert "the whole record of attempts cannot be read: " in page.text
    assert "attempt-1" in page.ids


def test_damaged_checkpoints_leave_a_page(tmp_path: Path) -> None:
    session = timed(tmp_path)
    for path in session.folder.glob("checkpoints.sqlite*"):
        path.unlink()
    (session.folder / "checkpoints.sqlite").write_bytes(b"this is no database, and has not been one for a while" * 200)
    page = page_of(Session.open(session.name, session.home.root))
    sound(page)
    assert "the checkpoints cannot be read: " in page.text


def test_the_command_prints_one_object_and_writes_where_it_is_told(tmp_path: Path) -> None:
    session = simulated(tmp_path)
    code, printed = report(session.name, "--workspace", session.home.root, "--json")
    assert (code, json.loads(printed)) == (0, {"report": str(session.folder / "report.html")})
    assert Path(json.loads(printed)["report"]).read_bytes().startswith(b"<!DOCTYPE html>")
    code, printed = report(session.name, "--workspace", session.home.root, "--output", tmp_path / "deep" / "mine.html")
    assert (code, printed.strip()) == (0, str(tmp_path / "deep" / "mine.html"))
    assert (session.folder / "report.md").is_file()
    assert session.outcome().report == str(session.folder / "report.md")
    code, printed = report("nobody", "--workspace", session.home.root, "--json")
    assert (code, list(json.loads(printed))) == (2, ["error"])
    code, printed = report(session.name, "--workspace", session.home.root, "--output", tmp_path, "--json")
    assert code == 2
    assert "is a folder" in json.loads(printed)["error"]
    code, printed = report(session.name, "--workspace", session.home.root, "--output", "/proc/report.html", "--json")
    assert code == 2
    assert "name another file with --output" in json.loads(printed)["error"]


def test_two_sessions_side_by_side(tmp_path: Path) -> None:
    one = timed(tmp_path, "one", {"a": ["saves 0.2"], "b": ["saves 0.3"]})
    hands = TinyHands(H200, timed=True)
    engineer = ScriptedEngineer({"a": ["saves 0.25"], "c": ["saves 0.1"]})
    other = tiny_session(tmp_path, "other", precision="tf32").run(device="cuda", engineer=engineer, tools=hands)
    code, printed = report("one", "other", "--workspace", one.home.root, "--json")
    assert code == 0
    path = Path(json.loads(printed)["report"])
    assert path == one.folder / "comparison-other.html"
    page = Page(path.read_bytes())
    sound(page)
    assert "Settings that differ setting one other precision reference tf32" in page.text
    assert "b task b kept, 1 attempt; claims 0.2 ms, measured 0.3 ms no such task" in page.text
    assert "c task c no such task kept, 1 attempt" in page.text
    assert "-a saves 0.2 -b saves 0.3 +a saves 0.25 +c saves 0.1" in page.text
    assert [trace["name"] for trace in page.drawings["best"]["data"]] == ["one (timed)", "other (timed)"]
    assert other.name in page.text


class Retitling(ScriptedEngineer):
    """Gives the same tasks other titles."""

    def plan(self, brief: Brief) -> Plan:
        plan = super().plan(brief)
        return plan.model_copy(update={"tasks": tuple(task.model_copy(update={"title": "other work"}) for task in plan.tasks)})


def compared(one: Session, folder: Path) -> Page:
    """With a session in the same workspace that gives the same ids to other work."""
    other = tiny_session(folder, "other").run(engineer=Retitling(THREE), tools=TinyHands())
    page = Page(comparison_page(findings_of(one), findings_of(other), one.home.store))
    sound(page)
    return page


def test_tasks_of_different_references_are_not_matched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = simulated(tmp_path)
    monkeypatch.setattr(tiny, "REFERENCE", f"{tiny.REFERENCE}\n# another one\n")
    page = compared(one, tmp_path)
    assert "They are sessions of different references, so their tasks are not matched" in page.text
    assert "no such task" not in page.text
    first, _, second = page.text.partition("so their tasks are not matched")[2].partition("other task title")
    assert "a task a kept" in first
    assert "other work" not in first
    assert "a other work kept" in second
    assert "task a" not in second


def test_what_one_session_calls_a_task_is_not_put_on_the_other(tmp_path: Path) -> None:
    page = compared(simulated(tmp_path), tmp_path)
    assert "not matched" not in page.text
    assert re.search(r"a not the same: see beside task a: kept, \d attempts?; .* other work: kept, \d attempt", page.text)
