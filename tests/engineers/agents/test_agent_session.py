"""A whole session whose engineer is a command in the sandbox: its drafts, its end, and an interruption."""

from __future__ import annotations

import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.agents.command_agent import TRANSCRIPT
from stitchcuda.sessions.session import Session
from tests.graph.tiny import TinyHands, tiny_session

AGENT = """
    import os, subprocess, sys
    prompt = open(sys.argv[1]).read()
    again = "worked in this folder before" in prompt
    assert open("SKILL.md").read() and open("TASK.md").read() and "./submit --done" in prompt
    def submit(draft, *options):
        os.makedirs("kernels", exist_ok=True)
        open("model_new.py", "w").write("class ModelNew: ...\\n")
        open("kernels/drafts.cu", "w").write(draft + "\\n")
        done = subprocess.run(["./submit", *options], capture_output=True, text=True)
        print(draft, done.returncode, done.stdout, done.stderr, flush=True)
        return done.returncode
"""


def agent_session(folder: Path, code: str, **settings: Any) -> Session:
    script = folder / "agent.py"
    script.write_text(textwrap.dedent(AGENT) + textwrap.dedent(code))
    words = [sys.executable, str(script), "{prompt_file}"]
    return tiny_session(
        folder, model=f"agent:{shlex.join(words)}", options={"read": str(script)}, from_scratch=True, **settings
    )


def test_an_agent_hands_in_until_it_is_done(tmp_path: Path) -> None:
    session = agent_session(tmp_path, """
    print("codes", submit("a build error"), submit("a wrong"), submit("a saves 0.2", "-m", "wider loads"), flush=True)
    subprocess.run(["./submit", "--done"])
    """)  # fmt: skip
    session.run(tools=TinyHands(timed=True))
    attempts = session.attempts()
    assert [(attempt.built, attempt.correct, attempt.kept) for attempt in attempts] == [
        (False, False, False), (True, False, False), (True, True, True),
    ]  # fmt: skip
    assert {attempt.engineer for attempt in attempts} == {"agent:python"}
    assert session.outcome().accepted
    assert session.outcome().stop_reason == "the agent ended the session"
    assert "codes 1 1 0" in (session.folder / TRANSCRIPT).read_text()


def test_an_agent_that_fails_ends_the_session_with_its_reason(tmp_path: Path) -> None:
    session = agent_session(tmp_path, "submit('a saves 0.2'); sys.exit('no such model')")
    session.run(tools=TinyHands(timed=True))
    assert [attempt.kept for attempt in session.attempts()] == [True]
    assert session.outcome().accepted
    why = session.outcome().stop_reason or ""
    assert why.startswith("agent:python ended with exit code 1; its output ends with: ")
    assert why.endswith("no such model")


def test_a_session_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    session = agent_session(tmp_path, """
    print("again", again, open("kernels/drafts.cu").read() if again else "", flush=True)
    if not again:
        submit("a saves 0.2"); submit("a wrong")
    else:
        submit("a saves 0.3"); subprocess.run(["./submit", "--done"])
    """)  # fmt: skip
    hands = TinyHands(timed=True)
    asked = []

    def interrupt(tool: str) -> None:
        asked.append(tool)
        if asked.count("check") == 3:      # the first is of the reference itself or of what is kept
            raise KeyboardInterrupt

    hands.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        session.run(tools=hands)
    session.run(tools=TinyHands(timed=True))
    text = (session.folder / TRANSCRIPT).read_text()
    assert "again False" in text
    assert "again True a wrong" in text
    assert session.outcome().stop_reason == "the agent ended the session"
    assert [attempt.kept for attempt in session.attempts()] == [True, False, True]
