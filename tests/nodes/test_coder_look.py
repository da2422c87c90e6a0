"""What a coder may look at before it writes: its own draft compiled, judged and measured, without an attempt."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from stitchcuda.sessions.session import optimize
from stitchcuda.tools.build.simulated_build import compile_simulated
from tests.engineers.mangling import edit
from tests.engineers.metered_chats import REVIEW
from tests.engineers.protocol_server import Failure, Request, serve
from tests.engineers.protocols import Reply
from tests.engineers.stage import Model, WordHands, played
from tests.engineers.test_chat_session import KERNEL, MODEL, REFERENCE, planned, program


@pytest.mark.more
def test_the_simulators_compiler_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "model_new.py").write_text(MODEL)
    source = tmp_path / "kernels" / "scale_relu.cu"
    source.write_text(KERNEL.replace("ADDEND", "one"))
    found = compile_simulated(tmp_path, cache=tmp_path / "cache")
    assert not found.ok
    assert re.search(r"^kernels/scale_relu\.cu:\d+.*error.*one", found.log, re.MULTILINE), found.log
    source.write_text(KERNEL.replace("if (i <", 'asm volatile("nop;"); if (i <').replace("ADDEND", "1.0f"))
    found = compile_simulated(tmp_path, cache=tmp_path / "cache")
    assert (found.ok, "inline PTX cannot run on the simulator" in found.log) == (False, True), found.log
    source.write_text(KERNEL.replace("ADDEND", "1.0f"))
    assert compile_simulated(tmp_path, cache=tmp_path / "cache").ok


@pytest.mark.more
def test_a_wrong_draft_is_mended_without_an_attempt(tmp_path: Path) -> None:
    """The model checks a draft that is wrong, edits the one that it wrote, benches it, and hands it in by a word."""
    (tmp_path / "scale_relu.py").write_text(REFERENCE)
    shown: list[str] = []

    def answer(request: Request) -> str | Failure:
        if request.role == "planner":
            return planned(request)
        if request.role == "verifier":
            return json.dumps(REVIEW)
        shown.append(request.turns[-1])
        if len(shown) == 1:
            return f"{program('2.0f')}```look\ncompile\ncheck\n```"
        if len(shown) == 2:
            line = next(line for line in KERNEL.splitlines(keepends=True) if "ADDEND" in line)
            mended = edit(line.replace("ADDEND", "2.0f"), line.replace("ADDEND", "1.0f"))
            return f"```kernels/scale_relu.cu\n{mended}```\n```look\ncheck\nbench\n```"
        return "It is right: handed in as it is."

    with serve(answer) as server:
        session = optimize(
            tmp_path / "scale_relu.py", model="openai:local", base_url=server.url, device="sim", workspace=tmp_path / "ws",
            max_attempts=3, from_scratch=True,
        )  # fmt: skip
    (attempt,) = session.attempts()
    assert (attempt.built, attempt.correct) == (True, True)
    assert "profile KERNEL" not in shown[0], "nothing is profiled on the simulator"
    assert "### compile\nBuild: ok." in shown[1]
    assert "### check (1 of 3)\nCheck on the CPU simulator" in shown[1]
    assert "NOT correct" in shown[1]
    assert "### check (2 of 3)" in shown[2]
    assert re.search(r"### bench \(1 of 3\)\nOne call: own kernels move [1-9][\d,]+ bytes in 1 launch, torch", shown[2])


class Slow:
    """Answers a coder's first request by a look, and takes `coder_s` for each of its answers."""

    def __init__(self, coder_s: float = 0.0) -> None:
        self.model, self.coder_s = Model([[("aa", 0.2)]], {"aa": ["saves 0.2"]}), coder_s

    def __call__(self, request: Request) -> str | Reply | Failure:
        if request.role != "coder":
            return self.model(request)
        time.sleep(self.coder_s)
        return f"{self.model(request)}```look\ncheck\nbench\n```" if len(request.turns) == 1 else "It is right: handed in."


def hands(seconds: float) -> WordHands:
    """Tools of a GPU whose judge takes so long for each check and each timing."""
    tools = WordHands()
    tools.before = lambda tool: time.sleep(seconds) if tool in ("check", "time") else None
    return tools


def test_looks_count_as_seconds_on_the_gpu(tmp_path: Path) -> None:
    with serve(Slow()) as server:
        session = played(tmp_path, server.url, tools=hands(0.1))
    usage = session.outcome().usage
    recorded = sum(call.gpu_s for call in session.home.store.calls(session.name).values())
    assert usage.looks_gpu_s == pytest.approx(recorded)
    assert 0.3 <= recorded < 1.0, "check, and for bench check and time"
    assert usage.gpu_s >= recorded + 0.2, "the step's own check and time come on top"


def test_looks_use_up_the_gpu_seconds_of_a_session(tmp_path: Path) -> None:
    with serve(Slow()) as server:
        session = played(tmp_path, server.url, tools=hands(0.4), max_gpu_s=1.0)
    assert str(session.outcome().stop_reason) == "budget: 2 of 1 GPU seconds", "0.4 of them at the start"
    assert server.roles() == ["planner", "coder"], "after its look the coder is not called again"
    assert session.outcome().attempts == 0


def test_the_time_of_coders_is_counted(tmp_path: Path) -> None:
    with serve(Slow(coder_s=1.5)) as server:
        session = played(tmp_path, server.url, tools=hands(0.0))
    assert session.outcome().usage.wall_s >= 3.0


def test_who_waits_for_another_candidates_look_is_not_on_the_gpu(tmp_path: Path) -> None:
    with serve(Slow()) as server:
        session = played(tmp_path, server.url, tools=hands(0.2), candidates=2)
    looks = [call.gpu_s for call in session.home.store.calls(session.name).values() if call.id.startswith("look-")]
    assert len(looks) == 2
    assert all(0.6 <= seconds < 0.8 for seconds in looks), looks
