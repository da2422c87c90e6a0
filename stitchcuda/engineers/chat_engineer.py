"""Chat models as planner, coder and verifier: one conversation per plan, draft and review.

It renders a prompt, reads the answer and turns it into the session's records. A reply that cannot be used gets one repair in
which the model sees what is wrong; after that it is `Unusable`, and the session goes on without it. A coder may look before it
writes, a bounded number of times. It never takes another path when a model fails. The wording is in `prompts/`, what is shown
in `engineers/prompt.py`, asking and paying in `engineers/metered_chat.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from stitchcuda.compiler.printing.manifest import manifest_with_task
from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.chat import ChatAnswer, ChatRequest, ContextWindowExceeded, Message
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.prompt import LOOKED, LOOKS, PromptBudget, coder_prompt, looked, planner_prompt, verifier_prompt
from stitchcuda.engineers.reply import DraftReply, LookReply, Malformed, PlannedTask, PlanReply, Reply, ReviewReply
from stitchcuda.errors import Unavailable, Unusable
from stitchcuda.state import Evidence, Plan, Review, Role, Task

log = logging.getLogger(__name__)

T = TypeVar("T")
LINES = r"(?P<first>\d{1,6})\s*-\s*(?P<last>\d{1,6})?"
READ = re.compile(rf"[`\"']?(?:\./)?(?P<path>[^`\"':]{{1,200}}?)[`\"']?(?:(?::|\s)\s*{LINES})?[`\"'\s]*")
NAME = re.compile(r"[a-z][a-z0-9_-]{1,39}")
SMALLER = 0.6  # of every section's tokens, each time that the model's window did not hold them
REPAIRS = 1
# Characters of what a model says beside its code: later prompts repeat it.
TITLE, SENTENCE, PARAGRAPH, STRATEGY = 100, 600, 2400, 4000
CITATIONS = 8
MOST_LOOKED_AT, ARGUMENT = 12, 200  # of one look: things, characters of what each is called


class ChatEngineer:
    """`Engineer` over one desk per role; a coder's candidates take turns with its desks."""

    reads_docs = True
    reads_profiles = True

    def __init__(self, desks: Mapping[Role, tuple[MeteredChat, ...]]) -> None:
        self._desks = desks
        self.name = ", ".join(dict.fromkeys(desk.name for role in desks.values() for desk in role))

    def plan(self, brief: Brief) -> Plan:
        (desk,) = self._desks["planner"]

        def read(text: str) -> PlanReply:
            reply = PlanReply.from_text(text)
            check_plan(reply, brief)
            return reply

        reply = _Conversation(desk, "planner", brief.about).held(lambda room: planner_prompt(brief, room), PlanReply, read)
        notes = [f"({note}.)" for note in desk.chat.notes]
        return Plan(
            version=max((plan.version for plan in brief.plans), default=0) + 1,
            tasks=tuple(_task(planned) for planned in reply.tasks),
            evidence=(brief.baseline.capture, brief.baseline.regions),
            summary=" ".join([_shortened(reply.summary, SENTENCE), *notes]),
            host=_shortened(reply.host, PARAGRAPH),
        )

    def write(self, assignment: Assignment) -> Draft:
        desks = self._desks["coder"]
        desk = desks[assignment.candidate % len(desks)]
        base = assignment.last.files if assignment.last else assignment.program

        def read(text: str) -> tuple[DraftReply, Files]:
            reply = DraftReply.from_text(text)
            files = reply.applied(assignment.program if reply.afresh else base)
            if not reply.looks:
                _check_draft(reply, files, assignment, base)
            return reply, files

        def look(got: tuple[DraftReply, Files]) -> Callable[[], str] | None:
            return _look(assignment, *got) if got[0].looks else None

        conversation = _Conversation(desk, "coder", assignment.about)
        reply, files = conversation.held(lambda room: coder_prompt(assignment, room), None, read, look)
        note = _shortened(reply.note, SENTENCE)
        if reply.exhausted:
            return Draft(files={}, note=note, exhausted=_shortened(reply.exhausted, SENTENCE), engineer=desk.name)
        task = assignment.task
        files["program.json"] = manifest_with_task(files, assignment.program, task.id, note or task.strategy)
        return Draft(files=files, note=note, engineer=desk.name)

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        (desk,) = self._desks["verifier"]

        def read(text: str) -> ReviewReply:
            reply = ReviewReply.from_text(text)
            if not reply.bottleneck.strip() or not reply.suggestion.strip():
                raise Malformed("`bottleneck` and `suggestion` must not be empty")
            return reply

        conversation = _Conversation(desk, "verifier", assignment.about)
        reply = conversation.held(lambda room: verifier_prompt(assignment, draft, evidence, room), ReviewReply, read)
        return Review(
            bottleneck=_shortened(reply.bottleneck, SENTENCE),
            suggestion=_shortened(reply.suggestion, PARAGRAPH),
            route=reply.route,
            citations=tuple(_shortened(citation, SENTENCE) for citation in reply.citations[:CITATIONS]),
            expected_gain=_shortened(reply.expected_gain, SENTENCE),
        )


class _Conversation:
    """The turns of one role about one plan or attempt. Each call has its number, the same in every run."""

    def __init__(self, desk: MeteredChat, role: Role, about: str) -> None:
        self._desk, self._role, self._about = desk, role, about
        self._asked = 0

    def held(
        self,
        render: Callable[[PromptBudget], str],
        schema: type[Reply] | None,
        read: Callable[[str], T],
        look: Callable[[T], Callable[[], str] | None] = lambda got: None,
    ) -> T:
        """What `read` makes of the answer (it raises `Malformed` otherwise). Where `look` gives something to do, its text is
        shown and the model asked again."""
        scale, looks, repairs = 1.0, 0, 0
        messages = [Message("user", render(PromptBudget(self._desk.counter, scale)))]
        while True:
            ask = ChatRequest(self._role, self._about, self._asked, tuple(messages), schema)
            self._asked += 1
            try:
                answer = self._desk.ask(ask)
            except ContextWindowExceeded as error:
                if scale <= SMALLER**2:
                    raise Unavailable(
                        f"{self._desk.name} cannot take a prompt as {self._role} even when it is shortened ({error}): use a "
                        "model with a larger context window"
                    ) from error
                scale *= SMALLER
                log.warning("%s: the prompt is too long, shortened to %.0f %%", self._desk.name, 100 * scale)
                messages = [Message("user", render(PromptBudget(self._desk.counter, scale)))]
                continue
            try:
                got = read(_usable(answer))
                todo = look(got)
            except Malformed as error:
                repairs += 1
                if repairs > REPAIRS:
                    text = f"{self._desk.name} answered as {self._role} in a form that cannot be used: {error}"
                    raise Unusable(text) from error
                log.info("%s: malformed reply as %s, asking once more: %s", self._desk.name, self._role, error)
                said = answer.text if len(answer.text) < 40_000 else f"{answer.text[:2000]}\n…"
                repair = f"Your reply could not be used: {error}\nReply again, complete and in the required form."
                messages += [Message("assistant", said or "(empty)"), Message("user", repair)]
                continue
            if todo is None:
                return got
            looks += 1
            seen = self._desk.transcript.once(f"look-{self._about}-{self._asked}", todo)
            shown = looked(seen, LOOKS - looks, PromptBudget(self._desk.counter, scale))
            messages += [Message("assistant", answer.text), Message("user", shown)]
            if looks > LOOKS:
                raise Unusable(f"{self._desk.name} looked {looks} times and wrote nothing")


def _usable(answer: ChatAnswer) -> str:
    """The text to read. Raises `Malformed` for what came to no end."""
    if answer.refusal:
        raise Malformed(f"it was refused ({' '.join(answer.refusal.split())[:200]})")
    if answer.finish == "length":
        raise Malformed("it was cut off at the output limit: write less, only what changes")
    if answer.finish == "long":
        raise Malformed("it is longer than a megabyte: write the files that change and nothing else")
    return answer.text


def _look(assignment: Assignment, reply: DraftReply, files: Files) -> Callable[[], str]:
    """What the coder wanted to see, to be found out when it is wanted."""

    def seen() -> str:
        found = [_seen(assignment, look, files) for look in reply.looks[:MOST_LOOKED_AT]]
        if len(reply.looks) > MOST_LOOKED_AT:
            found.append(("the rest", f"{MOST_LOOKED_AT} things are looked at, at once: ask for the others in another look."))
        return "\n\n".join(f"{LOOKED}{head}\n{text}" for head, text in found)

    return seen


def _seen(assignment: Assignment, look: LookReply, files: Files) -> tuple[str, str]:
    """What was looked at, as a head that says nothing else than that, and what is there."""
    argument = " ".join(look.argument.replace("#", " ").split())[:ARGUMENT]
    if look.tool == "read":
        return _read(look.argument.strip(), files)
    if assignment.look is not None and look.tool == "compile":
        return "compile", assignment.look.compile(files)
    if assignment.look is not None and look.tool == "profile":
        return f"profile {argument}", assignment.look.profile(argument)
    if assignment.look is not None and look.tool == "docs":
        return f"docs {argument}", assignment.look.docs(argument)
    tool = look.tool[:ARGUMENT]
    return tool, f"There is no tool {tool!r}: compile, read FILE [FROM-TO], profile KERNEL, docs QUERY."


def _read(argument: str, files: Files) -> tuple[str, str]:
    """A file of the program, or lines FROM-TO of it, counted from 1; TO may be missing."""
    asked = READ.fullmatch(argument)
    path = asked["path"].strip() if asked else " ".join(argument.replace("#", " ").split())[:ARGUMENT]
    text = files.get(path)
    if not isinstance(text, str):
        return "read", f"There is no text file {path!r}. These are there: {', '.join(sorted(files))}"[:SENTENCE]
    body = text.rstrip().splitlines()
    if asked is None or asked["first"] is None:
        return f"read {path}", "\n".join(["```", *body, "```"])
    first, last = int(asked["first"]), int(asked["last"] or len(body))
    if not 1 <= first <= min(last, len(body)):
        return f"read {path}", f"It has {len(body)} lines: `read {path} 1-{len(body)}` shows them all."
    return f"read {path} {first}-{last}", "\n".join(["```", *body[first - 1 : last], "```"])


def _task(planned: PlannedTask) -> Task:
    return Task(
        id=planned.name,
        kind="region" if planned.regions else "host",
        title=_shortened(planned.title, TITLE),
        regions=tuple(planned.regions),
        predicted_ms=planned.predicted_ms,
        why=_shortened(planned.why, SENTENCE),
        strategy=_shortened(planned.strategy, STRATEGY),
    )


def _shortened(text: str, most: int) -> str:
    text = text.strip()
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def check_plan(plan: PlanReply, brief: Brief) -> None:
    """Regions exist, names are new and come once, and predictions are possible at all. Raises `Malformed`."""
    regions = {region.id for region in brief.regions}
    # 0: nothing is known of an opaque program
    whole = brief.program_ms or brief.baseline.eager_ms or brief.baseline.predicted_ms
    seen: set[str] = set()
    for task in plan.tasks:
        if not NAME.fullmatch(task.name):
            raise Malformed(f"the name {task.name!r} is none: use 2 to 40 small letters, digits, - and _, such as fused-norm")
        if task.name in seen:
            raise Malformed(f"the task {task.name!r} is planned twice")
        if task.name in brief.finished:
            raise Malformed(f"the task {task.name!r} was finished before: give a new one a new name")
        if unknown := [name for name in task.regions if name not in regions]:
            raise Malformed(f"{task.name!r} names a region that does not exist: {', '.join(unknown)}")
        if task.predicted_ms < 0 or (task.predicted_ms > whole > 0):
            raise Malformed(f"predicted_ms of {task.name!r} is {task.predicted_ms:g}; the whole program takes {whole:g} ms")
        seen.add(task.name)


def _check_draft(draft: DraftReply, files: Files, assignment: Assignment, base: Files) -> None:
    """A draft changes something."""
    for what, known in (("in the program now", assignment.program), ("in your last draft", base)):
        if draft.files and _without_manifest(files) == _without_manifest(known):
            raise Malformed(f"every file is the same as {what}: change something, or write `exhausted: why not`")


def _without_manifest(files: Files) -> Files:
    return {path: text for path, text in files.items() if path != "program.json"}
