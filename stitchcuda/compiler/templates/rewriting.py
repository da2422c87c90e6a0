"""Names the templates, and applies one to a captured graph, as tasks of a plan ask for.

Where to look next: `engineers/builtin.py` (plans and writes such tasks), `nodes/verifier.py` (goes on with the graph that was
kept).
"""

from __future__ import annotations

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.templates.channels_last import carry_channels_last
from stitchcuda.compiler.templates.split_products import find_products, gaining, split_products
from stitchcuda.state import DeviceFacts

SPLIT_PRODUCTS, CHANNELS_LAST = "graph:split_products", "graph:channels_last"
TEMPLATES = {
    SPLIT_PRODUCTS: "fp32 products in three fp16 parts",
    CHANNELS_LAST: "convolutions in channels-last order",
}
"""Titles by the id of the task, in the order in which they are tried."""


def rewrite(graph: OpGraph, template: str, device: DeviceFacts) -> OpGraph:
    """Returns the graph with everything rewritten that the template changes and that gains by it; the same graph if nothing
    does, or if the template was applied before. The same arguments give the same graph."""
    if template in graph.rewritten:
        return graph
    if template == SPLIT_PRODUCTS:
        changed = split_products(graph, gaining(find_products(graph), device))
    else:
        changed = carry_channels_last(graph)
    return graph if changed is graph else changed.model_copy(update={"rewritten": (*graph.rewritten, template)})
