"""Copies the state of a LangGraph server's thread to its session's own checkpoints.

A server keeps checkpoints of its own, which the workspace cannot read: without the copy, `stitchcuda show`, `report`, `fork`
and `export` would see a session that never ran. It is written after the nodes in NODES. If several threads run one session, the
last to write counts. The thread never reads the copy.

Where to look next: `graph/runtime.py` (calls this after a node), `store/checkpoints.py` (a session's checkpoints).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from stitchcuda.nodes.context import Context
from stitchcuda.state import State
from stitchcuda.store.checkpoints import open_checkpoints

NODES = ("baseline", "planner", "verifier", "report")


def mirror(context: Context, node: str, state: State, build: Callable[[Any], Any]) -> None:
    """Writes `state`, after `node`, to the session's checkpoints. `build` returns the graph over a saver."""
    if node not in NODES:
        return
    with open_checkpoints(context.workspace, context.name) as saver:
        after = cast(State, state | {"session": context.name, "drafts": None})
        build(saver).update_state({"configurable": {"thread_id": context.name}}, after, as_node=node)
