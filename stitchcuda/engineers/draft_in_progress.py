"""Keeps a coder's files over the replies of one conversation: those beside a look, those of a reply that was taken in part.

Each reply is applied to the files as they are by then. What cannot be taken raises `Malformed`: the model is told what was
taken, what was not and why, and is asked for the rest alone. It calls no model and runs no tool.

Where to look next: `engineers/draft_files.py` (applies blocks), `engineers/chat_engineer.py` (the conversation).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.engineers import Files
from stitchcuda.engineers.draft_files import Edit, apply_blocks
from stitchcuda.engineers.draft_reply import DraftReply
from stitchcuda.engineers.missing_files import find_missing
from stitchcuda.engineers.reply import Malformed

PROGRAM, LAST, SO_FAR = "the program now", "your last draft", "your draft so far"


class DraftInProgress:
    """One draft while it is written. `program` is the verified program, `last` the last draft of the task (None for none)."""

    def __init__(self, program: Files, last: Files | None) -> None:
        self._program, self._last = program, last
        self.restart()

    def restart(self) -> None:
        """Forgets what was written: the conversation begins again."""
        self.files: Files = dict(self._program if self._last is None else self._last)
        self._origin: Files = dict(self.files)  # the files before anything was written
        self.note = ""
        self._base = PROGRAM if self._last is None else LAST
        self._done: frozenset[Edit] = frozenset()
        self._written: dict[str, None] = {}  # paths, in order
        self._afresh = self._complained = self._asked_for_missing = False

    def read(self, text: str) -> DraftReply:
        """Takes a reply's files and returns the reply. Raises `Malformed` for one that is not taken whole, or hands in a draft
        that changes nothing or, the first time, one that names a file which it does not have."""
        reply = DraftReply.from_text(text, begun=bool(self._written) and not self._complained)
        answers_complaint, self._complained = self._complained, False
        if reply.afresh and not self._afresh:
            self.files, self._base, self._afresh = dict(self._program), PROGRAM, True
            self._done, self._written, self._origin = frozenset(), {}, dict(self._program)
        applied = apply_blocks(reply.files, self.files, self._base, self._done, self._origin)
        self.files, self._done = applied.files, applied.done
        self._written |= dict.fromkeys(applied.taken)
        if applied.taken:
            self._base = SO_FAR
        if reply.note and not (answers_complaint and self.note):
            self.note = reply.note
        if applied.problems:
            self._complained = True
            raise self._not_taken(reply, applied.taken, applied.problems)
        if not reply.looks and not reply.exhausted:
            self._check(applied.manifest)
        return reply

    def describe(self) -> str:
        """Returns a sentence on what is written so far; "" if nothing is."""
        if not self._written:
            return ""
        return (
            f"Your draft so far holds what you wrote ({', '.join(self._written)}) and is kept: write only what still changes, "
            "edits go on from it, and an answer without blocks hands it in as it is."
        )

    def _not_taken(self, reply: DraftReply, taken: tuple[str, ...], problems: tuple[str, ...]) -> Malformed:
        looks = " Your looks were not carried out." if reply.looks else ""
        if not taken:
            again = "Reply again, complete and in the required form."
            return Malformed("\n".join(problems), f"Nothing of it was taken.{looks} {again}")
        rest = (
            f"The rest of it was taken ({', '.join(taken)}).{looks} Write only what was not taken, and what still changes: "
            "edits go on from your draft so far."
        )
        return Malformed("\n".join(problems), rest)

    def _check(self, manifest: str) -> None:
        for what, known in ((PROGRAM, self._program), (LAST, self._last)):
            if known is not None and _without_manifest(self.files) == _without_manifest(known):
                raise Malformed(f"every file is the same as in {what}: change something, or write `exhausted: why not`")
        missing = find_missing(self.files, self._program, manifest)
        if missing and not self._asked_for_missing:
            self._asked_for_missing = True
            raise Malformed(
                "\n".join([*missing, f"These are there: {', '.join(sorted(self.files))}"]),
                "Was a block left out? Your draft is kept: write only what is missing. If it is right as it is, answer without "
                "blocks.",
            )


def _without_manifest(files: Mapping[str, str | bytes]) -> dict[str, str | bytes]:
    return {path: text for path, text in files.items() if path != "program.json"}
