"""Makes the tables and lines that show a session, a comparison, a verdict and the checks of `doctor` in a terminal.

A speed-up is shown for the tiers measured and timed only; anything else is called a prediction. Nothing here computes a result.

Where to look next: `sessions/outcome_text.py` (the sentences), `sessions/outcome.py` (the figures), `cli/app.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from stitchcuda.compiler.regions.floor import Floor, region_floors
from stitchcuda.counts import counted
from stitchcuda.engineers.attempt_history import saved_by
from stitchcuda.engineers.review_findings import list_open
from stitchcuda.errors import Damaged
from stitchcuda.nodes.final_check import starting_program
from stitchcuda.nodes.report_text import describe_spending, gain_over_start, verdict_grounds
from stitchcuda.rag.excerpts import is_citation
from stitchcuda.sessions.outcome import Outcome
from stitchcuda.sessions.outcome_text import gain, headline, next_commands
from stitchcuda.sessions.progress import milliseconds
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, Plan, Region, Review, Task

if TYPE_CHECKING:
    from stitchcuda.graph.approval import Question
    from stitchcuda.sessions.compare import ComparedSession, Comparison
    from stitchcuda.tools.doctor.doctor import Check
    from stitchcuda.verify.api import Seconds, Verdict

SHOWN = 60                                 # most tasks and attempts that are shown without --all
_WORTH_SAYING_S = 0.1                      # a question that took less is not listed
_REGIONS = TypeAdapter(tuple[Region, ...])


def summary(session: Session, *, shown: bool = False) -> str:
    """A session's result in a few lines: what was done, what that rests on, what to run next. `shown`: by the command show."""
    outcome, state = session.outcome(), session.state()
    baseline, final = state.get("baseline"), state.get("final")
    device = baseline.device.name if baseline else "this device"
    lines = [f"{headline(outcome)}: {gain(outcome, device)}" if outcome.accepted else headline(outcome)]
    lines += _kept_tasks(session)
    if outcome.status in ("done", "nothing_to_do"):
        lines += [f"open:    {line}" for line in list_open(session.reviewed())]
    if final is not None and final.check is not None:
        lines.append(f"rests on: {verdict_grounds(final, final.check, session.settings.precision)}")
    kept = [attempt for attempt in session.attempts() if attempt.kept]
    if final is not None and final.timing is not None and starting_program(kept):
        lines.append(gain_over_start(final.timing))
    if outcome.usage.calls:
        lines.append(f"spent:   {describe_spending(outcome.usage, session.attempts())}")
    if outcome.program:
        lines.append(f"program: {outcome.program}")
    if outcome.report:
        lines.append(f"report:  {outcome.report}")
    lines += [f"next:    {command}" for command in next_commands(session, outcome, shown=shown)]
    return "\n".join(lines)


def _kept_tasks(session: Session) -> list[str]:
    """One line for each task in the program, in the order in which they were stitched."""
    kept = session.state().get("tasks_kept", ())
    accepted = [attempt for attempt in session.attempts() if attempt.kept]
    attempts = {attempt.task: attempt for attempt in accepted}
    titles: dict[str, str] = {}
    for digest in session.state().get("plans", ()):
        with suppress(Damaged):            # a title is worth no error
            plan = Plan.model_validate_json(session.home.store.get(digest))
            titles |= {task.id: task.title for task in plan.tasks if task.kind != "open"}
    lines = []
    for task in kept:
        attempt = attempts.get(task)
        if attempt is None:
            continue
        saving = saved_by(accepted, task)
        saved = f"saved {milliseconds(saving)}" if saving is not None else ""
        predicted = f"{'claims' if attempt.claimed else 'predicted'} to save {milliseconds(attempt.predicted_ms)}"
        what = titles.get(task) or attempt.note or "of a plan that is lost"
        lines.append("; ".join(filter(None, [f"  + {task}: {what}", saved or (predicted if attempt.predicted_ms else "")])))
    return lines


class _Listing:
    """A table that leaves out columns in a narrow terminal, in the order of `leave_out`. No cell is cut or wrapped."""

    def __init__(self, columns: Sequence[str], leave_out: Sequence[str]) -> None:
        self.rows: list[Sequence[str]] = []
        self._columns = columns
        self._leave_out = leave_out

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(self._columns)
        for name in self._leave_out:
            if self._width(shown) > options.max_width:
                shown.remove(name)
        width = self._width(shown)
        table = Table(*(Column(name, no_wrap=True) for name in shown), box=None, width=width)
        for row in self.rows:
            _add(table, *(cell for name, cell in zip(self._columns, row, strict=True) if name in shown))
        yield from console.render(table, options.update_width(max(options.max_width, width)))

    def _width(self, shown: Sequence[str]) -> int:
        """The table's width, with a blank on either side of each cell."""
        cells = zip(*(self._columns, *self.rows), strict=True)
        return sum(2 + max(map(cell_len, column)) for column in cells if column[0] in shown)


def sessions_tables(sessions: Iterable[tuple[Session, Outcome]], damaged: Mapping[str, str]) -> list[RenderableType]:
    """A table with one line per session, then a sentence for each damaged one. Names are never cut or wrapped, however narrow
    the terminal, since a user copies them."""
    listing = _Listing(
        ("session", "status", "accepted", "tier", "tasks", "attempts", "speed-up", "model", "started"),
        leave_out=("started", "model", "accepted", "tier", "attempts", "tasks", "speed-up", "status"),
    )
    for session, outcome in sessions:
        listing.rows.append([
            session.name, outcome.status, "yes" if outcome.accepted else "no", outcome.tier or "-",
            f"{outcome.tasks_done}/{outcome.tasks_total}", str(outcome.attempts), outcome.ratio or "-",
            session.record.settings.model, session.record.created[:16].replace("T", " "),
        ])  # fmt: skip
    listing.rows += [(name, "damaged", *["-"] * 7) for name in sorted(damaged)]
    wrong = [Text(f"{name}: {text}", overflow="ignore") for name, text in sorted(damaged.items())]
    return [listing, *wrong]


def session_tables(session: Session, *, everything: bool = False) -> list[Table]:
    """Tables of the plan's tasks, of the attempts, of cited documentation and of open questions. Without `everything` only the
    latest `SHOWN` tasks and attempts."""
    state, attempts, plan = session.state(), session.attempts(), session.plan
    baseline = state.get("baseline")
    device = baseline.device if baseline else None
    rests_on = f"; floors by {'measured' if device.measured else 'nominal'} figures of {device.name}" if device else ""
    done, planned = state.get("tasks_done", ()), plan.tasks if plan else ()
    first = 0 if everything else len(attempts[:-SHOWN])
    earlier = [task.id for task in planned if task.id in set(done)][: 0 if everything else -SHOWN]
    shown = [task for task in planned if task.id not in earlier]
    saving = "claimed" if plan and plan.claimed else "predicted"
    tasks = _tasks(shown, _floors(session), state.get("tasks_kept", ()), done, saving)
    tasks.title = Text(f"tasks{rests_on}{_note_earlier(len(earlier))}", style="table.title")
    tried = _attempts(attempts, first)
    tried.title = f"attempts{_note_earlier(first)}"
    tables = [tasks, tried, _documentation(session, attempts[first:]), *map(_waiting, session.waiting)]
    return [table for table in tables if table.row_count]


def _note_earlier(number: int) -> str:
    return f"; {number:,} earlier ones are shown by --all" if number else ""


def _floors(session: Session) -> dict[str, Floor]:
    """The speed of light of each region; {} before the baseline."""
    baseline = session.state().get("baseline")
    if baseline is None:
        return {}
    regions = _REGIONS.validate_json(session.home.store.get(baseline.regions))
    return region_floors(regions, baseline.device, session.record.settings.precision)


def _tasks(
    planned: Sequence[Task], floors: Mapping[str, Floor], kept: Sequence[str], done: Sequence[str], saving: str
) -> Table:
    table = Table("task", "title", saving, "floor", "status", "why", box=None, title_justify="left")
    for task in planned:
        status = "kept" if task.id in kept else "not kept" if task.id in done else "open"
        own = [floors[name] for name in task.regions if name in floors]
        binds = dict.fromkeys(floor.binds for floor in own)
        bound = f"{milliseconds(sum(floor.ms for floor in own))}, {' and '.join(binds)}" if own else "-"
        expected = "-" if task.kind == "open" else milliseconds(task.predicted_ms)  # an agent claims nothing
        _add(table, task.id, task.title, expected, bound, status, task.why)
    return table


def _attempts(attempts: Sequence[Attempt], first: int) -> Table:
    table = Table("#", "attempt", "task", "result", "tier", "saved", "route", "because", box=None, title_justify="left")
    for number, attempt in enumerate(attempts[first:], first + 1):
        because = "; ".join(text for text in (attempt.diagnosis, attempt.route_reason) if text)
        _add(
            table, str(number), attempt.id[:8], f"{attempt.task} #{attempt.ordinal}", attempt.result, attempt.tier or "-",
            milliseconds(attempt.saving_ms), attempt.route, because,
        )  # fmt: skip
    return table


def _documentation(session: Session, attempts: Sequence[Attempt]) -> Table:
    """A table of what the reviews cite."""
    table = Table("attempt", "task", "cites", box=None, title="documentation", title_justify="left")
    for attempt in attempts:
        review = Review.model_validate_json(session.home.store.get(attempt.review))
        for citation in review.citations:
            if is_citation(citation):
                _add(table, attempt.id[:8], f"{attempt.task} #{attempt.ordinal}", citation)
    return table


def _waiting(question: Question) -> Table:
    """A table of what a person is asked to approve: a plan's tasks, or the files of a draft."""
    about = question.about
    if question.kind == "plan":
        saving = "predicted" if about["engineer"] == "builtin" else "claimed"
        table = Table("task", "title", saving, "why", "strategy", box=None, title_justify="left")
        for task in about["tasks"]:
            _add(table, task["id"], task["title"], milliseconds(task["predicted_ms"]), task["why"], task["strategy"])
    else:
        table = Table("file", "lines", "of the draft", box=None, title_justify="left")
        for path, text in about["files"].items():
            _add(table, path, str(len(text.splitlines())), text)
    table.title = Text(f"waits for {about['waiting_for']}", style="table.title")
    return table


def comparison_table(found: Comparison) -> Table:
    """A table of two sessions side by side, with the settings that differ."""
    sides = Table("", found.a.name, found.b.name, box=None)
    rows: list[tuple[str, Callable[[ComparedSession], str]]] = [
        ("attempts", lambda side: str(side.attempts)),
        ("kept", lambda side: ", ".join(side.kept) or "-"),
        ("tier", lambda side: side.tier or "-"),
        ("speed-up", lambda side: f"{side.speedup:.2f}×" if side.speedup and side.tier in ("measured", "timed") else "-"),
        ("predicted", lambda side: f"{side.predicted_speedup:.2f}×" if side.predicted_speedup else "-"),
        ("program", lambda side: (side.program or "-")[:12]),
    ]
    for name, describe in rows:
        _add(sides, name, describe(found.a), describe(found.b))
    for name, (first, other) in found.settings.items():
        _add(sides, name, first, other)
    return sides


def comparison_line(found: Comparison) -> str:
    """One line on what two sessions have in common: reference, attempts, program."""
    alike = "the records are the same" if found.parts is None else f"the records part at attempt {found.parts}"
    same = "the same reference" if found.reference else "made from different references"
    differ = f"{counted(len(found.files), 'file')} of the programs {'differs' if len(found.files) == 1 else 'differ'}"
    files = differ if found.files else "the programs are the same"
    return f"{same}; {alike}; {files}"


def checks_table(checks: Iterable[Check]) -> Table:
    table = Table("", "check", "found", "what to do", box=None)
    for check in checks:
        _add(table, "ok" if check.ok else "--", check.name, check.detail, check.remedy)
    return table


def _add(table: Table, *cells: str) -> None:
    """Adds a row of plain text: text from models may look like rich's markup."""
    table.add_row(*map(Text, cells))


def _seconds_line(spent: Seconds) -> str:
    """What a verdict cost: "8.1 s: build 2.1, check 4.9 (values 3.0, build and load 1.2), timing 1.1"."""
    dearest = sorted(spent.questions.items(), key=lambda item: -item[1])[:3]
    listed = ", ".join(f"{question} {seconds:.1f}" for question, seconds in dearest if seconds >= _WORTH_SAYING_S)
    check = f"check {spent.check:.1f}{f' ({listed})' if listed else ''}"
    parts = [f"build {spent.build:.1f}", check, *([f"timing {spent.timing:.1f}"] if spent.timing else [])]
    return f"{spent.build + spent.check + spent.timing:.1f} s: {', '.join(parts)}"


def verdict_lines(verdict: Verdict) -> list[str]:
    """A verdict as lines: accepted or why not, and what it rests on."""
    label = f", {verdict.label}" if verdict.label else ""
    lines = [f"{'accepted' if verdict.accepted else 'refused'}, tier {verdict.tier}{label}"]
    lines += [f"  - {reason}" for reason in verdict.reasons]
    if verdict.max_error is not None and verdict.error_bound is not None:
        lines.append(f"worst error {verdict.max_error:.3g}, {verdict.error_bound:.3g} allowed")
    carried = verdict.significand
    if carried.used is not None and carried.needed is not None:
        listed = ", ".join(f"{operator} {bits}" for operator, bits in carried.operators.items())
        lines.append(f"significand {carried.used} bits, the reference's {carried.needed}{f' ({listed})' if listed else ''}")
    shares = verdict.shares
    if shares.own + shares.vendor + shares.framework:  # a program that failed has none
        lines.append(f"own kernels {shares.own:.0%}, vendor libraries {shares.vendor:.0%}, framework {shares.framework:.0%}")
    if verdict.speedup is not None:
        lines.append(f"{verdict.speedup:.2f}× over eager, {verdict.tier}")
    lines += [f"note: {note}" for note in verdict.notes]
    lines.append(_seconds_line(verdict.seconds))
    return lines + [f"unprotected: {what}" for what in verdict.unprotected]
