"""The report node: verifies the best program once more on fresh seeds, writes it out, and sums the session up in Markdown.

Figures state their tier; what nothing timed is called a prediction. It never changes the record.
"""

from __future__ import annotations

from stitchcuda.nodes.context import Context
from stitchcuda.nodes.final_check import verify_best
from stitchcuda.nodes.report_text import report_markdown
from stitchcuda.state import State
from stitchcuda.store import materialise, write_atomically


def report(state: State, context: Context) -> State:
    history = context.history(state)
    update = verify_best(state, context, seeds=context.settings.final_seeds)
    after = state | update
    program = after["program"]
    assert program is not None
    materialise(context.workspace.store, program, context.folder / "program")
    final = after.get("final")
    if final and final.timing:             # where there is a clock, the others are held against it too
        context.emit("step", text="timing eager, a CUDA graph and torch.compile, which compiles for minutes the first time")
        update["baselines"] = context.save(context.tools.baselines())
    write_atomically(context.folder / "report.md", report_markdown(state | update, context, history).encode())
    return update | {"report": (context.folder / "report.md").relative_to(context.workspace.root).as_posix()}
