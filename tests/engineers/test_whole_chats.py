"""Whole sessions with a chat model, from the first plan to the report: each way a server may answer comes to the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engineers.metered_chats import block
from tests.engineers.protocol_server import serve
from tests.engineers.stage import Model, WordHands, played
from tests.graph.tiny import SIM

PLANS = [[("aa", 0.2), ("bb", 0.2), ("cc", 0.02), ("dd", 0.02)], [("ee", 0.1)]]
DRAFTS = {
    "aa": ["saves 0.2"], "bb": ["build error", "wrong", "saves 0.2"], "cc": ["saves 0.1"], "dd": ["saves 0.1"],
    "ee": ["saves 0.1"],
}  # fmt: skip


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("structured", [True, False], ids=["json_schema", "plain"])
def test_tasks_a_replan_and_an_end(tmp_path: Path, structured: bool, whole: bool) -> None:
    with serve(Model(PLANS, DRAFTS), structured=structured) as server:
        session = played(tmp_path, server.url, options={"disable_streaming": True} if whole else {})
    attempts = session.attempts()
    assert [attempt.task for attempt in attempts] == ["aa", "bb", "bb", "bb", "cc", "dd", "ee"]
    routes = ["next_task", "code", "code", "next_task", "next_task", "replan", "next_task"]
    assert [attempt.route for attempt in attempts] == routes
    assert [attempt.engineer for attempt in attempts] == ["openai:local"] * 7
    state, outcome = session.state(), session.outcome()
    assert (outcome.status, outcome.accepted, outcome.stop_reason) == ("done", True, "no task left")
    assert outcome.speedup == pytest.approx(1 / 0.3)
    assert state["tasks_kept"] == ("aa", "bb", "cc", "dd", "ee")
    assert (state["plan_version"], outcome.tasks_done, outcome.tasks_total) == (3, 5, 5)
    asked = ["planner", *["coder", "verifier"] * 6, "planner", "coder", "verifier", "planner"]
    assert [role for role in server.roles() if role] == asked if structured else server.roles()[1:] == asked
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (server.read, server.written), "each is paid for once"
    assert outcome.usage.calls == len(asked)
    assert outcome.usage.usd is None
    assert any("price is not known" in note for note in state["notes"]), "and it is said"



def test_it_goes_on_from_what_the_built_in_engineer_has_verified(tmp_path: Path) -> None:
    with serve(Model([[("aa", 0.001)]], {"aa": ["faster"]})) as server:
        session = played(tmp_path, server.url, tools=WordHands(SIM), from_scratch=False)
    first, second = session.attempts()
    assert (first.engineer, second.engineer) == ("builtin", "openai:local")
    assert (first.kept, second.kept) == (True, True)
    planner, coder = server.requests[0], server.requests[1]
    assert f"Kept tasks in it, and what each covers now:\n- {first.task}: {first.task} (relu); saves" in planner.prompt
    assert "_binding.cc" in coder.prompt
    assert "a generated kernel for this region" not in coder.prompt.lower(), "it is in the program already"
    outcome = session.outcome()
    assert (outcome.status, outcome.accepted, outcome.tier) == ("done", True, "simulated")
    assert session.program is not None
    assert "// aa faster" in (session.program / "kernels" / "aa.cu").read_text()
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (server.read, server.written)


def test_candidates_are_written_at_once_and_the_best_goes_on(tmp_path: Path) -> None:
    class Three(Model):
        def draft(self, prompt: str) -> str:
            number = int(prompt.split("Yours is number ")[1][0])
            return {1: "exhausted: nothing comes to my mind", 2: block("// aa saves 0.2", "kernels/aa.cu"), 3: "no."}[number]

    with serve(Three([[("aa", 0.2)]], {})) as server:
        session = played(tmp_path, server.url, candidates=3)
    (attempt,) = session.attempts()
    assert (attempt.kept, attempt.beside) == (True, False)
    assert server.roles().count("coder") == 4, "one was asked for a repair"
    outcome = session.outcome()
    assert outcome.accepted
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (server.read, server.written)
