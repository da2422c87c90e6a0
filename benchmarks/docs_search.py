"""How fast the documentation index is built and asked, what it takes, and how well it answers the question set.

    python benchmarks/docs_search.py [--toolkit wheels] [--no-vectors] > benchmarks/results/docs_search.md

Everything is made from nothing in a folder of its own: names and words, vectors, a second build; then each question of
`tests/rag/questions.jsonl` is asked by words, by meaning and by both. A question is answered at the place of the first entry
that is one of its answers. Latencies are of single queries with a warm index; memory is the peak of a process that asks and has
built nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)                    # not this folder, whose files have names of libraries
MODES = ("hybrid", "words", "meaning")
DEEP = 20                                  # places that are looked at; what comes later counts as not found
CORE = ("CUDA C++", "CUDA driver", "CUDA runtime", "cooperative groups", "cuBLAS", "cuBLAS, old interface", "cuBLASLt", "cuDNN")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolkit", choices=("any", "wheels"), default="any", help="wheels: headers of Python's packages only")
    parser.add_argument("--no-vectors", action="store_true", help="names and words only")
    parser.add_argument("--ask", metavar="OUT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.toolkit == "wheels":
        _wheels_only()
    if options.ask:
        Path(options.ask).write_text(json.dumps(asked(vectors=not options.no_vectors)))
        return
    with tempfile.TemporaryDirectory(prefix="docs-search-") as folder:
        os.environ["STITCHCUDA_DOCS"] = f"{folder}/docs"
        told = built(vectors=not options.no_vectors)
        out = Path(folder) / "asked.json"
        command = [sys.executable, __file__, *sys.argv[1:], "--ask", str(out)]
        subprocess.run(command, check=True)
        print("\n".join((*told, *table(json.loads(out.read_text())))))


def _wheels_only() -> None:
    """As on a machine without a system toolkit."""
    from stitchcuda.tools.build import libraries
    from stitchcuda.tools.device import toolkit

    found = toolkit._wheels()
    if found is None:
        sys.exit("there is no toolkit among the Python packages: pip install -e '.[toolkit]'")
    toolkit._search = lambda *_: (found, (), "")  # type: ignore[assignment]
    real = libraries.places
    libraries.places = lambda kit: real(kit).model_copy(update={"toolkit": (found.home,), "system": (Path(sys.prefix),)})


def built(*, vectors: bool) -> list[str]:
    """Builds three times from nothing but headers: names and words, vectors, and once more with nothing changed."""
    from stitchcuda.rag.building import build

    began = time.perf_counter()
    words = build(model=None)
    words_s = time.perf_counter() - began
    began = time.perf_counter()
    whole = build() if vectors else words
    meaning_s = time.perf_counter() - began
    began = time.perf_counter()
    again = build() if vectors else build(model=None)
    again_s = time.perf_counter() - began
    assert words is not None
    assert whole is not None
    assert again is not None
    assert not again.changed
    manifest = words.manifest
    versions = {part.library: part.version for part in manifest.parts}
    core = sum(manifest.libraries.get(name, 0) for name in CORE)
    lines = [
        "# Search of documentation",
        "",
        f"`{' '.join(('python', 'benchmarks/docs_search.py', *sys.argv[1:]))}` on {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}; nothing was cached before.",
        "",
        "| library | version | entries |",
        "|---|---|---|",
        *(f"| {name} | {versions.get(name, '')} | {count:,} |" for name, count in manifest.libraries.items()),
        f"| all | | {manifest.chunks:,} |",
        "",
        f"- names and words of all these ready after **{words_s:.1f} s** ({core:,} entries of CUDA, cuBLAS, cuBLASLt, cuDNN)",
    ]
    if vectors and whole.meaning:
        made = f"{whole.meaning.embedded:,} texts by {whole.meaning.model}"
        lines.append(f"- vectors of {made} after another **{meaning_s:.0f} s**")
    return [*lines, f"- a build with nothing changed: **{again_s:.2f} s**"]


def asked(*, vectors: bool) -> dict[str, object]:
    """Ranks, latencies and memory of this process."""
    from stitchcuda.rag.index import open_docs
    from stitchcuda.rag.sources import place_here
    from tests.rag.answers import questions, rank_of

    began = time.perf_counter()
    docs, _ = open_docs(place_here())
    opened_s = time.perf_counter() - began
    asked = questions()
    began = time.perf_counter()
    docs.search(asked[0].question)
    first_s = time.perf_counter() - began
    ranks: dict[str, list[int | None]] = {}
    seconds: dict[str, list[float]] = {}
    for mode in MODES if vectors else ("hybrid", "words"):
        ranks[mode], seconds[mode] = [], []
        for question in asked:
            found = docs.search(question.question, DEEP, mode=mode)  # type: ignore[arg-type]
            ranks[mode].append(rank_of(question, [hit.chunk for hit in found.hits]))
        for question in asked:             # as people ask: for five
            began = time.perf_counter()
            docs.search(question.question, mode=mode)  # type: ignore[arg-type]
            seconds[mode].append(time.perf_counter() - began)
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
    kinds = [[question.kind, "names a symbol" if question.named else "names none"] for question in asked]
    return {"ranks": ranks, "seconds": seconds, "peak_mb": peak, "opened_s": opened_s, "first_s": first_s, "kinds": kinds}


def table(found: dict[str, object]) -> list[str]:
    ranks: dict[str, list[int | None]] = found["ranks"]  # type: ignore[assignment]
    seconds: dict[str, list[float]] = found["seconds"]  # type: ignore[assignment]
    kinds: list[list[str]] = found["kinds"]  # type: ignore[assignment]
    groups: dict[str, list[int]] = defaultdict(list)
    for at, those in enumerate(kinds):
        for name in ("all", *reversed(those)):
            groups[name].append(at)
    lines = [
        "",
        f"{len(kinds)} questions; hit@5 and MRR (the reciprocal of the place of the first answer, 0 beyond {DEEP}):",
        "",
        f"| questions | number | {' | '.join(f'{mode}: hit@5 | MRR' for mode in ranks)} |",
        f"|---|---|{'---|---|' * len(ranks)}",
    ]
    for name, places in groups.items():
        cells = [f"{_hit(ranks[mode], places):.3f} | {_mrr(ranks[mode], places):.3f}" for mode in ranks]
        lines.append(f"| {name} | {len(places)} | {' | '.join(cells)} |")
    lines += ["", "| one query, warm | p50 | p99 |", "|---|---|---|"]
    lines += [f"| {mode} | {_at(those, 0.5):.1f} ms | {_at(those, 0.99):.1f} ms |" for mode, those in seconds.items()]
    first = f"opened in {found['opened_s']:.2f} s, the first query (which loads the model) takes {found['first_s']:.1f} s"
    return [*lines, "", f"The index is {first}; peak memory of the process that asks: {found['peak_mb']:.0f} MB."]


def _hit(ranks: Sequence[int | None], places: Sequence[int]) -> float:
    return sum((rank := ranks[at]) is not None and rank <= 5 for at in places) / len(places)


def _mrr(ranks: Sequence[int | None], places: Sequence[int]) -> float:
    return sum(1 / rank if (rank := ranks[at]) else 0.0 for at in places) / len(places)


def _at(seconds: Sequence[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))] * 1e3


if __name__ == "__main__":
    main()
