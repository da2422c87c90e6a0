"""The graph: `graph/graph.py` wires the nodes on one screen, `graph/routes.py` holds the rules, `graph/runtime.py` is what
happens around a node.

Beside them: `graph/request.py` (its input), `graph/opening.py` (from what was asked to a session), `graph/borrowed_context.py`
(for runs that nobody gave a context), `graph/events.py` (the custom stream), `graph/approval.py` (a person's answers),
`store/checkpoints.py` (SQLite, thinned to one per attempt), `store/postgres_checkpoints.py`, `store/serializer.py` (how both
hold values), `store/session_snapshot.py` (reading them without the graph), `sessions/repair.py` (what is damaged),
`graph/checkpoint_mirror.py` (a server's thread, told to its session) and `graph/studio.py` (the graph for the LangGraph
server).
"""
