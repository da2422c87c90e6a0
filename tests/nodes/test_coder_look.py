"""What a coder may look at before it writes: its own draft compiled, judged and measured, without an attempt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stitchcuda.sessions.session import optimize
from stitchcuda.tools.build.simulated_build import compile_simulated
from tests.engineers.mangling import edit
from tests.engineers.metered_chats import REVIEW
from tests.engineers.protocol_server import Failure, Request, serve
from tests.engineers.test_chat_session import KERNEL, MODEL, REFERENCE, planned, program


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
