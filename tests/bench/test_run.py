"""A benchmark's run on the simulator: real sessions of small problems, a broken one, a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stitchcuda.bench.problem_worker import Order
from stitchcuda.bench.problems import Problem
from stitchcuda.bench.results import Result, RunFolder
from stitchcuda.bench.run import run
from stitchcuda.bench.table import read_table
from stitchcuda.state import Settings
from tests.integrity.remains import below

WORKING = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * {factor} + 1).tanh()

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
"""
BROKEN = WORKING.replace("torch.relu(x * {factor} + 1).tanh()", "torch.zeros_like(x)")


def command(folder: Path, out: Path) -> list[str]:
    return [
        sys.executable, "-m", "stitchcuda", "bench", "run", "folder", "--path", str(folder), "--out", str(out),
        "--device", "sim", "--max-attempts", "1", "--json",
    ]  # fmt: skip


@pytest.mark.more
def test_a_reference_that_cannot_be_used_is_a_row(tmp_path: Path) -> None:
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "1_broken.py").write_text(BROKEN)
    asked = [*command(folder, tmp_path / "out"), "--gpus", "2", "--baselines"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "without effect on the simulator, which uses no GPU and times nothing: --gpus, --baselines\n" in done.stderr
    (row,) = json.loads(done.stdout)["problems"]
    assert (row["name"], row["broken"], row["correct"]) == ("1_broken", True, False)
    assert "constant" in row["reasons"][0]
    assert "[1/1] 1_broken: broken: " in done.stderr


@pytest.mark.more
def test_a_ray_cluster_comes_to_the_same_and_replaces_a_worker_that_dies(tmp_path: Path) -> None:
    folder, out = tmp_path / "problems", tmp_path / "out"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"{number}_relu.py").write_text(WORKING.format(factor=number))
    (folder / "3_broken.py").write_text(BROKEN)
    asked = [*command(folder, out), "--ray", "local"]
    run = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    worker = None
    for _ in range(600):                   # a worker of Ray's that is at work has a child
        found = [pid for pid in below(run.pid) if b"ray::" in cmdline(pid) and list(below(pid))]
        if found:
            worker = found[0]
            break
        time.sleep(0.1)
    assert worker is not None, "no problem reached a worker"
    time.sleep(3)
    os.kill(worker, signal.SIGKILL)
    said, told = run.communicate()
    assert run.returncode == 0, told
    table = json.loads(said)
    assert [row["end"] for row in table["problems"]] == ["accepted", "accepted", "broken"]
    assert [row["attempts"] for row in table["problems"]] == [1, 1, 0]


@pytest.mark.parametrize(("at_once", "orders"), [(4, 6), (2, 5)])
def test_what_ran_out_of_memory_beside_others_is_worked_on_again_alone(tmp_path: Path, at_once: int, orders: int) -> None:
    problems = []
    for number in range(5):
        (tmp_path / f"{number}.py").write_text(WORKING.format(factor=number))
        problems.append(Problem(name=str(number), reference=tmp_path / f"{number}.py"))
    worked: list[tuple[str, str | None, bool]] = []

    def work(order: Order, gpu: str | None, log: Path, stopped: threading.Event) -> Result:
        worked.append((order.problem, gpu, order.alone))
        short = order.problem == "3" and not order.alone
        return Result(id=order.problem, problem=order.problem, end="refused" if short else "accepted", short_of_memory=short)

    folder = run(
        problems, tmp_path / "out", Settings(target="cuda"), source="folder", path=tmp_path, gpus=("0", "1"), at_once=at_once,
        work=work,
    )  # fmt: skip
    assert len(worked) == orders
    assert [order[0] for order in worked if order[2]] == ["3"] * (orders - 5)
    ends = {name: result.end for name, result in folder.results().items()}
    assert ends == dict.fromkeys("0124", "accepted") | {"3": "accepted" if orders == 6 else "refused"}
    run(problems, tmp_path / "out", Settings(target="cuda"), source="folder", path=tmp_path, gpus=("0",), work=work)
    assert len(worked) == orders           # nothing is worked on twice


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.more
def test_a_killed_run_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    folder, out = tmp_path / "problems", tmp_path / "out"
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"{number}_relu.py").write_text(WORKING.format(factor=number))
    (folder / "4_broken.py").write_text(BROKEN)
    asked = [*command(folder, out), "--jobs", "2"]
    ends = []
    for wait_s in (4, 9, 14):
        run = subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait_s)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        ends.append(dict(RunFolder.open(out).results()) if (out / "run.json").exists() else {})
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    final = RunFolder.open(out).results()
    for results in ends:                   # what was there after a kill has not changed
        assert {name: final[name] for name in results} == results
    table = read_table(out)
    assert json.loads(done.stdout) == json.loads(table.model_dump_json())
    assert [row.end for row in table.problems] == ["accepted"] * 3 + ["broken"]
    assert len((out / "results.jsonl").read_bytes().splitlines()) == 4
    for number in (1, 2, 3):               # each session has one attempt: nothing was tried twice
        assert final[f"{number}_relu"].attempts == 1
