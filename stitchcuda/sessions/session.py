"""The public `Session`: starts the graph on a reference, resumes it, and reads what came out.

`optimize` starts one, `resume` goes on with one, `sessions` lists them. A session is checkpointed after every node, so a
crash, Ctrl-C or a move to another machine loses nothing but the node under way. This module decides nothing about programs:
see `graph/` for the wiring and the rules, `sessions/running.py` for how one is run.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, Damaged, SessionBusy, SessionLost, StitchError
from stitchcuda.sessions.outcome import Outcome, ended, outcome_of
from stitchcuda.state import Approval, Attempt, Plan, Policy, Precision, Role, Settings, State, Status, lineage
from stitchcuda.store import SessionRecord, Workspace, materialise
from stitchcuda.store.checkpoints import Checkpoints, open_checkpoints
from stitchcuda.store.serializer import disk_trouble
from stitchcuda.store.session_snapshot import SessionSnapshot, standing

if TYPE_CHECKING:
    from stitchcuda.engineers import Engineer
    from stitchcuda.engineers.selection import Engineers
    from stitchcuda.graph.approval import Question
    from stitchcuda.nodes.context import SessionTools
    from stitchcuda.sessions.progress import Listener
    from stitchcuda.store.postgres_checkpoints import PostgresCheckpoints

Place = Workspace | Path | str | None
"""A workspace, or its folder; None for STITCHCUDA_WORKSPACE, else `.stitchcuda` here."""
Read = TypeVar("Read")
_POLL_S = 0.5
_RESUME = "`stitchcuda resume`"


def optimize(
    reference: Any,
    example_inputs: Any = None,
    *,
    model: str = "builtin",
    roles: Mapping[Role, Sequence[str]] | None = None,
    options: Mapping[str, bool | int | float | str] | None = None,
    base_url: str | None = None,
    device: str = "auto",
    predict_for: str | None = None,
    goal: float | None = None,
    session: str | None = None,
    workspace: Place = None,
    from_scratch: bool = False,
    candidates: int = 1,
    approve: Sequence[Approval] = (),
    budget_usd: float = 5.0,
    max_tokens: int | None = None,
    max_gpu_s: float | None = None,
    max_attempts: int = 30,
    max_minutes: float | None = None,
    policy: Policy = "stitched",
    precision: Precision = "reference",
    engineer: Engineer | None = None,
    on_event: Listener | None = None,
    progress: bool | None = None,
) -> Session:
    """Runs a new session to its end and returns it.

    `reference` is the path of a KernelBench-style file, or an `nn.Module` with `example_inputs`: a tuple of positional
    arguments, a dict of keyword arguments, or one tensor. `session` names it (default: numbered after the reference);
    `workspace` is the folder it lives in (default: STITCHCUDA_WORKSPACE, else `.stitchcuda` here). `engineer` replaces the one
    that `model` names; `roles` gives a role another chat model, and `options` are for them all, such as temperature. A chat
    model goes on from what the built-in engineer has verified, unless `from_scratch`. `candidates` are drafts a step. On the
    simulator, predictions are for the GPU that `predict_for` names ("h100", "a100", "l4", …; default an H200). With
    `approve` ("plan", "code" or both) the session is parked when a plan or a draft is there, until `resume` has an answer.
    `on_event` is called with a dict for every node, attempt, best program and note. `progress` shows what the command line
    shows, on stderr: a live panel in a terminal, plain lines elsewhere; None shows it in a terminal or a notebook only.

    Raises BadInput or Unavailable with one sentence; KeyboardInterrupt after a clean stop, saying how to go on.
    """
    from stitchcuda.graph.opening import open_record
    from stitchcuda.sessions.progress import shown

    home = Workspace.at(workspace)
    settings = {
        "model": model, "roles": {role: tuple(models) for role, models in (roles or {}).items()},
        "options": dict(options or {}), "base_url": base_url, "from_scratch": from_scratch, "candidates": candidates,
        "approve": tuple(approve), "predict_for": predict_for, "goal": goal, "budget_usd": budget_usd,
        "max_tokens": max_tokens, "max_gpu_s": max_gpu_s, "max_attempts": max_attempts, "max_minutes": max_minutes,
        "policy": policy, "precision": precision,
    }  # fmt: skip
    record = open_record(home, reference, example_inputs, name=session, device=device, settings=settings)
    started = Session(home, record)
    try:
        with shown(progress, on_event) as told:
            return started.run(engineer=engineer, on_event=told)
    except StitchError as error:
        with suppress(StitchError):  # where the checkpoints cannot be read (a full disk), all stays and can be resumed
            if not isinstance(error, SessionBusy):
                with home.store.owning(record.name):
                    if not started.state().get("baseline"):
                        home.discard(record.name)  # nothing was learnt: the name stays free
        raise


def resume(
    name: str,
    *,
    workspace: Place = None,
    device: str | None = None,
    answer: Any = None,
    budget_usd: float | None = None,
    max_tokens: int | None = None,
    max_gpu_s: float | None = None,
    max_attempts: int | None = None,
    max_minutes: float | None = None,
    wait: bool = False,
    engineer: Engineer | None = None,
    on_event: Listener | None = None,
    progress: bool | None = None,
) -> Session:
    """Goes on with a session where it stopped and returns it; one that is done is returned as it is. With `wait` one that
    another process runs is waited for: it is taken over when that process ends, or gives no sign of life any more.

    Budgets that are given replace those it was started with; one that is spent already ends the session with the best program
    that it has.

    On another device, driver or torch the baseline is taken again and the best program verified again. `device` replaces
    what the session was started with; "elsewhere" goes on without any, as far as replies and reading lead: it is parked where a
    program has to be built or run. `answer` is to what is `waiting`: "accept", `{"tasks": […]}` and `{"comment": …}` for a
    plan, `{"files": {…}}` for a draft, or `{id: answer}` where several drafts wait (docs/service.md); one that cannot be used
    is refused, and what waits is asked again. `on_event` and `progress` are as in `optimize`. Raises BadInput when the session
    is unknown or its reference has changed since, for an answer where nothing waits for one, and for budgets of one that is
    done.
    """
    from stitchcuda.graph.opening import check_settings, check_unchanged
    from stitchcuda.sessions.progress import shown

    home = Workspace.at(workspace, create=False)
    record = home.record(name)
    check_unchanged(home, record)
    with shown(progress, on_event) as told:
        if wait:
            _wait(home, name, told)
        asked = {
            "budget_usd": budget_usd, "max_tokens": max_tokens, "max_gpu_s": max_gpu_s, "max_attempts": max_attempts,
            "max_minutes": max_minutes,
        }  # fmt: skip
        if budgets := {budget: value for budget, value in asked.items() if value is not None}:
            if Session(home, record).status in ("done", "nothing_to_do"):
                raise BadInput(f"session {name!r} is done, and its budgets with it: fork it with other ones (stitchcuda fork)")
            record = home.with_settings(record, check_settings(record.settings.model_dump() | budgets))
        while True:
            try:
                return Session(home, record).run(device=device, engineer=engineer, on_event=told, answer=answer)
            except SessionLost:
                raise
            except SessionBusy:                # somebody else was quicker
                if not wait:
                    raise
                _wait(home, name, told)


def _wait(home: Workspace, name: str, on_event: Listener | None) -> None:
    """Until nobody runs the session; what runs it is imported by then."""
    import stitchcuda.sessions.running  # noqa: F401

    told = ""
    while owner := home.store.owner(name):
        if on_event and (who := owner.partition(" (")[0]) != told:
            on_event({"kind": "note", "session": name, "text": f"waiting for {owner}"})
            told = who
        time.sleep(_POLL_S)


def sessions(workspace: Place = None) -> tuple[Session, ...]:
    """All sessions of a workspace, oldest first."""
    home = Workspace.at(workspace, create=False)
    return tuple(Session(home, record) for record in home.sessions())


def outcomes(workspace: Place = None) -> tuple[list[tuple[Session, Outcome]], dict[str, str]]:
    """All sessions with what each came to, oldest first, and by name what is wrong with those that cannot be read."""
    home = Workspace.at(workspace, create=False)
    damaged = dict(home.unreadable())
    found = []
    for session in sessions(home):
        try:
            found.append((session, session.outcome()))
        except StitchError as error:
            damaged[session.name] = str(error)
    return found, damaged


class Session:
    """One session of a workspace, as it stands now. Reading one changes nothing and needs no lock; `run` takes it."""

    def __init__(self, workspace: Workspace, record: SessionRecord) -> None:
        self.home = workspace
        self.record = record
        self._moment: dict[str, Any] | None = None

    @classmethod
    def open(cls, name: str, workspace: Place = None) -> Session:
        """Raises BadInput for a session that the workspace does not have."""
        home = Workspace.at(workspace, create=False)
        return cls(home, home.record(name))

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def folder(self) -> Path:
        return self.home.folder(self.name)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside, the session is read once: all that is asked for shows one moment of it, also while it runs."""
        before = self._moment
        self._moment = {} if before is None else before
        try:
            yield
        finally:
            self._moment = before

    @property
    def settings(self) -> Settings:
        """As its record has them, for the device that it is on."""
        state = self.state()
        return self.record.settings.model_copy(update={"target": state["settings"].target} if "settings" in state else {})

    def state(self) -> State:
        """The graph's state at the last checkpoint; empty before the first."""
        return self._stands().state

    def history(self) -> Iterator[Any]:
        """LangGraph's state snapshots, newest first: one per finished attempt, and the steps since."""
        from stitchcuda.graph.graph import build_graph, thread

        with self._checkpoints() as saver:
            yield from build_graph(saver).get_state_history(thread(self.name))

    @property
    def status(self) -> Status:
        """`parked` is every session that waits to be resumed: for a reply, a person, or after an interruption; `nothing_to_do`
        one that has ended since no task was worth doing."""
        return self._status()[0]

    @property
    def waiting(self) -> tuple[Question, ...]:
        """What a person is asked, where the settings say `approve`; `resume` takes the answers. Not what waits for replies."""
        found = self._stands().interrupts
        if not found:
            return ()
        from stitchcuda.graph.approval import questions

        return questions(found)

    @property
    def plan(self) -> Plan | None:
        digest = self.state().get("plan")
        return Plan.model_validate_json(self.home.store.get(digest)) if digest else None

    def attempts(self) -> tuple[Attempt, ...]:
        """The whole record, oldest first: the walk from the head through parents."""
        return self._once("attempts", self._walk)

    def _walk(self) -> tuple[Attempt, ...]:
        known, head = self.home.store.attempts(self.name), self.state().get("head")
        try:
            return lineage(head, known)
        except KeyError as error:
            lacks = f"the ledger of session {self.name!r} lacks attempt {error.args[0][:8]}"
            raise Damaged(f"{lacks}: {_RESUME} goes on without it") from error

    @property
    def program(self) -> Path | None:
        """The folder of the verified program; None until the session is done or when no task was kept. Written out where a
        database has brought the session to a machine that has not run it."""
        folder = self.folder / "program"
        state = self.state()
        if not (state.get("report") and state.get("tasks_kept")):
            return None
        digest = state.get("program")
        if digest and not folder.is_dir():
            materialise(self.home.store, digest, folder)
        return folder if folder.is_dir() else None

    def outcome(self) -> Outcome:
        """What the session came to, or stands at."""
        with self.still():
            return outcome_of(self, *self._status())

    def run(
        self,
        *,
        device: str | None = None,
        engineer: Engineer | Engineers | None = None,
        tools: SessionTools | None = None,
        on_event: Listener | None = None,
        answer: Any = None,
    ) -> Session:
        """Runs the graph from where the session stands until it ends or waits, and returns itself.

        `device`, `engineer` and `tools` (the tools) replace what the session was asked for and what this machine has. `answer`
        is to what is `waiting`: one for all of it, or `{id: answer}`. Raises BadInput where it cannot be handed in.
        """
        from stitchcuda.sessions.running import run

        waiting = self.waiting if answer is not None else ()
        run(
            self.home, self.record, waiting, device=device, engineer=engineer, tools=tools, on_event=on_event, answer=answer
        )  # fmt: skip
        return self

    @contextmanager
    def _checkpoints(self) -> Iterator[Checkpoints | PostgresCheckpoints]:
        try:
            with self.home.told(), open_checkpoints(self.home, self.name, reading=True) as saver:
                yield saver
        except sqlite3.Error as error:
            raise disk_trouble(self.folder, error) from error
        except Damaged as error:
            if _RESUME in str(error):
                raise
            raise Damaged(f"{error}: {_RESUME} goes on from what is whole") from error

    def _once(self, what: str, read: Callable[[], Read]) -> Read:
        if self._moment is None:
            return read()
        if what not in self._moment:
            self._moment[what] = read()
        found: Read = self._moment[what]
        return found

    def _stands(self) -> SessionSnapshot:
        def read() -> SessionSnapshot:
            with self._checkpoints() as saver:
                found = standing(saver, self.name)
            attempts = 0 if found.state or self.home.store.owner(self.name) else len(self.home.store.attempts(self.name))
            if attempts:
                gone = f"the checkpoints of session {self.name!r} are missing, its ledger has {counted(attempts, 'attempt')}"
                raise Damaged(f"{gone}: {_RESUME} takes {'it' if attempts == 1 else 'them'} over")
            return found

        return self._once("standing", read)

    def _status(self) -> tuple[Status, str | None]:
        """And why, where it is not running or done."""
        return self._once("status", self._judged)

    def _judged(self) -> tuple[Status, str | None]:
        found = self._stands()
        waiting = found.waits_for(self.home.root)
        if self.home.store.owner(self.name):
            return "running", None
        if found.state.get("report"):
            return ended(found.state), None
        failure = self.home.store.failure(self.name)
        if failure is not None or (found.error and not waiting):
            return "failed", found.error if failure is None else failure
        return "parked", f"waits for {waiting}" if waiting else "interrupted"
