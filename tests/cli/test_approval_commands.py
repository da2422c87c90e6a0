"""`--approve` on the command line: parked at the plan, shown, edited in a file, and gone on with; on the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_app import REFERENCE, stitchcuda


@pytest.mark.more
def test_a_plan_is_shown_edited_in_its_file_and_followed(tmp_path: Path) -> None:
    reference, workspace = tmp_path / "norm.py", tmp_path / "ws"
    reference.write_text(REFERENCE)
    where: list[str | Path] = ["--workspace", workspace]
    started = stitchcuda("optimize", reference, "--device", "sim", "--session", "first", "--approve", "plan", *where)
    assert started.returncode == 3, started.stderr
    told = " ".join(started.stdout.split())
    assert "waits for your word on plan 1 (2 tasks, by builtin)" in told
    assert "stitchcuda resume first" in told
    (file,) = (workspace / "sessions" / "first" / "waiting").iterdir()
    assert str(file) in told

    again = stitchcuda("resume", "first", "--json", *where)
    assert again.returncode == 3, again.stderr
    outcome = json.loads(again.stdout)
    assert (outcome["status"], outcome["stop_reason"]) == ("parked", "waits for your word on plan 1 (2 tasks, by builtin)")
    shown = stitchcuda("show", "first", *where)
    assert shown.returncode == 0, shown.stderr
    assert "host:cuda_graph" in shown.stdout
    assert "rows in registers" in " ".join(shown.stdout.split())

    plan = json.loads(file.read_text())
    file.write_text(json.dumps({"tasks": [task | {"predicted_ms": 9} for task in plan["tasks"]]}))
    refused = stitchcuda("resume", "first", "--edit", file, *where)
    assert refused.returncode == 3, refused.stderr
    assert "predicted_ms of task 'host:cuda_graph' is not for you to change" in " ".join(refused.stdout.split())
    file.write_text("{")
    broken = stitchcuda("resume", "first", "--edit", file, *where)
    assert (broken.returncode, broken.stdout) == (2, "")
    assert broken.stderr.startswith(f"stitchcuda: {file} cannot be read as an edited plan")

    file.write_text(json.dumps([task["id"] for task in plan["tasks"] if task["id"] != "host:cuda_graph"]))
    done = stitchcuda("resume", "first", "--edit", file, "--json", *where)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["status"], outcome["accepted"], outcome["attempts"], outcome["tasks_total"]) == ("done", True, 1, 1)
    assert "plan 1 is followed as a person edited it, without host:cuda_graph" in done.stderr
    assert not list(file.parent.iterdir()), "nothing waits any more"

    late = stitchcuda("resume", "first", "--accept", *where)
    assert late.returncode == 2
    assert "nothing waits for a word of yours here" in late.stderr


def test_what_cannot_be_asked_about(tmp_path: Path) -> None:
    reference = tmp_path / "norm.py"
    reference.write_text(REFERENCE)
    wrong = stitchcuda("optimize", reference, "--device", "sim", "--approve", "all", "--workspace", tmp_path / "ws")
    assert wrong.returncode == 2
    assert "'plan' or 'code' (got 'all')" in wrong.stderr
