"""The baseline node: runs the reference, captures its graph and regions, and writes the first program.

It records eager time, predicted time and the speed-of-light floor. The first program is the captured graph printed as plain
PyTorch. It is checked like any other: if it is wrong, capture or printing is at fault, and the reference is taken as one opaque
region. On another device than before, the best program so far is verified again. Plans nothing.

Where to look next: `compiler/regions/partition.py` (regions), `compiler/printing/program.py` (prints the first program).
"""

from __future__ import annotations

from pathlib import Path

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.printing.program import write_program
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.templates.rewriting import TEMPLATES
from stitchcuda.engineers.operator_significand import bits_of_kernel
from stitchcuda.errors import NotCaptured
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.final_check import verify_best
from stitchcuda.nodes.lessons import lessons_for_plan
from stitchcuda.state import Baseline, Digest, State, Usage
from stitchcuda.tools.profile.system_profile import SystemProfile


def baseline(state: State, context: Context) -> State:
    facts = context.tools.study()
    device = context.tools.device()
    graph = OpGraph.model_validate_json(facts.capture)
    update: State = {
        "session": context.name,
        "reference": context.record.reference,
        "settings": context.settings,
        "work": None,
        "route": None,
        "stop_reason": None,
        "final": None,
        "baselines": None,
        "report": None,
        "missed": 0,
        "notes": state.get("notes", ()),
        "usage": state.get("usage", Usage()),
    }
    if device.note:
        update["notes"] = context.note(update, device.note)
    if graph.opaque:
        update["notes"] = context.note(update, f"the reference could not be captured: {graph.opaque}")
    first = _first_program(context, graph)
    check = None if graph.opaque else context.tools.check(context.program_folder(first), 1)
    if check is not None and not check.ok:
        fault = "; ".join(check.reasons) or "the check failed"
        reason = f"the program printed from the capture is not the reference: {fault}"
        graph = graph.model_copy(update={"opaque": reason, "nodes": ()})
        update["notes"] = context.note(update, f"{graph.opaque}; the reference is taken as one opaque region instead")
        first = _first_program(context, graph)
    if graph.opaque and context.engineers.engineer.name == "builtin":
        raise NotCaptured(
            f"{context.record.reference_name} cannot be taken apart ({graph.opaque}), and the builtin engineer "
            "works on nothing else: give a chat model with --model openai:NAME"
        )
    regions = partition(graph)
    result, profile = context.tools.profile_system(None)
    predicted = cost.call_cost(graph, (), device)
    update["baseline"] = Baseline(
        capture=context.save(graph),
        regions=context.save_regions(regions),
        device=device,
        eager_ms=facts.eager_ms,
        predicted_ms=predicted.ms,
        predicted_device_ms=predicted.device_ms,
        floor_ms=cost.floor_ms(graph, device, context.settings.precision),
        opaque=graph.opaque,
        system=context.store_profile(result, profile),
        convolutions=_convolutions(profile),
        outputs=check.outputs if check is not None and check.ok else (),
    )
    update["lessons"] = lessons_for_plan(state | update, context)
    update |= {"first": first, "system": None, "counters": None, "halt": None, "drafts": None, "beside": ()}  # type: ignore[typeddict-item]
    if not state.get("baseline"):
        return update | {
            "stage": "start" if context.engineers.starter and not graph.opaque else "model", "started": 0, "unusable": 0,
            "program": first, "best": None, "head": None, "recent": (), "attempts": 0, "tasks_done": (), "tasks_kept": (),
            "tasks_total": 0, "task": 0, "plan": None, "plans": (), "plan_version": 0,
        }  # fmt: skip
    text = f"this is another device ({device.key}): baseline taken again, best program verified again"
    update["notes"] = context.note(update, text)
    update |= verify_best(state | update, context, seeds=context.settings.seeds)
    before, now = state["baseline"], update["baseline"]
    if before is not None and now is not None and TEMPLATES.keys() & update["tasks_kept"]:  # its graph is the program's
        update["baseline"] = now.model_copy(update={"capture": before.capture, "regions": before.regions})
    return update


def _first_program(context: Context, graph: OpGraph) -> Digest:
    name = Path(context.record.reference_name).stem
    precision = context.settings.precision
    return context.save_program(write_program(graph, reference=context.source(), name=name, precision=precision))


def _convolutions(profile: SystemProfile | None) -> tuple[tuple[str, int], ...]:
    """Returns the bits that the reference's fp32 convolutions carry, by module, where the names of their kernels say it."""
    found: dict[str, int] = {}
    for kernel in profile.kernels if profile else ():
        module, _, function = kernel.region.partition(": ")
        if function.startswith("conv") and (bits := bits_of_kernel(kernel.name)) is not None:
            found[module] = min(bits, found.get(module, bits))
    return tuple(found.items())
