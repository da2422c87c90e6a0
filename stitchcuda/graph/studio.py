"""The graph for the LangGraph server and Studio (`langgraph dev`), without a checkpointer: the server brings its own.

Named in `langgraph.json`. Its input is `runtime.Request`: `{"reference": "examples/transformer_block.py"}` is enough.
"""

from __future__ import annotations

from stitchcuda.graph.graph import build_graph

graph = build_graph()
