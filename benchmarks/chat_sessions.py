"""What chat models made of recorded sessions: `python benchmarks/chat_sessions.py [tests/recordings/*.json.gz]`.

One table of sessions and one of their tasks, from the recordings alone (`scripts/record_session.py` makes them): no GPU and no
model. Ratios are those of a session's end: its last program, the built-in engineer's that it went on from and eager are timed
in turns, two or three times in new processes; baselines in turns with eager, so a ratio to one is a quotient of two.
torch.compile is the faster of its default and max-autotune, the best baseline also may be a CUDA graph. In brackets 95 %
intervals, within one timing.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter as Lines
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stitchcuda.engineers import prompt  # noqa: E402
from stitchcuda.engineers.prompt_values import PromptBudget  # noqa: E402
from stitchcuda.engineers.tokens import TokenCounter  # noqa: E402

RECORDINGS = HERE.parent / "tests" / "recordings"


def session_row(data: dict[str, Any]) -> list[str]:
    own = [attempt for attempt in data["ledger"] if attempt["engineer"] != "builtin"]
    first = [attempt for attempt in own if attempt["ordinal"] == 0]
    kept = {attempt["task"] for attempt in own if attempt["kept"]}
    return [
        data["session"]["name"],
        str(len(data["calls"])),
        f"{sum(call['input_tokens'] for call in data['calls']):,} / {sum(call['output_tokens'] for call in data['calls']):,}",
        str(len(own)),
        f"{sum(attempt['built'] and attempt['correct'] for attempt in first)} of {len(first)}",
        f"{len(kept)} of {len({attempt['task'] for attempt in own})}",
        *ended(data),
    ]


def ended(data: dict[str, Any]) -> list[str]:
    """How the last program compares, all by its final timings: with the start, eager and torch.compile."""
    timing = (data["final"] or {}).get("timing")
    if not timing:
        return ["not ended", *[""] * 7]
    before, now = timing["previous_ms"], timing["program_ms"]
    low, high = (1 + timing[name] / now for name in ("saving_low_ms", "saving_high_ms"))
    ways = {
        baseline["mode"]: baseline["eager_ms"] / baseline["ms"]
        for baseline in (data["baselines"] or {}).get("times", ())
        if baseline["ms"] and baseline["agrees"]
    }
    compiled = max((mode for mode in ways if mode in ("compile", "max-autotune")), key=lambda mode: ways[mode], default="")
    best = max(ways, key=lambda mode: ways[mode], default="")
    told = next((note.split(": ratio")[0].removeprefix("limited: ") for note in timing["notes"] if "timed " in note), "once")
    sanitizer = data["final"]["sanitizer"] or {}
    return [
        f"{before * 1e3:.1f}",
        f"{now * 1e3:.1f}",
        f"{before / now:.2f}× ({low:.2f} to {high:.2f})",
        f"{timing['ratio']:.2f}× ({timing['ratio_low']:.2f} to {timing['ratio_high']:.2f})",
        f"{timing['ratio'] / ways[compiled]:.2f}× ({compiled})" if compiled else "-",
        f"{timing['ratio'] / ways[best]:.2f}× ({best})" if best else "-",
        told.removeprefix("timed "),
        "clean" if sanitizer.get("clean") else f"{len(sanitizer.get('warnings', ()))} warnings" if sanitizer else "-",
    ]


def task_rows(data: dict[str, Any]) -> list[list[str]]:
    rows = []
    for attempt in data["ledger"]:
        if attempt["engineer"] == "builtin":
            continue
        timing = data["evidence"][attempt["program"]]["timing"]
        interval = f"{timing['saving_low_ms'] * 1e3:.1f} to {timing['saving_high_ms'] * 1e3:.1f}" if timing else "-"
        saved = f"{attempt['saving_ms'] * 1e3:.1f}" if attempt["saving_ms"] is not None else "-"
        state = "kept" if attempt["kept"] else "correct" if attempt["correct"] else "wrong" if attempt["built"] else "not built"
        name = f"{data['session']['name']}: {attempt['task']} #{attempt['ordinal']}"
        rows.append([name, f"{attempt['predicted_ms'] * 1e3:.1f}", saved, interval, state, attempt["route"]])
    return rows


def looks(data: dict[str, Any]) -> tuple[int, int, int, int]:
    """What coders have seen of the files that they asked to read: files asked for, shown whole; lines asked for, shown."""
    files = whole = lines = seen = 0
    for name, text in data["told"].items():
        if not name.startswith("look-"):
            continue
        shown = prompt.look_results(text, prompt.LOOKS, PromptBudget(TokenCounter(data["session"]["settings"]["model"])))
        for part in text.split(prompt.LOOKED)[1:]:
            head, _, body = part.strip().partition("\n```\n")
            if not head.startswith("read ") or not body:
                continue
            asked = body.removesuffix("\n```").splitlines()
            section = shown.partition(f"### {head}\n")[2].partition("\n### ")[0].splitlines()
            there = (Lines(asked) & Lines(section)).total()  # the same line as often as it is shown
            files, whole, lines, seen = files + 1, whole + (there == len(asked)), lines + len(asked), seen + there
    return files, whole, lines, seen


def table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(RECORDINGS.glob("*.json.gz"))
    if not paths:
        sys.exit(f"there are no recordings in {RECORDINGS}")
    found = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    heads = [
        "session", "calls", "tokens read / written", "attempts", "first drafts correct", "tasks kept", "start µs", "final µs",
        "over the start", "over eager", "over torch.compile", "over the best baseline",
        "timed", "sanitizer",
    ]  # fmt: skip
    print(table(heads, [session_row(data) for data in found]))
    rows = [row for data in found for row in task_rows(data)]
    print("\n" + table(["task", "predicted µs", "saved µs", "95 % interval", "", "route"], rows))
    for role in ("planner", "coder", "verifier"):
        calls = [call for data in found for call in data["calls"] if call["id"].startswith(role) and call["reply"]]
        if calls:
            read, written = (median(call[name] for call in calls) for name in ("input_tokens", "output_tokens"))
            print(f"\n{role}: {len(calls)} calls, median {read:,.0f} tokens read, {written:,.0f} written")
    files, whole, lines, seen = (sum(figures) for figures in zip(*map(looks, found), strict=True))
    print(f"\nlooks: of {files} files that coders asked to read {whole} are shown whole, of {lines:,} lines {seen:,}")


if __name__ == "__main__":
    main()
