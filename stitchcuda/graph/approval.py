"""A person's answers: which of all that was said is the answer to a question, and how an answer is handed in.

LangGraph hands a node that runs again everything that was ever said at its place, in order. A question is answered by what was
said after it was first shown and before the next one was: an earlier word was to something else, such as a wait for a reply. Of
several the last counts, so that a thread that is run again from an earlier checkpoint follows what is said now. When each
question was shown, and what was answered, is kept in the session's transcript, for a replay too.

An answer is handed in by the id of its interrupt, one or several at once. For people who would rather edit files than JSON,
what waits is laid out in the session's folder: a plan as `waiting/plan-1-….json`, a draft as the folder
`waiting/TASK-ORDINAL-…/`.
What is asked and which answers are good: `nodes/approval.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, Interrupt, interrupt
from pydantic_core import to_json

from stitchcuda.engineers.metered_chat import Transcript
from stitchcuda.engineers.recorded_chat import Unrecorded
from stitchcuda.errors import BadInput
from stitchcuda.nodes.approval import ACCEPT
from stitchcuda.nodes.brief import named
from stitchcuda.state import Call
from stitchcuda.store import Store, materialise, writing
from stitchcuda.store.session_snapshot import Interrupted

FOLDER = "waiting"
MOST_BYTES = 4_000_000
_SKIPPED = re.compile(r"\.safetensors$|(^|/)__pycache__/|(^|/)\.[^/]*$|~$")  # constants, what Python and editors leave


class Question(NamedTuple):
    """One thing that a person is asked. `id` is its interrupt's."""

    id: str
    about: Mapping[str, Any]               # as `nodes/approval.py` put it

    @property
    def kind(self) -> str:
        """plan or code."""
        return str(self.about["approve"])

    @property
    def name(self) -> str:
        """Of its file or folder below `waiting/`: another plan or draft has another one."""
        if self.kind == "plan":
            name = f"plan-{self.about['version']}-{self.about['plan'][:8]}.json"
        else:
            name = f"{self.about['task']['id']}-{self.about['ordinal']}-{self.about['program'][:8]}"
        return re.sub(r"[^A-Za-z0-9._-]|^\.", "_", name)  # a file's name, whatever a checkpoint from elsewhere holds

    def answer(self, edited: Path) -> dict[str, Any]:
        """The answer that a plan's file or a draft's folder amounts to. Raises BadInput for what cannot be read as one."""
        return _read_plan(edited) if self.kind == "plan" else self._draft(edited)

    def _draft(self, folder: Path) -> dict[str, Any]:
        if not folder.is_dir():
            raise BadInput(f"{folder} is no folder: {self.about['waiting_for']} is answered with a program's folder")
        try:
            found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
            written = {name: path for name, path in found.items() if not _SKIPPED.search(name)}
            if sum(path.stat().st_size for path in written.values()) > MOST_BYTES:
                raise BadInput(f"{folder} holds more than {MOST_BYTES:,} bytes: give a program's folder, as in {FOLDER}/")
            texts = {name: path.read_text(encoding="utf-8") for name, path in written.items()}
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{folder} cannot be read as a program ({error}): correct or remove what is no text") from error
        known = [*self.about["files"], *self.about["unchanged"]]
        return {"files": texts | {name: None for name in known if name not in texts}}


def questions(interrupts: Iterable[Interrupt | Interrupted]) -> tuple[Question, ...]:
    """Of the interrupts of a state those that ask a person; others wait for a reply or a device."""
    return tuple(Question(interrupt.id, interrupt.value) for interrupt in interrupts if "approve" in interrupt.value)


def resume_command(waiting: Sequence[Question], answer: Any) -> Command[Any]:
    """The command that hands `answer` in: to everything that waits, or by `{id: answer}` to some of it. Raises BadInput."""
    if not waiting:
        raise BadInput("nothing waits for a word of yours here: resume without one")
    ids = {question.id for question in waiting}
    by_id = isinstance(answer, Mapping) and bool(answer) and answer.keys() <= ids
    if not by_id and len(waiting) > 1 and answer != ACCEPT:
        raise BadInput(f"{len(waiting)} drafts wait, and one answer does not fit them all: give {{id: answer}} for each")
    return Command(resume=dict(answer) if by_id else dict.fromkeys(ids, answer))


def answers_from_options(
    waiting: Sequence[Question], *, accept: bool, edited: Sequence[Path], comment: str | None
) -> dict[str, Any]:
    """Answers by id from what was typed on a command line: files and folders go to whom they are named after, or to the only
    one that waits; the rest is accepted if that was said. Raises BadInput."""
    if not waiting:
        raise BadInput("nothing waits for a word of yours here: resume without --accept, --edit and --comment")
    answers: dict[str, Any] = {}
    for path in edited:
        named = [question for question in waiting if question.name == path.resolve().name]
        named = named or (list(waiting) if len(waiting) == 1 else [])
        if len(named) != 1:
            names = ", ".join(question.name for question in waiting)
            raise BadInput(f"--edit {path}: several things wait, so its name has to be that of one of them: {names}")
        if named[0].id in answers:
            raise BadInput(f"--edit {path}: {named[0].name} is answered twice, give one file or folder for it")
        answers[named[0].id] = named[0].answer(path)
    for question in waiting:
        if comment and question.kind == "plan" and question.id not in answers:
            answers[question.id] = {"comment": comment}
        elif accept:
            answers.setdefault(question.id, ACCEPT)
    if comment and any(question.kind == "plan" and answers.get(question.id) != {"comment": comment} for question in waiting):
        raise BadInput("--comment asks for another plan, and --edit is one: give one of them")
    if not answers or (comment and {"comment": comment} not in answers.values()):
        raise BadInput("--comment goes to a plan, and none waits for one: give --accept or --edit")
    return answers


def lay_out(waiting: Sequence[Question], folder: Path, store: Store) -> None:
    """Writes what waits into `folder`/waiting for editing, and removes what does not wait any more. What is there is left."""
    place = folder / FOLDER
    if place.is_symlink():
        raise BadInput(f"{place} leads somewhere else, where nothing may be removed: remove the link, then resume the session")
    names = {question.name for question in waiting}
    for path in place.glob("*"):
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for question in waiting:
        path = place / question.name
        if path.exists():
            continue
        if question.kind == "code":
            materialise(store, question.about["program"], path)
            continue
        with writing(path):
            place.mkdir(exist_ok=True)
            plan = json.dumps({"tasks": question.about["tasks"]}, indent=2, ensure_ascii=False)
            path.write_text(plan + "\n", encoding="utf-8")


def _read_plan(path: Path) -> dict[str, Any]:
    form = 'give a JSON file such as {"tasks": ["r03", {"id": "r07", "strategy": "…"}]}'
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{path} holds more than {MOST_BYTES:,} bytes: {form}")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read as an edited plan ({error}): {form}") from error
    return {"tasks": found} if isinstance(found, list) else found if isinstance(found, dict) else {"tasks": None}


@dataclass
class _Run:
    """One run of one node: what was said at its place so far, and how many questions it has put."""

    said: list[Any] = field(default_factory=list)
    asked: int = 0

    def hear(self, shown: Mapping[str, Any]) -> GraphInterrupt:
        """Takes all that was said, and returns what stops the node with `shown` for people."""
        try:
            while True:
                self.said.append(interrupt(shown))
        except GraphInterrupt as stop:
            return stop


_run: ContextVar[_Run] = ContextVar("stitchcuda_asking")


@contextmanager
def track_answers() -> Iterator[None]:
    """For one run of a node."""
    before = _run.set(_Run())
    try:
        yield
    finally:
        _run.reset(before)


class Asking:
    """Asks for one session; see the top of this file."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def __call__(self, question: Mapping[str, Any]) -> Any:
        """The answer; until there is one the thread is interrupted with the question."""
        run = _run.get()
        stop = run.hear(question)
        run.asked += 1
        mine = _first_shown(self._store, self._session, f"{run.asked} {to_json(question).decode()}", len(run.said))
        after = min((at for at in _all_first_shown(self._store, self._session) if at > mine), default=None)
        said = run.said[mine:after]
        if not said:
            raise stop
        answer = json.dumps(said[-1], sort_keys=True, default=str)
        Transcript(self._store, self._session).record_once(f"answer-{_key(question)}-{named(answer)}-{mine}", lambda: answer)
        return said[-1]


class Remembering:
    """Gives the answers that are in a session's record; nobody is asked."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def __call__(self, question: Mapping[str, Any]) -> Any:
        """Raises Unrecorded for a question that was never answered, or was about something else."""
        told = Transcript(self._store, self._session).tool_answers()
        found = [answer.text for name, answer in told.items() if name.startswith(f"answer-{_key(question)}-")]
        if not found or question["refused"]:
            raise Unrecorded(f"the record has no answer to what waits for {question['waiting_for']}")
        return json.loads(found[-1])


def wait(store: Store, session: str, shown: Mapping[str, Any]) -> NoReturn:
    """Interrupts the thread until something outside is there, as `shown` says; no word is an answer to that."""
    run = _run.get()
    stop = run.hear(shown)
    if run.asked:
        _first_shown(store, session, to_json(shown).decode(), len(run.said))
    raise stop


def _first_shown(store: Store, session: str, what: str, now: int) -> int:
    """How much had been said at this place when this was first shown: `now`, unless it was before."""
    name = f"{_checkpoint_name()}{named(what)}"
    found = store.calls(session).get(name)
    if found is None:
        call = Call(id=name, model="", request=store.put(what.encode()), reply=None, outcome=str(now))
        found = store.record(session, call)
    return int(found.outcome)


def _all_first_shown(store: Store, session: str) -> list[int]:
    """When each question and each wait was first shown at this place."""
    place = _checkpoint_name()
    return [int(call.outcome) for name, call in store.calls(session).items() if name.startswith(place)]


def _checkpoint_name() -> str:
    """A node at a checkpoint of a thread, whichever process runs it."""
    return f"asked-{named(get_config()['configurable'].get('checkpoint_ns', ''))}-"


def _key(question: Mapping[str, Any]) -> str:
    """What a question is about, without figures that another device would change."""
    tasks = [task["id"] for task in question.get("tasks", ())]
    about = [question["approve"], question.get("version"), tasks, question.get("attempt"), question.get("candidate")]
    return named(json.dumps(about))
