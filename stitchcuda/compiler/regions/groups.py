"""Keeps groups of nodes that will run as one, and says whether joining some of them would make a cycle.

Nodes can be joined when no path of dependencies leaves them and comes back. The dependencies are data, and accesses to the
same memory where one writes. It knows nothing of operators or kernels.

Where to look next: `compiler/capture/dependencies.py` (the order to keep), `compiler/regions/partition.py` (decides what to
join).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.compiler.capture.dependencies import dependencies
from stitchcuda.compiler.capture.op_graph import OpGraph


class Groups:
    """A partition of the graph's nodes. `group_of` says which group a node is in, `members` lists each group in graph order.

    `views` run no kernel: a dependency through a view counts as one from the view's maker to the view's reader.
    """

    def __init__(self, graph: OpGraph, views: frozenset[str] = frozenset()) -> None:
        self.group_of: dict[str, int] = {node.name: i for i, node in enumerate(graph.nodes)}
        self.members: dict[int, tuple[str, ...]] = {i: (node.name,) for i, node in enumerate(graph.nodes)}
        self._place: dict[str, int] = dict(self.group_of)
        self._order = [node.name for node in graph.nodes]
        self._after: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
        direct: dict[str, set[str]] = {}
        for name, before in dependencies(graph).items():
            direct[name] = {found for earlier in before for found in (direct[earlier] if earlier in views else (earlier,))}
            for earlier in direct[name] if name not in views else ():
                self._after[earlier].append(name)
        self._next = len(self._order)
        self._lowest = list(range(len(self._order)))

    def is_convex(self, nodes: Sequence[str]) -> bool:
        """Whether no path of dependencies leaves these nodes and comes back, other groups taken as a whole."""
        inside = set(nodes)
        last = max(self._place[name] for name in nodes)
        seen: set[int] = set()
        stack = list(nodes)
        while stack:
            for later in self._after[stack.pop()]:
                if later in inside:
                    continue
                group = self.group_of[later]
                # skip groups after which everything starts behind the last of `nodes`: no path can come back from there
                if group in seen or self._lowest[self._place[later]] > last:
                    continue
                seen.add(group)
                for member in self.members[group]:
                    if member in inside:
                        continue
                    if any(target in inside for target in self._after[member]):
                        return False
                    stack.append(member)
        return True

    def join(self, nodes: Sequence[str]) -> int:
        """Makes the nodes one group and returns its number. Groups that lose nodes to it shrink or disappear."""
        group = self._next
        self._next += 1
        inside = set(nodes)
        for old in {self.group_of[name] for name in nodes}:
            rest = tuple(name for name in self.members.pop(old) if name not in inside)
            if rest:
                self.members[old] = rest
        self.members[group] = tuple(sorted(inside, key=self._place.__getitem__))
        for name in inside:
            self.group_of[name] = group
        low = len(self._order)
        for place in range(len(self._order) - 1, -1, -1):
            low = min(low, self._place[self.members[self.group_of[self._order[place]]][0]])
            self._lowest[place] = low
        return group
