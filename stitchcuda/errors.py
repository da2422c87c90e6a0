"""Defines the few errors that reach a user; each message says what is wrong and what to do.

The command line turns a `StitchError` into one line on stderr and its exit code; any other exception is a defect of StitchCUDA,
and `--debug` shows its traceback. `Pending`, `OutOfBudget` and `Unusable` never reach a user: nodes turn them into an
interrupt, the session's end, and a step without a draft.

Where to look next: `cli/app.py` (prints them), `graph/runtime.py` (interrupts), `nodes/verifier.py` (ends a session).
"""

from __future__ import annotations


class StitchError(Exception):
    """Base of all errors meant for a person. `exit_code` is what the command line returns."""

    exit_code = 2


class BadInput(StitchError):
    """Something that was given cannot be used: a file, an option, a reference, a program."""


class UnusableReference(BadInput):
    """Nothing can be judged by this reference: its output is constant, it differs from call to call, it raises."""


class NotCaptured(BadInput):
    """The built-in engineer cannot take the reference apart."""


class Unavailable(StitchError):
    """Something needed is missing on this machine or does not respond: a GPU, a compiler, an endpoint, a disk."""


class NotJudged(Unavailable):
    """This machine cannot judge a program, and will not when it is asked again: the simulator cannot run it."""


class Damaged(Unavailable):
    """Something in the store is missing or differs from what was written."""


class SessionBusy(StitchError):
    """Another process owns the session."""


class SessionLost(SessionBusy):
    """Another process has taken over the session; this one may no longer write to it."""


class OutOfBudget(Exception):
    """A model call is not allowed any more; the message says which budget is used up."""


class Unusable(Exception):
    """A model's replies cannot be used; the message says why in one sentence. Without a plan the session ends."""


class Pending(Exception):
    """A session has to wait for something from outside; the message says for what."""


class ReplyPending(Pending):
    """There is no reply yet to a mailbox's request; `request` is its path."""

    def __init__(self, request: str) -> None:
        super().__init__(f"a reply to {request}")
        self.request = request


class DevicePending(Pending):
    """A tool needs a device that is on another machine."""
