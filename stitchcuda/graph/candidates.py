"""Starts one run of the coder node for each of a step's candidates, side by side, each with a state of its own.

How many there are is decided when the step's work is opened (`Work.candidates`).

Where to look next: `nodes/brief.py` (opens work, numbers candidates), `nodes/coder.py` (writes a draft).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from langgraph.types import Send

from stitchcuda.nodes.brief import split_candidates
from stitchcuda.state import State
from stitchcuda.store.session_snapshot import with_tuples


def fan_out(state: State) -> Hashable | Sequence[Hashable]:
    """Returns a `Send` to the coder for each candidate of the state's work; "no task" if there is none."""
    state = with_tuples(state)
    work = state.get("work")
    if work is None:
        return "no task"
    return [Send("coder", state | {"work": candidate}) for candidate in split_candidates(work)]
