"""Calls chat models so that each call is made and paid for once, and records it in the session's transcript.

A node that runs again (after a crash, a park, on another machine) makes the same calls under the same ids, and gets the
recorded replies. Before each call the budget is checked. An answer that breaks off is requested up to TRIES times; what the
lost ones may have cost is counted. Tokens that the server does not report are counted here and marked as estimated.

Where to look next: `engineers/chat_engineer.py` (what is asked), `engineers/endpoint.py` (answers), `engineers/budget.py`.
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

TRIES = 3  # calls made for one request while its answers break off
FRAME = 8  # tokens that a server may add around a message
OVERFLOW = "overflow"
"""Finish reason recorded for a request that exceeds the context window: stored like an answer, so it is not tried again."""


class Transcript:
    """The recorded calls of one session: their replies and costs, and texts that must be the same in every run."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session

    def find(self, request: ChatRequest) -> ChatAnswer | None:
        """Returns the recorded reply to this request; None if there is none. If the prompt's wording changed since, returns the
        reply recorded at the same place (role, attempt or plan, ordinal)."""
        calls = self._store.calls(self._session)
        call = calls.get(request.id) or next(
            (call for name, call in calls.items() if call.reply and name.rpartition("-")[0] == request.place), None
        )
        return self.answer(call) if call else None

    def answer(self, call: Call) -> ChatAnswer | None:
        return ChatAnswer.model_validate_json(self._store.get(call.reply)) if call.reply else None

    def calls(self) -> tuple[Call, ...]:
        """Returns all calls of models, oldest first; recorded texts of tools (`record_once`) are left out."""
        return tuple(call for call in self._store.calls(self._session).values() if call.model)

    def tool_answers(self) -> dict[str, ChatAnswer]:
        """Returns the texts that `record_once` has recorded, by name."""
        found = {name: self.answer(call) for name, call in self._store.calls(self._session).items() if not call.model}
        return {name: answer for name, answer in found.items() if answer is not None}

    def record_once(self, name: str, produce: Callable[[], str]) -> str:
        """Returns the text recorded under `name`; the first time, calls `produce` and records its text. Prompts must be the
        same in every run, but tools may answer differently later or on another machine."""
        return self.record_look(name, lambda: (produce(), 0.0))

    def record_look(self, name: str, look: Callable[[], tuple[str, float]]) -> str:
        """Returns a text as `record_once` does. `look` returns it with the seconds on the GPU that it took, which `usage`
        counts: in the step of a coder, which may be interrupted after each look, no state could hold them."""
        call = self._store.calls(self._session).get(name)
        found = self.answer(call) if call else None
        if found is None:
            text, gpu_s = look()
            found = ChatAnswer(text=text)
            self.record({}, found, Call(id=name, model="", request="", reply=None, gpu_s=gpu_s))
        return found.text

    def record(self, body: dict[str, object], answer: ChatAnswer | None, call: Call) -> Call:
        """Stores request body and answer, and returns the call as recorded with their digests."""
        request = self._store.put(json.dumps(body, sort_keys=True).encode())
        reply = self._store.put(answer.model_dump_json().encode()) if answer else None
        return self._store.record(self._session, call.model_copy(update={"request": request, "reply": reply}))

    def failures(self, request: ChatRequest) -> int:
        """Returns how many calls for this request are recorded as failed."""
        return sum(name.startswith(f"{request.id}#") for name in self._store.calls(self._session))

    def usage(self) -> Usage:
        """Returns tokens and money of the calls, and the seconds on the GPU of coders' looks."""
        looks_gpu_s = math.fsum(call.gpu_s for call in self._store.calls(self._session).values())
        return sum_usage(self.calls()).model_copy(update={"gpu_s": looks_gpu_s, "looks_gpu_s": looks_gpu_s})

    def paid(self) -> Usage:
        """Returns the same usage, with calls of models without a known price counted as free."""
        return self.usage().model_copy(update={"usd": math.fsum(call.usd or 0.0 for call in self.calls())})


def sum_usage(calls: Iterable[Call]) -> Usage:
    """Returns tokens and money of calls; `usd` is None if the price of any call is unknown."""
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
    """One chat model in one session. Several threads may call it at once. `on_call` gets each call that was made."""

    def __init__(
        self,
        chat: Chat,
        transcript: Transcript,
        budget: Budget,
        *,
        base_url: str | None = None,
        options: Options | None = None,
        on_call: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self.chat = chat
        self.transcript = transcript
        # Cuts prompts: never corrected by replies, so that a node that runs again makes the same prompt and finds its reply.
        self.counter = TokenCounter(chat.name)
        self._reported = TokenCounter(chat.name)  # estimates costs: corrected by what the server reports
        self._budget = budget
        self._base_url = base_url
        self._options = dict(options or {})
        self._on_call = on_call
        self.price = price_of(chat.name, base_url=base_url)

    @property
    def name(self) -> str:
        return self.chat.name

    @property
    def notes(self) -> list[str]:
        return self.chat.notes

    def ask(self, request: ChatRequest) -> ChatAnswer:
        """Returns the answer, from the transcript if it is recorded there. Raises `OutOfBudget` before a call that might cost
        too much, what `Chat.answer` raises, and `Unavailable` for an answer that broke off TRIES times."""
        if (known := self.transcript.find(request)) is not None:
            if known.finish == OVERFLOW:
                raise ContextWindowExceeded(known.text)
            return known
        problem = ""
        for _ in range(TRIES):
            tokens = sum(self._reported.count(text) + FRAME for text in _texts(request))
            with self._budget.admit(self.price, tokens, request.role) as limit:
                try:
                    return self._call_model(request, limit, tokens)
                except AnswerInterrupted as error:
                    problem = str(error)
        raise Unavailable(f"{problem}, {TRIES} times: resume later")

    def _call_model(self, request: ChatRequest, limit: int | None, tokens: int) -> ChatAnswer:
        started = time.monotonic()
        body: dict[str, object] = {"model": self.name, "limit": limit} | self._options | request.content
        created = datetime.now(UTC).isoformat(timespec="seconds")
        call = Call(id=request.id, model=self.name, request="", reply=None, created=created)
        try:
            answer = self.chat.answer(request, limit=limit)
        except (AnswerInterrupted, ContextWindowExceeded, Unavailable) as error:  # BadInput of a mailbox is no call
            # A server that received the request may charge for reading it and for what it wrote, and does not report either.
            read = tokens * (error.times if isinstance(error, NoAnswer) else isinstance(error, AnswerInterrupted))
            wrote = self._reported.count(error.received) if isinstance(error, AnswerInterrupted) else 0
            ended = ChatAnswer(text=str(error), finish=OVERFLOW) if isinstance(error, ContextWindowExceeded) else None
            failed = {
                "id": request.id if ended else f"{request.id}#{self.transcript.failures(request)}",
                "outcome": " ".join(str(error).split())[:300],
                "input_tokens": read, "output_tokens": wrote, "estimated": read > 0,
                "usd": self._usd(ChatAnswer(text=""), read, wrote), "seconds": time.monotonic() - started,
            }  # fmt: skip
            self._on_call(self.transcript.record(body, ended, call.model_copy(update=failed)))
            raise
        reported = answer.input_tokens is not None and answer.output_tokens is not None
        read = answer.input_tokens if answer.input_tokens is not None else tokens
        written = answer.output_tokens
        if written is None:
            written = self._reported.count(answer.text) + self._reported.count(answer.thinking)
        if answer.input_tokens is not None:
            self._reported.observe(sum(map(size, _texts(request))), answer.input_tokens)
        done = {
            "input_tokens": read, "cached_tokens": answer.cached_tokens, "output_tokens": written, "estimated": not reported,
            "usd": self._usd(answer, read, written), "seconds": time.monotonic() - started,
        }  # fmt: skip
        self._on_call(self.transcript.record(body, answer, call.model_copy(update=done)))
        return answer

    def _usd(self, answer: ChatAnswer, read: int, written: int) -> float | None:
        """Returns the cost by the price of the model asked for, else of the one that answered; None if neither is known."""
        price = self.price or (price_of(answer.model, base_url=self._base_url) if answer.model else None)
        if price is not None:
            return cost_usd(price, read, answer.cached_tokens, written, written_tokens=answer.written_tokens)
        return 0.0 if read == written == 0 else None


def _texts(request: ChatRequest) -> list[str]:
    """Returns the texts whose tokens a server counts: the messages and the form of the answer."""
    return [message.text for message in request.messages] + ([request.schema.instructions()] if request.schema else [])
