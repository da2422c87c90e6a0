"""Plans the passes over a row: which values each computes, keeps for later passes, and reads per row.

A nest with reductions runs in `depth + 1` passes: pass p ends in the reductions of level p + 1. Between passes a full value is
kept (in registers or shared memory) or computed again; it is computed again when that takes no costly function and no more
bytes than keeping it. No C++ in here.

Where to look next: `compiler/codegen/row_kernel.py` (writes the passes), `compiler/codegen/thread_mapping.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stitchcuda.compiler.codegen.canonical_nest import Access, CanonicalNest
from stitchcuda.compiler.codegen.expressions import COSTLY, REDUCTIONS
from stitchcuda.compiler.codegen.points import steps_to_compute
from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.lower.ir import Step


@dataclass
class RowPass:
    """One pass over the reduced axes. `rows` are the row values that it reads."""

    steps: list[Step]
    reductions: list[Step]
    stores: list[Access]
    rows: set[str]
    loaded: set[str] = field(default_factory=set)    # loads that an earlier pass has kept

    @property
    def idle(self) -> bool:
        return not (self.reductions or self.stores)


@dataclass
class RowPasses:
    """All passes of a nest. Kept between passes are `packs` (loads, as stored) and `values` (computed values).

    `life`: value → (pass that computes it, last pass that reads it).
    """

    passes: list[RowPass]
    packs: set[str]
    values: set[str]
    life: dict[str, tuple[int, int]]

    def width(self, nest: CanonicalNest, name: str) -> int:
        """Bytes of one kept element."""
        return nest.loads[name].itemsize if name in self.packs else size_of(nest.kinds[name])

    def kept_bytes(self, nest: CanonicalNest) -> int:
        """Returns the largest number of bytes per point that is kept from a pass to the next."""
        kept = self.packs | self.values
        return max(
            (sum(self.width(nest, n) for n in kept if self.life[n][0] <= p < self.life[n][1]) for p in range(len(self.passes))),
            default=0,
        )


def _cheap(nest: CanonicalNest, name: str, broadcast: set[str]) -> bool:
    """Whether computing a full value again from kept loads costs no more registers than keeping it, and little arithmetic."""
    steps = [step for step in steps_to_compute(nest, [name], set(), only_full=True) if step.name in nest.full]
    if any(step.fn in COSTLY for step in steps):
        return False
    weight = sum(nest.loads[step.name].itemsize for step in steps if step.fn == "load" and step.name not in broadcast)
    return weight <= size_of(nest.kinds[name])


def passes_of(nest: CanonicalNest, keep: bool, broadcast: set[str]) -> RowPasses:
    """Plans the passes. With `keep`, a full value computed once is available later; `broadcast` loads are always read again.

    Without `keep` every pass starts from the loads, so stores to tensors that are also read wait for the last pass.
    """
    depth = nest.depth
    steps = {step.name: step for step in nest.steps}
    read_back = {access.argument.name for access in nest.loads.values()}
    passes: list[RowPass] = []
    computed: set[str] = set()
    packs: set[str] = set()
    values: set[str] = set()
    life: dict[str, tuple[int, int]] = {}
    for number in range(depth + 1):
        reductions = nest.reductions(number + 1)
        stores = []
        for store in nest.stores:
            if nest.is_full(store):
                late = not keep and store.argument.name in read_back
                if (depth if late else nest.level[store.value]) == number:
                    stores.append(store)
        wanted = [arg for step in reductions for arg in step.args if isinstance(arg, str)] + [s.value for s in stores]
        need: set[str] = set()
        rows: set[str] = set()
        loaded: set[str] = set()
        stack = list(wanted)
        while stack:
            name = stack.pop()
            if name in need:
                continue
            step = steps[name]
            if name not in nest.full:
                if step.fn != "const":
                    rows.add(name)
                continue
            if name in computed and step.fn == "load" and name not in broadcast:
                packs.add(name)
                loaded.add(name)
                life[name] = (life[name][0], number)
            elif name in computed and step.fn not in ("load", "index") and not _cheap(nest, name, broadcast):
                values.add(name)
                life[name] = (life[name][0], number)
                continue
            need.add(name)
            life.setdefault(name, (number, number))
            if step.fn not in ("load", "index"):
                stack.extend(arg for arg in step.args if isinstance(arg, str))
        ordered = [step for step in nest.steps if step.name in need]
        passes.append(RowPass(ordered, reductions, stores, rows, loaded))
        if keep:
            computed.update(need)
    return RowPasses(passes, packs, values, life)


def row_steps(nest: CanonicalNest, wanted: set[str], available: set[str], level: int) -> list[Step]:
    """Returns the row-valued steps of at most `level` that the wanted row values need and that are not available, in order."""
    steps = {step.name: step for step in nest.steps}
    need: set[str] = set()
    stack = list(wanted)
    while stack:
        name = stack.pop()
        step = steps[name]
        if name in need or name in available or step.fn == "const":
            continue
        need.add(name)
        if step.fn not in ("load", "index"):
            stack.extend(arg for arg in step.args if isinstance(arg, str) and step.fn not in REDUCTIONS)
    return [s for s in nest.steps if s.name in need and s.fn not in REDUCTIONS and nest.level[s.name] <= level]
