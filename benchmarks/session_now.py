"""Times what a chat model has made so far of a session: its program, the one it went on from, and eager, in turns.

    python benchmarks/session_now.py SESSION [--workspace DIR]

Needs the GPU. For a session that is parked: the report of one that is done has these figures. The program is checked first, on
three secret input sets, and timed twice, in new processes; one JSON object is printed. It changes nothing in the session.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from stitchcuda.graph.opening import open_tools
from stitchcuda.nodes.final_check import starting_program
from stitchcuda.sessions.session import Session
from stitchcuda.store import materialise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session")
    parser.add_argument("--workspace", default=None)
    options = parser.parse_args()
    session = Session.open(options.session, options.workspace)
    start = starting_program([attempt for attempt in session.attempts() if attempt.kept])
    program = session.state().get("program")
    if start is None or program is None:
        sys.exit(f"no chat model has had a program of its own kept in {session.name}")
    tools = open_tools(session.home, session.record, "cuda")
    try:
        with tempfile.TemporaryDirectory() as folder:
            now, before = Path(folder) / "now", Path(folder) / "start"
            materialise(session.home.store, program, now)
            materialise(session.home.store, start, before)
            tools.build(now)
            check = tools.check(now, session.record.settings.seeds)
            if not check.ok:
                sys.exit(f"{session.name}: {'; '.join(check.reasons)}")
            timing = tools.time(now, before, twice=True)
            assert timing is not None
            gain = {"session": session.name, "over_start": timing.previous_ms / timing.program_ms}
            print(json.dumps(gain | timing.model_dump(mode="json")))
    finally:
        tools.close()


if __name__ == "__main__":
    main()
