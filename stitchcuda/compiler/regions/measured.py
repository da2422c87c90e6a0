"""Adds measured times to the description of a program: a recorded call's launches are shared out over its nodes.

The recording names kernels, not nodes. An own kernel belongs to the kept task that wrote it. Launches of libraries and torch
are compared with the nodes that are still torch's by kind (product, norm, softmax, …): where a kind has as many launches as
nodes, the n-th launch is the n-th node's. A node for which this cannot be told keeps its prediction; no time is guessed.

Where to look next: `compiler/regions/present.py` (the description), `nodes/prediction.py` (whose kernels are whose).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stitchcuda.compiler.capture.dependencies import base_name
from stitchcuda.compiler.regions.operator_work import MATRIX
from stitchcuda.compiler.regions.present import PresentNode, PresentProgram
from stitchcuda.state import MOST_STEPS, CallStep

_KINDS = {                                 # kind → (kernels' names, operators' names): the first that fits
    "split": (r"split_?k_?reduce", r"$^"),  # the second part of a product: no node of its own
    "norm": (r"norm|bn_fw|Welford|Moments", r"norm"),
    "softmax": (r"softmax", r"softmax"),
    "pool": (r"pool", r"pool"),
    "scan": (r"scan", r"cum"),
    "cat": (r"CatArray", r"^(cat|stack|concat)"),
    "matrix": (
        r"gemm|gemv|nvjet|xmma|cutlass|conv|fprop|dgrad|winograd|^Kernel2|fmha|flash|attention|^dot_kernel",
        "|".join(f"^{name}$" for name in sorted(MATRIX)),
    ),
    "reduction": (r"reduce", r"^(sum|mean|amax|amin|max|min|argmax|argmin|var|std|prod|any|all|linalg_vector_norm)$"),
    "copy": (r"copy|Memcpy|Memset|FillFunctor", r"^(clone|contiguous|copy_|to|_to_copy|reshape|fill|zeros|ones|full)"),
    "pointwise": (r"elementwise", r""),
}
_ANYWHERE = frozenset(("reduction", "copy", "pointwise"))  # kinds of kernels that operators of other kinds launch too


def with_measured(present: PresentProgram, steps: Sequence[CallStep], owners: Mapping[str, str]) -> PresentProgram:
    """Returns the description with the measured times of its tasks and nodes. `steps`: what a call ran on a GPU, in order;
    `owners`: the id of the kept task that each own kernel is of, by its name in `steps`. Unchanged where the steps were cut."""
    if not steps or sum(step.times for step in steps) >= MOST_STEPS:
        return present
    launches = [(step, took / 1e6) for step in steps for took in step.took]
    owner = _owners([step for step, _ in launches], owners, present)
    measured: dict[int, float] = {}
    tasks = []
    for task in present.tasks:
        places = [place for place, name in enumerate(owner) if name == task.id]
        own = [at for at, node in enumerate(present.nodes) if node.task == task.id]
        measured |= _share_out(own, [(launches[place][0].name, launches[place][1]) for place in places])
        tasks.append(replace(task, measured_ms=sum(launches[place][1] for place in places)) if places else task)
    torchs = {at: node for at, node in enumerate(present.nodes) if not node.task}
    measured |= _match(torchs, [(_kind(step), ms) for at, (step, ms) in enumerate(launches) if not owner[at]])
    nodes = tuple(replace(node, measured_ms=measured.get(at)) for at, node in enumerate(present.nodes))
    return replace(present, tasks=tuple(tasks), nodes=nodes)


def _match(nodes: Mapping[int, PresentNode], launches: Sequence[tuple[str, float]]) -> dict[int, float]:
    """Returns the milliseconds of those nodes, by their places, whose launches are known. Where all kinds have as many launches
    as nodes, all are. Else only those with one launch, of kinds that no other operator's launches can be mistaken for."""
    by_kind: dict[str, list[int]] = {}
    for at, node in nodes.items():
        by_kind.setdefault(kind_of_operator(node.name), []).append(at)
    found: dict[str, list[float]] = {}
    products = by_kind.get("matrix", [])
    whole, last = sum(kind == "matrix" for kind, _ in launches) == len(products), ""
    complete: set[int] = set()             # nodes whose second launch was found
    for kind, ms in launches:
        made = found.get("matrix", [])
        product = products[len(made) - 1] if whole and made else None
        with_bias = product is not None and nodes[product].launches == 2
        if product is not None and last == "matrix" and (kind == "split" or (kind == "pointwise" and with_bias)):
            made[-1] += ms                 # the sum of its parts, or the bias
            complete.add(product)
        else:
            found.setdefault(kind, []).append(ms)
        last = kind
    equal = {kind for kind in by_kind if len(found.get(kind, ())) == len(by_kind[kind])}
    everything = equal == by_kind.keys() and found.keys() == by_kind.keys()
    return {
        at: ms
        for kind in equal
        for at, ms in zip(by_kind[kind], found[kind], strict=True)
        if everything or (kind not in _ANYWHERE and (nodes[at].launches == 1 or at in complete))
    }


def _owners(launched: Sequence[CallStep], owners: Mapping[str, str], present: PresentProgram) -> list[str]:
    """Returns the id of the task that each launch is of; "" for torch's. A library's kernel of a kind of which torch has no
    node left was called by own code: it is of the task whose own kernels are before and after it."""
    own = [owners.get(step.name, "") if step.who == "own" else "" for step in launched]
    named = [(at, name) for at, name in enumerate(own) if name]
    torchs = {kind_of_operator(node.name) for node in present.nodes if not node.task}
    found = list(own)
    for at, step in enumerate(launched):
        if step.who != "vendor" or _kind(step) in torchs or (_kind(step) == "split" and "matrix" in torchs):
            continue
        before = next((name for place, name in reversed(named) if place < at), "")
        after = next((name for place, name in named if place > at), "")
        found[at] = before if before == after or not after else after if not before else ""
    return found


def _share_out(nodes: Sequence[int], launches: Sequence[tuple[str, float]]) -> dict[int, float]:
    """Shares a task's launches out over its nodes: all to a single one, else in order, where each ran the same ones."""
    if not nodes or not launches or len(launches) % len(nodes):
        return {}
    each = len(launches) // len(nodes)
    groups = [launches[at * each : (at + 1) * each] for at in range(len(nodes))]
    if any([name for name, _ in group] != [name for name, _ in groups[0]] for group in groups):
        return {}
    return {node: sum(ms for _, ms in group) for node, group in zip(nodes, groups, strict=True)}


def _kind(step: CallStep) -> str:
    if step.who == "own":
        return ""
    return next((kind for kind, (kernels, _) in _KINDS.items() if re.search(kernels, step.name, re.IGNORECASE)), "")


def kind_of_operator(name: str) -> str:
    """Returns the kind of an operator such as "aten.layer_norm.default"."""
    base = base_name(name)
    return next(kind for kind, (_, operators) in _KINDS.items() if re.search(operators, base))
