"""Gives every program of the two corpora to the verifier and prints a table: `python benchmarks/integrity.py --device sim`.

Attacks must not be accepted, honest programs must be; the exit code is 1 where that fails. `--without landlock` leaves one
protection of the sandbox out, `--without each` runs the attacks on the machine once for each of them. Nothing is fetched; the
programs are in tests/integrity. Results are kept under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.errors import StitchError
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import Settings, Target
from stitchcuda.tools.check import Judge
from stitchcuda.tools.device import device_facts
from stitchcuda.tools.verify import verdict_of
from tests.integrity.corpus import Entry, entries

# Which defence a reason comes from; the first that matches names it.
_DEFENCES = (
    ("the source", r"^the source itself"),
    ("degenerate reference", r"constant|says nothing|independent of|whatever its (inputs|weights)|zeros would pass"),
    ("seal", r"tampers with the process|answer of its own making"),
    ("earlier results", r"of an earlier call changed"),
    ("later calls", r"after \d+ more calls"),
    ("kernel left out", r"left out|nobody misses|idle"),
    ("shares", r"policy (stitched|strict)|host-side task"),
    ("clocks", r"clock"),
    ("delivery", r"while it was timed|delivered"),
    ("ceiling", r"speed of light|faster than"),
    ("inputs or state", r"writes into its input|changes \w"),
    ("limits", r"out of memory|did not finish|memory \(limit|too many processes|disk|processes"),
    ("crash", r"crashed|ended by itself|killed"),
    ("sandbox", r"PermissionError|Operation not permitted|Permission denied|read-only|may not"),
    ("build", r"build failed|do not build|does not compile|refused: flag|flag"),
    ("structure", r"returned a |has shape|has dtype|returns "),
    ("values", r"is wrong|elements differ|NaN|should be|second call|inf in"),
    ("raised", r"raised"),
)


BOUNDS = Limits(call_s=20.0, start_s=200.0, check_s=300.0)
KINDS = ("attacks", "honest", "limited")


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


def judged(judge: Judge, entry: Entry, kind: str, settings: Settings, cache: Path, arch: str) -> Outcome:
    """One verdict; whatever happens is an outcome."""
    started = time.monotonic()
    try:
        verdict = verdict_of(judge, entry.path, settings, cache=cache, arch=arch)
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


def outcomes(reference: Path, chosen: list[tuple[Entry, str]], target: Target, cache: Path) -> Iterator[Outcome]:
    """Verdicts on several programs of one reference, by one judge; a new one when the judge itself failed."""
    settings, arch = Settings(target=target), device_facts(target).arch
    waiting = list(chosen)
    while waiting:
        with Judge(reference, settings, cache=cache, arch=arch, bounds=BOUNDS) as judge:
            while waiting:
                one = judged(judge, *waiting.pop(0), settings, cache, arch)
                yield one
                if one.result == "DEFECT":
                    break


def wrong(one: Outcome) -> bool:
    """An attack that was accepted, an honest program that was not, or a failure of the verifier itself.

    Programs in `limited` claim no sizes or layouts beyond those given: they are accepted, and the verdict has to say so.
    """
    if one.kind == "limited":
        return one.result != "accepted" or one.defence != "limited"
    return one.result == "DEFECT" or (one.result == "accepted") != (one.kind == "honest")


def table(found: list[Outcome], heading: str) -> str:
    """Markdown: a line of totals and a row for each program."""
    lines = [heading, ""]
    for kind in KINDS:
        rows = [one for one in found if one.kind == kind]
        if not rows:
            continue
        accepted = sum(one.result == "accepted" for one in rows)
        alone = sum(one.independent for one in rows)
        lines += [f"## {kind}: {len(rows)} programs ({alone} written without sight of the verifier), {accepted} accepted", ""]
        lines += ["| row | program | what it does | verdict | defence | reason |", "|---|---|---|---|---|---|"]
        for one in rows:
            mark = " **WRONG**" if wrong(one) else ""
            reason = re.sub(r"\s+", " ", one.reason).replace("|", "\\|")[:160]
            what = one.what.replace("|", "\\|")[:140]
            lines.append(f"| {one.row} | {one.name} | {what} | {one.result}{mark} | {one.defence} | {reason} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--corpus", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--rows", default="", help="a regular expression for rows, such as ^S")
    parser.add_argument("--without", default="", help="protections to leave out, separated by commas")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "stitchcuda-integrity")
    parser.add_argument("--table", type=Path, help="write the table to this file")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    given = parser.parse_args()
    if given.without:
        os.environ["STITCHCUDA_SANDBOX_WITHOUT"] = given.without
    given.cache.mkdir(parents=True, exist_ok=True)
    chosen = [
        (entry, kind)
        for kind in (KINDS if given.corpus == "all" else (given.corpus,))
        for entry in entries(kind)
        if entry.on(given.device) and re.search(given.only, entry.name) and re.search(given.rows, entry.row)
    ]
    found: list[Outcome] = []

    def judge_all(reference: Path) -> None:
        mine = [pair for pair in chosen if pair[0].reference == reference]
        for one in outcomes(reference, mine, given.device, given.cache):
            found.append(one)
            mark = "WRONG " if wrong(one) else ""
            reason = " ".join(one.reason.split())[:150]
            line = f"{mark}{one.row:7s} {one.name:34s} {one.result:16s} {one.seconds:5.1f} s  {one.defence}: {reason}"
            print(line, flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(judge_all, dict.fromkeys(entry.reference for entry, _ in chosen)))
    found.sort(key=lambda one: (one.kind, one.name))
    bad = [one for one in found if wrong(one)]
    print(f"{len(found)} programs, {len(bad)} wrong: {', '.join(one.name for one in bad)}")
    if given.table:
        given.table.write_text(table(found, f"`python {' '.join(sys.argv)}`, {time.strftime('%Y-%m-%d')}"))
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
