"""The parts wired by hand: an engineer, the tools with the verifier behind them, and the graph. `python examples/by_hand.py`

`stitchcuda.optimize` does the same and more: it resumes, takes over damaged sessions, and knows chat models.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from langgraph.checkpoint.memory import InMemorySaver

import stitchcuda
from stitchcuda.engineers.builtin import BuiltinEngineer
from stitchcuda.graph.graph import build_graph, thread
from stitchcuda.graph.opening import open_context, open_record, open_tools
from stitchcuda.graph.runtime import RunContext
from stitchcuda.store import Workspace


def main(reference: Path, folder: Path) -> bool:
    """Optimises `reference` in a workspace at `folder`; returns whether the verifier accepts what came of it."""
    workspace = Workspace(folder)
    record = open_record(workspace, reference, None, name=None, device="auto", settings={"max_attempts": 3})
    graph = build_graph(InMemorySaver())                                # any LangGraph saver
    with workspace.store.owning(record.name), closing(open_tools(workspace, record)) as tools:
        context = RunContext(context=open_context(workspace, record, tools, engineer=BuiltinEngineer()))
        for step in graph.stream({"session": record.name}, thread(record.name), context=context, stream_mode="updates"):
            print(*step)                                                # the node that has run
    program = workspace.folder(record.name) / "program"
    verdict = stitchcuda.verify(program, reference)                     # a fresh judge with fresh secret inputs
    print(f"{program}: {'accepted' if verdict.accepted else 'refused'}, tier {verdict.tier}", *verdict.reasons, sep="\n")
    return verdict.accepted


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.exit(not main(Path(sys.argv[1]) if sys.argv[1:] else here / "llama_mlp.py", Path(".stitchcuda")))
