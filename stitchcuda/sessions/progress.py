"""Shows a running session on stderr: as a live panel in a terminal, as plain lines elsewhere.

It is fed with the session's events, dicts with a `kind`. Nothing here changes or decides anything.

Where to look next: `nodes/context.py` (what events there are), `sessions/running.py` (the first event).
"""

from __future__ import annotations

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stitchcuda.counts import counted
from stitchcuda.state import Attempt, Call, Settings, Task, Usage

Listener = Callable[[dict[str, Any]], None]
"""A function that takes one event of a session."""
LINES = 6                                  # the latest lines, shown below the live panel's tasks
TASKS = 12                                 # most tasks in the live panel
WORTH_A_LINE_S = 1.0                       # a node that took less gets no line of its own


def milliseconds(value: float | None) -> str:
    """A time with three significant digits, as "1.23 ms" or "4.56 µs"; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.3g} ms" if value >= 0.01 else f"{value * 1000:.3g} µs"


@dataclass
class Progress:
    """The sum of all events so far, on top of the session's state when this run began."""

    tasks: dict[str, Task] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)  # task id → open, kept, not kept, or what failed last
    attempts: int = 0
    started: int = 0                       # attempts of the built-in engineer before a chat model went on
    starting: bool = False                 # that engineer is at work: its attempts are not counted against a budget
    best: str = ""                         # `best_line` of the best attempt
    node: str = ""                         # the node at work
    replies: int = 0                       # pieces of the reply that is streaming in
    usage: Usage = field(default_factory=Usage)
    settings: Settings | None = None       # None until the session is there
    opened: float = field(default_factory=time.monotonic)
    begun: float = field(default_factory=time.monotonic)  # start of the session, had all its runs followed without a gap

    def elapsed(self, since: float | None = None) -> str:
        seconds = int(time.monotonic() - (self.opened if since is None else since))
        return f"{seconds // 60}:{seconds % 60:02d}"

    def take(self, event: dict[str, Any]) -> str:
        """Adds an event and returns its line for the log; "" if it is not worth one."""
        match event["kind"]:
            case "session":
                return self._session(event)
            case "node":
                return self._node(event)
            case "step":                   # a long part of the node at work
                self.node = f"{self.node.partition(':')[0]}: {event['text']}"
                return self.node
            case "tokens":
                self.replies = int(event["chunks"])
                return ""
            case "call":
                return self._call(event["call"])
            case "estimate" | "stage" | "twin":
                return str(event["text"])
            case "plan":
                return self._plan(event)
            case "attempt":
                return self._attempt(event["attempt"], str(event["title"]))
            case "best":
                self.status[event["attempt"].task] = "kept"
                kept = [task for task, status in self.status.items() if status == "kept"]
                self.best = best_line(event["attempt"], kept)
                return f"best so far: {self.best}"
            case "note":
                return f"note: {event['text']}"
        return ""

    def _session(self, event: dict[str, Any]) -> str:
        """Starts from the session's state, which is in the event (see `running.session_facts`)."""
        self.settings, self.attempts = event.get("settings"), event.get("attempts", 0)
        self.started, self.starting = event.get("started", 0), event.get("stage") == "start"
        self.usage = event.get("usage", Usage())
        self.begun = time.monotonic() - self.usage.wall_s
        done, kept = event.get("done", ()), event.get("kept", ())
        self.tasks = {task.id: task for task in event.get("tasks", ())}
        self.status = dict.fromkeys(self.tasks, "open")
        recent = [attempt for attempt in event.get("recent", ()) if attempt.task in self.tasks]
        self.status |= {attempt.task: retry_status(attempt) for attempt in recent}
        self.status |= dict.fromkeys(done, "not kept") | dict.fromkeys(kept, "kept")
        line = f"session {event['session']} {'goes on' if event.get('resumed') else 'starts'} in {event['workspace']}"
        if event.get("best"):
            self.best = best_line(event["best"], kept)
            line += f": {counted(self.attempts, 'attempt')}, best so far: {self.best}"
        return line

    def _node(self, event: dict[str, Any]) -> str:
        """A node gets a line when it took `WORTH_A_LINE_S`, or will (the baseline imports torch and captures)."""
        about = f"{event['node']} ({event['task']})" if event.get("task") else str(event["node"])
        if event["phase"] == "start":
            self.node, self.replies = about, 0
            return "baseline: running and capturing the reference" if event["node"] == "baseline" else ""
        self.usage = event["usage"]
        return f"{about}: {event['seconds']:.1f} s" if event["seconds"] >= WORTH_A_LINE_S else ""

    def _call(self, call: Call) -> str:
        """Adds a call of a model at once; when its node ends, the session's own sum replaces this one."""
        usage = self.usage
        self.usage = usage.model_copy(update={
            "calls": usage.calls + 1, "input_tokens": usage.input_tokens + call.input_tokens,
            "output_tokens": usage.output_tokens + call.output_tokens,
            "usd": None if usage.usd is None or call.usd is None else usage.usd + call.usd,
        })  # fmt: skip
        role = call.id.partition("-")[0]
        money = "" if call.usd is None else f", ${call.usd:.3f}"
        failed = f": {call.outcome}" if call.outcome else ""
        tokens = f"{call.input_tokens:,} tokens read, {call.output_tokens:,} written"
        return f"{call.model} as {role}: {tokens}{money}, {call.seconds:.0f} s{failed}"

    def _plan(self, event: dict[str, Any]) -> str:
        if self.starting and event.get("engineer") != "builtin":
            self.starting, self.started = False, self.attempts
        tasks: tuple[Task, ...] = event["tasks"]
        self.tasks = {name: task for name, task in self.tasks.items() if self.status.get(name) in ("kept", "not kept")}
        self.tasks |= {task.id: task for task in tasks}
        self.status |= {task.id: "open" for task in tasks}
        return f"plan {event['version']}: " + (event["summary"] or counted(len(tasks), "task"))

    def _attempt(self, attempt: Attempt, title: str) -> str:
        self.attempts += 1
        result = describe_result(attempt)
        if attempt.route == "code":
            self.status[attempt.task] = retry_status(attempt)
        else:
            self.status[attempt.task] = "kept" if attempt.kept else "not kept"
        line = f"{attempt.task} #{attempt.ordinal} ({title}): {result}, then {attempt.route} ({attempt.route_reason})"
        return f"{line}: {attempt.diagnosis}" if attempt.diagnosis else line


def describe_result(attempt: Attempt) -> str:
    """The result of an attempt in a few words, such as "correct (timed) but not kept"."""
    if not attempt.built:
        return "does not build"
    if not attempt.correct:
        return "wrong"
    return f"correct ({attempt.tier})" if attempt.kept else f"correct ({attempt.tier}) but not kept"


def retry_status(attempt: Attempt) -> str:
    """The status of a task that is to be tried again after this attempt."""
    return f"attempt {attempt.ordinal + 1} {describe_result(attempt)}"


def best_line(attempt: Attempt, kept: Sequence[str]) -> str:
    """The best program in a few words, with its speed-up if that was timed. `kept`: the ids of the tasks stitched into it."""
    stitched = f"{len(kept)} stitched, {attempt.own_share:.0%} in own kernels, tier {attempt.tier}"
    return f"{stitched}, {attempt.speedup:.2f}× over eager" if attempt.speedup is not None else stitched


class View(ABC):
    """Shows events: a `Listener`. `say` shows a line that is no event."""

    def __init__(self) -> None:
        self.progress = Progress()

    def __call__(self, event: dict[str, Any]) -> None:
        if line := self.progress.take(event):
            self.say(line)

    @abstractmethod
    def say(self, text: str) -> None: ...


class PlainView(View):
    """Prints one line for each event, with the time since the start."""

    def say(self, text: str) -> None:
        print(f"[{self.progress.elapsed():>5}] {' '.join(text.split())}", file=sys.stderr, flush=True)


class LiveView(View):
    """A rich panel: tasks with their status, the node at work, what was spent, the best program, and the latest lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.spinner = Spinner("dots")

    def say(self, text: str) -> None:
        self.lines = [*self.lines, " ".join(text.split())][-LINES:]

    def __rich__(self) -> RenderableType:
        progress = self.progress
        tasks = Table(box=None, padding=(0, 1), show_header=False)
        before, shown, after = self._window()
        if before:
            tasks.add_row("", f"{before} before these", style="dim")
        for task in shown:
            status = progress.status.get(task.id, "open")
            mark, style = {"kept": ("✔", "green"), "not kept": ("–", "dim"), "open": ("·", "")}.get(status, ("…", "yellow"))
            tasks.add_row(mark, *map(Text, (task.id, task.title, milliseconds(task.predicted_ms), status)), style=style)
        if after:
            tasks.add_row("", f"{after} more", style="dim")
        working = progress.node + (f" ({progress.replies} pieces of a reply)" if progress.replies else "")
        self.spinner.update(text=working or "starting")
        parts: list[RenderableType] = [tasks, self.spinner, Text(f"  {self._spent()}")]
        if progress.best:
            parts.append(Text(f"best so far: {progress.best}", style="green"))
        parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in self.lines]
        return Group(*parts)

    def _window(self) -> tuple[int, list[Task], int]:
        """The tasks around the one at work, and how many are before and after them: at most `TASKS` fit the screen."""
        tasks = list(self.progress.tasks.values())
        settled = [self.progress.status.get(task.id) in ("kept", "not kept") for task in tasks]
        now = settled.index(False) if False in settled else len(tasks)
        first = max(0, min(now - TASKS // 3, len(tasks) - TASKS))
        return first, tasks[first : first + TASKS], max(0, len(tasks) - first - TASKS)

    def _spent(self) -> str:
        """Attempts, time, calls, tokens, money and GPU seconds so far, each with its limit if it has one."""
        progress, usage, limits = self.progress, self.progress.usage, self.progress.settings
        if limits is None:
            return progress.elapsed()
        started = progress.attempts if progress.starting else progress.started
        own = f"{progress.attempts - started} of {counted(limits.max_attempts, 'attempt')}"
        parts = [f"{own} after the start's {started}" if started else own]
        parts.append(progress.elapsed(progress.begun) + (f"{_of(limits.max_minutes)} min" if limits.max_minutes else ""))
        asks = usage.calls > 0 or limits.model != "builtin" or bool(limits.roles)
        if asks:
            parts.append(counted(usage.calls, "call"))
        if asks or limits.max_tokens:
            parts.append(f"{usage.input_tokens + usage.output_tokens:,}{_of(limits.max_tokens)} tokens")
        if asks:
            parts.append("price unknown" if usage.usd is None else f"{usage.usd:.2f}{_of(limits.budget_usd)} USD")
        if usage.gpu_s or limits.max_gpu_s:
            parts.append(f"GPU {usage.gpu_s:.0f}{_of(limits.max_gpu_s)} s")
        return ", ".join(parts)


def _of(limit: float | None) -> str:
    """The text " of 30" for a limit of 30; "" if there is no limit."""
    if limit is None:
        return ""
    return f" of {limit:,}" if isinstance(limit, int) else f" of {limit:g}"


@contextmanager
def watch(*, plain: bool) -> Iterator[View]:
    """Shows a view while inside: a `LiveView` if stderr is a terminal and `plain` is False, else a `PlainView`."""
    console = Console(stderr=True)
    if plain or not console.is_terminal:
        view = PlainView()
        with _logged(view):
            yield view
        return
    live = LiveView()
    with Live(live, console=console, refresh_per_second=4), _logged(live):
        yield live


@contextmanager
def open_listener(progress: bool | None, on_event: Listener | None) -> Iterator[Listener | None]:
    """The listener for a session's events: a view and then `on_event`, or `on_event` alone if `progress` is False.

    `progress` None means True in a terminal (a live panel) and in a notebook (plain lines), else False.
    """
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter if progress is None else progress):
        yield on_event
        return
    with watch(plain=False) as view:

        def listen(event: dict[str, Any]) -> None:
            view(event)
            if on_event is not None:
                on_event(event)

        yield listen


@contextmanager
def _logged(view: View) -> Iterator[None]:
    """Sends our own warnings through the view while inside: a line printed beside it would break the panel."""
    handler = _ToView(view)
    logger = logging.getLogger("stitchcuda")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(handler)


class _ToView(logging.Handler):
    def __init__(self, view: View) -> None:
        super().__init__(logging.WARNING)
        self.view = view

    def emit(self, record: logging.LogRecord) -> None:
        self.view.say(record.getMessage())
