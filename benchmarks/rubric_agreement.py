"""Compares a judge model's rubric scores with those that the authors of 60 programs expect.

    python benchmarks/rubric_agreement.py                                # by the recorded replies
    python benchmarks/rubric_agreement.py --judge mailbox:box            # asks; give it again when all replies are there
    python benchmarks/rubric_agreement.py --judge mailbox:box --record   # and keeps the replies in the set

The set (tests/training/rubric_set.jsonl) has a line for each program: reference, files, the verifier's verdict (simulator), the
scores and the veto that its author expects, and the judge's three replies. The two authors knew the rubric's words and
neither its code nor a judge. Exits 1 where less than 90 % of the scores are within one of what is expected, or a veto is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchcuda.engineers.chat import Chat, ChatAnswer, ChatRequest
from stitchcuda.engineers.selection import open_chat
from stitchcuda.errors import ReplyPending
from stitchcuda.state import Settings
from stitchcuda.training.rubric import judge_program
from stitchcuda.training.rubric_record import SCORES, Rubric
from stitchcuda.verify.api import Verdict

SET = Path(__file__).resolve().parent.parent / "tests/training/rubric_set.jsonl"
ENOUGH = 0.9


@dataclass
class Recorded:
    """`Chat` that answers with a program's recorded replies, in their order."""

    replies: Sequence[str]
    name: str = "recorded"

    def __post_init__(self) -> None:
        self.notes: list[str] = []

    def answer(self, request: ChatRequest, *, limit: int | None) -> ChatAnswer:
        return ChatAnswer(text=self.replies[request.ordinal // 2])


@dataclass
class Kept:
    """`Chat` that keeps what another one answers."""

    chat: Chat
    replies: list[str]

    def __post_init__(self) -> None:
        self.name, self.notes = self.chat.name, self.chat.notes

    def answer(self, request: ChatRequest, *, limit: int | None) -> ChatAnswer:
        found = self.chat.answer(request, limit=limit)
        self.replies.append(found.text)
        return found


def entries() -> list[dict[str, Any]]:
    """Returns the programs of the set."""
    return [json.loads(line) for line in SET.read_text().splitlines()]


def judged(entry: dict[str, Any], chat: Chat) -> Rubric:
    """Returns the rubric of a program of the set. Raises `ReplyPending` where the judge has not answered."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in entry["files"].items():
            (place := Path(folder, "program", path)).parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        program = Path(folder, "program")
        single = program / "program.py"
        verdict = Verdict.model_validate(entry["verdict"])
        return judge_program(
            chat, single if single.exists() else program, entry["reference"], verdict, skill=entry["skill"],
            evidence=entry["evidence"],
        )  # fmt: skip


def compared(pairs: Sequence[tuple[dict[str, Any], Rubric]]) -> tuple[list[str], bool]:
    """Returns a table of the agreement, and whether it is enough."""
    off: dict[str, Counter[int]] = {name: Counter() for name in SCORES}
    vetoes = [(entry["name"], entry["veto"], rubric.major_hacking) for entry, rubric in pairs]
    for entry, rubric in pairs:
        if rubric.scores is not None:
            for name in SCORES:
                off[name][abs(rubric.scores.score(name) - entry["expected"][name])] += 1
    lines = ["| score | programs | equal | within one | further off |", "|---|---|---|---|---|"]
    tables: list[tuple[str, Counter[int]]] = [*off.items(), ("all", sum(off.values(), Counter()))]
    for title, counts in tables:
        total, near = sum(counts.values()), counts[0] + counts[1]
        lines.append(
            f"| {title.replace('_', ' ')} | {total} | {counts[0] / total:.0%} | {near / total:.0%} | {total - near} |"
        )
    everything = sum(off.values(), Counter())
    share = (everything[0] + everything[1]) / sum(everything.values())
    wrong = [name for name, expected, found in vetoes if expected != found]
    by_facts = sum(rubric.scores is None for _, rubric in pairs)
    said = f"Vetoes: {len(vetoes) - len(wrong)} of {len(vetoes)} right ({by_facts} by facts alone, without a judge)"
    lines += ["", said + (f": wrong: {', '.join(wrong)}" if wrong else "")]
    return lines, share >= ENOUGH and not wrong


def differences(pairs: Sequence[tuple[dict[str, Any], Rubric]]) -> Iterator[str]:
    """Yields a line for each score that is off by more than one."""
    for entry, rubric in pairs:
        for name in SCORES if rubric.scores is not None else ():
            assert rubric.scores is not None
            expected, found = entry["expected"][name], rubric.scores.score(name)
            if abs(expected - found) > 1:
                samples = "/".join(str(sample.score(name)) for sample in rubric.samples)
                yield f"- {entry['name']}: {name.replace('_', ' ')} {found} (samples {samples}) where {expected} is expected"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", help="mailbox:DIR, openai:NAME, …; by default the recorded replies")
    parser.add_argument("--record", action="store_true", help="keep the judge's replies in the set")
    asked = parser.parse_args()
    pairs, waiting, programs = [], 0, entries()
    for entry in programs:
        chat: Chat = Recorded(entry["replies"])
        if asked.judge:
            settings = Settings(model=asked.judge)
            chat = Kept(open_chat(asked.judge, settings, Path(), entry["name"][:20]), [])
        try:
            pairs.append((entry, judged(entry, chat)))
        except ReplyPending:
            waiting += 1
            continue
        if asked.record and isinstance(chat, Kept):
            entry["replies"] = chat.replies
    if waiting:
        print(f"{waiting} programs wait for replies in {asked.judge}")
        return 3
    if asked.record:
        SET.write_text("".join(json.dumps(entry) + "\n" for entry in programs))
    lines, enough = compared(pairs)
    print("\n".join([*lines, "", *differences(pairs)]))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
