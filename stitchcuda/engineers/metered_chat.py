"""Where a model is asked: each call at most once, paid for once, and kept in the session's transcript.

A node that runs again (after a crash, a park, a move) comes to the same calls under the same ids and is given what was
answered. Before a call the budget is asked; a connection lost in the middle is tried again, and what it may have cost is
counted. What is asked stands in `engineers/chat_engineer.py`, who answers in `engineers/endpoint.py` and
`engineers/mailbox.py`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from stitchcuda.engineers.budget import Budget
from stitchcuda.engineers.chat import AnswerInterrupted, Chat, ChatAnswer, ChatRequest, ContextWindowExceeded, NoAnswer, Options
from stitchcuda.engineers.prices import cost_usd, price_of
from stitchcuda.engineers.tokens import TokenCounter, size
from stitchcuda.errors import Unavailable
from stitchcuda.state import Call, Usage
from stitchcuda.store import Store

TRIES = 3  # of an answer that breaks off on its way
FRAME = 8  # tokens that a server may add around a message
OVERFLOW = "overflow"
"""How a request ended that the model's window does not hold: kept like an answer, since asked again it would end so again."""


class Transcript:
    """The calls of one session: kept, found again, and what they cost."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def find(self, ask: ChatRequest) -> ChatAnswer | None:
        """What was answered to this request, or at its place by an earlier wording; None where nobody has."""
        calls = self._store.calls(self._session)
        call = calls.get(ask.id) or next(
            (call for name, call in calls.items() if call.reply and name.rpartition("-")[0] == ask.place), None
        )
        return self.answer(call) if call else None

    def answer(self, call: Call) -> ChatAnswer | None:
        return ChatAnswer.model_validate_json(self._store.get(call.reply)) if call.reply else None

    def calls(self) -> tuple[Call, ...]:
        """All calls of models, oldest first; what tools told in between is left out."""
        return tuple(call for call in self._store.calls(self._session).values() if call.model)

    def told(self) -> dict[str, ChatAnswer]:
        """What tools told in between, by the names it is kept under."""
        found = {name: self.answer(call) for name, call in self._store.calls(self._session).items() if not call.model}
        return {name: answer for name, answer in found.items() if answer is not None}

    def once(self, name: str, see: Callable[[], str]) -> str:
        """What a tool told the first time, kept under `name`: what is in a request must be the same in every run,
        and on another machine it might say something else."""
        call = self._store.calls(self._session).get(name)
        found = self.answer(call) if call else None
        if found is None:
            found = ChatAnswer(text=see())
            self.keep({}, found, Call(id=name, model="", request="", reply=None))
        return found.text

    def keep(self, body: dict[str, object], answer: ChatAnswer | None, call: Call) -> Call:
        request = self._store.put(json.dumps(body, sort_keys=True).encode())
        reply = self._store.put(answer.model_dump_json().encode()) if answer else None
        return self._store.record(self._session, call.model_copy(update={"request": request, "reply": reply}))

    def failures(self, ask: ChatRequest) -> int:
        return sum(name.startswith(f"{ask.id}#") for name in self._store.calls(self._session))

    def usage(self) -> Usage:
        return usage_of(self.calls())

    def paid(self) -> Usage:
        """The same with what is known of the money: calls of models without a price are left out of it."""
        calls = self.calls()
        return usage_of(calls).model_copy(update={"usd": math.fsum(call.usd or 0.0 for call in calls)})


def usage_of(calls: Iterable[Call]) -> Usage:
    """Tokens and money of calls; `usd` is None as soon as the price of one is not known."""
    calls = tuple(calls)
    usd = None if any(call.usd is None for call in calls) else math.fsum(call.usd or 0.0 for call in calls)
    return Usage(
        calls=len(calls),
        input_tokens=sum(call.input_tokens for call in calls),
        cached_tokens=sum(call.cached_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        usd=usd,
    )


class MeteredChat:
    """One chat model at work for one session. Several threads may ask at once."""

    def __init__(
        self,
        chat: Chat,
        transcript: Transcript,
        budget: Budget,
        *,
        base_url: str | None = None,
        options: Options | None = None,
        heard: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self.chat = chat
        self.transcript = transcript
        # For what is shown: never corrected by a reply, so that a node that runs again shows the same and finds its answer.
        self.counter = TokenCounter(chat.name)
        self._reported = TokenCounter(chat.name)  # for what is paid
        self._budget = budget
        self._base_url = base_url
        self._options = dict(options or {})
        self._heard = heard
        self.price = price_of(chat.name, base_url=base_url)

    @property
    def name(self) -> str:
        return self.chat.name

    def ask(self, ask: ChatRequest) -> ChatAnswer:
        """The answer, from the transcript if it was given before.

        Raises `OutOfBudget` before a call that might cost too much, and what `Chat.answer` raises; `Unavailable` for an answer
        that broke off three times.
        """
        if (known := self.transcript.find(ask)) is not None:
            if known.finish == OVERFLOW:
                raise ContextWindowExceeded(known.text)
            return known
        said = ""
        for _ in range(TRIES):
            tokens = sum(self._reported.count(text) + FRAME for text in _texts(ask))
            with self._budget.admitted(self.price, tokens, ask.role) as limit:
                try:
                    return self._asked(ask, limit, tokens)
                except AnswerInterrupted as error:
                    said = str(error)
        raise Unavailable(f"{said}, {TRIES} times: resume later")

    def _asked(self, ask: ChatRequest, limit: int | None, tokens: int) -> ChatAnswer:
        started = time.monotonic()
        body: dict[str, object] = {"model": self.name, "limit": limit} | self._options | ask.content
        call = Call(id=ask.id, model=self.name, request="", reply=None, created=datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            answer = self.chat.answer(ask, limit=limit)
        except (AnswerInterrupted, ContextWindowExceeded, Unavailable) as error:  # BadInput of a mailbox is no call
            # A server that was sent the request may have read it, and charges for what it wrote: nobody is told.
            read = tokens * (error.times if isinstance(error, NoAnswer) else isinstance(error, AnswerInterrupted))
            wrote = self._reported.count(error.heard) if isinstance(error, AnswerInterrupted) else 0
            ended = ChatAnswer(text=str(error), finish=OVERFLOW) if isinstance(error, ContextWindowExceeded) else None
            failed = {
                "id": ask.id if ended else f"{ask.id}#{self.transcript.failures(ask)}",
                "outcome": " ".join(str(error).split())[:300],
                "input_tokens": read, "output_tokens": wrote, "estimated": read > 0,
                "usd": self._usd(ChatAnswer(text=""), read, wrote), "seconds": time.monotonic() - started,
            }  # fmt: skip
            self._heard(self.transcript.keep(body, ended, call.model_copy(update=failed)))
            raise
        told = answer.input_tokens is not None and answer.output_tokens is not None
        read = answer.input_tokens if answer.input_tokens is not None else tokens
        written = answer.output_tokens
        if written is None:
            written = self._reported.count(answer.text) + self._reported.count(answer.thinking)
        if answer.input_tokens is not None:
            self._reported.observe(sum(map(size, _texts(ask))), answer.input_tokens)
        done = {
            "input_tokens": read, "cached_tokens": answer.cached_tokens, "output_tokens": written, "estimated": not told,
            "usd": self._usd(answer, read, written), "seconds": time.monotonic() - started,
        }  # fmt: skip
        self._heard(self.transcript.keep(body, answer, call.model_copy(update=done)))
        return answer

    def _usd(self, answer: ChatAnswer, read: int, written: int) -> float | None:
        """By the price of the model asked for, else of the one that answered, as a mailbox learns it."""
        price = self.price or (price_of(answer.model, base_url=self._base_url) if answer.model else None)
        if price is not None:
            return cost_usd(price, read, answer.cached_tokens, written, written_tokens=answer.written_tokens)
        return 0.0 if read == written == 0 else None


def _texts(ask: ChatRequest) -> list[str]:
    """All that a server counts: the messages, and the form of the answer, which is sent in one way or another."""
    return [message.text for message in ask.messages] + ([ask.schema.instructions()] if ask.schema else [])
