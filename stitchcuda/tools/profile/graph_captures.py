"""Finds when and by which thread each node of a CUDA graph was captured, following clones of nodes.

A launch runs the nodes of an instance, which are clones of captured nodes, or clones of clones. If a damaged file's nodes lead
in circles or to nothing, their capture is unknown. It reads no file.
Where to look next: `tools/profile/nsys_export.py` (reads the rows), `tools/profile/timeline.py` (finds a capture's region).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.tools.profile.timeline import GraphCapture

Node = tuple[int, int]                     # its process and its number there


def captures(created: Mapping[Node, GraphCapture], originals: Mapping[Node, Node]) -> dict[Node, GraphCapture]:
    """Returns the known captures by node. `created`: when each node was made, which for a clone is no capture. `originals`: the
    node that each clone was made of."""
    found: dict[Node, GraphCapture | None] = {node: made for node, made in created.items() if node not in originals}
    for clone in originals:
        chain, node = list[Node](), clone
        while node in originals and node not in found:
            found[node] = None             # for chains that lead in a circle
            chain.append(node)
            node = originals[node]
        found.update(dict.fromkeys(chain, found.get(node)))
    return {node: made for node, made in found.items() if made is not None}
