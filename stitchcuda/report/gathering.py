"""Gathers everything that a report shows from a session's state, attempts and artefacts. Nothing is changed.

What is missing or damaged becomes a sentence in `lost`, never an error: a report shows what can be read. Nothing but sums and
floors (speed of light of regions) is computed here.

Where to look next: `report/report_facts.py` (who calls this), `report/findings.py` (the records).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from pydantic import TypeAdapter

from stitchcuda.compiler.regions.floor import region_floors
from stitchcuda.errors import StitchError
from stitchcuda.rag.excerpts import is_citation
from stitchcuda.report.diffs import FileChange, changes
from stitchcuda.report.findings import AttemptFindings, Card, Counters, Findings, TaskFate, TimeProfile
from stitchcuda.state import Attempt, Digest, Evidence, Plan, Precision, ProfileResult, Record, Region, Review, State, Task
from stitchcuda.store import Store
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.reference.baseline_times import BaselineTimes

Loaded = TypeVar("Loaded", bound=Record)
_REGIONS = TypeAdapter(tuple[Region, ...])


class _Reader:
    """Reads artefacts, and collects a sentence for each that cannot be read in `lost`.

    `place`: the workspace's folder, which is left out of the sentences, since a report is shown to others.
    """

    def __init__(self, store: Store, place: str = "") -> None:
        self.store = store
        self.place = place
        self.lost: list[str] = []

    def record(self, kind: type[Loaded], digest: Digest | None, what: str) -> Loaded | None:
        """The record in an artefact; None if there is no digest or it cannot be read. `what` it is called in a sentence."""
        try:
            return kind.model_validate_json(self.store.get(digest)) if digest else None
        except (StitchError, OSError, ValueError) as error:
            self.lose(what, error)
            return None

    def lose(self, what: str, error: Exception) -> None:
        self.lost.append(f"{what} cannot be shown: {sentence(error, self.place)}")


def sentence(error: Exception, place: str = "") -> str:
    """Why something cannot be read, in one line that ends with a full stop. Paths are relative to the folder `place`."""
    known = str(error) if isinstance(error, StitchError) else f"it is damaged ({type(error).__name__})"
    line = " ".join((known.replace(f"{place}/", "") if place else known).split())
    return line if line.endswith(("?", ".")) else f"{line}."


def gather(
    card: Card, state: State, attempts: Sequence[Attempt], predicted: Sequence[float], store: Store, *, place: str,
    lost: Sequence[str],
) -> Findings:  # fmt: skip
    """A report's content. `predicted`: times in ms of the best program after each attempt, by the cost model; `place`: the
    workspace's folder; `lost`: sentences on what could not be read before."""
    reader = _Reader(store, place)
    reader.lost.extend(lost)
    plans = [reader.record(Plan, digest, f"plan {number}") for number, digest in enumerate(state.get("plans", ()), 1)]
    tasks = {task.id: task for plan in plans if plan for task in plan.tasks}
    titles = {name: task.title for name, task in tasks.items()}
    claimed = {task.id for plan in plans if plan and plan.claimed for task in plan.tasks}
    tried = tuple(
        _tried(_Reader(store, place), number, attempt, titles, predicted[number - 1] if number <= len(predicted) else None)
        for number, attempt in enumerate(attempts, 1)
    )
    baseline, final = state.get("baseline"), state.get("final")
    precision = state["settings"].precision if "settings" in state else "reference"
    return Findings(
        card=card, device=baseline.device if baseline else None, baseline=baseline, final=final, attempts=tried,
        baselines=reader.record(BaselineTimes, state.get("baselines"), "the baselines' times"),
        tasks=_fates(reader, tasks, claimed, state, tried, precision),
        seen=_profiles(reader, state, tried),
        counters=_counters(reader, state, tried),
        plans=tuple(plan for plan in plans if plan), first=state.get("first"), program=state.get("program"),
        citations=_citations(tried), lost=tuple(dict.fromkeys(reader.lost)),
    )  # fmt: skip


def _tried(
    reader: _Reader, number: int, attempt: Attempt, titles: Mapping[str, str], predicted: float | None
) -> AttemptFindings:
    files: tuple[FileChange, ...] = ()
    try:
        files = changes(reader.store, attempt.base, attempt.program)
    except (StitchError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reader.lose("what it changed", error)
    return AttemptFindings(
        number=number, attempt=attempt, title=titles.get(attempt.task, ""), result=attempt.result,
        evidence=reader.record(Evidence, attempt.evidence, "its evidence"),
        review=reader.record(Review, attempt.review, "its review"),
        files=files, predicted_ms=predicted, lost=tuple(reader.lost),
    )  # fmt: skip


def _fates(
    reader: _Reader, tasks: Mapping[str, Task], claimed: Collection[str], state: State, tried: Sequence[AttemptFindings],
    precision: Precision,
) -> tuple[TaskFate, ...]:  # fmt: skip
    """All tasks of all plans: first those that were tried, in that order."""
    baseline = state.get("baseline")
    floors = {}
    if baseline:
        try:
            floors = region_floors(_REGIONS.validate_json(reader.store.get(baseline.regions)), baseline.device, precision)
        except (StitchError, OSError, ValueError) as error:
            reader.lose("the floors of the tasks", error)
    order = dict.fromkeys([entry.attempt.task for entry in tried] + list(tasks))
    fates = []
    for name in order:
        own = [entry for entry in tried if entry.attempt.task == name]
        task = tasks.get(name) or Task(id=name, kind="region", title="", predicted_ms=own[0].attempt.predicted_ms)
        own_floors = [floors[region] for region in task.regions if region in floors]
        binds = " and ".join(dict.fromkeys(floor.binds for floor in own_floors))
        kept, done = name in state.get("tasks_kept", ()), name in state.get("tasks_done", ())
        fates.append(TaskFate(
            task=task, claimed=name in claimed, fate="kept" if kept else "not kept" if done else "open",
            attempts=tuple(entry.number for entry in own),
            floor=f"{sum(floor.ms for floor in own_floors):.4f} ms, {binds}" if own_floors else "",
            **_measured(own, kept),
        ))  # fmt: skip
    return tuple(fates)


def _measured(own: Sequence[AttemptFindings], kept: bool) -> dict[str, float | None]:
    """The time that a task saved: the sum over its kept attempts, or that of its best attempt if none was kept. Fields of
    `TaskFate`; {} if none was timed."""
    timed = [entry for entry in own if entry.attempt.saving_ms is not None]
    chosen = [entry for entry in timed if entry.attempt.kept] if kept else []
    if not chosen and timed:
        chosen = [max(timed, key=lambda entry: entry.attempt.saving_ms or 0.0)]
    if not chosen:
        return {}
    timings = [entry.evidence.timing for entry in chosen if entry.evidence and entry.evidence.timing]
    whole = len(timings) == len(chosen)
    return {
        "measured_ms": sum(entry.attempt.saving_ms or 0.0 for entry in chosen),
        "low_ms": sum(timing.saving_low_ms for timing in timings) if whole else None,
        "high_ms": sum(timing.saving_high_ms for timing in timings) if whole else None,
    }


def _profiles(reader: _Reader, state: State, tried: Sequence[AttemptFindings]) -> tuple[TimeProfile, ...]:
    baseline, final = state.get("baseline"), state.get("final")
    found: list[tuple[str, ProfileResult | None]] = [("reference", baseline.system if baseline else None)]
    found += [(_titled(entry), entry.evidence.system) for entry in tried if entry.result == "kept" and entry.evidence]
    if final:
        found.append(("final program", final.system))
    return tuple(_profile(reader, title, result) for title, result in found)


def _profile(reader: _Reader, title: str, result: ProfileResult | None) -> TimeProfile:
    if result is None or result.skipped:
        return TimeProfile(title=title, why=result.skipped if result else "it was not profiled")
    what = f"the whole profile of the {title}"
    before = len(reader.lost)
    profile = reader.record(SystemProfile, result.digest, what)
    why = reader.lost[-1] if len(reader.lost) > before else "" if profile else "the whole profile was not kept"
    return TimeProfile(title=title, profile=profile, lines=(result.bottleneck, *result.lines), why=why)


def _counters(reader: _Reader, state: State, tried: Sequence[AttemptFindings]) -> Counters:
    """The counters of the final program, or of the newest kept attempt that has some; else why there are none."""
    final = state.get("final")
    found = [("final program", final.kernels)] if final and final.kernels else []
    newest = [entry for entry in reversed(tried) if entry.result == "kept" and entry.evidence]
    found += [(_titled(entry), entry.evidence.kernels) for entry in newest if entry.evidence and entry.evidence.kernels]
    why = ""
    for title, result in found:
        assert result is not None
        counted = None if result.skipped else reader.record(CountedKernels, result.digest, f"the counters of the {title}")
        if counted and counted.kernels:
            return Counters(title=title, counted=counted)
        why = why or result.skipped or (counted.skipped if counted else "")
    return Counters(why=why or "no hardware counters were read")


def _titled(found: AttemptFindings) -> str:
    return f"attempt {found.number}: {found.attempt.task}"


def _citations(tried: Sequence[AttemptFindings]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The documentation that reviews cite, most cited first, each with the numbers of the attempts."""
    found: dict[str, list[int]] = {}
    for entry in tried:
        for citation in dict.fromkeys(entry.review.citations if entry.review else ()):
            if is_citation(citation):
                found.setdefault(citation, []).append(entry.number)
    return tuple((text, tuple(numbers)) for text, numbers in sorted(found.items(), key=lambda item: -len(item[1])))
