"""Makes rows for learning of one session: both skills, its models' talks, and states with returns.

Kinds of rows:

    skill1   the reference -> the session's program, of a session whose program was accepted
    skill2   a program and what was found about it -> a better one of the same session: a repair, or a faster one; applied to
             the files in `program`, the answer's blocks give it. No program of skill1 and skill2 has files that are no text
    rft      a whole talk with a chat model, of an accepted session; a coder's only if its program was correct
    value    what a coder was asked before an attempt, with what came of it

The reward of an attempt is `REWARD` of what the tools found; `credit` adds GAMMA times the next attempt's, GAMMA squared times
the one after, and so on (Kevin-32B, arXiv 2507.11948). An attempt without a score adds nothing, and a candidate that its step
did not go on with has its own reward alone. `outcome` is the reward of the session's end. It reads the store and changes
nothing.
Where to look next: `training/data.py` (who writes the rows), `training/rewards.py`, `sessions/session.py`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field

from stitchcuda.engineers.chat import ChatAnswer
from stitchcuda.engineers.diagnosis import describe_evidence
from stitchcuda.engineers.markdown_templates import render_markdown
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, Evidence, Record, Review
from stitchcuda.store import get_tree
from stitchcuda.training.rewards import Judged, floor_speedup, reward
from stitchcuda.verify.api import Verdict
from stitchcuda.verify.reference.baseline_times import BaselineTimes

Kind = Literal["skill1", "skill2", "rft", "value"]
How = Literal["write", "repair", "optimise", "planner", "coder", "verifier"]
REWARD, GAMMA = "log-speedup/1", 0.4
_TEMPLATE = Path(__file__).parent / "prompts" / "task.md.j2"
_PLACE = re.compile(r"(?P<role>planner|coder|verifier)-(?P<about>[0-9a-f]+)-(?P<ordinal>\d+)-[0-9a-f]{12}")
_NOT_SHOWN = "reference.py"


class SpokenTurn(Record):
    """One message, as chat models and trainers know it."""

    role: Literal["user", "assistant"]
    content: str


class DataRow(Record):
    """One row of a data set. Of `value` the messages end with the question; of the others the last one is to be learnt."""

    kind: Kind
    id: str                                # SESSION/KIND/ATTEMPT or ROLE-ABOUT
    session: str
    root: str                              # the session that a fork or replay descends from
    attempt: str = ""
    how: How
    messages: tuple[SpokenTurn, ...]
    reward: float | None = None            # of the attempt; None: it has no score
    credit: float | None = None            # with GAMMA, from this attempt on
    outcome: float | None = None           # of the session's end; None: it has not ended
    tier: str = ""
    author: str = ""                       # who wrote what is to be learnt, such as "builtin" or "openai:NAME"
    reference: str
    program: dict[str, str] = Field(default_factory=dict)  # of skill2: the files that the question shows, by path


def session_rows(session: Session) -> list[DataRow]:
    """Returns all rows that a session gives. Raises `Damaged` for what cannot be read."""
    return list(_SessionReader(session).rows())


def credits(rewards: Sequence[float | None], gamma: float = GAMMA) -> list[float | None]:
    """Returns each attempt's credit: its reward and, discounted, those of all later ones; None where it has no score."""
    found: list[float | None] = []
    later = 0.0
    for value in reversed(rewards):
        later = (value or 0.0) + gamma * later
        found.append(None if value is None else later)
    return found[::-1]


def task_text(how: How, reference: str, program: str = "", evidence: str = "") -> str:
    """What a model is asked in a single turn: to write a program for a reference, or a better one than `program`, of which
    `evidence` is known."""
    return render_markdown(_TEMPLATE, how=how, reference=reference.strip(), program=program, evidence=evidence)


def asked_to_write(reference: str) -> tuple[SpokenTurn, ...]:
    """The prompt of skill 1 for a reference."""
    return (SpokenTurn(role="user", content=task_text("write", reference)),)


class _SessionReader:
    """Reads one session: its attempts with their programs and evidence, and its transcript."""

    def __init__(self, session: Session) -> None:
        self.session, self.store = session, session.home.store
        self.record = session.record
        self.reference = self.store.get(self.record.source).decode(errors="replace")
        with session.read_once():
            self.state, self.outcome = session.state(), session.outcome()
        self.attempts = [*self.store.attempts(session.name).values()]
        self.rewards = {attempt.id: self._reward(attempt.correct, attempt.tier, attempt.speedup) for attempt in self.attempts}
        line = [attempt.id for attempt in self.attempts if not attempt.beside]
        self.credits = self.rewards | dict(zip(line, credits([self.rewards[name] for name in line]), strict=True))
        ended = self.outcome.status == "done"
        self.end = self._reward(self.outcome.accepted, self.outcome.tier, self.outcome.speedup) if ended else None

    def rows(self) -> Iterator[DataRow]:
        yield from self._skill1()
        yield from self._skill2()
        yield from self._talks()
        yield from self._values()

    def _skill1(self) -> Iterator[DataRow]:
        best, program = self.state.get("best"), self.state.get("program")
        if self.outcome.accepted and best and program and self._is_text(program):
            yield self._row("skill1", "write", best, self._asked("write"), _written(self._files(program)))

    def _skill2(self) -> Iterator[DataRow]:
        by_program = {attempt.program: attempt for attempt in self.attempts if attempt.correct}
        for number, attempt in enumerate(self.attempts):
            if not attempt.correct or not self._is_text(attempt.program):
                continue
            earlier = [before for before in self.attempts[:number] if before.task == attempt.task and not before.beside]
            last, base = earlier[-1] if earlier else None, by_program.get(attempt.base or "")
            last, base = (before if before and self._is_text(before.program) else None for before in (last, base))
            if last is not None and not last.correct:
                yield self._better("repair", last, attempt)
            elif last is not None and _faster(attempt, last):
                yield self._better("optimise", last, attempt)
            if base is not None and base is not last and attempt.kept:
                yield self._better("optimise", base, attempt)

    def _talks(self) -> Iterator[DataRow]:
        if not self.outcome.accepted:
            return
        attempts = {attempt.id: attempt for attempt in self.attempts}
        for (role, about), (turns, author) in self._last_calls().items():
            attempt = attempts.get(about)
            if role == "coder" and not (attempt and attempt.correct):
                continue
            row = self._row("rft", role, attempt, turns[:-1], turns[-1].content)
            yield row.model_copy(update={"id": f"{self.session.name}/rft/{role}-{about}", "author": _model(author)})

    def _values(self) -> Iterator[DataRow]:
        if self.end is None:
            return
        talks = self._last_calls()
        for attempt in self.attempts:
            turns, _ = talks.get(("coder", attempt.id), ((), ""))
            yield self._row("value", "coder", attempt, tuple(turns[:-1]) or self._state_before(attempt))

    def _state_before(self, attempt: Attempt) -> tuple[SpokenTurn, ...]:
        """What was known before an attempt of the built-in engineer: the attempt before it, if there is one."""
        parent = next((earlier for earlier in self.attempts if earlier.id == attempt.parent), None)
        if parent is None:
            return self._asked("write")
        return self._asked("optimise" if parent.correct else "repair", parent)

    def _better(self, how: How, before: Attempt, after: Attempt) -> DataRow:
        shown, files = self._files(before.program), self._files(after.program)
        removed = dict.fromkeys(shown.keys() - files.keys(), "")
        row = self._row("skill2", how, after, self._asked(how, before), _written(files | removed))
        return row.model_copy(update={"id": f"{row.id}-from-{before.id}", "program": shown})

    def _row(
        self, kind: Kind, how: How, attempt: Attempt | None, asked: Sequence[SpokenTurn], answer: str | None = None
    ) -> DataRow:
        name = attempt.id if attempt else ""
        answered = () if answer is None else (SpokenTurn(role="assistant", content=answer),)
        return DataRow(
            kind=kind, id=f"{self.session.name}/{kind}/{name}", session=self.session.name, root=self.record.root, attempt=name,
            how=how, messages=(*asked, *answered), reward=self.rewards.get(name), credit=self.credits.get(name),
            outcome=self.end, tier=(attempt.tier or "") if attempt else "", author=_model(attempt.engineer) if attempt else "",
            reference=self.reference,
        )  # fmt: skip

    def _asked(self, how: How, before: Attempt | None = None) -> tuple[SpokenTurn, ...]:
        program = _written(self._files(before.program)) if before else ""
        evidence = self._evidence(before) if before else ""
        return (SpokenTurn(role="user", content=task_text(how, self.reference, program, evidence)),)

    def _is_text(self, digest: str) -> bool:
        """Whether an answer can hold all its files: constants are no text."""
        return get_tree(self.store, digest).keys() - {_NOT_SHOWN} == self._files(digest).keys()

    def _files(self, digest: str) -> dict[str, str]:
        """A program's files as they are shown; files that are no text are left out."""
        found: dict[str, str] = {}
        for name, data in sorted(get_tree(self.store, digest).items(), key=_model_first):
            with suppress(UnicodeDecodeError):
                if name != _NOT_SHOWN and b"\0" not in data:
                    found[name] = data.decode().rstrip() + "\n"
        return found

    def _evidence(self, attempt: Attempt) -> str:
        evidence = Evidence.model_validate_json(self.store.get(attempt.evidence))
        review = Review.model_validate_json(self.store.get(attempt.review))
        said = [f"Bottleneck: {review.bottleneck}", f"Suggestion: {review.suggestion}"] if not review.skipped else []
        return "\n".join([describe_evidence(evidence), *said])

    def _reward(self, accepted: bool, tier: str | None, speedup: float | None) -> float | None:
        verdict = Verdict.model_validate({"accepted": accepted, "tier": tier or "compiled", "speedup": speedup})
        baseline, times = self.state.get("baseline"), self.state.get("baselines")
        floor = floor_speedup(baseline.eager_ms or baseline.predicted_ms, baseline.floor_ms) if baseline else None
        timed = BaselineTimes.model_validate_json(self.store.get(times)) if times else None
        if timed is not None and timed.skipped:
            timed = None
        return reward(REWARD, Judged(verdict=verdict, baselines=timed, floor=floor)).value

    @functools.cache  # noqa: B019  a reader lives as long as its session is read
    def _last_calls(self) -> Mapping[tuple[How, str], tuple[tuple[SpokenTurn, ...], str]]:
        """By role, and by what the talk was about: its turns with the last usable answer, and the model."""
        found: dict[tuple[How, str], tuple[int, tuple[SpokenTurn, ...], str]] = {}
        for name, call in self.store.calls(self.session.name).items():
            place = _PLACE.fullmatch(name)
            if not place or not call.reply or not call.model:
                continue
            answer = ChatAnswer.model_validate_json(self.store.get(call.reply))
            if answer.refusal or answer.finish != "stop" or not answer.text.strip():
                continue
            if answer.message is not None:
                continue                   # a turn of an agent: its tools' results are no turns of a talk
            asked = json.loads(self.store.get(call.request))["messages"]
            turns = (*(SpokenTurn(role=turn["role"], content=turn["content"]) for turn in asked), _said(answer.text))
            key: tuple[How, str] = (place["role"], place["about"])  # type: ignore[assignment]
            if key not in found or found[key][0] < int(place["ordinal"]):
                found[key] = (int(place["ordinal"]), turns, call.model)
        return {key: (turns, model) for key, (_, turns, model) in found.items()}


def _written(files: Mapping[str, str]) -> str:
    """Files as an answer has them, each in a block that begins with its path; an empty text is an empty block, which removes
    the file."""
    return "\n\n".join(f"```{name}\n{text}```" for name, text in sorted(files.items(), key=_model_first))


def _said(text: str) -> SpokenTurn:
    return SpokenTurn(role="assistant", content=text)


def _model(name: str) -> str:
    """A model's name; a mailbox's folder is nobody's business."""
    return "mailbox" if name.startswith("mailbox:") else name


def _faster(attempt: Attempt, than: Attempt) -> bool:
    """Whether both were timed and it takes less time."""
    return attempt.program_ms is not None and than.program_ms is not None and attempt.program_ms < than.program_ms


def _model_first(file: tuple[str, str | bytes]) -> tuple[bool, str]:
    return file[0] != "model_new.py", file[0]
