"""No attack is accepted and no honest program is refused: what a CPU can express, on the simulator, a reference at a time.

Every fourth reference is judged here, the others in the long run, with the programs in the style of torch extensions, which
take half a minute each to build; what a GPU can show is in the tests marked gpu.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.integrity import KINDS, outcomes, wrong
from stitchcuda.compiler.printing.manifest import free_sizes
from stitchcuda.state import Target
from tests.integrity.corpus import HERE, Entry, entries

CACHE = Path("/tmp/stitchcuda-simulator-tests")
CHOSEN = [(entry, kind) for kind in KINDS for entry in entries(kind)]


def slow(entry: Entry) -> bool:
    return entry.path.is_file() and "torch.utils.cpp_extension" in entry.path.read_text()


def by_reference(target: Target, built_slowly: tuple[bool, ...]) -> dict[str, list[tuple[Entry, str]]]:
    groups: dict[str, list[tuple[Entry, str]]] = {}
    for entry, kind in CHOSEN:
        if entry.on(target) and slow(entry) in built_slowly:
            groups.setdefault(str(entry.reference.relative_to(HERE / "references")), []).append((entry, kind))
    return groups


QUICK, SLOW = by_reference("sim", (False,)), by_reference("sim", (True,))
ON_GPU = by_reference("cuda", (False, True))


def judge_group(reference: str, group: list[tuple[Entry, str]], target: Target = "sim") -> list[str]:
    CACHE.mkdir(exist_ok=True)
    found = list(outcomes(HERE / "references" / reference, group, target, CACHE))
    assert len(found) == len(group)
    return [f"{one.name}: {one.result} {one.reason}" for one in found if wrong(one)]


@pytest.mark.parametrize("reference", sorted(QUICK)[::4])
def test_verdicts(reference: str) -> None:
    assert judge_group(reference, QUICK[reference]) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", [one for at, one in enumerate(sorted(QUICK)) if at % 4])
def test_verdicts_of_the_others(reference: str) -> None:
    assert judge_group(reference, QUICK[reference]) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", SLOW)
def test_verdicts_on_torch_extensions(reference: str) -> None:
    assert judge_group(reference, SLOW[reference]) == []


@pytest.mark.gpu
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", ON_GPU)
def test_verdicts_on_a_gpu(reference: str) -> None:
    assert judge_group(reference, ON_GPU[reference], "cuda") == []


def test_every_known_cheat_is_there() -> None:
    rows = {row.strip() for entry, kind in CHOSEN if kind != "honest" for row in entry.row.split(",")}
    assert rows >= {*(f"A{number}" for number in range(1, 20)), *(f"B{number}" for number in range(1, 15))}
    honest = [entry for entry, kind in CHOSEN if kind == "honest"]
    assert len(honest) >= 25
    alone = [entry for entry, _ in CHOSEN if entry.independent]
    assert len(alone) >= len(CHOSEN) / 3


@pytest.mark.parametrize("entry", [entry for entry, _ in CHOSEN if entry.path.is_dir()], ids=lambda one: one.name)
def test_manifests_are_well_formed(entry: Entry) -> None:
    """Or an attack is refused for a slip of its author's and its trick is never tried."""
    free_sizes(json.loads((entry.path / "program.json").read_text()))
