"""Finds when and by which thread each node of a CUDA graph was captured, following clones of nodes.

A launch runs the nodes of an instance, which are clones of those that a capture made, or clones of clones. What a file says of
nodes may lead in circles or to nothing: then nothing is known. It reads no file.
Where to look next: `tools/profile/nsys_export.py` (who reads the rows), `tools/profile/timeline.py` (who asks in which region a
capture was).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.tools.profile.timeline import GraphCapture

Node = tuple[int, int]                     # its process and its number there


def captures(created: Mapping[Node, GraphCapture], originals: Mapping[Node, Node]) -> dict[Node, GraphCapture]:
    """The captures that are known, each node visited once. `created`: when nodes came to be; a clone's own time is no capture.
    `originals`: what clones are clones of."""
    found: dict[Node, GraphCapture | None] = {node: made for node, made in created.items() if node not in originals}
    for clone in originals:
        chain, node = list[Node](), clone
        while node in originals and node not in found:
            found[node] = None             # what leads back to it has no beginning
            chain.append(node)
            node = originals[node]
        found.update(dict.fromkeys(chain, found.get(node)))
    return {node: made for node, made in found.items() if made is not None}
