"""Builds the graph for the LangGraph server and Studio (`langgraph dev`), without a checkpointer: the server has its own.

`langgraph.json` names it. `{"reference": "examples/transformer_block.py"}` is enough as input.

Where to look next: `graph/graph_input.py` (the input), `graph/graph.py` (the wiring).
"""

from __future__ import annotations

from stitchcuda.graph.graph import build_graph

graph = build_graph()
