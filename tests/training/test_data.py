"""What is made of sessions for learning: rows that say what was said and found, splits by structure, and no test reference."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.engineers.draft_reply import DraftReply
from stitchcuda.sessions.session import Session
from stitchcuda.store import Workspace, get_tree
from stitchcuda.training.clusters import clusters, find_structure
from stitchcuda.training.completion_program import program_in, shown_files
from stitchcuda.training.data import DataManifest, make_data
from stitchcuda.training.leakage import TestReferences
from stitchcuda.training.session_rows import DataRow, credits, session_rows
from tests import fake_model
from tests.replay import RecordedHands, Recording, engineers

RECORDINGS = Path(__file__).parents[1] / "recordings"
REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
    def forward(self, x):
        return torch.softmax(x * self.weight, dim=-1)
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return [16]
"""
RENAMED = REFERENCE.replace("weight", "gain").replace("size", "width").replace("16", "64").replace("dim=-1", "dim=-2")
OTHER = REFERENCE.replace("torch.softmax(x * self.weight, dim=-1)", "(x.relu() + self.weight).cumsum(-1).mean(dim=0)")


def replayed(home: Workspace, name: str) -> Session:
    recording = Recording(RECORDINGS / f"{name}.json.gz")
    record = recording.reopened(home)
    crew, _ = engineers(recording, home, record.name, record.settings)
    return Session(home, record).run(engineer=crew, tools=RecordedHands(recording))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Two recorded sessions: mamba2, which was accepted, and deep_mlp, which is parked."""
    home = Workspace(tmp_path_factory.mktemp("ws"))
    for name in ("mamba2", "deep_mlp"):
        replayed(home, name)
    return home


@pytest.fixture(scope="module")
def names(home: Workspace) -> dict[str, str]:
    """The sessions' names, by the references' files."""
    return {record.reference_name: record.name for record in home.sessions()}


@pytest.fixture(scope="module")
def mamba(home: Workspace, names: dict[str, str]) -> Session:
    return Session.open(names["48_Mamba2ReturnY.py"], home.root)


def made(home: Workspace, out: Path, **options: Any) -> DataManifest:
    return make_data(home.store.names(), home, out, licence="Apache-2.0", tell=lambda line: None, **options)


def rows(out: Path, manifest: DataManifest) -> dict[str, list[dict[str, Any]]]:
    return {file.path: [json.loads(line) for line in (out / file.path).read_text().splitlines()] for file in manifest.files}


def test_an_accepted_session_gives_both_skills_its_talks_and_its_states(mamba: Session) -> None:
    found = session_rows(mamba)
    kinds = [row.kind for row in found]
    assert {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)} == {"skill1": 1, "skill2": 2, "rft": 4, "value": 4}
    for row in found:
        assert [turn.role for turn in row.messages] == (["user", "assistant"] * 9)[: len(row.messages)]
        assert (row.messages[-1].role == "assistant") is (row.kind != "value")
        assert row.outcome == pytest.approx(3.2012, abs=1e-3)
    attempts = {attempt.id: attempt for attempt in mamba.attempts()}
    assert [row.how for row in found if row.kind == "rft"] == ["planner", "coder", "verifier", "planner"]
    assert all(attempts[row.attempt].correct for row in found if row.how == "coder" and row.kind == "rft")


def test_the_program_of_a_row_is_read_as_a_reply_of_a_coder(mamba: Session) -> None:
    (row,) = (row for row in session_rows(mamba) if row.kind == "skill1")
    files = {block.name: block.body for block in DraftReply.from_text(row.messages[-1].content).files}
    digest = mamba.state()["program"]
    assert digest is not None
    program = {name: data.decode().rstrip() for name, data in get_tree(mamba.home.store, digest).items()}
    program.pop("reference.py", None)
    assert {name: body.rstrip() for name, body in files.items()} == program
    assert next(iter(files)) == "model_new.py"
    assert "class Model(" in row.messages[0].content


def test_skill_two_goes_from_a_program_and_its_evidence_to_a_faster_one(mamba: Session) -> None:
    attempts = {attempt.id: attempt for attempt in mamba.attempts()}
    pairs = [row for row in session_rows(mamba) if row.kind == "skill2"]
    for row in pairs:
        before, after = attempts[row.id.rpartition("-from-")[2]], attempts[row.attempt]
        assert after.speedup is not None
        assert before.speedup is not None
        assert after.speedup > before.speedup
        asked = row.messages[0].content
        assert "## What the verifier found\nBuild: ok." in asked
        assert "one that is faster" in asked
        assert "<<<<<<< SEARCH" in asked
        assert all(f"```{name}\n{text}```" in asked for name, text in row.program.items())
        written = {name: data.decode() for name, data in get_tree(mamba.home.store, after.program).items()}
        given = program_in(row.messages[-1].content, row.program)
        assert isinstance(given, dict)
        assert {name: text.rstrip() for name, text in given.items()} == {
            name: text.rstrip() for name, text in written.items() if name != "reference.py"
        }  # fmt: skip


def test_credit_goes_to_earlier_turns(mamba: Session) -> None:
    assert credits([1.0, -1.0, 3.0]) == pytest.approx([1 + 0.4 * (-1 + 0.4 * 3), -1 + 0.4 * 3, 3.0])
    assert credits([1.0, None, 2.0]) == [pytest.approx(1 + 0.16 * 2), None, 2.0]
    assert credits([]) == []
    states = [row for row in session_rows(mamba) if row.kind == "value"]
    assert [row.credit for row in states] == pytest.approx(credits([row.reward for row in states]))
    assert states[-1].reward == -1.0, "its last attempt was wrong"


def test_files_are_those_of_the_manifest_and_columns_are_the_same_in_all_rows(home: Workspace, tmp_path: Path) -> None:
    manifest = made(home, tmp_path / "data")
    assert manifest == DataManifest.model_validate_json((tmp_path / "data" / "manifest.json").read_text())
    assert manifest.licence == "Apache-2.0"
    assert manifest.authors == ("builtin", "mailbox")
    found = rows(tmp_path / "data", manifest)
    for file in manifest.files:
        assert hashlib.sha256((tmp_path / "data" / file.path).read_bytes()).hexdigest() == file.sha256
        assert len(found[file.path]) == file.rows
        assert len({tuple(row) for row in found[file.path]}) == 1
        assert {row["split"] for row in found[file.path]} == {file.path.split(".")[1]}
    counted = sum(sum(source.rows.values()) for source in manifest.sessions)
    assert counted == sum(file.rows for file in manifest.files if file.path.startswith("jsonl/"))
    assert counted == sum(file.rows for file in manifest.files if file.path.startswith("trl/"))
    for path, lines in found.items():
        for line in lines:
            if path.startswith("jsonl/"):
                DataRow.model_validate({name: value for name, value in line.items() if name not in ("cluster", "split")})
            assert str(home.root) not in json.dumps(line), "no path of this machine"


def test_a_session_whose_reference_is_like_a_held_out_one_is_for_testing(
    home: Workspace, names: dict[str, str], tmp_path: Path
) -> None:  # fmt: skip
    record = home.record(names["48_Mamba2ReturnY.py"])
    held = tmp_path / "held.py"
    held.write_text(home.store.get(record.source).decode().replace("64", "32") + "\n# another file\n")
    manifest = made(home, tmp_path / "data", held_out=[held], test_percent=0)
    assert {source.name: source.split for source in manifest.sessions} == {
        names["48_Mamba2ReturnY.py"]: "test", names["3_DeepNarrowMLP.py"]: "train",
    }  # fmt: skip
    assert list(manifest.held_out) == [str(held)]
    assert manifest.held_out[str(held)] == next(one.cluster for one in manifest.sessions if one.split == "test")


def test_a_training_row_that_shows_a_held_out_reference_is_left_out(home: Workspace, mamba: Session, tmp_path: Path) -> None:
    digest = mamba.state()["program"]
    assert digest is not None
    model = get_tree(mamba.home.store, digest)["model_new.py"].decode()
    held = tmp_path / "held" / "printed.py"
    held.parent.mkdir()
    held.write_text(model)                 # it is no reference of a session, but stands in its texts
    whole = made(home, tmp_path / "a", test_percent=0)
    without = made(home, tmp_path / "b", test_percent=0, held_out=[held.parent])
    report = json.loads((tmp_path / "b" / "leakage.json").read_text())
    assert without.leaks == report["left out"] > 0
    assert {leak["field"] for leak in report["leaks"]} >= {"messages[1].content"}
    kept = [row["id"] for lines in rows(tmp_path / "b", without).values() for row in lines]
    assert not {leak["row"] for leak in report["leaks"]} & set(kept)
    assert sum(file.rows for file in without.files) == sum(file.rows for file in whole.files) - 2 * without.leaks
    again, written = TestReferences({"held": model}), rows(tmp_path / "b", without)
    assert [leak for lines in written.values() for row in lines for leak in again.leaks(row["id"], row)] == []


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("verbatim", f"The reference was:\n{REFERENCE}"),
        ("renamed in a block", f"Look:\n```python\n{RENAMED}```\n"),
        ("deep inside of JSON", {"log": [json.dumps({"said": REFERENCE})]}),
    ],
)
def test_a_reference_is_found_in_any_text(field: str, text: Any) -> None:
    tests = TestReferences({"r": REFERENCE})
    (leak,) = tests.leaks("row", {"innocent": OTHER, field: text})
    assert leak.reference == "r"
    assert leak.field.startswith(field)
    assert tests.leaks("row", {"innocent": OTHER, "number": 3, "nothing": None, "code": "x = 1"}) == []


def test_clusters_are_of_structure_and_not_of_names_or_numbers() -> None:
    found = clusters({"a": REFERENCE, "b": RENAMED, "c": OTHER, "d": "no python (", "e": "no python (", "f": "x ="})
    assert found["a"] == found["b"] != found["c"]
    assert found["d"] == found["e"] != found["f"]
    assert clusters({"c": OTHER, "z": REFERENCE})["z"] == found["a"], "it does not depend on what else is there"
    assert find_structure("x = " + "(" * 5000) is None
    documented = REFERENCE.replace("    def forward(self, x):", '    def forward(self, x):\n        """Softmax."""')
    assert clusters({"a": REFERENCE, "b": documented})["b"] == found["a"]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["train", "data", *map(str, arguments)])


def test_the_command_tells_what_it_wrote(home: Workspace, mamba: Session, tmp_path: Path) -> None:
    done = invoke(mamba.name, "--workspace", home.root, "--out", tmp_path / "data", "--form", "trl", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [file["path"].split("/")[0] for file in told["files"]] == ["trl"] * 4
    assert done.stderr == f"1/1 {mamba.name}: 11 rows\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody", "--out", "new"], "nobody"),
        (["SESSION", "--out", "new", "--form", "csv"], "--form 'csv' is not known: give jsonl, trl, verl"),
        (["SESSION", "--out", "full"], "not empty: give a new folder"),
        (["SESSION", "--out", "new", "--held-out", "missing"], "names no Python file"),
    ],
)
def test_bad_input_is_one_sentence(
    home: Workspace, mamba: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    done = invoke(*(mamba.name if word == "SESSION" else word for word in arguments), "--workspace", home.root)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_without_pyarrow_verl_s_form_is_refused_before_anything_is_written(
    home: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "pyarrow" else find(name, *more))
    done = invoke(*home.store.names(), "--workspace", home.root, "--out", tmp_path / "data", "--form", "verl")
    assert done.exit_code == 2
    assert "verl's parquet files need pyarrow: " in done.stderr
    assert "pyarrow>=17" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.more
def test_a_failure_and_what_mended_it_are_a_repair(tmp_path: Path) -> None:
    session = fake_model.story(tmp_path, candidates=2, max_attempts=6)
    while (session := fake_model.run(session)).status == "parked":
        fake_model.answer_all(tmp_path / "workspace" / "box")
    attempts = {attempt.id: attempt for attempt in session.home.store.attempts(session.name).values()}
    found = session_rows(session)
    repairs = [row for row in found if row.how == "repair" and row.kind == "skill2"]
    assert len(repairs) == 2, "both candidates of the step after the failure are right"
    for row in repairs:
        before = attempts[row.id.rpartition("-from-")[2]]
        assert not before.correct
        assert "NOT correct" in row.messages[0].content
        assert attempts[row.attempt].correct
    beside = [row for row in found if row.kind == "value" and attempts[row.attempt].beside]
    assert beside
    assert all(row.credit == row.reward for row in beside)


@pytest.mark.more
def test_trl_s_form_is_read_by_datasets_and_trl(home: Workspace, tmp_path: Path) -> None:
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    made(home, tmp_path / "data", test_percent=0)
    for kind in ("skill1", "skill2", "rft", "value"):
        files = {"train": str(tmp_path / "data" / "trl" / f"{kind}.train.jsonl")}
        table = datasets.load_dataset("json", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
        assert trl.is_conversational(table[0])
        assert {turn["role"] for row in table for turn in row["messages"]} <= {"user", "assistant"}


@pytest.mark.more
def test_verl_s_form_is_read_by_pyarrow(home: Workspace, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    manifest = made(home, tmp_path / "data", forms=("verl",), test_percent=0)
    for file in manifest.files:
        lines = parquet.read_table(tmp_path / "data" / file.path).to_pylist()
        assert len(lines) == file.rows
        if "rft" in file.path:
            assert lines[0]["messages"][-1]["role"] == "assistant"
            continue
        assert [turn["role"] for turn in lines[0]["prompt"]] == ["user"]
        assert lines[0]["reward_model"] == {"style": "rule", "ground_truth": ""}
        assert "class Model" in lines[0]["extra_info"]["reference"]
        assert ("model_new.py" in shown_files(lines[0]["extra_info"]["program"])) is ("skill2" in file.path)


@pytest.mark.more
def test_verl_s_form_is_read_by_verl(home: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset", exc_type=ImportError)
    config = pytest.importorskip("omegaconf").OmegaConf.create({
        "filter_overlong_prompts": False, "cache_dir": str(tmp_path / "cache"), "prompt_key": "prompt",
    })  # fmt: skip
    made(home, tmp_path / "data", forms=("verl",), test_percent=0)
    for kind, count in {"skill1": 1, "skill2": 3}.items():
        path = str(tmp_path / "data" / "verl" / f"{kind}.train.parquet")
        found = rl_dataset.RLHFDataset(data_files=path, tokenizer=object(), config=config)
        assert len(found) == count
        assert found[0]["raw_prompt"][0]["role"] == "user"
        assert found[count - 1]["index"] == count - 1
