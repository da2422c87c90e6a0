"""The graph: `graph.py` wires the nodes on one screen, `routes.py` holds the rules, `runtime.py` is what happens around a node.

Beside them: `request.py` (its input), `opening.py` (from what was asked to a session), `contexts.py` (for runs that nobody gave
a context), `events.py` (the custom stream), `asking.py`, `approval.py` (a person's answers), `checkpoints.py` (SQLite, thinned
to one per attempt), `postgres_checkpoints.py`, `standing.py` (reading them without the graph), `mending.py` (what is damaged),
`mirroring.py` (a server's thread, told to its session) and `studio.py` (the graph for the LangGraph server).
"""
