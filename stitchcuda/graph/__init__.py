"""The graph: `graph.py` wires the nodes on one screen, `routes.py` holds the rules, `runtime.py` gives nodes their context.

Beside them: `opening.py` (from what was asked to a session), `checkpoints.py` (SQLite, thinned to one per attempt) and
`studio.py` (the graph for the LangGraph server).
"""
