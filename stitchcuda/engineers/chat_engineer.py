"""Implements an engineer by chat models: one conversation per plan, draft and review.

Each conversation renders a prompt, reads the answer and turns it into a record. A malformed reply gets REPAIRS more tries in
which the model sees what is wrong (one, if it repeats itself), then `Unusable` is raised; no attempt is counted for them. A
coder may look things up LOOKS times before it writes. A prompt that does not fit into the model's context window is shortened
twice. No other model is tried when one fails.

Where to look next: `engineers/prompt.py` (prompts), `engineers/reply.py` (replies), `engineers/metered_chat.py` (calls).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from stitchcuda.compiler.printing.manifest import manifest_with_task, with_digests
from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.chat import ChatAnswer, ChatRequest, ContextWindowExceeded, Message
from stitchcuda.engineers.draft_in_progress import DraftInProgress
from stitchcuda.engineers.draft_reply import DraftReply, LookReply
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.prompt import (
    LOOK_LIMITS,
    LOOKED,
    LOOKS,
    MOST,
    REVIEW_LOOKED,
    REVIEW_LOOKS,
    coder_prompt,
    look_results,
    planner_prompt,
    room_for_look,
    shorten_conversation,
    verifier_prompt,
)
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.reply import NOTHING, Malformed, PlannedTask, PlanReply, Reply, ReviewReply
from stitchcuda.errors import Unavailable, Unusable
from stitchcuda.state import Evidence, Plan, Review, Role, Structure, Task

log = logging.getLogger(__name__)

T = TypeVar("T")
LINES = r"(?P<first>\d{1,6})\s*-\s*(?P<last>\d{1,6})?"
READ = re.compile(rf"[`\"']?(?:\./)?(?P<path>[^`\"':]{{1,200}}?)[`\"']?(?:(?::|\s)\s*{LINES})?[`\"'\s]*")
NAME = re.compile(r"[a-z][a-z0-9_-]{1,39}")
SMALLER = 0.6  # factor on every section's tokens, each time that the prompt did not fit into the context window
REPAIRS = 3
# The most characters of the model's texts beside its code: later prompts repeat them.
TITLE, SENTENCE, PARAGRAPH, STRATEGY = 100, 600, 2400, 4000
CITATIONS = 8
FORMS = {"compile": "compile", "check": "check", "bench": "bench [KERNEL]", "profile": "profile KERNEL", "docs": "docs QUERY"}
NO_LOOKS = "Hand in your draft now. Files that you wrote beside a look are kept: an answer without blocks hands them in."
MOST_STRUCTURES = 3                        # of one task
MOST_LOOKED_AT, ARGUMENT = 12, 200  # in one look: entries, and characters of an entry's argument


class ChatEngineer:
    """An `Engineer` with one chat model per role; the coder may have several, with which its candidates take turns."""

    reads_docs = True
    reads_profiles = True

    def __init__(self, chats: Mapping[Role, tuple[MeteredChat, ...]]) -> None:
        self._chats = chats
        self.name = ", ".join(dict.fromkeys(chat.name for role in chats.values() for chat in role))

    def plan(self, brief: Brief) -> Plan:
        (chat,) = self._chats["planner"]

        def read(text: str) -> PlanReply:
            reply = PlanReply.from_text(text)
            check_plan(reply, brief)
            return reply

        reply = _Conversation(chat, "planner", brief.about).run(lambda budget: planner_prompt(brief, budget), PlanReply, read)
        notes = [f"({note}.)" for note in chat.notes]
        return Plan(
            version=max((plan.version for plan in brief.plans), default=0) + 1,
            tasks=tuple(_task(planned) for planned in reply.tasks),
            evidence=(brief.baseline.capture, brief.baseline.regions),
            summary=" ".join([_shortened(reply.summary, SENTENCE), *notes]),
            host=_shortened(reply.host, PARAGRAPH),
        )

    def write(self, assignment: Assignment) -> Draft:
        chats = self._chats["coder"]
        chat = chats[assignment.candidate % len(chats)]
        draft = DraftInProgress(assignment.program, assignment.last.files if assignment.last else None)

        used: Counter[str] = Counter()

        def render(budget: PromptBudget) -> str:
            draft.restart()
            used.clear()
            return coder_prompt(assignment, budget)

        def look(reply: DraftReply) -> Looking | None:
            return Looking(_looks_to_do(assignment, reply, draft.files, used), draft.describe()) if reply.looks else None

        reply = _Conversation(chat, "coder", assignment.about).run(render, None, draft.read, look)
        if reply.exhausted:
            why = _shortened(reply.exhausted, SENTENCE)
            return Draft(files={}, note=_shortened(reply.note, SENTENCE), exhausted=why, engineer=chat.name)
        note = _shortened(draft.note, SENTENCE)
        task, files = assignment.task, dict(draft.files)
        if isinstance(model := files.get("model_new.py"), str):
            files["model_new.py"] = with_digests(model, files)
        files["program.json"] = manifest_with_task(files, assignment.program, task.id, note or task.strategy)
        return Draft(files=files, note=note, engineer=chat.name)

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        (chat,) = self._chats["verifier"]

        looked = 0

        def read(text: str) -> ReviewReply:
            reply = ReviewReply.from_text(text)
            if reply.read and looked < REVIEW_LOOKS:
                return reply               # it answers when it has seen them
            if not reply.bottleneck.strip() or not reply.suggestion.strip():
                raise Malformed("`bottleneck` and `suggestion` must not be empty")
            return reply

        def look(reply: ReviewReply) -> Looking | None:
            nonlocal looked
            if not reply.read or looked == REVIEW_LOOKS:
                return None                # what it wrote beside a request for more is its review
            looked += 1
            found = [_read_file(asked.strip().removeprefix("read "), draft.files) for asked in reply.read[:MOST_LOOKED_AT]]
            return Looking(lambda: ("\n\n".join(f"{LOOKED}{head}\n{text}" for head, text in found), 0.0), "")

        def render(budget: PromptBudget) -> str:
            nonlocal looked
            looked = 0
            return verifier_prompt(assignment, draft, evidence, budget)

        conversation = _Conversation(chat, "verifier", assignment.about, looks=REVIEW_LOOKS, most=REVIEW_LOOKED)
        reply = conversation.run(render, ReviewReply, read, look)
        listed = assignment.brief.suggestions
        return Review(
            bottleneck=_shortened(reply.bottleneck, SENTENCE),
            suggestion=_shortened(reply.suggestion, PARAGRAPH),
            route=reply.route,
            citations=tuple(_shortened(citation, SENTENCE) for citation in reply.citations[:CITATIONS]),
            expected_gain=_shortened(reply.expected_gain, SENTENCE),
            defect="" if reply.defect.strip().lower().rstrip(".") in NOTHING else _shortened(reply.defect, PARAGRAPH),
            settled=tuple(listed[number - 1] for number in dict.fromkeys(reply.settled) if 0 < number <= len(listed)),
        )


@dataclass(frozen=True)
class Looking:
    """What a reply asks to see: `carry_out` returns the results, each after LOOKED, and the seconds on the GPU that they took;
    `kept` says what became of its files."""

    carry_out: Callable[[], tuple[str, float]]
    kept: str


class _Conversation:
    """The turns of one role about one plan or attempt. Calls are numbered: a node that runs again finds their replies so.
    `looks`: how often it may look something up; `most`: tokens of a request with what was looked up."""

    def __init__(self, chat: MeteredChat, role: Role, about: str, *, looks: int = LOOKS, most: int = MOST) -> None:
        self._chat, self._role, self._about = chat, role, about
        self._looks, self._most = looks, most
        self._ordinal = 0

    def run(
        self,
        render: Callable[[PromptBudget], str],
        schema: type[Reply] | None,
        read: Callable[[str], T],
        look: Callable[[T], Looking | None] = lambda parsed: None,
    ) -> T:
        """Calls the model until its answer can be used, and returns `read(answer)`.

        `read` raises `Malformed` for an answer that cannot be used. Where `look` returns something for what was read, the
        results are shown to the model, which is called again. Where the turns do not fit into the model's context window,
        `render` is called again and all of them are forgotten. Raises `Unusable` after REPAIRS repairs, after the
        same answer twice or too many looks, and `Unavailable` for a prompt that does not fit even when shortened.
        """
        scale, looks, repairs, before = 1.0, 0, 0, None
        messages = [Message("user", render(PromptBudget(self._chat.counter, scale)))]
        while True:
            request = ChatRequest(self._role, self._about, self._ordinal, tuple(messages), schema)
            self._ordinal += 1
            try:
                answer = self._chat.ask(request)
            except ContextWindowExceeded as error:
                if scale <= SMALLER**2:
                    raise Unavailable(
                        f"{self._chat.name} cannot take a prompt as {self._role} even when it is shortened ({error}): use a "
                        "model with a larger context window"
                    ) from error
                scale *= SMALLER
                log.warning("%s: the prompt is too long, shortened to %.0f %%", self._chat.name, 100 * scale)
                messages = [Message("user", render(PromptBudget(self._chat.counter, scale)))]
                continue
            try:
                parsed = read(_usable_text(answer))
                todo = look(parsed)
                if todo is not None and looks == self._looks:
                    raise Malformed(f"it looked {looks} times, and no look is left", NO_LOOKS)
            except Malformed as error:
                repairs += 1
                if repairs > REPAIRS or answer.text == before:  # who repeats himself will not mend it
                    first = str(error).partition("\n")[0]
                    text = f"{self._chat.name} answered as {self._role} in a form that cannot be used: {first}"
                    raise Unusable(text) from error
                log.info("%s: malformed reply as %s, asking once more: %s", self._chat.name, self._role, error)
                before = answer.text
                shown = answer.text if len(answer.text) < 40_000 else f"{answer.text[:2000]}\n…"
                repair = f"Your reply could not be used: {error}\n{error.again}"
                messages += [Message("assistant", shown or "(empty)"), Message("user", repair)]
                continue
            if todo is None:
                return parsed
            looks += 1
            whose = self._about if self._role == "coder" else f"{self._role}-{self._about}"
            seen = self._chat.transcript.record_look(f"look-{whose}-{self._ordinal}", todo.carry_out)
            budget = PromptBudget(self._chat.counter, scale)
            messages.append(Message("assistant", answer.text))
            results = look_results(seen, self._looks - looks, budget, room_for_look(messages, budget, self._most))
            results += f"\n{todo.kept}" if todo.kept else ""
            messages = shorten_conversation([*messages, Message("user", results)], budget, self._most)


def _usable_text(answer: ChatAnswer) -> str:
    """Returns the answer's text. Raises `Malformed` for one that was refused or cut off."""
    if answer.refusal:
        raise Malformed(f"it was refused ({' '.join(answer.refusal.split())[:200]})")
    if answer.finish == "length":
        raise Malformed("it was cut off at the output limit: write less, only what changes")
    if answer.finish == "long":
        raise Malformed("it is longer than a megabyte: write the files that change and nothing else")
    return answer.text


def _looks_to_do(
    assignment: Assignment, reply: DraftReply, files: Files, used: Counter[str]
) -> Callable[[], tuple[str, float]]:
    """Returns a function that carries out the coder's looks (`Looking.carry_out`). `used`: how often each tool was used for
    this draft; these looks are counted at once."""
    counted = []
    for look in reply.looks[:MOST_LOOKED_AT]:
        used[look.tool] += 1
        counted.append((look, used[look.tool]))

    def look_all() -> tuple[str, float]:
        before = assignment.look.gpu_s if assignment.look is not None else 0.0
        found = [_look_up(assignment, look, files, number) for look, number in counted]
        if len(reply.looks) > MOST_LOOKED_AT:
            found.append(("the rest", f"{MOST_LOOKED_AT} things are looked at, at once: ask for the others in another look."))
        gpu_s = assignment.look.gpu_s - before if assignment.look is not None else 0.0
        return "\n\n".join(f"{LOOKED}{head}\n{text}" for head, text in found), gpu_s

    return look_all


def _look_up(assignment: Assignment, look: LookReply, files: Files, number: int) -> tuple[str, str]:
    """Carries out one look; returns a heading that names it, and its result. `number`: the tool's uses for this draft."""
    argument = " ".join(look.argument.replace("#", " ").split())[:ARGUMENT]
    if look.tool == "read":
        return _read_file(look.argument.strip(), files)
    tools = assignment.look.tools if assignment.look is not None else ()
    if assignment.look is None or look.tool not in tools:
        tool = look.tool[:ARGUMENT]
        return tool, f"There is no tool {tool!r} here: {', '.join(('read FILE [FROM-TO]', *(FORMS[name] for name in tools)))}."
    limit = LOOK_LIMITS.get(look.tool, 0)
    if limit and number > limit:
        return look.tool, f"It may be used {limit} times for one draft, and was: hand the draft in."
    head = f"{look.tool} {argument}".strip() + (f" ({number} of {limit})" if limit else "")
    match look.tool:
        case "compile":
            return head, assignment.look.compile(files).text
        case "check":
            return head, assignment.look.check(files).text
        case "bench":
            return head, assignment.look.bench(argument, files).text
        case "profile":
            return head, assignment.look.profile(argument)
    return head, assignment.look.docs(argument).text


def _read_file(argument: str, files: Files) -> tuple[str, str]:
    """Reads `PATH`, or `PATH FROM-TO` with lines counted from 1 (TO may be missing); returns a heading and the text."""
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
        structures=tuple(
            Structure(name=found.name, strategy=_shortened(found.strategy, PARAGRAPH), predicted_ms=found.predicted_ms)
            for found in planned.structures
        ),
    )


def _shortened(text: str, most: int) -> str:
    text = text.strip()
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def check_plan(plan: PlanReply, brief: Brief) -> None:
    """Raises `Malformed` for a plan with unknown regions, bad, repeated or finished names, or impossible predictions."""
    regions = {region.id for region in brief.regions}
    # 0 where nothing is known: the program could not be captured
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
        _check_structures(task, whole)
        seen.add(task.name)


def _check_structures(task: PlannedTask, whole: float) -> None:
    names = [structure.name for structure in task.structures]
    if len(names) > MOST_STRUCTURES or len(set(names)) < len(names):
        raise Malformed(f"{task.name!r} has the structures {', '.join(names)}: give two or three with different names, or none")
    for structure in task.structures:
        if not NAME.fullmatch(structure.name):
            text = f"the structure's name {structure.name!r} of {task.name!r} is none"
            raise Malformed(f"{text}: use 2 to 40 small letters, digits, - and _, such as two-kernels")
        if structure.predicted_ms < 0 or (structure.predicted_ms > whole > 0):
            text = f"predicted_ms of the structure {structure.name!r} of {task.name!r} is {structure.predicted_ms:g}"
            raise Malformed(f"{text}; the whole program takes {whole:g} ms")
