"""Points at which a session with a chat model dies, once for each of its calls; what has happened is written in a book.

    asked     before anybody is asked: no request is written
    kept      right after the reply is in the transcript (or what a tool told a coder that looked)
    done      when the node has come to its end, before anything is known of that
    stored    when what the node did is stored, before the checkpoint

Works by wrapping the product's own functions in this process, so it is for a child process, or under `monkeypatch`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from stitchcuda.engineers.chat import ChatAnswer, ChatRequest
from stitchcuda.engineers.endpoint import Endpoint
from stitchcuda.engineers.mailbox import Mailbox
from stitchcuda.engineers.metered_chat import Transcript
from stitchcuda.nodes.context import Context
from stitchcuda.state import Call
from stitchcuda.store.checkpoints import Checkpoints

POINTS = ("asked", "kept", "done", "stored")


class Killed(BaseException):
    """Stands for the end of the process where a test has only one."""


def by_exception() -> NoReturn:
    raise Killed


def by_signal() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def deaths(book: Path) -> list[tuple[str, str]]:
    """Points and the calls at which somebody died there."""
    lines = book.read_text().splitlines() if book.exists() else []
    return [(point, call) for point, call in (line.split() for line in lines)]


class Fate:
    """One life. Ends at each point of each call that `strikes` says, unless one before it did: the book has them all."""

    def __init__(self, book: Path, die: Callable[[], NoReturn], strikes: Callable[[str, str], bool]) -> None:
        self._book, self._die, self._strikes = book, die, strikes
        self.turn = threading.RLock()      # from what is kept to the book: nobody dies in between, or its death is not known
        self._node = threading.local()     # the calls that the node of this thread has answers to
        self._step: set[str] = set()       # those of the step

    def comes(self, point: str, calls: set[str]) -> None:
        with self.turn:
            known = set(deaths(self._book))
            fresh = [(point, call) for call in sorted(calls) if (point, call) not in known and self._strikes(point, call)]
            if fresh:
                with self._book.open("a") as book:
                    book.write("".join(f"{point} {call}\n" for point, call in fresh))
                    book.flush()
                    os.fsync(book.fileno())
                self._die()

    def seen(self, call: str) -> None:
        self._node.calls = getattr(self._node, "calls", set()) | {call}

    def node_ends(self) -> None:
        calls: set[str] = getattr(self._node, "calls", set())
        self._node.calls = set()
        with self.turn:
            self._step |= calls
        self.comes("done", calls)

    def step_ends(self) -> None:
        with self.turn:
            calls, self._step = self._step, set()
        self.comes("stored", calls)


def arm(fate: Fate, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Wraps the functions that the points are at."""
    keep, find, spent, put = Transcript.record, Transcript.find, Context.usage_now, Checkpoints.put

    def asking(answer: Callable[..., ChatAnswer]) -> Callable[..., ChatAnswer]:
        def asked(chat: Any, ask: ChatRequest, *, limit: int | None) -> ChatAnswer:
            fate.comes("asked", {ask.id})
            return answer(chat, ask, limit=limit)

        return asked

    def kept(self: Transcript, body: dict[str, object], answer: ChatAnswer | None, call: Call) -> Call:
        with fate.turn:
            found = keep(self, body, answer, call)
            fate.seen(call.id)
            fate.comes("kept", {call.id})
            return found

    def found(self: Transcript, ask: ChatRequest) -> ChatAnswer | None:
        known = find(self, ask)
        if known is not None:
            fate.seen(ask.id)
        return known

    def ended(self: Context, *given: Any) -> Any:
        fate.node_ends()
        return spent(self, *given)

    def stored(self: Checkpoints, *given: Any) -> Any:
        fate.step_ends()
        return put(self, *given)

    for chat in (Mailbox, Endpoint):
        patch(chat, "answer", asking(chat.answer))
    patch(Transcript, "record", kept)
    patch(Transcript, "find", found)
    patch(Context, "usage_now", ended)
    patch(Checkpoints, "put", stored)
