"""kill -9 at random moments: every resume goes on, ends with the same program, and no attempt is lost or done twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stitchcuda.sessions.session import Session
from stitchcuda.store import Workspace
from tests.graph.tiny import tiny_session

ROOT = Path(__file__).resolve().parents[2]
TINY = """
import sys, time
from tests.graph.tiny import ScriptedEngineer, TinyHands
from stitchcuda.sessions.session import Session
hands = TinyHands()
hands.before = lambda tool: time.sleep(0.02)
script = {f"t{n}": ["build error", "wrong", "saves 0.01"] for n in range(6)}
print("ready", flush=True)
Session.open("tiny", sys.argv[1]).run(engineer=ScriptedEngineer(script), tools=hands)
"""
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return torch.softmax(x + self.second(torch.nn.functional.gelu(self.norm(self.first(x)))), dim=-1)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return [64]
"""


@pytest.mark.more
def test_a_small_session_killed_six_times(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = tiny_session(tmp_path / "whole")
    _, seconds = _until_ready([sys.executable, "-c", TINY, str(whole.home.root)], None)
    killed = tiny_session(tmp_path / "killed")
    command = [sys.executable, "-c", TINY, str(killed.home.root)]
    chance = random.Random(2)
    kills = 0
    for _ in range(6):
        returned, _ = _until_ready(command, chance.uniform(0, seconds / 3))
        kills += returned == -signal.SIGKILL
    assert kills >= 2
    assert _until_ready(command, None)[0] == 0
    _compare(killed, whole)


def _until_ready(command: list[str], kill_after_s: float | None) -> tuple[int, float]:
    """The exit status, and the seconds after the session was about to start."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = time.monotonic()
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            process.kill()
        return process.wait(), time.monotonic() - started


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_real_sessions_killed_at_ten_random_moments(tmp_path: Path) -> None:
    _kill_and_compare(tmp_path, kills=10, seed=11)


def _kill_and_compare(tmp_path: Path, *, kills: int, seed: int) -> None:
    """Sessions, each killed once at a random moment of its life and resumed to its end, against an undisturbed one."""
    reference = tmp_path / "mlp.py"
    reference.write_text(REFERENCE)
    home = Workspace(tmp_path / "workspace")
    options = [str(reference), "--device", "sim", "--model", "builtin"]
    for name in ("cold", "whole"):  # the second finds its builds in the cache, as the killed ones will
        started = time.monotonic()
        assert _cli(home, "optimize", *options, "--session", name).wait() == 0
    seconds = time.monotonic() - started
    whole = Session(home, home.record("whole"))
    chance = random.Random(seed)
    moments: list[float] = []
    while len(moments) < kills:
        name, moment = f"killed-{len(moments)}", chance.uniform(0.2, seconds)
        process = _cli(home, "optimize", *options, "--session", name)
        try:
            process.wait(moment)
            home.discard(name)  # done before its moment: another one
            continue
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        moments.append(moment)
        begun = (home.folder(name) / "session.json").exists()
        again = ["resume", name] if begun else ["optimize", *options, "--session", name]
        final = _cli(home, *again, "--json")
        out, _ = final.communicate()
        assert final.returncode == 0, out
        assert json.loads(out)["accepted"]
        _compare(Session(home, home.record(name)), whole)
    print(f"killed after {', '.join(f'{moment:.1f}' for moment in sorted(moments))} of {seconds:.1f} s")


def _cli(home: Workspace, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stitchcuda", *arguments, "--workspace", str(home.root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _compare(one: Session, other: Session) -> None:
    assert one.status == other.status == "done"
    assert one.state()["program"] == other.state()["program"]
    attempts, expected = one.attempts(), other.attempts()
    figures = [[(a.task, a.ordinal, a.route, a.program) for a in found] for found in (attempts, expected)]
    assert figures[0] == figures[1]
    assert len({a.id for a in attempts}) == len(attempts) == one.state()["attempts"]
    recorded = [a.id for a in one.home.store.attempts(one.name).values()]
    assert recorded == [a.id for a in attempts]
