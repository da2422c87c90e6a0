"""The report node: verifies the best program on fresh seeds, writes it to `program/`, and writes `report.md`.

If the settings ask for it, the reference's other baselines (CUDA graph, torch.compile) are timed too, on a GPU. The ledger is
not changed.

Where to look next: `nodes/final_check.py` (the verification), `nodes/report_text.py` (the text).
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
    if final and final.timing and context.settings.time_baselines:  # on a GPU
        context.emit("step", text="timing eager, a CUDA graph and torch.compile, which compiles for minutes the first time")
        update["baselines"] = context.save(context.tools.baselines())
    write_atomically(context.folder / "report.md", report_markdown(state | update, context, history).encode())
    return update | {"report": (context.folder / "report.md").relative_to(context.workspace.root).as_posix()}
