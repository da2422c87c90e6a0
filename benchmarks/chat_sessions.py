"""What chat models made of recorded sessions: `python benchmarks/chat_sessions.py [tests/recordings/*.json.gz]`.

One table of sessions and one of their tasks, from the recordings alone (`scripts/record_session.py` makes them): no GPU and no
model. Ratios are those of a session's end: its last program, the built-in engineer's that it went on from and eager are timed
in turns, twice in new processes; torch.compile in turns with eager, the faster of its default and max-autotune, so the ratio to
it is a quotient of two. In brackets 95 % intervals.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE.parent / "tests" / "recordings"


def session_row(data: dict[str, Any]) -> list[str]:
    own = [one for one in data["ledger"] if one["engineer"] != "builtin"]
    first = [one for one in own if one["ordinal"] == 0]
    kept = {one["task"] for one in own if one["kept"]}
    return [
        data["session"]["name"],
        str(len(data["calls"])),
        f"{sum(call['input_tokens'] for call in data['calls']):,} / {sum(call['output_tokens'] for call in data['calls']):,}",
        str(len(own)),
        f"{sum(one['built'] and one['correct'] for one in first)} of {len(first)}",
        f"{len(kept)} of {len({one['task'] for one in own})}",
        *ended(data),
    ]


def ended(data: dict[str, Any]) -> list[str]:
    """How the last program compares, all by its final timings: with the start, eager and torch.compile."""
    timing = (data["final"] or {}).get("timing")
    if not timing:
        return ["not ended", "", "", "", "", ""]
    before, now = timing["previous_ms"], timing["program_ms"]
    low, high = (1 + timing[name] / now for name in ("saving_low_ms", "saving_high_ms"))
    compiled = {
        one["mode"]: one["eager_ms"] / one["ms"]
        for one in (data["baselines"] or {}).get("times", ())
        if one["ms"] and one["agrees"] and one["mode"] in ("compile", "max-autotune")
    }
    best = max(compiled, key=lambda mode: compiled[mode], default=None)
    return [
        f"{before * 1e3:.1f}",
        f"{now * 1e3:.1f}",
        f"{before / now:.2f}× ({low:.2f} to {high:.2f})",
        f"{timing['ratio']:.2f}× ({timing['ratio_low']:.2f} to {timing['ratio_high']:.2f})",
        f"{compiled[best]:.2f}× ({best})" if best else "-",
        f"{timing['ratio'] / compiled[best]:.2f}×" if best else "-",
    ]


def task_rows(data: dict[str, Any]) -> list[list[str]]:
    rows = []
    for one in data["ledger"]:
        if one["engineer"] == "builtin":
            continue
        timing = data["evidence"][one["program"]]["timing"]
        interval = f"{timing['saving_low_ms'] * 1e3:.1f} to {timing['saving_high_ms'] * 1e3:.1f}" if timing else "-"
        saved = f"{one['saving_ms'] * 1e3:.1f}" if one["saving_ms"] is not None else "-"
        state = "kept" if one["kept"] else "correct" if one["correct"] else "wrong" if one["built"] else "not built"
        name = f"{data['session']['name']}: {one['task']} #{one['ordinal']}"
        rows.append([name, f"{one['predicted_ms'] * 1e3:.1f}", saved, interval, state, one["route"]])
    return rows


def table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(RECORDINGS.glob("*.json.gz"))
    if not paths:
        sys.exit(f"there are no recordings in {RECORDINGS}")
    found = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    heads = [
        "session", "calls", "tokens read / written", "attempts", "first drafts correct", "tasks kept", "start µs", "final µs",
        "over the start", "over eager", "torch.compile over eager", "over torch.compile",
    ]  # fmt: skip
    print(table(heads, [session_row(data) for data in found]))
    rows = [row for data in found for row in task_rows(data)]
    print("\n" + table(["task", "predicted µs", "saved µs", "95 % interval", "", "route"], rows))
    for role in ("planner", "coder", "verifier"):
        calls = [call for data in found for call in data["calls"] if call["id"].startswith(role) and call["reply"]]
        if calls:
            read, written = (median(call[name] for call in calls) for name in ("input_tokens", "output_tokens"))
            print(f"\n{role}: {len(calls)} calls, median {read:,.0f} tokens read, {written:,.0f} written")


if __name__ == "__main__":
    main()
