"""How a node asks a person, and which of all that was said is the answer.

LangGraph hands a node that runs again everything that was ever said at its place, in order. A question is answered by what was
said after it was first shown and before the next one was: an earlier word was to something else, such as a wait for a reply. Of
several the last counts, so that a thread that is run again from an earlier checkpoint follows what is said now. When each
question was shown, and what was answered, is kept in the session's transcript, for a replay too. What a question is about, and
which answers are good: `nodes/approval.py`. How answers are handed in: `graph/approval.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic_core import to_json

from stitchcuda.engineers.metered_chat import Transcript
from stitchcuda.engineers.recorded_chat import Unrecorded
from stitchcuda.nodes.approval import Question
from stitchcuda.nodes.brief import named
from stitchcuda.state import Call
from stitchcuda.store import Store


@dataclass
class _Run:
    """One run of one node: what was said at its place so far, and how many questions it has put."""

    said: list[Any] = field(default_factory=list)
    asked: int = 0

    def hear(self, shown: Question) -> GraphInterrupt:
        """Takes all that was said, and returns what stops the node with `shown` for people."""
        try:
            while True:
                self.said.append(interrupt(shown))
        except GraphInterrupt as stop:
            return stop


_run: ContextVar[_Run] = ContextVar("stitchcuda_asking")


@contextmanager
def listening() -> Iterator[None]:
    """For one run of a node."""
    before = _run.set(_Run())
    try:
        yield
    finally:
        _run.reset(before)


class SessionQuestions:
    """Asks for one session; see the top of this file."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def __call__(self, question: Question) -> Any:
        """The answer; until there is one the thread is interrupted with the question."""
        run = _run.get()
        stop = run.hear(question)
        run.asked += 1
        mine = _shown(self._store, self._session, f"{run.asked} {to_json(question).decode()}", len(run.said))
        after = min((at for at in _marks(self._store, self._session) if at > mine), default=None)
        said = run.said[mine:after]
        if not said:
            raise stop
        answer = json.dumps(said[-1], sort_keys=True, default=str)
        Transcript(self._store, self._session).once(f"answer-{_key(question)}-{named(answer)}-{mine}", lambda: answer)
        return said[-1]


class RecordedAnswers:
    """Gives the answers that are in a session's record; nobody is asked."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def __call__(self, question: Question) -> Any:
        """Raises Unrecorded for a question that was never answered, or was about something else."""
        told = Transcript(self._store, self._session).told()
        found = [answer.text for name, answer in told.items() if name.startswith(f"answer-{_key(question)}-")]
        if not found or question["refused"]:
            raise Unrecorded(f"the record has no answer to what waits for {question['waiting_for']}")
        return json.loads(found[-1])


def wait(store: Store, session: str, shown: Question) -> NoReturn:
    """Interrupts the thread until something outside is there, as `shown` says; no word is an answer to that."""
    run = _run.get()
    stop = run.hear(shown)
    if run.asked:
        _shown(store, session, to_json(shown).decode(), len(run.said))
    raise stop


def _shown(store: Store, session: str, what: str, now: int) -> int:
    """How much had been said at this place when this was first shown: `now`, unless it was before."""
    name = f"{_place()}{named(what)}"
    found = store.calls(session).get(name)
    if found is None:
        call = Call(id=name, model="", request=store.put(what.encode()), reply=None, outcome=str(now))
        found = store.record(session, call)
    return int(found.outcome)


def _marks(store: Store, session: str) -> list[int]:
    """When each question and each wait was first shown at this place."""
    place = _place()
    return [int(call.outcome) for name, call in store.calls(session).items() if name.startswith(place)]


def _place() -> str:
    """A node at a checkpoint of a thread, whichever process runs it."""
    return f"asked-{named(get_config()['configurable'].get('checkpoint_ns', ''))}-"


def _key(question: Question) -> str:
    """What a question is about, without figures that another device would change."""
    tasks = [task["id"] for task in question.get("tasks", ())]
    about = [question["approve"], question.get("version"), tasks, question.get("attempt"), question.get("candidate")]
    return named(json.dumps(about))
