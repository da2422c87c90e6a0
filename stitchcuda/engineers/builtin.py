"""Implements the built-in engineer: plans, writes and reviews by rule, with no key, no network and no randomness.

It plans CUDA graph replay first, then the graph with other forms of its products (`compiler/templates`), with kernels for all
regions around them at once, then regions by the saving that the cost model predicts (at least WORTH of the eager time, or
RELEVANT of the bytes). Each draft is the whole program, written anew from the graph; a region's kernel is tried in each variant
that the generator knows. Library operators stay, so policy `strict` gets no tasks where there are any; a program that could not
be captured gets none either. It runs no tool.

Where to look next: `compiler/regions/cost.py` (predicted savings), `compiler/codegen/emit.py` (kernel variants),
`compiler/printing/program.py` (writes the program), `engineers/builtin_review.py` (reviews).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import count_variants, emit
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.lower.lower import CannotLower, bind, lower
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.printing.program import read_manifest, write_program
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.operator_work import synchronises
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.templates.rewriting import CHANNELS_LAST, SPLIT_PRODUCTS, TEMPLATES, rewrite
from stitchcuda.counts import counted
from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.builtin_review import review_by_rule
from stitchcuda.state import DeviceFacts, Evidence, Plan, Region, Review, Task

CUDA_GRAPH = "host:cuda_graph"
_WHY = {
    SPLIT_PRODUCTS: "fp32 products run without tensor cores; in three fp16 parts they are as exact, and run on these.",
    CHANNELS_LAST: "Tensor cores want channels last, so a convolution transposes what it reads and writes.",
}
MOST_TASKS = 12
WORTH = 0.005  # share of the predicted eager time that a task has to save
RELEVANT = 0.02  # share of the fusible bytes from which a region gets a kernel even if nothing is saved
_NAMED = 4  # regions that are named in a summary

Predict = Callable[[OpGraph, Sequence[Region], Collection[str], DeviceFacts], float]


class BuiltinEngineer:
    """Planner, coder and verifier by rule. Holds no state between calls."""

    name = "builtin"
    reads_docs = False
    reads_profiles = False

    def plan(self, brief: Brief) -> Plan:
        """Plans CUDA graph replay, then regions by predicted saving; no tasks for a program that could not be captured. Replay
        comes first: while the host is the bottleneck, a kernel that saves device time shows no saving at all."""
        version = len(brief.plans) + 1
        if brief.graph.opaque:
            text = (
                f"The built-in engineer cannot do anything here: {brief.graph.opaque} A chat model may (--model openai:NAME)."
            )
            return Plan(version=version, tasks=(), summary=text)
        strict = brief.settings.policy == "strict" and brief.settings.model == "builtin"
        if strict and (left := _left_to_torch(brief)):
            text = f"the built-in engineer leaves {left} to torch, which policy strict refuses"
            return Plan(version=version, tasks=(), summary=text)
        replay = None if brief.settings.policy == "strict" else _replay_task(brief)  # strict counts the copies around a graph
        replayed = replay is not None or CUDA_GRAPH in brief.kept
        tasks, left_out = _region_tasks(brief, cost.graph_ms if replayed else cost.program_ms)
        another_graph = _rewrite_task(brief, cost.graph_ms if replayed else cost.program_ms)
        saved = max(another_graph.predicted_ms if another_graph else 0.0, sum(task.predicted_ms for task in tasks))
        saved += replay.predicted_ms if replay else 0.0  # another graph has kernels for the same regions
        tasks = [*filter(None, (replay, another_graph)), *tasks]
        libraries = sum(region.kind == "library" for region in brief.regions)
        summary = (
            f"{counted(len(tasks), 'task')}, predicted to save {saved:.3f} of {brief.baseline.predicted_ms:.3f} ms; "
            f"{counted(libraries, 'kind')} of library operators {'stays' if libraries == 1 else 'stay'}."
        )
        return Plan(version=version, tasks=tuple(tasks), summary=" ".join([summary, *left_out]))

    def write(self, assignment: Assignment) -> Draft:
        """Writes the program with the kept tasks and this one, its kernel in the next variant that was not tried yet."""
        task, regions = assignment.task, {region.id: region for region in assignment.brief.regions}
        variant = _variant(assignment)
        chosen = _variants_in(assignment.program)
        if task.kind == "host":
            if task.id != CUDA_GRAPH:
                return Draft(files={}, exhausted=f"The built-in engineer knows no host-side task {task.id}.")
            if variant > 0:
                return Draft(files={}, exhausted="CUDA graph replay is written in one way only, and that was tried.")
        elif task.kind == "graph":
            return _rewritten(assignment) if variant == 0 else Draft(files={}, exhausted="This form of the graph was tried.")
        else:
            region = regions.get(_region(task))
            if region is None or region.kind != "fusible":
                return Draft(files={}, exhausted=f"The built-in engineer cannot write {task.title}: {_why_not(region)}.")
            count = count_variants(lower(assignment.brief.graph, region))
            if variant >= count:
                return Draft(files={}, exhausted=f"All {counted(count, 'variant')} of this kernel were tried.")
            chosen[region.id] = variant
        foreign = [name for name in assignment.kept if name not in (CUDA_GRAPH, *TEMPLATES) and name not in regions]
        if foreign:
            return Draft(files={}, exhausted=f"The program holds tasks that another engineer wrote: {', '.join(foreign)}.")
        wanted = {*assignment.kept, *_regions_in(assignment.program), task.id}
        graph = assignment.brief.graph
        stitches = [_stitch(graph, regions[name], chosen.get(name, 0)) for name in sorted(wanted) if name in regions]
        files = write_program(
            graph,
            stitches,
            ("cuda_graph",) if CUDA_GRAPH in wanted else (),
            reference=assignment.brief.reference,
            name=_program_name(assignment.program),
        )
        return Draft(files=files, note=_note(assignment, stitches))

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        """Reviews by `engineers/builtin_review.py`, and suggests the kernel's next variant where there is one."""
        region = next((r for r in assignment.brief.regions if r.id == _region(assignment.task)), None)
        if assignment.task.kind == "graph" and evidence.check and evidence.check.ok:
            review = review_by_rule(assignment, None, evidence)
            return review.model_copy(update={"route": "replan"})  # if it is kept there are other regions
        following = ""
        if region is not None and region.kind == "fusible":
            kernel = lower(assignment.brief.graph, region)
            variant = _variant(assignment) + 1
            if variant < count_variants(kernel):
                following = emit(kernel, variant).strategy
        return review_by_rule(assignment, region, evidence, following)


def _region_tasks(brief: Brief, predict: Predict) -> tuple[list[Task], list[str]]:
    """Returns tasks for the regions that are worth a kernel, best first, and sentences on what was left out. A task's saving is
    predicted with the kernels of the tasks before it in place."""
    device, graph = brief.baseline.device, brief.graph
    present = {*brief.kept, *_regions_in(brief.program)}
    open_regions = [region for region in brief.regions if region.kind == "fusible" and region.id not in present]
    owned = sum(region.eager_bytes for region in brief.regions if region.kind == "fusible")
    before = predict(graph, brief.regions, present, device)
    worth: list[tuple[float, Region]] = []
    unwritable = 0
    for region in open_regions:
        if _count_tried(brief, region) >= _variant_count(brief, region):
            unwritable += 1
            continue
        alone = before - predict(graph, brief.regions, {*present, region.id}, device)
        strict = brief.settings.policy == "strict"
        if strict or alone >= WORTH * brief.baseline.predicted_ms or region.eager_bytes >= RELEVANT * owned:
            worth.append((alone, region))
    worth.sort(key=lambda pair: (-pair[0], -pair[1].eager_bytes, pair[1].id))
    tasks: list[Task] = []
    kept = set(present)
    most = len(worth) if brief.settings.policy == "strict" else MOST_TASKS
    for _, region in worth[:most]:
        variant = min(_count_tried(brief, region), _variant_count(brief, region) - 1)
        after = predict(graph, brief.regions, kept | {region.id}, device)
        saving = max(predict(graph, brief.regions, kept, device) - after, 0.0)
        kept.add(region.id)
        tasks.append(
            Task(
                id=region.id,
                kind="region",
                title=region.title,
                regions=(region.id,),
                predicted_ms=saving,
                why=_explain_saving(region, saving),
                strategy=emit(lower(graph, region), variant).strategy,
            )
        )
    left_out = []
    if len(worth) > most:
        left = len(worth) - most
        left_out.append(f"{counted(left, 'smaller region')} {'waits' if left == 1 else 'wait'} for a later plan.")
    if unwritable:
        have = "has" if unwritable == 1 else "have"
        left_out.append(f"{counted(unwritable, 'region')} {have} been tried in every way the built-in engineer knows.")
    return tasks, left_out


def _left_to_torch(brief: Brief) -> str:
    """Returns the titles of the regions that compute and get no kernel from the generator; "" if there are none."""
    left = [
        region.title for region in brief.regions
        if region.kind in ("library", "opaque") or (region.kind == "fusible" and not _variant_count(brief, region))
    ]  # fmt: skip
    kinds = list(dict.fromkeys(left))
    return ", ".join(kinds[:_NAMED]) + (f" and {counted(len(kinds) - _NAMED, 'other kind')}" if len(kinds) > _NAMED else "")


def _replay_task(brief: Brief) -> Task | None:
    """Returns the task of CUDA graph replay; None if kept or tried before, of little use, or an operator synchronises."""
    if CUDA_GRAPH in brief.kept or any(attempt.task == CUDA_GRAPH and not attempt.edited for attempt in brief.history):
        return None
    flow = Flow(brief.graph)
    if any(synchronises(flow, node) for node in brief.graph.nodes):
        return None
    saving = cost.graph_saving_ms(brief.graph, brief.regions, brief.kept, brief.baseline.device)
    if saving < WORTH * brief.baseline.predicted_ms:
        return None
    launches = sum(region.launches for region in brief.regions if region.id not in brief.kept)
    launches += sum(len(region.nodes) for region in brief.regions if region.id in brief.kept)
    issued = "1 launch" if launches == 1 else f"{launches} launches one by one"
    return Task(
        id=CUDA_GRAPH,
        kind="host",
        title="CUDA graph replay",
        predicted_ms=saving,
        why=f"The host issues {issued}; a replay is one launch after {counted(len(brief.graph.inputs), 'copy')}.",
        strategy="capture once per input shape, copy the inputs in, replay",
    )


def _rewrite_task(brief: Brief, predict: Predict) -> Task | None:
    """Returns the task of the first template that was not tried and gains, with kernels for all regions of the new graph; None
    if there is none, or if a region's kernel was kept before. Order in memory gains on GPUs alone."""
    device, settings = brief.baseline.device, brief.settings
    wanted = settings.effort != "low" and settings.precision == "reference" and settings.policy != "strict"
    if not wanted or any(region.id in brief.kept for region in brief.regions):
        return None
    tried = {attempt.task for attempt in brief.history}
    for template, title in TEMPLATES.items():
        if template in tried or (template == CHANNELS_LAST and settings.target != "cuda"):
            continue
        graph = rewrite(brief.graph, template, device)
        if graph is brief.graph:
            continue
        regions = partition(graph)
        stitched = tuple(region.id for region in regions if region.kind == "fusible" and cost.saving_ms(region, device) > 0)
        before = predict(brief.graph, brief.regions, {*brief.kept, *_regions_in(brief.program)}, device)
        saving = before - predict(graph, regions, stitched, device)
        if template == SPLIT_PRODUCTS and saving < WORTH * brief.baseline.predicted_ms:
            continue
        return Task(
            id=template, kind="graph", title=title, regions=stitched, predicted_ms=max(saving, 0.0), why=_WHY[template],
            strategy=f"rewrite the graph, with {counted(len(stitched), 'kernel')} for its regions",
        )  # fmt: skip
    return None


def _rewritten(assignment: Assignment) -> Draft:
    """Returns the program of the rewritten graph, with a kernel for each region that the task names."""
    brief = assignment.brief
    graph = rewrite(brief.graph, assignment.task.id, brief.baseline.device)
    stitches = [_stitch(graph, region, 0) for region in partition(graph) if region.id in assignment.task.regions]
    host = ("cuda_graph",) if CUDA_GRAPH in assignment.kept else ()
    name = _program_name(assignment.program)
    files = write_program(graph, stitches, host, reference=brief.reference, name=name)
    return Draft(files=files, note=_note(assignment, stitches))


def _regions_in(program: Files) -> set[str]:
    """Returns the regions that have a kernel in a program, by its manifest."""
    return {str(region["id"]) for region in read_manifest(program).get("regions", ())} if "program.json" in program else set()


def _explain_saving(region: Region, saving: float) -> str:
    own = len(region.nodes)
    bytes_text = f"{region.eager_bytes / 1e6:.2f} MB of memory traffic become {region.fused_bytes / 1e6:.2f} MB"
    launch_text = f"{counted(region.launches, 'launch')} {'becomes' if region.launches == 1 else 'become'} {own}"
    times = f" in {own} places" if own > 1 else ""
    if saving == 0.0:
        return f"{launch_text} and {bytes_text}{times}: no gain is predicted, but its bytes come under our own kernels."
    return f"{launch_text} and {bytes_text}{times}."


def _region(task: Task) -> str:
    """Returns the id of a task's one region. The built-in engineer names its tasks after it."""
    return task.regions[0] if len(task.regions) == 1 else task.id


def _why_not(region: Region | None) -> str:
    if region is None:
        return "no such region in the captured graph"
    return region.reason or f"it stays a {region.kind} operator"


def _variant(assignment: Assignment) -> int:
    """Returns the number of the kernel variant to write now. Drafts that a person has edited do not count as variants."""
    edited = [attempt for attempt in assignment.brief.history if attempt.task == assignment.task.id and attempt.edited]
    return assignment.ordinal - len(edited)


def _count_tried(brief: Brief, region: Region) -> int:
    return sum(attempt.task == region.id and not attempt.edited for attempt in brief.history)


def _variant_count(brief: Brief, region: Region) -> int:
    try:
        return count_variants(lower(brief.graph, region))
    except (ValueError, CannotLower):
        return 0


def _stitch(graph: OpGraph, region: Region, variant: int) -> Stitch:
    kernel = lower(graph, region)
    source = emit(kernel, variant)
    source = replace(source, strategy=f"variant {variant}: {source.strategy}")
    return Stitch(region=region.id, kernel=kernel, source=source, instances=bind(graph, region, kernel))


def _variants_in(program: Files) -> dict[str, int]:
    """Returns region id → variant of its kernel, read from the strategies in the program's manifest."""
    manifest = read_manifest(program)
    strategies = {kernel["name"]: str(kernel["strategy"]) for kernel in manifest.get("kernels", ())}
    found: dict[str, int] = {}
    for region in manifest.get("regions", ()):
        match = re.match(r"variant (\d+):", strategies.get(region["kernel"], ""))
        if match:
            found[str(region["id"])] = int(match.group(1))
    return found


def _program_name(program: Files) -> str:
    return str(read_manifest(program).get("name", "program"))


def _note(assignment: Assignment, stitches: list[Stitch]) -> str:
    own = next((s for s in stitches if s.region == _region(assignment.task)), None)
    text = own.source.strategy if own else assignment.task.strategy
    failed = assignment.evidence
    if failed is not None and not failed.build.ok and not failed.build.skipped:
        return f"{text}. The last draft did not build."
    if failed is not None and failed.check is not None and not failed.check.ok:
        return f"{text}. The last draft was not correct: {'; '.join(failed.check.reasons[:1]) or 'see its check'}"
    return text
