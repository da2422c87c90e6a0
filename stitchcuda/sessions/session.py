"""Defines the public `Session`, and `optimize`, `resume` and `sessions`, which start, go on with and list sessions.

A session is checkpointed after every node, so a crash, Ctrl-C or a move to another machine loses nothing but the node under
way. This module decides nothing about programs.

Where to look next: `sessions/running.py` (how a session is run), `graph/graph.py` (the wiring), `sessions/outcome.py`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, Damaged, SessionBusy, SessionLost, StitchError
from stitchcuda.sessions.outcome import Outcome, ended, outcome_of
from stitchcuda.state import (
    Approval,
    Attempt,
    Call,
    Effort,
    Plan,
    Policy,
    Precision,
    Review,
    Role,
    Settings,
    State,
    Status,
    lineage,
)
from stitchcuda.store import SessionRecord, Workspace, materialise
from stitchcuda.store.checkpoints import Checkpoints, open_checkpoints
from stitchcuda.store.serializer import disk_trouble
from stitchcuda.store.session_snapshot import SessionSnapshot, read_snapshot

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
    reference: Any, example_inputs: Any = None, *, make_inputs: Callable[[], Any] | None = None,
    session: str | None = None, workspace: Place = None, device: str = "auto", predict_for: str | None = None,
    policy: Policy = "stitched", precision: Precision = "reference", effort: Effort = "medium", goal: float | None = None,
    model: str = "builtin", roles: Mapping[Role, Sequence[str]] | None = None, base_url: str | None = None,
    options: Mapping[str, bool | int | float | str] | None = None, engineer: Engineer | None = None,
    from_scratch: bool = False, candidates: int = 1, approve: Sequence[Approval] = (),
    budget_usd: float = 5.0, max_tokens: int | None = None, max_gpu_s: float | None = None,
    max_attempts: int = 30, max_minutes: float | None = None, gpu_memory_gb: float | None = None,
    time_baselines: bool = False, sanitize: bool = False,
    on_event: Listener | None = None, progress: bool | None = None,
) -> Session:  # fmt: skip
    """Runs a new session to its end and returns it.

    `reference` is the path of a KernelBench-style file, or an `nn.Module` with `example_inputs`: a tuple of positional
    arguments, a dict of keyword arguments, or one tensor. Programs are judged on others like them; where these would lack
    sense (lengths that belong together, a format), give `make_inputs`, a function that returns such arguments and draws with
    torch, random or numpy, which are seeded before each call, such as `lambda: random.choice(batches)`.
    `session` is the session's name (default: the reference's, numbered); `workspace` is its folder (default:
    STITCHCUDA_WORKSPACE, else `.stitchcuda` here). `engineer` replaces the one that `model` names; `roles` gives single roles
    other chat models, and `options`, such as temperature, are for all of them. A chat model goes on from what the built-in
    engineer has verified, unless `from_scratch`. `candidates` is the number of drafts per step. With `effort` "low" the
    built-in engineer leaves operators in the form that the reference has.
    On the simulator, predictions are for the GPU that `predict_for` names ("h100", "a100", "l4", …; default an H200). With
    `approve` ("plan", "code" or both) the session is parked when a plan or a draft is there, until `resume` gets an answer.
    On a GPU, `gpu_memory_gb` is the most memory that checks take of it, and the report times a CUDA graph and torch.compile
    with `time_baselines`, and runs compute-sanitizer with `sanitize`; both take minutes.
    `on_event` is called with a dict for every node, attempt, best program and note. `progress`: whether to show the session on
    stderr, as a live panel in a terminal and as plain lines elsewhere; None: in a terminal or a notebook only.

    Raises BadInput or Unavailable with one sentence; KeyboardInterrupt after a clean stop, saying how to go on.
    """
    from stitchcuda.graph.opening import open_record
    from stitchcuda.sessions.progress import open_listener

    home = Workspace.at(workspace)
    settings = {
        "model": model, "roles": {role: tuple(models) for role, models in (roles or {}).items()},
        "options": dict(options or {}), "base_url": base_url, "from_scratch": from_scratch, "candidates": candidates,
        "approve": tuple(approve), "predict_for": predict_for, "goal": goal, "budget_usd": budget_usd,
        "max_tokens": max_tokens, "max_gpu_s": max_gpu_s, "max_attempts": max_attempts, "max_minutes": max_minutes,
        "policy": policy, "precision": precision, "effort": effort, "gpu_memory_gb": gpu_memory_gb,
        "time_baselines": time_baselines, "sanitize": sanitize,
    }  # fmt: skip
    if make_inputs is not None and (example_inputs is not None or not callable(make_inputs)):
        raise BadInput("give example_inputs, or a function make_inputs that returns them, not both")
    record = open_record(home, reference, make_inputs or example_inputs, name=session, device=device, settings=settings)
    started = Session(home, record)
    try:
        with open_listener(progress, on_event) as listener:
            return started.run(engineer=engineer, on_event=listener)
    except StitchError as error:
        with suppress(StitchError):        # if the checkpoints cannot be read (a full disk), the session stays
            if not isinstance(error, SessionBusy):
                with home.store.owning(record.name):
                    if not started.state().get("baseline"):
                        home.discard(record.name)  # there is nothing to go on from, and the name becomes free
        raise


def resume(
    name: str, *, workspace: Place = None, device: str | None = None, answer: Any = None, wait: bool = False,
    budget_usd: float | None = None, max_tokens: int | None = None, max_gpu_s: float | None = None,
    max_attempts: int | None = None, max_minutes: float | None = None,
    engineer: Engineer | None = None, on_event: Listener | None = None, progress: bool | None = None,
) -> Session:  # fmt: skip
    """Goes on with a session where it stopped and returns it; one that is done is returned as it is.

    `wait`: if another process runs the session, wait until that process ends or gives no sign of life, then take it over.
    Budgets that are given replace the present ones; one that is spent already ends the session with the best program that it
    has.

    On another device, driver or torch the baseline is taken again and the best program verified again. `device` replaces the
    session's; "elsewhere" goes on without one, as far as reading replies leads: the session is parked when a program has to be
    built or run. `answer` is for the questions in `waiting`: "accept", `{"tasks": […]}` or `{"comment": …}` for a plan,
    `{"files": {…}}` for a draft, or `{id: answer}` if several drafts wait (docs/service.md); one that cannot be used is
    refused, and the question is asked again. `on_event` and `progress` are as in `optimize`.

    Raises BadInput if the session is unknown or its reference has changed since, for an answer that nothing waits for, and for
    budgets of a session that is done; SessionBusy if another process runs it.
    """
    from stitchcuda.graph.opening import check_settings, check_unchanged
    from stitchcuda.sessions.progress import open_listener

    home = Workspace.at(workspace, create=False)
    record = home.record(name)
    check_unchanged(home, record)
    with open_listener(progress, on_event) as listener:
        if wait:
            _wait(home, name, listener)
        given = {
            "budget_usd": budget_usd, "max_tokens": max_tokens, "max_gpu_s": max_gpu_s, "max_attempts": max_attempts,
            "max_minutes": max_minutes,
        }  # fmt: skip
        if budgets := {budget: value for budget, value in given.items() if value is not None}:
            if Session(home, record).status in ("done", "nothing_to_do"):
                raise BadInput(f"session {name!r} is done, and its budgets with it: fork it with other ones (stitchcuda fork)")
            record = home.with_settings(record, check_settings(record.settings.model_dump() | budgets))
        while True:
            try:
                return Session(home, record).run(device=device, engineer=engineer, on_event=listener, answer=answer)
            except SessionLost:
                raise
            except SessionBusy:            # another process was quicker
                if not wait:
                    raise
                _wait(home, name, listener)


def _wait(home: Workspace, name: str, on_event: Listener | None) -> None:
    """Waits until nobody runs the session. Modules that running it needs are imported meanwhile."""
    import stitchcuda.sessions.running  # noqa: F401

    noted = ""
    while owner := home.store.owner(name):
        if on_event and (process := owner.partition(" (")[0]) != noted:
            on_event({"kind": "note", "session": name, "text": f"waiting for {owner}"})
            noted = process
        time.sleep(_POLL_S)


def sessions(workspace: Place = None) -> tuple[Session, ...]:
    """All sessions of a workspace, oldest first."""
    home = Workspace.at(workspace, create=False)
    return tuple(Session(home, record) for record in home.sessions())


def outcomes(workspace: Place = None) -> tuple[list[tuple[Session, Outcome]], dict[str, str]]:
    """All readable sessions with their outcomes, oldest first, and by name a sentence for each session that is damaged."""
    home = Workspace.at(workspace, create=False)
    damaged = dict(home.unreadable())
    found = []
    for session in sessions(home):
        try:
            found.append((session, session.outcome()))
        except StitchError as error:
            damaged[session.name] = str(error)
    return found, damaged


@contextmanager
def new_session(
    home: Workspace, record: SessionRecord, attempts: Iterable[Attempt], calls: Iterable[Call]
) -> Iterator[Session]:
    """Adds a session with these attempts and calls, and owns it inside. It is removed again if an error is raised inside."""
    made = Session(home, home.create(record))
    try:
        with home.store.owning(made.name):
            for attempt in attempts:
                home.store.append(made.name, attempt)
            for call in calls:
                home.store.record(made.name, call)
            yield made
    except BaseException:
        home.discard(made.name)
        raise


class Session:
    """One session of a workspace. Reading it changes nothing and needs no lock; `run` takes the lock."""

    def __init__(self, workspace: Workspace, record: SessionRecord) -> None:
        self.home = workspace
        self.record = record
        self._cache: dict[str, Any] | None = None  # what was read inside `read_once`; None outside

    @classmethod
    def open(cls, name: str, workspace: Place = None) -> Session:
        """The session of this name. Raises BadInput if the workspace does not have it."""
        home = Workspace.at(workspace, create=False)
        return cls(home, home.record(name))

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def folder(self) -> Path:
        return self.home.folder(self.name)

    @contextmanager
    def read_once(self) -> Iterator[None]:
        """Inside, the session is read once only: all answers are of the same moment, even while another process runs it."""
        before = self._cache
        self._cache = {} if before is None else before
        try:
            yield
        finally:
            self._cache = before

    @property
    def settings(self) -> Settings:
        """The settings in its record, with the target (GPU or simulator) that it was run on."""
        state = self.state()
        return self.record.settings.model_copy(update={"target": state["settings"].target} if "settings" in state else {})

    def state(self) -> State:
        """The graph's state at the last checkpoint; empty before the first."""
        return self._snapshot().state

    def history(self) -> Iterator[Any]:
        """LangGraph's `StateSnapshot`s, newest first: one per finished attempt, and the steps since."""
        from stitchcuda.graph.graph import build_graph, thread

        with self._checkpoints() as saver:
            yield from build_graph(saver).get_state_history(thread(self.name))

    @property
    def status(self) -> Status:
        """`parked`: it waits to be resumed, for a reply, a person, or after an interruption. `nothing_to_do`: it has ended
        since no task was worth doing."""
        return self._status()[0]

    @property
    def waiting(self) -> tuple[Question, ...]:
        """The questions to a person, if the settings say `approve`; `resume` takes the answers. Waiting for a model's reply is
        not among them."""
        found = self._snapshot().interrupts
        if not found:
            return ()
        from stitchcuda.graph.approval import questions

        return questions(found)

    @property
    def plan(self) -> Plan | None:
        """The newest plan; None before the first."""
        digest = self.state().get("plan")
        return Plan.model_validate_json(self.home.store.get(digest)) if digest else None

    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts that lead to the present state, oldest first: the head and its parents."""
        return self._cached("attempts", self._walk)

    def _walk(self) -> tuple[Attempt, ...]:
        known, head = self.home.store.attempts(self.name), self.state().get("head")
        try:
            return lineage(head, known)
        except KeyError as error:
            missing = f"the ledger of session {self.name!r} lacks attempt {error.args[0][:8]}"
            raise Damaged(f"{missing}: {_RESUME} goes on without it") from error

    def reviewed(self) -> tuple[tuple[Attempt, Review], ...]:
        """All attempts with their reviews, oldest first."""
        read = self.home.store.get
        return tuple((attempt, Review.model_validate_json(read(attempt.review))) for attempt in self.attempts())

    @property
    def program(self) -> Path | None:
        """The folder of the verified program; None until the session is done, or if no task was kept. It is written now if only
        other machines have run the session."""
        folder = self.folder / "program"
        state = self.state()
        if not (state.get("report") and state.get("tasks_kept")):
            return None
        digest = state.get("program")
        if digest and not folder.is_dir():
            materialise(self.home.store, digest, folder)
        return folder if folder.is_dir() else None

    def outcome(self) -> Outcome:
        """The session's result so far (see `Outcome`). Raises Damaged if it cannot be read."""
        with self.read_once():
            return outcome_of(self.home, self.name, self.state(), self.attempts(), self.program, *self._status())

    def run(
        self, *, device: str | None = None, engineer: Engineer | Engineers | None = None, tools: SessionTools | None = None,
        on_event: Listener | None = None, answer: Any = None,
    ) -> Session:  # fmt: skip
        """Runs the graph from the newest checkpoint until it ends or waits, and returns the session itself.

        `device` and `engineer` replace those of the session's record, `tools` those of this machine. `answer` is for all
        questions in `waiting`, or `{id: answer}`. Raises BadInput if an answer cannot be used, SessionBusy if the session runs.
        """
        from stitchcuda.sessions.running import run

        waiting = self.waiting if answer is not None else ()
        run(self.home, self.record, waiting, device=device, engineer=engineer, tools=tools, on_event=on_event, answer=answer)
        return self

    @contextmanager
    def _checkpoints(self) -> Iterator[Checkpoints | PostgresCheckpoints]:
        try:
            with open_checkpoints(self.home, self.name, reading=True) as saver:
                yield saver
        except sqlite3.Error as error:
            raise disk_trouble(self.folder, error) from error
        except Damaged as error:
            if _RESUME in str(error):
                raise
            raise Damaged(f"{error}: {_RESUME} goes on from what is whole") from error

    def _cached(self, what: str, read: Callable[[], Read]) -> Read:
        if self._cache is None:
            return read()
        if what not in self._cache:
            self._cache[what] = read()
        found: Read = self._cache[what]
        return found

    def _snapshot(self) -> SessionSnapshot:
        def read() -> SessionSnapshot:
            with self._checkpoints() as saver:
                found = read_snapshot(saver, self.name)
            attempts = 0 if found.state or self.home.store.owner(self.name) else len(self.home.store.attempts(self.name))
            if attempts:
                gone = f"the checkpoints of session {self.name!r} are missing, its ledger has {counted(attempts, 'attempt')}"
                raise Damaged(f"{gone}: {_RESUME} takes {'it' if attempts == 1 else 'them'} over")
            return found

        return self._cached("snapshot", read)

    def _status(self) -> tuple[Status, str | None]:
        """The status, and the reason for it unless the session is running or done."""
        return self._cached("status", self._find_status)

    def _find_status(self) -> tuple[Status, str | None]:
        found = self._snapshot()
        waiting = found.waits_for(self.home.root)
        if self.home.store.owner(self.name):
            return "running", None
        if found.state.get("report"):
            return ended(found.state), None
        failure = self.home.store.failure(self.name)
        if failure is not None or (found.error and not waiting):
            return "failed", found.error if failure is None else failure
        return "parked", f"waits for {waiting}" if waiting else "interrupted"
