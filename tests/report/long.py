"""Sessions for reports: one that was timed, and one with as many attempts, and as long texts, as a test wants."""

from __future__ import annotations

from pathlib import Path

from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, BuildResult, Evidence
from stitchcuda.store import put_tree
from tests.graph.tiny import Script, ScriptedEngineer, TinyHands, tiny_session
from tests.sessions.test_session import H200

SIX: Script = {"a": ["saves 0.2"], "b": ["build error", "wrong", "saves 0.3"], "c": ["saves 0.01", "saves 0.01"]}


def timed(folder: Path, name: str = "timed", script: Script = SIX) -> Session:
    tools = TinyHands(H200, timed=True)
    return tiny_session(folder, name).run(device="cuda", engineer=ScriptedEngineer(script), tools=tools)


def many(folder: Path, count: int, lines: int) -> Session:
    """A session with `count` attempts whose programs, logs and evidence are long; the ledger is written directly."""
    session = timed(folder, "many", {"a": ["saves 0.2"]})
    store = session.home.store
    (first,) = session.attempts()
    evidence = Evidence.model_validate_json(store.get(first.evidence))
    base, parent = first.program, first
    for number in range(1, count):
        kind = number % 100                # to store more of them takes long, and shows nothing more
        kernel = "\n".join(f"out[{kind} * i + {line}] = a[{line}] < b[{line}] && \"{kind}\";" for line in range(lines))
        model = "\n".join(f"line {line} of {kind if line % 7 == 0 else 0}" for line in range(lines))
        program = put_tree(store, {"kernels/a.cu": kernel, "model_new.py": model, "constants.safetensors": b"\0" * 64})
        log = "\n".join(f"kernels/a.cu({line}): warning: <{kind}> is & stays unused" for line in range(lines))
        found = evidence.model_copy(update={"build": BuildResult(ok=True, log=log)})
        attempt = Attempt.model_validate(
            first.model_dump()
            | {
                "id": f"{number:016x}", "parent": parent.id, "base": base, "program": program, "ordinal": number,
                "evidence": store.put(found.model_dump_json().encode()), "kept": number % 3 == 0,
                "plan_version": 1 + number // 20,
            },
        )  # fmt: skip
        parent = store.append(session.name, attempt)
        base = program if attempt.kept else base
    headed = {**session.state(), "head": parent.id}
    session.state = lambda: headed         # type: ignore[method-assign,assignment,return-value]
    return session
