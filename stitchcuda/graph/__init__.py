"""The LangGraph graph: how nodes are wired, which route follows a verdict, and what happens around every node.

Where to look next: `graph/graph.py` (the wiring, on one screen), `graph/routes.py` (the rules), `graph/runtime.py` (around a
node), `graph/opening.py` (makes sessions and contexts), `store/checkpoints.py` (checkpoints).
"""
