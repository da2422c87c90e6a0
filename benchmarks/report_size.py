"""How large a report is and how long it takes: sessions of 100 and 500 attempts, made of what a recorded one has judged.

    python benchmarks/report_size.py [--attempts 100 500] [--recording tests/recordings/convnext_block.json.gz] [--keep DIR]

The recording is replayed, then its attempts are appended again and again, each with the program, the evidence and the review
that it had, and with the program before it for its base: so diffs are as long as a chat model's. Needs no GPU. `--keep` leaves
the pages in a folder. `gather` is the reading, `page` the writing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from stitchcuda.report.page import session_page
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt
from stitchcuda.store import Workspace
from tests.replay import RecordedHands, Recording, engineers


class Longer(Session):
    """A session whose record ends with a later attempt than its checkpoints know."""

    head = ""

    def state(self):  # type: ignore[no-untyped-def]
        return {**super().state(), "head": self.head}


def longer(folder: Path, recording: Recording, count: int) -> Longer:
    """The recorded session with `count` attempts."""
    home = Workspace(folder)
    record = recording.reopened(home)
    crew, _ = engineers(recording, home, record.name, record.settings)
    short = Session(home, record).run(engineer=crew, tools=RecordedHands(recording))
    known = short.attempts()
    last = known[-1]
    for number in range(len(known), count):
        like = known[number % len(known)]
        fields = like.model_dump() | {"id": f"{number:016x}", "parent": last.id, "base": last.program, "ordinal": number}
        last = home.store.append(record.name, Attempt.model_validate(fields))
    session = Longer(home, record)
    session.head = last.id
    return session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--recording", type=Path, default=Path("tests/recordings/convnext_block.json.gz"))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    print("| attempts | bytes | gather s | page s |\n|---|---|---|---|")
    for count in options.attempts:
        with tempfile.TemporaryDirectory() as name:
            session = longer(Path(name), Recording(options.recording), count)
            began = time.perf_counter()
            found = findings_of(session)
            gathered = time.perf_counter()
            page = session_page(found)
            ended = time.perf_counter()
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{count}.html").write_bytes(page)
        print(f"| {len(found.attempts)} | {len(page):,} | {gathered - began:.2f} | {ended - gathered:.2f} |", flush=True)


if __name__ == "__main__":
    main()
