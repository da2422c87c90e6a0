"""The nodes of the graph: the three roles, and one thin node for each tool.

Each is a plain function `(state, context) -> update` in a module of its own name; none knows langgraph or the node that comes
next. Start at `nodes/context.py` (what a node is given), then read them in the order in which they run: `baseline`, `planner`,
`search_docs`, `coder`, `nvcc_build`, `check`, `nsys_profile`, `ncu_profile`, `verifier`, `report`.
"""
