"""Interrupts a run to ask a person, finds the answer among the values it was resumed with, and builds resume commands.

LangGraph gives a node that runs again all values that this task was ever resumed with, in order. The answer to a question is
the last value given after the question was first shown and before the next one was; earlier values answered something else,
such as a wait for a reply. The last one counts, so that a thread that is rerun from an earlier checkpoint follows the newest
answer. How many values there were when a question was first shown, and the answer, are recorded in the session's transcript,
for replays too.

An answer is given by the id of its interrupt. People who prefer files to JSON find what waits in the session's folder: a plan
as `waiting/plan-1-….json`, a draft as the folder `waiting/TASK-ORDINAL-…/`.

Where to look next: `nodes/approval.py` (questions, and which answers are valid), `sessions/running.py` (resumes sessions).
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
_SKIPPED = re.compile(r"\.safetensors$|(^|/)__pycache__/|(^|/)\.[^/]*$|~$")  # constants, and files that Python and editors make


class Question(NamedTuple):
    """A question to a person. `id` is the id of its interrupt."""

    id: str
    about: Mapping[str, Any]               # as built in `nodes/approval.py`

    @property
    def kind(self) -> str:
        """What is asked about: "plan" or "code"."""
        return str(self.about["approve"])

    @property
    def name(self) -> str:
        """The name of its file or folder below `waiting/`, different for each plan or draft."""
        if self.kind == "plan":
            name = f"plan-{self.about['version']}-{self.about['plan'][:8]}.json"
        else:
            name = f"{self.about['task']['id']}-{self.about['ordinal']}-{self.about['program'][:8]}"
        return re.sub(r"[^A-Za-z0-9._-]|^\.", "_", name)  # a checkpoint from elsewhere may hold any text

    def answer(self, edited: Path) -> dict[str, Any]:
        """Returns the answer that an edited plan file or draft folder stands for. Raises BadInput if it cannot be read."""
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
    """Returns the interrupts that ask a person; the others wait for a reply or a device."""
    return tuple(Question(interrupt.id, interrupt.value) for interrupt in interrupts if "approve" in interrupt.value)


def resume_command(waiting: Sequence[Question], answer: Any) -> Command[Any]:
    """Returns the command that resumes with `answer`: for all that waits, or `{id: answer}` for some. Raises BadInput."""
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
    """Returns {id: answer} from the options --accept, --edit and --comment. Raises BadInput. An edited file or folder answers
    the question of the same name, or the only one. A comment answers the plan. `accept` answers all the rest."""
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
    """Writes what waits into `folder`/waiting for editing, and removes what no longer waits. Existing files are not changed."""
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
    """One run of a node: the values it was resumed with so far, and how many questions it has asked."""

    values: list[Any] = field(default_factory=list)
    asked: int = 0

    def read_values(self, shown: Mapping[str, Any]) -> GraphInterrupt:
        """Reads all values given so far, and returns the interrupt that stops the node and shows `shown`."""
        try:
            while True:
                self.values.append(interrupt(shown))
        except GraphInterrupt as stop:
            return stop


_run: ContextVar[_Run] = ContextVar("stitchcuda_asking")


@contextmanager
def track_answers() -> Iterator[None]:
    """Lets one run of a node ask questions and wait."""
    before = _run.set(_Run())
    try:
        yield
    finally:
        _run.reset(before)


class Asking:
    """Asks a person, for one session, by interrupting the run; see the module's docstring."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def __call__(self, question: Mapping[str, Any]) -> Any:
        """Returns the answer; interrupts the thread with the question if there is none yet."""
        run = _run.get()
        stop = run.read_values(question)
        run.asked += 1
        mine = _first_shown(self._store, self._session, f"{run.asked} {to_json(question).decode()}", len(run.values))
        after = min((at for at in _all_first_shown(self._store, self._session) if at > mine), default=None)
        answers = run.values[mine:after]
        if not answers:
            raise stop
        answer = json.dumps(answers[-1], sort_keys=True, default=str)
        Transcript(self._store, self._session).record_once(f"answer-{_key(question)}-{named(answer)}-{mine}", lambda: answer)
        return answers[-1]


class Remembering:
    """Returns the answers that a session's transcript has, for a replay; nobody is asked."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def __call__(self, question: Mapping[str, Any]) -> Any:
        """Returns the recorded answer. Raises Unrecorded if there is none to this question."""
        recorded = Transcript(self._store, self._session).tool_answers()
        found = [answer.text for name, answer in recorded.items() if name.startswith(f"answer-{_key(question)}-")]
        if not found or question["refused"]:
            raise Unrecorded(f"the record has no answer to what waits for {question['waiting_for']}")
        return json.loads(found[-1])


def wait(store: Store, session: str, shown: Mapping[str, Any]) -> NoReturn:
    """Interrupts the thread until a reply or device is there, as `shown` says. Values that it is resumed with are ignored."""
    run = _run.get()
    stop = run.read_values(shown)
    if run.asked:
        _first_shown(store, session, to_json(shown).decode(), len(run.values))
    raise stop


def _first_shown(store: Store, session: str, what: str, now: int) -> int:
    """Returns how many values there were when `what` was first shown: `now` if it is shown for the first time."""
    name = f"{_checkpoint_name()}{named(what)}"
    found = store.calls(session).get(name)
    if found is None:
        call = Call(id=name, model="", request=store.put(what.encode()), reply=None, outcome=str(now))
        found = store.record(session, call)
    return int(found.outcome)


def _all_first_shown(store: Store, session: str) -> list[int]:
    """Returns, for each question and wait of this node and checkpoint, how many values there were when it was first shown."""
    place = _checkpoint_name()
    return [int(call.outcome) for name, call in store.calls(session).items() if name.startswith(place)]


def _checkpoint_name() -> str:
    """Returns a prefix that names the node and checkpoint of the current run, the same in every process."""
    return f"asked-{named(get_config()['configurable'].get('checkpoint_ns', ''))}-"


def _key(question: Mapping[str, Any]) -> str:
    """Returns a hash of what a question is about, without figures that differ from device to device."""
    tasks = [task["id"] for task in question.get("tasks", ())]
    about = [question["approve"], question.get("version"), tasks, question.get("attempt"), question.get("candidate")]
    return named(json.dumps(about))
