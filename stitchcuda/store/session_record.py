"""The record of what a session was asked to do: reference, settings, device, when."""

from __future__ import annotations

from datetime import UTC, datetime

from stitchcuda.state import Digest, Record, Settings


class SessionRecord(Record):
    """What a session was asked to do, as its session.json says. Only its budgets may change later."""

    name: str
    reference: Digest                      # the reference's bytes
    reference_name: str                    # file name of the reference's copy in the session's folder
    reference_path: str = ""               # where it came from, relative to the workspace; "" for a module given in Python
    source: Digest                         # readable source text of the reference
    device: str = "auto"                   # as asked: resolved again on each machine
    settings: Settings
    created: str = ""                      # UTC, ISO 8601
    origin: str = ""                       # of a fork, a replay or an import: the name of what it was made from

    @property
    def root(self) -> str:
        """The name that the ids of its attempts and calls begin from: what was made from a session finds them by the same."""
        return self.origin or self.name

    def anew(self, name: str, settings: Settings) -> SessionRecord:
        """The record of a session that is made from this one now."""
        return self.model_copy(update={"name": name, "settings": settings, "created": now(), "origin": self.root})


def now() -> str:
    """For `created`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
