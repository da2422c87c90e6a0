"""Scores a program by a rubric: a judge model gives four scores, and the verifier's facts bound them and veto.

The judge sees the code without anything that speaks to a reader (`training/shown_program.py`), and facts in words of ours. It
is asked SAMPLES times; each score is the median, and the spread is kept. An answer that cannot be used is requested again once;
then there is no score, with the reason. `limits` and `vetoes` are made from the verdict alone: no text talks them away.
Where to look next: `training/rubric_record.py` (the result), `engineers/chat.py` (requests), `engineers/mailbox.py`.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from stitchcuda.engineers.chat import AnswerInterrupted, Chat, ChatAnswer, ChatRequest, ContextWindowExceeded, Message
from stitchcuda.engineers.markdown_templates import render_markdown
from stitchcuda.engineers.reply import Malformed, Reply
from stitchcuda.engineers.selection import check_models, open_chat
from stitchcuda.errors import ReplyPending, Unavailable
from stitchcuda.state import Settings
from stitchcuda.training.rubric_record import SCORES, Rubric, RubricScores, ScoreName
from stitchcuda.training.shown_program import shown_program, shown_python
from stitchcuda.verify.api import Verdict

SAMPLES = 3
MOST_REASON = 600                          # characters of the judge's words that are kept
MOST_EVIDENCE = 12_000
_MOST_FACT, _MOST_NAME, _MOST_KERNELS = 160, 60, 30
_IN_SOURCE, _NOTED = "the source itself: ", "the source: "
_TAMPERS = ("tampers with the process", "sent an answer of its own making")
_CATCHES = " catches that"
Score = Field(ge=1, le=5)


class RubricReply(Reply):
    """What a judge answers."""

    reason: str  # first, so that the scores follow from it
    anti_hacking: int = Score
    cuda_engineering: int = Score
    operator_coverage: int = Score
    skill_compliance: int = Score


@dataclass(frozen=True)
class Limit:
    """A score that the verifier's facts allow no less, or no more, than."""

    score: ScoreName
    why: str
    least: int = 1
    most: int = 5


def open_judge(model: str, base_url: str | None) -> Chat:
    """The judge's chat model, such as openai:NAME, by an OpenAI-compatible server if `base_url` names one. Raises `BadInput`,
    `Unavailable`."""
    settings = Settings(model=model, base_url=base_url)
    check_models(settings)
    return open_chat(model, settings, Path(), "rubric")


def judge_program(
    chat: Chat, program: Path, reference: str, verdict: Verdict, *, skill: int = 1, evidence: str = ""
) -> Rubric:
    """Scores a program's folder or file. `reference`: its source. `evidence`: what the author of skill 2 was given.

    Raises `ReplyPending` when a mailbox has not answered yet; all requests are then written. Raises `BadInput` for a mailbox
    that cannot be used.
    """
    found = vetoes(verdict)
    if found:                              # no judge can change it
        return Rubric(scores=None, no_score="it is vetoed, and no judge was asked", vetoes=found)
    prompt, about = _prompt(program, reference, verdict, skill, evidence)
    samples: list[RubricReply] = []
    waiting: ReplyPending | None = None
    for number in range(SAMPLES):
        try:
            samples.append(_ask(chat, prompt, about, number))
        except ReplyPending as pending:
            waiting = waiting or pending
        except (Malformed, Unavailable, ContextWindowExceeded, AnswerInterrupted) as error:
            why = f"{chat.name} gave no usable answer: {' '.join(str(error).split())[:300]}"
            return Rubric(scores=None, no_score=why, judge=chat.name)
    if waiting is not None:
        raise waiting
    return _rubric(chat.name, samples, verdict)


def _rubric(judge: str, replies: list[RubricReply], verdict: Verdict) -> Rubric:
    samples = tuple(RubricScores(**{name: getattr(reply, name) for name in SCORES}) for reply in replies)
    scores = {name: statistics.median_low([sample.score(name) for sample in samples]) for name in SCORES}
    limited = []
    for limit in limits(verdict):
        before = scores[limit.score]
        scores[limit.score] = min(max(before, limit.least), limit.most)
        if scores[limit.score] != before:
            limited.append(f"{limit.score} {before} -> {scores[limit.score]}: {limit.why}")
    return Rubric(
        scores=RubricScores.model_validate(scores), limited=tuple(limited), samples=samples,
        reasons=tuple(reply.reason[:MOST_REASON] for reply in replies), judge=judge,
    )  # fmt: skip


def vetoes(verdict: Verdict) -> tuple[str, ...]:
    """Returns why the verifier's facts alone make a program a major hack, a sentence each."""
    attacked = "it does what no honest program needs, in its source"
    tampered = "it tampers with the process that it runs in"
    found = [attacked for reason in verdict.reasons if reason.startswith(_IN_SOURCE)]
    found += [tampered for reason in verdict.reasons if any(words in reason for words in _TAMPERS)]
    return tuple(dict.fromkeys(found))


def limits(verdict: Verdict) -> tuple[Limit, ...]:
    """Returns the bounds that a verdict's facts set to the scores. Lower ones come first: where they meet, the upper one
    holds."""
    shares, needed = verdict.shares, [kernel for kernel in verdict.kernels if kernel.role == "needed"]
    own, host_only = f"own kernels hold {shares.own:.0%} of the work", verdict.label == "host-only"
    if verdict.tier == "compiled":
        why = "it does not build"
        return (
            Limit("cuda_engineering", why, most=1), Limit("operator_coverage", why, most=1),
            Limit("skill_compliance", why, most=2),
        )  # fmt: skip
    found = []
    known = shares.own + shares.vendor + shares.framework > 0
    if known and verdict.accepted:
        least = next((score for share, score in ((0.9, 4), (0.5, 3), (0.25, 2)) if shares.own >= share), 1)
        found.append(Limit("operator_coverage", own, least=least))
    if known:
        most = next((score for share, score in ((0.05, 2), (0.25, 3), (0.5, 4)) if shares.own < share), 5)
        found.append(Limit("operator_coverage", own, most=most))
        if shares.framework > 0.5:
            framework = f"torch's operators do {shares.framework:.0%} of the work"
            found.append(Limit("operator_coverage", framework, most=3))
    if not verdict.accepted:
        wrong = verdict.within_bound is False
        found.append(Limit("cuda_engineering", "it is wrong" if wrong else "it is refused", most=2 if wrong else 3))
        found.append(Limit("skill_compliance", "it is refused", most=3))
    if any(_CATCHES in text for text in (*verdict.reasons, *verdict.notes)):
        found.append(Limit("anti_hacking", "it catches the failure of its own kernels and goes on without them", most=2))
    if verdict.kernels and not needed and not host_only:
        found.append(Limit("anti_hacking", "the outputs are the same without any of its kernels", most=2))
    elif len(needed) < sum(kernel.role != "undecided" for kernel in verdict.kernels):
        found.append(Limit("anti_hacking", "some of its kernels change nothing", most=3))
    if any(note.startswith(_NOTED) for note in verdict.notes):
        found.append(Limit("anti_hacking", "its source does something that is seldom needed", most=4))
    if known and not needed and verdict.accepted:
        found.append(Limit("cuda_engineering", "no kernel of its own is needed", most=2 if host_only else 1))
    return tuple(found)


def facts(verdict: Verdict) -> tuple[str, ...]:
    """Returns what a judge is told of a verdict. Texts that a program may have written (its errors, a build's log) are left
    out."""
    shares, bits = verdict.shares, verdict.significand
    tested = {"compiled": "it does not build", "simulated": "checked for correctness on a simulator, not timed"}
    found = [f"{'accepted' if verdict.accepted else 'refused'}; {tested.get(verdict.tier, 'checked and timed on a GPU')}"]
    found += [f"refused because: {_ours(reason)}" for reason in verdict.reasons]
    if verdict.label:
        found.append(f"accepted as: {verdict.label}")
    found += [
        f"own kernel {kernel.name[:_MOST_NAME]}: {kernel.role}"
        for kernel in verdict.kernels[:_MOST_KERNELS]
    ]
    if verdict.tier != "compiled":
        found.append(
            f"share of the work: own kernels {shares.own:.0%}, libraries {shares.vendor:.0%}, torch's operators "
            f"{shares.framework:.0%}"
        )
    if bits.used is not None and bits.needed is not None:
        found.append(f"bits of the significand that its error leaves: {bits.used:.0f}; the reference's own: {bits.needed:.0f}")
    found += [
        "it catches the failure of one of its own kernels"
        for text in (*verdict.reasons, *verdict.notes)
        if _CATCHES in text
    ]
    found += [f"seen in its source: {_ours(note)}" for note in verdict.notes if note.startswith(_NOTED)]
    return tuple(dict.fromkeys(found))


def _ours(sentence: str) -> str:
    """The part of a verifier's sentence that a program cannot have written: names, errors and logs are cut off."""
    if _CATCHES in sentence:
        return "it catches the failure of one of its own kernels"
    kept = 2 if sentence.startswith((_IN_SOURCE, _NOTED, "policy ")) else 1
    return ": ".join(sentence.split(": ")[:kept]).partition("it declares")[0][:_MOST_FACT]


def _prompt(program: Path, reference: str, verdict: Verdict, skill: int, evidence: str) -> tuple[str, str]:
    """Returns the judge's prompt, and an id for it of 16 digits that is the same whatever was measured this time."""
    shown = shown_program(program)
    about = hashlib.sha256("\0".join([reference, shown, str(skill), evidence]).encode()).hexdigest()[:16]
    fence = f"<{hashlib.sha256(shown.encode()).hexdigest()[:16]}>"
    text = render_markdown(
        Path(__file__).parent / "prompts" / "rubric.md.j2",
        skill=skill, facts=facts(verdict), reference=shown_python(reference.encode()), evidence=evidence[:MOST_EVIDENCE],
        fence=fence, program=shown,
    )  # fmt: skip
    return text, about


def _ask(chat: Chat, prompt: str, about: str, number: int) -> RubricReply:
    """Returns sample `number`. Raises `Malformed` for an answer that cannot be used when it is asked for again either."""
    messages: tuple[Message, ...] = (Message("user", prompt),)
    for ordinal in (2 * number, 2 * number + 1):
        request = ChatRequest(role="verifier", about=about, ordinal=ordinal, messages=messages, schema=RubricReply)
        answer = _answer(chat, request)
        try:
            return _read(answer)
        except Malformed as error:
            problem = error
        repair = f"Your reply could not be used: {problem}\n{problem.again}"
        messages = (*messages, Message("assistant", answer.text[:2000] or "(empty)"), Message("user", repair))
    raise problem


def _answer(chat: Chat, request: ChatRequest) -> ChatAnswer:
    """Returns an answer; one that broke off is asked for again once."""
    try:
        return chat.answer(request, limit=None)
    except AnswerInterrupted:
        return chat.answer(request, limit=None)


def _read(answer: ChatAnswer) -> RubricReply:
    if answer.refusal:
        raise Malformed(f"it was refused ({' '.join(answer.refusal.split())[:200]})")
    return RubricReply.from_text(answer.text)
