"""Groups references that are alike: equal syntax without names and numbers, or syntax that overlaps by 0.9.

Splits of a data set are made of these clusters, and leaks are found by them: KernelBench's 250 problems have 230 structures.
Where to look next: `training/tasks/decontamination.py` (what a structure is), `training/leakage.py` (looks for a test reference
in texts), `training/data.py` (splits).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from stitchcuda.training.tasks.decontamination import OVERLAP, ProgramStructure, structure_of


def find_structure(source: str) -> ProgramStructure | None:
    """Returns the structure of Python source; None if it cannot be parsed or defines nothing."""
    try:
        found = structure_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if found.digest == structure_of("").digest else found


def alike(first: ProgramStructure, second: ProgramStructure) -> bool:
    if first.digest == second.digest:
        return True
    fewer, more = sorted((len(first.shingles), len(second.shingles)))
    return fewer >= OVERLAP * more and first.overlap(second) >= OVERLAP  # the overlap is at most fewer / more


def clusters(sources: Mapping[str, str]) -> dict[str, str]:
    """Returns the cluster of each source, by its name: the least digest of those that are alike, directly or through others.
    Sources without a structure are clustered by their text."""
    known = {name: find_structure(source) for name, source in sources.items()}
    leader = {name: name for name in sources}

    def lead(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    names = sorted(sources)
    for number, name in enumerate(names):
        for other in names[:number]:
            first, second = known[name], known[other]
            same = sources[name] == sources[other] if first is None or second is None else alike(first, second)
            if same:
                leader[lead(name)] = lead(other)
    digests: dict[str, list[str]] = {}
    for name in names:
        found = known[name]
        digest = found.digest if found else hashlib.sha256(sources[name].encode()).hexdigest()
        digests.setdefault(lead(name), []).append(digest)
    return {name: min(digests[lead(name)])[:16] for name in names}
