"""Defines the record of what a session was asked to do: reference, settings, device, time of its start.

Where to look next: `store/workspace.py` (who stores it), `graph/opening.py` (who makes it).
"""

from __future__ import annotations

from datetime import UTC, datetime

from stitchcuda.state import Digest, Record, Settings


class SessionRecord(Record):
    """What a session was asked to do; stored as session.json. Only the budgets in `settings` may change later."""

    name: str
    reference: Digest                      # artefact with the reference's bytes
    reference_name: str                    # file name of the reference's copy in the session's folder
    reference_path: str = ""               # where it came from, relative to the workspace; "" for a module given in Python
    source: Digest                         # artefact with readable source text of the reference
    device: str = "auto"                   # as the user named it: each machine resolves it again
    settings: Settings
    created: str = ""                      # UTC, ISO 8601
    origin: str = ""                       # name of the first session that this fork, replay or import descends from

    @property
    def root(self) -> str:
        """The name that enters the ids of attempts and calls. A fork or replay has its origin's, so that it finds the same
        ids."""
        return self.origin or self.name

    def anew(self, name: str, settings: Settings) -> SessionRecord:
        """The record of a new session `name` that is made from this one now."""
        return self.model_copy(update={"name": name, "settings": settings, "created": now(), "origin": self.root})


def now() -> str:
    """The time now as `created` has it: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
