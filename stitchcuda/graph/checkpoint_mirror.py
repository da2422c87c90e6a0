"""What a server's thread has come to, written to its session's own checkpoints too, so that whoever reads sessions sees it.

A server keeps its threads in checkpoints of its own, which the workspace cannot look into: without this, `stitchcuda show`,
`report`, `fork` and `export` would take the session for one that never ran. It is told after the baseline, each plan, each
verdict and the end; of several threads the last to get there stands. Nothing is read back from it by the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from stitchcuda.nodes.context import Context
from stitchcuda.state import State
from stitchcuda.store.checkpoints import open_checkpoints

NODES = ("baseline", "planner", "verifier", "report")


def mirror(context: Context, node: str, state: State, build: Callable[[Any], Any]) -> None:
    """Writes the state after `node` by the graph that `build` makes over a saver. For the session's owner."""
    if node not in NODES:
        return
    with open_checkpoints(context.workspace, context.name) as saver:
        after = cast(State, state | {"session": context.name, "drafts": None})
        build(saver).update_state({"configurable": {"thread_id": context.name}}, after, as_node=node)
