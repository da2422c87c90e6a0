"""Shows a running session: a live panel in a terminal, plain lines elsewhere.

Both are fed with a session's events (see `nodes/context.py`) and write to stderr, so stdout stays clean. Nothing here
changes or decides anything.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stitchcuda.counts import counted
from stitchcuda.state import Attempt, Call, Settings, Task, Usage

Listener = Callable[[dict[str, Any]], None]
"""Is told a session's events: see `nodes/context.py`."""
LINES = 6  # the latest lines shown below the live panel's tasks
TASKS = 12
WORTH_A_LINE_S = 1.0


def milliseconds(value: float | None) -> str:
    """A time for people; "-" for none."""
    if value is None:
        return "-"
    return f"{value:.3g} ms" if value >= 0.01 else f"{value * 1000:.3g} µs"


@dataclass
class Progress:
    """What the events so far amount to, from where the session stood when this run began."""

    tasks: dict[str, Task] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)  # task id → open, kept, not kept, or what failed last
    attempts: int = 0
    started: int = 0                       # of those, by the built-in engineer before a chat model went on
    starting: bool = False                 # that engineer is at work: its attempts are not counted against a budget
    best: str = ""
    node: str = ""
    replies: int = 0  # pieces of the reply that is streaming in
    usage: Usage = field(default_factory=Usage)
    settings: Settings | None = None       # None until the session is there
    opened: float = field(default_factory=time.monotonic)
    begun: float = field(default_factory=time.monotonic)  # the session, were its runs one

    def elapsed(self, since: float | None = None) -> str:
        seconds = int(time.monotonic() - (self.opened if since is None else since))
        return f"{seconds // 60}:{seconds % 60:02d}"

    def take(self, event: dict[str, Any]) -> str:
        """Takes an event in and returns its line for the log, "" when it is not worth one."""
        match event["kind"]:
            case "session":
                return self._session(event)
            case "node":
                return self._node(event)
            case "step":                   # of a node that has several long ones
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
                self.best = best_line(event["attempt"], [task for task, is_ in self.status.items() if is_ == "kept"])
                return f"best so far: {self.best}"
            case "note":
                return f"note: {event['text']}"
        return ""

    def _session(self, event: dict[str, Any]) -> str:
        """Begins from where the session stands, which is in the event (`sessions/running.py`)."""
        self.settings, self.attempts = event.get("settings"), event.get("attempts", 0)
        self.started, self.starting = event.get("started", 0), event.get("stage") == "start"
        self.usage = event.get("usage", Usage())
        self.begun = time.monotonic() - self.usage.wall_s
        done, kept = event.get("done", ()), event.get("kept", ())
        self.tasks = {task.id: task for task in event.get("tasks", ())}
        self.status = dict.fromkeys(self.tasks, "open")
        self.status |= {attempt.task: failed(attempt) for attempt in event.get("recent", ()) if attempt.task in self.tasks}
        self.status |= dict.fromkeys(done, "not kept") | dict.fromkeys(kept, "kept")
        line = f"session {event['session']} {'goes on' if event.get('resumed') else 'starts'} in {event['workspace']}"
        if event.get("best"):
            self.best = best_line(event["best"], kept)
            line += f": {counted(self.attempts, 'attempt')}, best so far: {self.best}"
        return line

    def _node(self, event: dict[str, Any]) -> str:
        """A node is worth a line when it took a while, or will (the baseline imports torch and captures)."""
        about = f"{event['node']} ({event['task']})" if event.get("task") else str(event["node"])
        if event["phase"] == "start":
            self.node, self.replies = about, 0
            return "baseline: running and capturing the reference" if event["node"] == "baseline" else ""
        self.usage = event["usage"]
        return f"{about}: {event['seconds']:.1f} s" if event["seconds"] >= WORTH_A_LINE_S else ""

    def _call(self, call: Call) -> str:
        """A call of a model counts at once; its node, when it ends, brings the session's own sum."""
        usage = self.usage
        self.usage = usage.model_copy(
            update={
                "calls": usage.calls + 1,
                "input_tokens": usage.input_tokens + call.input_tokens,
                "output_tokens": usage.output_tokens + call.output_tokens,
                "usd": None if usage.usd is None or call.usd is None else usage.usd + call.usd,
            }
        )
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
        result = outcome_of(attempt)
        if attempt.route == "code":
            self.status[attempt.task] = failed(attempt)
        else:
            self.status[attempt.task] = "kept" if attempt.kept else "not kept"
        line = f"{attempt.task} #{attempt.ordinal} ({title}): {result}, then {attempt.route} ({attempt.route_reason})"
        return f"{line}: {attempt.diagnosis}" if attempt.diagnosis else line


def outcome_of(attempt: Attempt) -> str:
    if not attempt.built:
        return "does not build"
    if not attempt.correct:
        return "wrong"
    return f"correct ({attempt.tier})" if attempt.kept else f"correct ({attempt.tier}) but not kept"


def failed(attempt: Attempt) -> str:
    """The status of a task that is to be tried again."""
    return f"attempt {attempt.ordinal + 1} {outcome_of(attempt)}"


def best_line(attempt: Attempt, kept: Sequence[str]) -> str:
    """What the best program is, with a speed-up only where one was timed."""
    stitched = f"{len(kept)} stitched, {attempt.own_share:.0%} in own kernels, tier {attempt.tier}"
    return f"{stitched}, {attempt.speedup:.2f}× over eager" if attempt.speedup is not None else stitched


class View(Protocol):
    """Shows events; `say` is for what is not one."""

    def __call__(self, event: dict[str, Any]) -> None: ...

    def say(self, text: str) -> None: ...


class PlainView:
    """One line an event, with the time since the start."""

    def __init__(self) -> None:
        self.progress = Progress()

    def __call__(self, event: dict[str, Any]) -> None:
        line = self.progress.take(event)
        if line:
            self.say(line)

    def say(self, text: str) -> None:
        print(f"[{self.progress.elapsed():>5}] {' '.join(text.split())}", file=sys.stderr, flush=True)


class LiveView:
    """Tasks with their status, the node at work, attempts, the best so far, what was spent, and the latest lines."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.lines: list[str] = []
        self.spinner = Spinner("dots")

    def __call__(self, event: dict[str, Any]) -> None:
        line = self.progress.take(event)
        if line:
            self.say(line)

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
        """The tasks around the one at work, and how many are before and after them: a long plan has to fit the screen."""
        tasks = list(self.progress.tasks.values())
        settled = [self.progress.status.get(task.id) in ("kept", "not kept") for task in tasks]
        now = settled.index(False) if False in settled else len(tasks)
        first = max(0, min(now - TASKS // 3, len(tasks) - TASKS))
        return first, tasks[first : first + TASKS], max(0, len(tasks) - first - TASKS)

    def _spent(self) -> str:
        """What was spent, and of how much where there is a limit."""
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
    """ " of 30"; "" where there is no limit."""
    if limit is None:
        return ""
    return f" of {limit:,}" if isinstance(limit, int) else f" of {limit:g}"


@contextmanager
def watch(*, plain: bool) -> Iterator[View]:
    """The view for this terminal: live when stderr is one and `plain` was not asked for."""
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
def shown(progress: bool | None, on_event: Listener | None) -> Iterator[Listener | None]:
    """What is to be told a session's events: a view and `on_event`, or `on_event` alone where `progress` is False.

    None is True in a terminal (a live panel) and in a notebook (plain lines), else False.
    """
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter if progress is None else progress):
        yield on_event
        return
    with watch(plain=False) as view:

        def tell(event: dict[str, Any]) -> None:
            view(event)
            if on_event is not None:
                on_event(event)

        yield tell


@contextmanager
def _logged(view: View) -> Iterator[None]:
    """Sends our own warnings (a fallback, say) through the view while it is shown: a raw line would tear the panel."""
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
