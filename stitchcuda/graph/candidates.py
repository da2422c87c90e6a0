"""A step's candidates as LangGraph sends them: one run of the coder node for each, side by side, with a state of its own.

How many there are is in the state (`Work.of`), put there by whoever opens a step. No rule here: see `graph/routes.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from langgraph.types import Send

from stitchcuda.nodes.brief import split_candidates
from stitchcuda.state import State
from stitchcuda.store.session_snapshot import with_tuples


def fan_out(state: State) -> Hashable | Sequence[Hashable]:
    """The coder for each candidate of the work that was opened; "no task" where none was."""
    state = with_tuples(state)
    work = state.get("work")
    if work is None:
        return "no task"
    return [Send("coder", state | {"work": candidate}) for candidate in split_candidates(work)]
