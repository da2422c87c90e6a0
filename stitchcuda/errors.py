"""The few errors that reach a user: each says what is wrong and what to do.

Anything else that escapes is a defect of ours: the command line says so, and `--debug` shows its traceback. It
turns a `StitchError` into one line on stderr and its exit code. `Pending`, `OutOfBudget` and `Unusable` never reach it: nodes
turn them into an interrupt, the session's end, and a step without a draft.
"""

from __future__ import annotations


class StitchError(Exception):
    """Base of all errors meant for a person. `exit_code` is what the command line returns."""

    exit_code = 2


class BadInput(StitchError):
    """What was given cannot be used: a file, an option, a reference, a program."""


class Unavailable(StitchError):
    """What was asked for does not exist on this machine or does not answer: a GPU, a compiler, an endpoint, a disk."""


class Damaged(Unavailable):
    """Something that was kept is missing, or is not what was written."""


class SessionBusy(StitchError):
    """Another process owns the session."""


class SessionLost(SessionBusy):
    """Another process has taken the session over from this one, which may not write to it any more."""


class OutOfBudget(Exception):
    """A model may not be asked any more; the message says which budget does not allow it."""


class Unusable(Exception):
    """A model's replies cannot be used; the message says why in one sentence. The session goes on without them."""


class Pending(Exception):
    """A session has to wait for something outside of it; the message says for what."""


class ReplyPending(Pending):
    """An engineer waits for a reply that is not there yet; `request` says what it is to."""

    def __init__(self, request: str) -> None:
        super().__init__(f"a reply to {request}")
        self.request = request


class DevicePending(Pending):
    """A tool needs a device that is on another machine."""
