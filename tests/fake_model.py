"""Somebody who answers a mailbox from the text of each request alone, and a session made for that: every kind of call is in it.

`reply_to` is a pure function of what was asked, so two sessions that were asked the same were answered the same. Its story:
plan 1 has `alpha` (one candidate looks first), `beta` (a malformed reply with its repair, failures, then right) and `gamma`
(the same error three times: replan), plan 2 `delta` (nothing new to offer) and `epsilon`, and then nothing is left: done. The
tools are tests/graph/tiny.py's, which read words; here they stand in the kernels.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stitchcuda.graph.opening import open_record
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, BuildResult, Call, CheckResult, Usage
from stitchcuda.store import Workspace
from tests.graph.tiny import REFERENCE, TinyHands

MODEL = "gpt-5-mini"                       # with a price, so that money is counted
Messages = list[dict[str, str]]


class KernelHands(TinyHands):
    """Words stand in `kernels/TASK.cu`, one line each. Nothing in what these tools say depends on where the program lies."""

    def build(self, program: Path) -> BuildResult:
        self._called("build")
        broken = "build error" in words(program)
        return BuildResult(ok=not broken, log="kernels/a.cu(7): error: expected a ';'" if broken else "")

    def compile(self, program: Path) -> BuildResult:
        return self.build(program)

    def check(self, program: Path, seeds: int) -> CheckResult:
        self._called("check")
        wrong = "wrong" in words(program)
        reasons = ("y is off by 0.25",) if wrong else ()
        return CheckResult(ok=not wrong, tier="simulated", seeds=seeds, reasons=reasons, own_share=0.5)

    def verify(self, program: Path, seeds: int) -> CheckResult:
        self._called("verify")
        return self.check(program, seeds)


def words(program: Path) -> str:
    return "".join(path.read_text() for path in sorted(program.glob("kernels/*.cu")))


def story(folder: Path, name: str = "story", *, model: str = "", reference: str = REFERENCE, **settings: Any) -> Session:
    """A new session of two candidates a step in `folder/workspace`, by default with its mailbox inside: `box`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reference.py"
    path.write_text(reference)
    home = Workspace(folder / "workspace")
    asked = {"model": model or f"mailbox:{home.root / 'box'}", "from_scratch": True, "candidates": 2} | settings
    return Session(home, open_record(home, path, None, name=name, device="sim", settings=asked))


def run(session: Session, tools: TinyHands | None = None) -> Session:
    """Goes on with a session as another process would open it."""
    return Session.open(session.name, session.home.root).run(tools=tools or KernelHands())


# what is answered


def reply_to(messages: Messages) -> str:
    first, last = messages[0]["content"], messages[-1]["content"]
    if first.startswith("You are the planner"):
        return json.dumps(_plan(first))
    if first.startswith("You are the verifier"):
        read = {"bottleneck": f"seen as {_mark(first)}", "suggestion": "go on", "expected_gain": "", "route": "code"}
        return json.dumps(read | {"citations": []})
    assert first.startswith("You are the coder")
    return _draft(first, last)


def _plan(text: str) -> dict[str, Any]:
    tasks = ["alpha", "beta", "gamma"]
    if "Plan 1: " in text:
        tasks = ["delta", "epsilon"]
    if "Plan 2: " in text:
        tasks = []
    facts = {"regions": [], "title": "do it", "predicted_ms": 0.001, "why": "launches", "strategy": "one kernel"}
    return {"summary": f"Read as {_mark(text)}.", "host": "", "tasks": [{"name": name} | facts for name in tasks]}


def _draft(first: str, last: str) -> str:
    task = re.findall(r"^## Task (\w+):", first, re.MULTILINE)[-1]
    candidate = int(found[1]) if (found := re.search(r"Yours is number (\d)", first)) else 1
    again = "## Your last draft" in first
    if task == "delta":
        return "exhausted: it is at the roofline"
    if task == "alpha" and candidate == 2 and "You may look" not in last:
        return f"First a look.\n{_block(task, 'saves 0.3')}\n```look\ncompile\nread model_new.py\n```"
    if task == "beta" and candidate == 1 and "could not be used" not in last and not again:
        return "I would rather not."
    said = {"gamma": "wrong", "beta": "saves 0.1" if again else ("build error", "wrong")[candidate % 2]}.get(task, "saves 0.2")
    return f"Did {task} as {_mark(first)}.\n{_block(task, f'{said} {_mark(first)}')}"


def _block(task: str, said: str) -> str:
    return f"```kernels/{task}.cu\n// {said}\n```"


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# how it is sent


def requests(box: Path) -> dict[str, dict[str, Any]]:
    """The lines of Batch input, by their ids."""
    lines = (json.loads(path.read_text()) for path in sorted((box / "requests").glob("*.jsonl")))
    return {line["custom_id"]: line for line in lines}


def unanswered(box: Path) -> dict[str, dict[str, Any]]:
    return {name: line for name, line in requests(box).items() if not (box / "replies" / f"{name}.json").exists()}


def answer_all(box: Path, names: Iterable[str] | None = None) -> list[str]:
    """Answers what is asked (or `names` of it), each in a file of its own, and returns the ids."""
    asked = unanswered(box)
    chosen = list(asked) if names is None else list(names)
    for name in chosen:
        put(box / "replies" / f"{name}.json", json.dumps(batch_line(asked[name])))
    return chosen


def batch_line(request: dict[str, Any], text: str | None = None, **message: Any) -> dict[str, Any]:
    """The line of Batch output for a line of input."""
    messages = request["body"]["messages"]
    text = reply_to(messages) if text is None else text
    told = {"role": "assistant", "content": text, "reasoning_content": "hm"} | message
    used = {"prompt_tokens": sum(len(one["content"]) for one in messages) // 4, "completion_tokens": len(text) // 4}
    body = {"model": MODEL, "choices": [{"index": 0, "message": told, "finish_reason": "stop"}], "usage": used}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}


def put(path: Path, text: str) -> None:
    """Writes a file as the mailbox asks for it: under another name first."""
    fresh = path.with_name(f"{path.name}.part")
    fresh.write_text(text)
    fresh.rename(path)


# what is compared


def ledger(session: Session) -> list[Attempt]:
    return list(session.home.store.attempts(session.name).values())


def calls(session: Session) -> list[Call]:
    """The transcript by id, without what is another one each time: when, and how long it took."""
    found = session.home.store.calls(session.name).values()
    without = {"created": "", "seconds": 0.0, "gpu_s": 0.0}
    return sorted((call.model_copy(update=without) for call in found), key=lambda call: call.id)


def usage(session: Session) -> Usage:
    return session.outcome().usage.model_copy(update={"wall_s": 0.0, "gpu_s": 0.0, "looks_gpu_s": 0.0})
