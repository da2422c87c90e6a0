"""The nodes of the graph: the three roles, and one thin node for each tool.

Each is a plain function `(state, context) -> update` in a module of its own name; none imports langgraph or knows which node
comes next. They run in this order: `baseline`, `planner`, `search_docs`, `coder`, `nvcc_build`, `check`, `nsys_profile`,
`ncu_profile`, `verifier`, `report`.

Where to look next: `nodes/context.py` (what a node is given), `graph/graph.py` (how they are wired).
"""
