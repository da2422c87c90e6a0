"""Gives every program of the two corpora to the verifier and prints a table: `python benchmarks/integrity.py --device sim`.

Attacks must not be accepted, honest programs must be; the exit code is 1 where that fails. `--without landlock` leaves one
protection of the sandbox out, `--without each` gives the attacks to it once for each of them. With `--json FILE` it goes on
where the file ends, and asks again what was wrong. The programs are in tests/integrity, results under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.errors import StitchError
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.protections import NAMES, WITHOUT
from stitchcuda.state import Target
from stitchcuda.verify.api import Verifier
from tests.integrity.corpus import Entry, entries

# Which defence a reason comes from; the first that matches names it.
_DEFENCES = (
    ("the source", r"^the source itself"),
    ("degenerate reference", r"constant|says nothing|independent of|whatever its (inputs|weights)|zeros would pass"),
    ("seal", r"tampers with the process|answer of its own making"),
    ("earlier results", r"of an earlier call changed"),
    ("later calls", r"(after|in one of) \d+ more calls"),
    ("kernel left out", r"left out|nobody misses|idle"),
    ("shares", r"policy (stitched|strict)|host-side task"),
    ("clocks", r"clock"),
    ("delivery", r"while it was timed|delivered"),
    ("ceiling", r"speed of light|faster than"),
    ("inputs or state", r"writes into |changes \w|in call \d of a row|has no (state|parameter for)|leaves something out"),
    ("limits", r"out of memory|did not finish|memory \(limit|too many processes|disk|processes"),
    ("crash", r"crashed|ended by itself|killed"),
    ("sandbox", r"PermissionError|Operation not permitted|Permission denied|read-only|may not"),
    ("build", r"build failed|do not build|does not compile|refused: flag|flag"),
    ("structure", r"returned a |where the reference's (holds|do not)|is the memory of |has shape|has dtype|returns "),
    ("generators", r"random generator|torch's generator"),
    ("values", r"is wrong|elements differ|NaN|should be|second call|inf in"),
    ("raised", r"raised"),
)


BOUNDS = Limits(call_s=20.0, start_s=200.0, check_s=300.0)
KINDS = ("attacks", "honest", "limited")
_IN_A_ROW = 10                             # programs before one judge, as in a session
Chosen = list[tuple[Entry, str]]


@dataclass(frozen=True)
class Outcome:
    """One program and what became of it."""

    name: str
    row: str
    kind: str
    what: str
    independent: bool
    result: str                            # accepted, refused, could not judge
    defence: str
    reason: str
    seconds: float


def judged(verifier: Verifier, entry: Entry, kind: str) -> Outcome:
    """One verdict; whatever happens is an outcome."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            verdict = verifier.verify(entry.program(Path(folder)))
        result, reasons, notes = ("accepted" if verdict.accepted else "refused"), verdict.reasons, verdict.notes
    except StitchError as error:
        result, reasons, notes = "could not judge", (str(error),), ()
    except RuntimeError as error:
        result, reasons, notes = "DEFECT", (str(error)[-600:],), ()
    reason = reasons[0] if reasons else ""
    defence = next((name for name, rule in _DEFENCES if re.search(rule, reason)), "") if result != "accepted" else ""
    if kind == "limited" and result == "accepted":
        reason = "; ".join(note for note in notes if note.startswith("limited:"))
        defence = "limited" if reason else ""
    took = time.monotonic() - started
    return Outcome(entry.name, entry.row, kind, entry.what, entry.independent, result, defence, reason, took)


def outcomes(reference: Path, chosen: Chosen, target: Target, cache: Path) -> Iterator[Outcome]:
    """Verdicts on several programs of one reference, by one judge; a new one when the judge itself failed."""
    waiting = list(chosen)
    while waiting:
        with Verifier(reference, target=target, cache=cache, bounds=BOUNDS) as verifier:
            while waiting:
                outcome = judged(verifier, *waiting.pop(0))
                yield outcome
                if outcome.result == "DEFECT":
                    break


def wrong(outcome: Outcome) -> bool:
    """An attack that was accepted, an honest program that was not, or a failure of the verifier itself.

    Programs in `limited` claim no sizes or layouts beyond those given: they are accepted, and the verdict has to say so.
    """
    if outcome.kind == "limited":
        return outcome.result != "accepted" or outcome.defence != "limited"
    return outcome.result == "DEFECT" or (outcome.result == "accepted") != (outcome.kind == "honest")


def table(found: list[Outcome], heading: str) -> str:
    """Markdown: a line of totals and a row for each program."""
    lines = [heading, ""]
    for kind in KINDS:
        rows = [outcome for outcome in found if outcome.kind == kind]
        if not rows:
            continue
        accepted = sum(outcome.result == "accepted" for outcome in rows)
        alone = sum(outcome.independent for outcome in rows)
        lines += [f"## {kind}: {len(rows)} programs ({alone} written without sight of the verifier), {accepted} accepted", ""]
        lines += ["| row | program | what it does | verdict | defence | reason |", "|---|---|---|---|---|---|"]
        for outcome in rows:
            mark = " **WRONG**" if wrong(outcome) else ""
            reason = re.sub(r"\s+", " ", outcome.reason).replace("|", "\\|")[:160]
            what = outcome.what.replace("|", "\\|")[:140]
            lines.append(f"| {outcome.row} | {outcome.name} | {what} | {outcome.result}{mark} | {outcome.defence} | {reason} |")
        lines.append("")
    return "\n".join(lines)


def denied(found: dict[str, list[Outcome]], heading: str) -> str:
    """Markdown: for each protection left out, how many attacks were accepted and which were caught by another defence."""
    usual = {outcome.name: outcome.defence for outcome in found[""]}
    columns = "| left out | attacks | accepted | caught by another defence than with all in place |"
    lines = [heading, "", columns, "|---|---|---|---|"]
    for name, judged_without in found.items():
        accepted = [outcome.name for outcome in judged_without if wrong(outcome)]
        elsewhere = [outcome for outcome in judged_without if outcome.defence != usual[outcome.name]]
        others = [f"{outcome.name} ({outcome.defence or outcome.result})" for outcome in elsewhere]
        label = NAMES[name] if name else "(nothing)"
        attacks = f"{len(judged_without)} | {len(accepted)} {' '.join(accepted)}"
        lines.append(f"| {label} | {attacks} | {', '.join(others) or 'none'} |")
    return "\n".join([*lines, ""])


def judge_all(
    chosen: Chosen, target: Target, cache: Path, jobs: int, found: list[Outcome], keep: Callable[[], None]
) -> None:
    """Adds all verdicts to `found`, up to ten programs of one reference after another in each of the jobs; prints each."""
    rows: list[Chosen] = []
    for reference in dict.fromkeys(entry.reference for entry, _ in chosen):
        pairs = [pair for pair in chosen if pair[0].reference == reference]
        rows += [pairs[start:start + _IN_A_ROW] for start in range(0, len(pairs), _IN_A_ROW)]
    telling = Lock()

    def judge_row(row: Chosen) -> None:
        for outcome in outcomes(row[0][0].reference, row, target, cache):
            mark = "WRONG " if wrong(outcome) else ""
            reason = " ".join(outcome.reason.split())[:150]
            with telling:
                found.append(outcome)
                keep()
                what = f"{mark}{outcome.row:7s} {outcome.name:34s} {outcome.result:16s}"
                print(f"{what} {outcome.seconds:5.1f} s  {outcome.defence}: {reason}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(judge_row, sorted(rows, key=len, reverse=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--corpus", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--rows", default="", help="a regular expression for rows, such as ^S")
    parser.add_argument("--without", default="", help="protections to leave out, with commas; each: one after the other")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "stitchcuda-integrity")
    parser.add_argument("--table", type=Path, help="write the table to this file")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    each = given.without == "each"
    kinds = KINDS[:1] if each else KINDS if given.corpus == "all" else (given.corpus,)
    chosen = [
        (entry, kind)
        for kind in kinds
        for entry in entries(kind)
        if entry.on(given.device) and re.search(given.only, entry.name) and re.search(given.rows, entry.row)
    ]
    kept = json.loads(given.json.read_text()) if given.json and given.json.is_file() else {}
    by_protection = {name: [Outcome(**outcome) for outcome in each] for name, each in kept.items()}

    def keep() -> None:
        if given.json:
            plain = {name: [asdict(outcome) for outcome in each] for name, each in by_protection.items()}
            given.json.with_suffix(".new").write_text(json.dumps(plain, indent=1))
            given.json.with_suffix(".new").replace(given.json)

    for left_out in ("", *NAMES) if each else (given.without,):
        found = by_protection[left_out] = [outcome for outcome in by_protection.get(left_out, []) if not wrong(outcome)]
        known = {outcome.name for outcome in found}
        os.environ[WITHOUT] = left_out
        print(f"without {left_out}:" if left_out else "", flush=True)
        judge_all([pair for pair in chosen if pair[0].name not in known], given.device, given.cache, given.jobs, found, keep)
        found.sort(key=lambda outcome: (outcome.kind, outcome.name))
    found = [outcome for each in by_protection.values() for outcome in each]
    bad = [outcome for outcome in found if wrong(outcome)]
    print(f"{len(found)} verdicts, {len(bad)} wrong: {', '.join(outcome.name for outcome in bad)}")
    heading = f"`python {' '.join(sys.argv)}`, {time.strftime('%Y-%m-%d')}"
    if given.table:
        given.table.write_text(denied(by_protection, heading) if each else table(found, heading))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
