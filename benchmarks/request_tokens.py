"""How long the requests to a chat model are: `python benchmarks/request_tokens.py [tests/recordings/*.json.gz] [--each]`.

It replays recorded sessions with today's prompts, without a GPU or a model, and prints for each session and role how many
requests there were, their tokens in all, and those of the longest. `--each` prints a line for each request. Tokens are those
of `TokenCounter("unknown")`, an estimate on the high side. Run it before and after a change of the prompts.

Where to look next: `stitchcuda/engineers/prompt.py` (the prompts), `tests/replay.py` (the replay).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stitchcuda.engineers.chat import ChatRequest  # noqa: E402
from stitchcuda.engineers.tokens import TokenCounter  # noqa: E402
from stitchcuda.sessions.session import Session  # noqa: E402
from stitchcuda.store import Workspace  # noqa: E402
from tests.replay import RecordedHands, Recording, engineers  # noqa: E402

COUNTER = TokenCounter("unknown")


def requests_of(path: Path) -> list[ChatRequest]:
    """Returns the requests of a recorded session, in their order, worded as they would be today."""
    recording = Recording(path)
    with tempfile.TemporaryDirectory() as folder:
        home = Workspace(Path(folder))
        record = recording.reopened(home)
        crew, replies = engineers(recording, home, record.name, record.settings)
        Session(home, record).run(engineer=crew, tools=RecordedHands(recording))
        return replies.asked


def tokens_of(request: ChatRequest) -> int:
    return sum(COUNTER.count(message.text) for message in request.messages)


def describe(request: ChatRequest) -> str:
    """Returns what a request is: its role, its turn, and whether it is a short one after an error."""
    first = request.messages[0].text
    kind = "after an error" if first.startswith("You are the coder") and "## The error" in first else ""
    again = "again" if "## Your last draft" in first else kind
    return f"{request.role} turn {request.ordinal} {again}".strip()


def main(arguments: Sequence[str]) -> None:
    paths = [Path(argument) for argument in arguments if not argument.startswith("-")]
    for path in paths or sorted((HERE.parent / "tests" / "recordings").glob("*.json.gz")):
        asked = requests_of(path)
        print(path.name.partition(".")[0])
        for request in asked if "--each" in arguments else ():
            print(f"  {tokens_of(request):>7,}  {describe(request)}")
        for role in ("planner", "coder", "verifier"):
            sizes = [tokens_of(request) for request in asked if request.role == role]
            print(f"  {role}: {len(sizes)} requests, {sum(sizes):,} tokens, longest {max(sizes, default=0):,}")


if __name__ == "__main__":
    main(sys.argv[1:])
