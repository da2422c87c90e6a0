"""Computes how similar two situations are, from 0 to 1, as a product of factors (no embedding, no index).

- operators: weighted Jaccard of each operator's share of all: the sum of the smaller shares over the sum of the larger ones.
  Nothing in common makes the product 0.
- shapes: the largest tensor is compared with the largest, the next with the next; a pair that is n powers of two apart, in rows
  and columns together, counts 2^(-n/2); pairs are averaged. Tensors without a partner are ignored.
- dtype of the largest tensor, device arch, precision: 1 where equal, else OTHER each.
- bottleneck: 1 where both are of the same kind (launches, memory, compute, latency), OTHER_BOTTLENECK where not,
  UNKNOWN_BOTTLENECK where one is unknown.

Where to look next: `memory/experience.py` (multiplies this by how well the lessons held), `memory/lesson.py` (Situation).
"""

from __future__ import annotations

import math
import re

from stitchcuda.memory.lesson import Situation, plain_operator

OTHER = 0.5
OTHER_BOTTLENECK = 0.7
UNKNOWN_BOTTLENECK = 0.85

BOTTLENECKS: dict[str, re.Pattern[str]] = {
    "launches": re.compile(r"launch|\bhost\b|\bcpu\b|\bgaps?\b"),
    "memory": re.compile(r"memory|bandwidth|dram|\bhbm\b"),
    "compute": re.compile(r"comput|tensor.?core|flop|arithmetic|\balu\b|\bfma\b"),
    "latency": re.compile(r"latency|occupancy|stall"),
}
"""Kinds of bottleneck by the words that name them; the first that matches counts: "launch latency" is about launches."""


def similarity(first: Situation, other: Situation) -> float:
    """Returns the similarity, from 0 (no operator in common) to 1 (equal)."""
    alike = _operators(first, other)
    if not alike:
        return 0.0
    alike *= _shapes(first, other)
    for equal in (_dtype(first) == _dtype(other), first.arch == other.arch, first.precision == other.precision):
        alike *= 1.0 if equal else OTHER
    return alike * _bottlenecks(first, other)


def bottleneck(text: str) -> str:
    """Returns the kind of bottleneck that a text names; "" where it names none."""
    lowered = text.lower()
    return next((kind for kind, pattern in BOTTLENECKS.items() if pattern.search(lowered)), "")


def _operators(mine: Situation, other: Situation) -> float:
    first, second = _shares(mine), _shares(other)
    pairs = [(first.get(name, 0.0), second.get(name, 0.0)) for name in sorted(first.keys() | second.keys())]
    larger = sum(max(pair) for pair in pairs)
    return sum(min(pair) for pair in pairs) / larger if larger else 0.0


def _shares(situation: Situation) -> dict[str, float]:
    total = sum(count for _, count in situation.operators)
    shares: dict[str, float] = {}
    for name, count in situation.operators:
        shares[plain_operator(name)] = shares.get(plain_operator(name), 0.0) + (count / total if total else 0.0)
    return shares


def _shapes(first: Situation, other: Situation) -> float:
    pairs = list(zip(first.tensors, other.tensors, strict=False))
    if not pairs:
        return 1.0 if first.tensors == other.tensors else OTHER
    apart = [sum(abs(a - b) for a, b in zip(x.extent, y.extent, strict=True)) for x, y in pairs]
    return sum(math.exp2(-distance / 2) for distance in apart) / len(apart)


def _dtype(situation: Situation) -> str:
    return situation.tensors[0].dtype if situation.tensors else ""


def _bottlenecks(mine: Situation, other: Situation) -> float:
    first, second = bottleneck(mine.bottleneck), bottleneck(other.bottleneck)
    if not first or not second:
        return UNKNOWN_BOTTLENECK
    return 1.0 if first == second else OTHER_BOTTLENECK
