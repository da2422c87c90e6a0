"""What one session learns another one reads: in its plan, in its drafts, and after workspaces are merged."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from stitchcuda.cli.memory import app
from stitchcuda.engineers.prompt import coder_prompt, planner_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.memory import open_memory
from tests.graph.tiny import Script, ScriptedEngineer, TinyHands, tiny_session
from tests.sessions.test_session import H200

ROOM = PromptBudget(TokenCounter("unknown"))


def ran(folder: Path, name: str, script: Script) -> ScriptedEngineer:
    engineer = ScriptedEngineer(script)
    tiny_session(folder, name).run(engineer=engineer, tools=TinyHands(H200, timed=True), device="cuda")
    return engineer


def test_a_sibling_reads_what_was_learnt(tmp_path: Path) -> None:
    first = ran(tmp_path, "first", {"fast-relu": ["saves 0.2"], "slow-relu": ["saves -0.1", "saves -0.1"]})
    assert first.briefs[0].lessons == ()
    second = ran(tmp_path, "second", {"again": ["saves 0.1"]})
    told = "\n".join(second.briefs[0].lessons)
    assert "relu at [64, 256] float32 on NVIDIA H200" in told
    assert "accepted 1 of 1" in told
    assert "refuted" in told, "what does not pay is a lesson too"
    assert told in planner_prompt(second.briefs[0], ROOM).replace("- relu", "relu")
    assert second.assignments[0].brief.lessons
    assert second.assignments[0].brief.lessons[0] in coder_prompt(second.assignments[0], ROOM)


def test_a_session_does_not_read_its_own(tmp_path: Path) -> None:
    engineer = ran(tmp_path, "alone", {"a": ["saves 0.2"], "b": ["saves 0.1"]})
    assert all(not assignment.brief.lessons for assignment in engineer.assignments)


def test_two_workspaces_merged_keep_both_sides(tmp_path: Path) -> None:
    exports = []
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        ran(tmp_path / side, side, {"fast-relu": ["saves 0.2"]})
        with open_memory(tmp_path / side / "workspace") as memory:
            exports.append(tmp_path / f"{side}.jsonl")
            assert memory.export(exports[-1]) == 1
    merged = tmp_path / "merged.jsonl"
    done = CliRunner().invoke(app, ["merge", *map(str, exports), "--out", str(merged)])
    assert done.exit_code == 0, done.output
    lessons = [json.loads(line) for line in merged.read_text().splitlines()[1:]]
    assert {lesson["session"] for lesson in lessons} == {"left", "right"}
    assert len({lesson["attempt"] for lesson in lessons}) == 2


def test_a_memory_that_cannot_be_used_costs_the_lessons_only(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    (session.home.root / "memory.sqlite").write_bytes(b"this is no database, and it stays as it is" * 100)
    session.run(engineer=ScriptedEngineer({"a": ["saves 0.2"]}), tools=TinyHands(H200, timed=True), device="cuda")
    assert session.status == "done"
    assert any("the lesson of a is not kept" in note for note in session.state()["notes"])


