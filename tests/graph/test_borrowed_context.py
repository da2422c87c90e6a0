"""The graph without a context, as a LangGraph server runs it: its own sessions, events, approvals, time travel and forks."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from stitchcuda.errors import BadInput, ReplyPending
from stitchcuda.graph import borrowed_context
from stitchcuda.graph.graph import Graph, build_graph, thread
from stitchcuda.graph.opening import open_context
from stitchcuda.graph.runtime import RunContext
from stitchcuda.nodes.context import Context
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.fork import fork
from stitchcuda.sessions.remove import sweep
from stitchcuda.sessions.session import Session, sessions
from stitchcuda.state import Task, Work, merge_drafts
from stitchcuda.store import Workspace
from stitchcuda.store.serializer import serializer
from stitchcuda.store.session_snapshot import with_tuples
from tests.graph.tiny import REFERENCE, SIM, Script, ScriptedEngineer, TinyHands, tiny_session

SCRIPT: Script = {"a": ["wrong", "saves 0.2"], "b": ["saves 0.3"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"referense": "model.py"}, "no key 'referense': did you mean 'reference'?"),
        ({"reference": "model.py", "max_attemps": 3}, "no key 'max_attemps': did you mean 'max_attempts'?"),
        ({"reference": "model.py", "xyz": 3}, "no key 'xyz': it takes reference, session, device, model, "),
        ({"reference": "model.py", "notes": ()}, "no key 'notes': "),
    ],
)
def test_a_key_that_the_input_does_not_have_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)) as raised:
        build_graph().invoke(given)  # type: ignore[call-overload]
    assert isinstance(raised.value, RuntimeError), "a server shows what it says"


class Server:
    """The graph as a server has it, with the tiny tools and a scripted engineer."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
        monkeypatch.setenv("STITCHCUDA_WORKSPACE", str(folder / "workspace"))
        self.reference = folder / "model.py"
        self.reference.write_text(REFERENCE)
        self.engineer = ScriptedEngineer(script)
        self.tools: list[TinyHands] = []
        def tools(*_: Any) -> TinyHands:
            self.tools.append(TinyHands())
            return self.tools[-1]

        def context(home: Workspace, record: Any, tools: Any, **rest: Any) -> Context:
            return open_context(home, record, tools, self.engineer, **rest)

        monkeypatch.setattr(borrowed_context, "open_tools", tools)
        monkeypatch.setattr(borrowed_context, "open_context", context)
        self.graph: Graph = build_graph(InMemorySaver(serde=serializer()))

    def run(self, name: str, given: Any, config: RunnableConfig | None = None) -> list[dict[str, Any]]:
        """The custom events of one run."""
        return list(self.graph.stream(given, config or thread(name), stream_mode="custom"))

    def start(self, name: str, **asked: Any) -> list[dict[str, Any]]:
        return self.run(name, {"reference": str(self.reference), "device": "sim", **asked})

    def values(self, name: str) -> dict[str, Any]:
        return dict(self.graph.get_state(thread(name)).values)

    def before(self, name: str, node: str) -> RunnableConfig:
        """The latest checkpoint from which a node was run."""
        return next(one.config for one in self.graph.get_state_history(thread(name)) if one.next == (node,))

    def walk(self, name: str) -> list[str]:
        """The tasks on the way from the baseline to the thread's head."""
        values = self.values(name)
        known = Workspace().store.attempts(values["session"])
        tasks, head = [], values["head"]
        while head:
            tasks.append(known[head].task)
            head = known[head].parent
        return tasks[::-1]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    yield Server(tmp_path, monkeypatch, SCRIPT)
    assert borrowed_context._open == {}, "nothing is held once nobody is at it"


def test_events_are_plain_and_tell_the_whole_story(server: Server) -> None:
    told = server.start("one", session="first")
    assert json.loads(json.dumps(told)) == told
    assert {event["session"] for event in told} == {"first"}
    assert {event["kind"] for event in told} == {"progress", "plan", "attempt", "best", "note"}
    progress = [event for event in told if event["kind"] == "progress"]
    assert [event["node"] for event in progress if event["phase"] == "start"][:3] == ["baseline", "planner", "search_docs"]
    ends = [event for event in progress if event["phase"] == "end"]
    assert ends[-1]["node"] == "report"
    assert ends[-1]["usage"]["calls"] == 0
    assert ends[-1]["seconds"] >= 0
    (plan,) = [event for event in told if event["kind"] == "plan"]
    assert [task["id"] for task in plan["tasks"]] == ["a", "b"]
    attempts = [event["attempt"] for event in told if event["kind"] == "attempt"]
    assert [(one["task"], one["correct"]) for one in attempts] == [("a", False), ("a", True), ("b", True)]
    assert [event["attempt"]["task"] for event in told if event["kind"] == "best"] == ["a", "b"]
    coder = next(event for event in progress if event["node"] == "coder")
    assert coder["task"] == "task a"


def test_a_session_that_was_handed_in_streams_the_same(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    heard: list[Any] = []
    context = open_context(session.home, session.record, TinyHands(), ScriptedEngineer(SCRIPT), heard.append)
    told = list(build_graph().stream({"session": "tiny"}, context=RunContext(context=context), stream_mode="custom"))
    assert len(told) == len(heard)
    assert json.loads(json.dumps(told)) == told


def test_a_plan_is_edited_and_a_fork_is_given_another(server: Server) -> None:
    server.start("one", approve=["plan"])
    (interrupt,) = server.graph.get_state(thread("one")).interrupts
    assert [task["id"] for task in interrupt.value["tasks"]] == ["a", "b"]
    assert not Workspace().store.owner("model-1"), "whoever waits for a person holds nobody up"
    server.run("one", Command(resume={"tasks": ["b"]}))
    assert server.walk("one") == ["b"]
    told = server.run("one", None, server.before("one", "planner"))
    assert not any(event["kind"] == "attempt" for event in told)
    server.run("one", Command(resume="accept"))
    assert server.walk("one") == ["a", "a", "b"]
    assert len(Workspace().store.attempts("model-1")) == 4, "of both branches, each its own"
    assert len(server.engineer.briefs) == 1, "the fork was shown the plan as it was proposed"
    assert {session.name for session in sessions()} == {"model-1"}
    assert server.values("one")["report"] == "sessions/model-1/report.md"


def test_a_word_to_a_wait_for_a_reply_is_none_to_the_plan_that_follows(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that pokes a thread with a plain answer, while the planner's reply is still out, has seen no plan."""
    plan = server.engineer.plan

    def absent(brief: Any) -> Any:
        raise ReplyPending("requests/1.md")

    monkeypatch.setattr(server.engineer, "plan", absent)
    server.start("one", approve=["plan"])
    server.run("one", Command(resume="accept"))
    monkeypatch.setattr(server.engineer, "plan", plan)
    server.run("one", Command(resume="accept"))
    (interrupt,) = server.graph.get_state(thread("one")).interrupts
    assert interrupt.value["waiting_for"] == "your word on plan 1 (2 tasks, by script)"
    server.run("one", Command(resume={"tasks": ["x"]}))
    (interrupt,) = server.graph.get_state(thread("one")).interrupts
    assert "there is no task 'x'" in interrupt.value["refused"]
    server.run("one", Command(resume={"tasks": ["b"]}))
    assert server.walk("one") == ["b"], "each answer went to the question that was shown"


def test_another_answer_at_an_earlier_checkpoint_is_followed(server: Server) -> None:
    """In one step, as a client sends it: what was answered there before stands beside it."""
    server.start("one", approve=["plan"])
    place = server.graph.get_state(thread("one")).config
    server.run("one", Command(resume={"tasks": ["b"]}))
    server.run("one", Command(resume={"tasks": ["a"]}), place)
    assert server.walk("one") == ["a", "a"]
    server.run("one", Command(resume={"tasks": ["c"]}), place)
    (interrupt,) = server.graph.get_state(place).interrupts
    assert "there is no task 'c'" in interrupt.value["refused"]
    server.run("one", Command(resume="accept"), place)
    assert server.walk("one") == ["a", "a", "b"]


def test_a_fork_of_a_draft_may_be_answered_differently(server: Server) -> None:
    server.start("one", approve=["code"])
    while server.graph.get_state(thread("one")).next:
        server.run("one", Command(resume="accept"))
    first = server.walk("one")
    server.run("one", None, server.before("one", "coder"))
    server.run("one", Command(resume={"files": {"model_new.py": "# mine\n"}}))
    assert not server.graph.get_state(thread("one")).next
    assert server.walk("one") == first, "the same tasks"
    known = list(Workspace().store.attempts("model-1").values())
    assert [one.note.endswith("(edited by a person)") for one in known] == [False, False, False, True]
    assert known[-1].parent == known[-2].parent, "two drafts of one place, side by side"
    head = server.values("one")["head"]
    server.run("one", None, server.before("one", "coder"))
    server.run("one", Command(resume="accept"))
    assert server.values("one")["head"] != head
    assert len(Workspace().store.attempts("model-1")) == 4, "what was accepted before is known"


def test_two_threads_go_on_with_one_session_at_once(server: Server) -> None:
    server.start("one", approve=["plan"])
    for name in ("two", "three"):
        values = server.graph.get_state(thread("one")).values
        server.graph.update_state(thread(name), values, as_node="baseline")
        server.run(name, None)
    runs = [
        threading.Thread(target=server.run, args=(name, Command(resume={"tasks": tasks})))
        for name, tasks in (("two", ["b"]), ("three", ["a"]))
    ]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert (server.walk("two"), server.walk("three")) == (["b"], ["a", "a"])
    assert len(Workspace().store.attempts("model-1")) == 3


def test_candidates_that_wait_leave_the_tools_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path, monkeypatch, {"a": ["wrong", "saves 0.1", "saves 0.2"]})
    write, together, closed = server.engineer.write, threading.Barrier(3, timeout=30), []

    def written(assignment: Any) -> Any:
        draft = write(assignment)
        together.wait()
        closed.append("close" in server.tools[-1].calls)
        return draft

    monkeypatch.setattr(server.engineer, "write", written)
    server.start("one", approve=["code"], candidates=3)
    waiting = server.graph.get_state(thread("one")).interrupts
    assert sorted(one.value["candidate"] for one in waiting) == [0, 1, 2]
    assert closed == [False] * 3
    server.run("one", Command(resume={waiting[0].id: "accept"}))
    server.run("one", Command(resume={one.id: "accept" for one in waiting[1:]}))
    assert len(Workspace().store.attempts("model-1")) == 3
    assert borrowed_context._open == {}


def test_another_reference_in_the_same_thread_is_another_session(server: Server) -> None:
    server.start("one")
    first = server.values("one")
    server.start("one")
    second = server.values("one")
    assert (first["session"], second["session"]) == ("model-1", "model-2")
    assert second["attempts"] == first["attempts"] == 3, "counted anew"
    assert second["head"] != first["head"]


def test_whoever_reads_sessions_sees_what_a_servers_thread_has_come_to(server: Server) -> None:
    server.start("one", approve=["plan"])
    waits = Session.open("model-1")
    assert (waits.status, waits.outcome().attempts) == ("parked", 0)
    server.run("one", Command(resume="accept"))
    found = Session.open("model-1")
    outcome = found.outcome()
    assert (outcome.status, outcome.accepted, outcome.attempts, outcome.tasks_done) == ("done", True, 3, 2)
    assert [attempt.task for attempt in found.attempts()] == server.walk("one")
    assert found.plan is not None
    assert fork("model-1", 2).attempts() == found.attempts()[:2]
    assert findings_of(found).card.status == "done"
    server.run("one", Command(resume={"tasks": ["b"]}), server.before("one", "planner"))
    assert [attempt.task for attempt in Session.open("model-1").attempts()] == ["b"], "the thread that ended last"


def test_a_sweep_leaves_what_a_servers_threads_refer_to(server: Server) -> None:
    server.start("one", approve=["plan", "code"])
    sweep(Workspace())
    server.run("one", Command(resume="accept"))
    while server.graph.get_state(thread("one")).next:
        sweep(Workspace())
        server.run("one", Command(resume="accept"))
    sweep(Workspace())
    server.run("one", None, server.before("one", "search_docs"))
    server.run("one", Command(resume="accept"))
    assert server.walk("one") == ["a", "a", "b"]


def test_a_session_that_is_not_there_any_more_is_told_in_one_sentence(server: Server) -> None:
    server.start("one", approve=["plan"])
    shutil.rmtree(Workspace().folder("model-1"))
    with pytest.raises(BadInput, match=r"goes on with session 'model-1', which is not in .*: start the server with"):
        server.run("one", Command(resume="accept"))


def test_on_another_device_a_thread_is_told_what_to_do(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start("one", approve=["plan"])
    here = SIM.model_copy(update={"torch": "2.99"})
    with monkeypatch.context() as patched:
        patched.setattr(TinyHands, "device", lambda _: here)
        with pytest.raises(BadInput, match="figures of two devices are not compared, so go on where it was begun"):
            server.run("one", Command(resume="accept"))
    server.run("one", Command(resume="accept"))
    assert server.walk("one") == ["a", "a", "b"], "nothing was lost"


def test_state_that_comes_as_objects_is_read_as_records() -> None:
    """From a server that reads its own types only, or from somebody who edited it in Studio."""
    work = Work(id="0" * 16, task=Task(id="a", kind="region", title="a"), ordinal=0)
    plain = {"work": work.model_dump(), "drafts": [work.model_dump()], "notes": ["one"], "head": None, "reference": "model.py"}
    read = with_tuples(plain)
    assert read == {"work": work, "drafts": (work,), "notes": ("one",), "head": None, "reference": "model.py"}
    assert merge_drafts((work.model_dump(),), (work,)) == (work,)  # type: ignore[arg-type]


def test_a_name_is_free_again_after_a_start_that_came_to_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def study(_: TinyHands) -> Any:
        raise BadInput("model.py has no Model")

    with monkeypatch.context() as patched:
        patched.setattr(TinyHands, "study", study)
        with pytest.raises(BadInput, match="has no Model"):
            server.start("one", session="mine")
    assert sessions() == ()
    server.start("two", session="mine")
    assert len(Workspace().store.attempts("mine")) == 3
    with pytest.raises(BadInput, match="session 'mine' exists already"):
        server.start("three", session="mine")
