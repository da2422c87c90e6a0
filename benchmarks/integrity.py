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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.errors import StitchError
from stitchcuda.sandbox.limits import Limits
from stitchcuda.tools.verify import verify
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


def judged(entry: Entry, kind: str, target: str, cache: Path) -> Outcome:
    """One verdict; whatever happens is an outcome."""
    started = time.monotonic()
    bounds = Limits(call_s=20.0, start_s=200.0, check_s=300.0)
    try:
        verdict = verify(
            entry.path, entry.reference, target=target, policy="stitched", precision="reference", cache=cache, bounds=bounds,  # type: ignore[arg-type]
        )  # fmt: skip
        result, reasons = ("accepted" if verdict.accepted else "refused"), verdict.reasons
    except StitchError as error:
        result, reasons = "could not judge", (str(error),)
    except RuntimeError as error:
        result, reasons = "DEFECT", (str(error)[-600:],)
    reason = reasons[0] if reasons else ""
    defence = next((name for name, rule in _DEFENCES if re.search(rule, reason)), "") if result != "accepted" else ""
    if kind == "limited" and result == "accepted":
        reason = "; ".join(note for note in verdict.notes if note.startswith("limited:"))
        defence = "limited" if reason else ""
    took = time.monotonic() - started
    return Outcome(entry.name, entry.row, kind, entry.what, entry.independent, result, defence, reason, took)


def wrong(one: Outcome) -> bool:
    """An attack that was accepted, an honest program that was not, or a failure of the verifier itself.

    Programs in `limited` claim no sizes or layouts beyond those given: they are accepted, and the verdict has to say so.
    """
    if one.kind == "limited":
        return one.result != "accepted" or one.defence != "limited"
    return one.result == "DEFECT" or (one.result == "accepted") != (one.kind == "honest")


def table(outcomes: list[Outcome], heading: str) -> str:
    """Markdown: a line of totals and a row for each program."""
    lines = [heading, ""]
    for kind in KINDS:
        rows = [one for one in outcomes if one.kind == kind]
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
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for one in pool.map(lambda pair: judged(pair[0], pair[1], given.device, given.cache), chosen):
            outcomes.append(one)
            mark = "WRONG " if wrong(one) else ""
            reason = " ".join(one.reason.split())[:150]
            line = f"{mark}{one.row:7s} {one.name:34s} {one.result:16s} {one.seconds:5.1f} s  {one.defence}: {reason}"
            print(line, flush=True)
    bad = [one for one in outcomes if wrong(one)]
    print(f"{len(outcomes)} programs, {len(bad)} wrong: {', '.join(one.name for one in bad)}")
    if given.table:
        given.table.write_text(table(outcomes, f"`python {' '.join(sys.argv)}`, {time.strftime('%Y-%m-%d')}"))
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
