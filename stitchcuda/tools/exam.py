"""Secret input sets with the reference's answers, drawn by the judge and written by the reference worker.

An exam keeps one set of parameters and grows by input sets; programs of one session sit the same exam, the final verification
sits a fresh one. Files live in the judge's scratch folder, which no program worker is told of. Where to look next: `trial.py`.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stitchcuda.tools import wire
from stitchcuda.tools.bound import Bound, bound

Ask = Callable[..., dict[str, Any]]
"""Asks the reference worker: ask(do, **fields)."""


@dataclass
class InputSet:
    """One call of the reference: inputs as a file for the worker, answers as files for the judge."""

    inputs: Path
    structure: Any
    names: list[str]
    expected: Path
    exact: Path

    def answers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """(own dtype, float64), in the order of `names`."""
        return wire.read_tensors(self.expected), wire.read_tensors(self.exact)


@dataclass
class Exam:
    """Parameters and input sets that share them."""

    folder: Path
    state: Path
    renewed: bool
    note: str = ""
    sets: list[InputSet] = field(default_factory=list)
    _bounds: dict[int, dict[str, Bound]] = field(default_factory=dict)

    def bounds(self, count: int) -> dict[str, Bound]:
        """What is allowed per output, pooled over the first `count` input sets."""
        if count not in self._bounds:
            answers = [one.answers() for one in self.sets[:count]]
            names = self.sets[0].names
            self._bounds[count] = {
                name: bound([own[i] for own, _ in answers], [true[i] for _, true in answers]) for i, name in enumerate(names)
            }
        return self._bounds[count]

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def draw(ask: Ask, folder: Path, *, renew: bool) -> Exam:
    """A new exam without input sets. `renew`: parameters get secret values instead of the reference's own."""
    folder.mkdir(parents=True)
    state = folder / "state"
    answer = ask("renew", seed=secrets.randbits(31) if renew else None, state=str(state))
    return Exam(folder=folder, state=state, renewed=renew and not answer["note"], note=answer["note"])


def extend(ask: Ask, exam: Exam, count: int) -> None:
    """Draw secret seeds until the exam has `count` input sets."""
    while len(exam.sets) < count:
        number = len(exam.sets)
        paths = {what: exam.folder / f"{what}-{number}" for what in ("inputs", "expected", "exact")}
        answer = ask(
            "expect",
            seed=secrets.randbits(31),
            state=str(exam.state),
            **{what: str(path) for what, path in paths.items()},
        )
        exam.sets.append(InputSet(structure=answer["structure"], names=answer["names"], **paths))
