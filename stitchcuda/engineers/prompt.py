"""Renders the prompts of planner, coder and verifier from a session's records, each section cut to its share of tokens.

The wording is in `prompts/*.md.j2` (an undefined field is an error). SHARES limits every section, so a prompt stays below MOST
tokens however long a session gets; what a coder looks up comes on top. Tokens are counted by the model's tokenizer where it is
installed, else estimated. It calls no model.

A draft that failed in a few lines of one file is asked for again by a short request of its own (`engineers/local_error.py`).

Where to look next: `engineers/program_excerpts.py` (the program's section), `engineers/attempt_history.py` (earlier attempts),
`engineers/diagnosis.py` (evidence as text), `engineers/tokens.py` (cutting to a number of tokens).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import emit
from stitchcuda.compiler.lower.lower import CannotLower, lower
from stitchcuda.compiler.regions.cost import saving_ms
from stitchcuda.compiler.regions.floor import Floor, program_floor, region_floors
from stitchcuda.compiler.regions.present import most_from_task
from stitchcuda.counts import counted
from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.attempt_history import describe_attempt, describe_history, find_recurring_errors, milliseconds
from stitchcuda.engineers.chat import Message
from stitchcuda.engineers.diagnosis import describe_evidence, without_untouched
from stitchcuda.engineers.folding import shorten_line
from stitchcuda.engineers.local_error import LocalError, excerpt, find_local_error
from stitchcuda.engineers.operator_significand import describe_significand
from stitchcuda.engineers.plan_tree import plan_tree_text
from stitchcuda.engineers.present_text import scaled, task_claim
from stitchcuda.engineers.program_changes import KERNELS, ShownChanges, describe_changes
from stitchcuda.engineers.program_excerpts import changed_files, file_block, file_blocks, list_files, program_text
from stitchcuda.engineers.prompt_values import SHARES, PromptBudget, common_values, render_prompt
from stitchcuda.engineers.task_text import task_text, tensor_text
from stitchcuda.engineers.tokens import TokenCounter, fit
from stitchcuda.state import Evidence, Region, Route, Task, TensorSpec

ANGLES = (
    "follow the strategy as it is written, with the least risk",
    "move fewer bytes: wider accesses, larger fusion, nothing written that is read again",
    "more work in flight: other block and tile sizes, more independent loads per thread, higher occupancy",
    "fewer and longer launches: fuse with neighbours, persistent blocks, work off the critical path",
    "another algorithm or layout for the same result, as long as the bound on the error holds",
    "library where it is best: cuBLASLt or cuDNN with an epilogue, own kernels only around it",
    "tensor cores or packed arithmetic wherever the precision allows them",
    "the simplest thing that could be fast: little code, registers and shuffles instead of shared memory",
)
"""What each of several candidates is asked to favour, so that they differ."""
MENDS = (
    "the smallest edit that takes the error away",
    "look for its cause elsewhere in the file (a type, a size, a declaration, an include) and mend that",
    "write the lines in another way, without what failed",
    "go by the declarations of the names in the error: what they take and return",
)
"""What each of several candidates that mend the same error is asked to favour."""
ROUTES: dict[Route, str] = {
    "code": "one more round of this task, which repairs your `defect`: name it",
    "replan": "the plan's model of the program is wrong",
    "next_task": "leave this task",
    "done": "nothing that is left is worth it: the session ends",
}
"""What a review proposes by each route."""
GROWTHS = 3                                # tries to use up the tokens that a coder's prompt has left
LOOKED = "### look: "                      # separates the results of one look as they are recorded
HEADING = "### "                           # of each result as a coder reads it
LEAST_LOOK, LOOK_FRAME = 600, 400          # tokens: what a look may show at least; what stands around results
LOOKS = 4
"""How often a coder may look things up before it writes."""
REVIEW_LOOKS, REVIEW_LOOKED = 2, 46_000     # how often a reviewer may read files, and tokens of its request with them
LOOK_LIMITS = {"check": 3, "bench": 3}
"""How often a coder may use a tool that runs its draft, before it hands the draft in."""
MOST_TASKS = 6
MOST_TENSORS = 12                          # of a region that are shown
SUGGESTED = 320                            # characters of an open suggestion in a request for a review
NAMED = 160                                # characters of a region for which there is only one line
MOST = 23_500                              # tokens of a prompt
REVIEW_MOST = 36_000                       # of a review, so that the kernels that changed are whole
FIRST_MOST, AGAIN_MOST = 12_000, 18_000    # a coder's prompt grows up to this: first draft (program), later (last draft)


def planner_prompt(brief: Brief, budget: PromptBudget) -> str:
    """Returns the prompt that asks for a plan; below MOST tokens times `budget.scale`."""
    return _render_within(budget, lambda budget: _planner(brief, budget))


def coder_prompt(assignment: Assignment, budget: PromptBudget) -> str:
    """Returns the prompt that asks for a draft. Tokens that its sections leave over go to the program or the last draft. After
    an error in a few lines of one file it is the short one of `coder_after_error.md.j2`."""
    if error := find_local_error(assignment):
        return _render_within(budget, lambda budget: _coder_after_error(assignment, error, budget))
    claim = _claim(assignment)             # it models the program: once, however often the prompt is rendered to fit
    text = _render_within(budget, lambda budget: _coder(assignment, budget, claim))
    target = int((AGAIN_MOST if assignment.last else FIRST_MOST) * budget.scale)
    beyond = target - budget.counter.count(text)
    for _ in range(GROWTHS):
        if beyond <= 0:
            break
        more = _coder(assignment, replace(budget, beyond=beyond), claim)
        over = budget.counter.count(more) - target
        if over <= 0:
            return more
        beyond -= over                     # the section also fills what it had not used of its share, so it grew by more
    return text


def verifier_prompt(assignment: Assignment, draft: Draft, evidence: Evidence, budget: PromptBudget) -> str:
    """Returns the prompt that asks for a review of `draft` by its evidence; below REVIEW_MOST tokens times `budget.scale`. What
    its sections leave over goes to what changed, so that kernels are whole."""
    changed = 0

    def render(budget: PromptBudget) -> str:
        return _verifier(assignment, draft, evidence, replace(budget, beyond=changed))

    text = _render_within(budget, render, REVIEW_MOST)
    target = int(REVIEW_MOST * budget.scale)
    changed = max(0, target - budget.counter.count(text))
    more = render(budget)
    return more if budget.counter.count(more) <= target else text


def _render_within(budget: PromptBudget, render: Callable[[PromptBudget], str], most: int = MOST) -> str:
    """Renders within `most` tokens: where the fixed text leaves too little, all sections shrink together."""
    text = render(budget)
    for part in (0.85, 0.7, 0.55, 0.4):
        if budget.counter.count(text) <= most * budget.scale:
            return text
        text = render(PromptBudget(budget.counter, budget.scale * part))
    return text


def _planner(brief: Brief, budget: PromptBudget) -> str:
    regions = [region for region in brief.regions if region.kind != "view"]
    device, precision = brief.baseline.device, brief.settings.precision
    floors = region_floors(regions, device, precision)
    serving = {region.id: task.id for task in brief.present.tasks for region in task.regions} if brief.present else {}
    savings = {region.id: saving_ms(region, device) for region in regions}
    listed = {
        region.id: _describe_region(region, savings[region.id], floors[region.id], serving.get(region.id, ""), brief.carried)
        for region in regions
    }
    return render_prompt(
        "planner",
        common_values(brief, budget)
        | {
            "baseline": brief.baseline,
            "beside_ms": brief.program_ms * brief.speedup if brief.program_ms and brief.speedup else None,
            "regions": _list_regions(brief.regions, listed, budget),
            "floor": program_floor(brief.graph, device, precision),
            "apart_ms": sum(floor.ms for floor in floors.values()),
            "kept": brief.kept,
            "finished": brief.finished,
            "program": budget.fit(program_text(brief.program, None, budget.tokens("overview"), budget.counter), "overview"),
            "tree": budget.fit(plan_tree_text(brief.plans, brief.history, brief.finished), "tree"),
            "record": budget.fit("\n".join(f"- {describe_attempt(attempt)}" for attempt in brief.history), "record"),
            "recurring": find_recurring_errors(brief.history),
            "notes": [budget.fit(note, "note") for note in brief.notes[-8:]],
            "most": MOST_TASKS,
            "docs": budget.fit(brief.docs, "techniques"),
        },
    )


def _coder(assignment: Assignment, budget: PromptBudget, claim: str) -> str:
    brief, task = assignment.brief, _with_shares(assignment.task, budget)
    structure = next((found for found in task.structures if found.name == assignment.structure), None)
    regions = [region for region in brief.regions if region.id in task.regions]
    last = assignment.last
    counter, beyond = budget.counter, budget.beyond  # `beyond` is for the last draft if there is one, else for the program
    shown = program_text(
        assignment.program, task.regions, budget.tokens("program") + (0 if last else beyond), counter,
        about=f"{task.title} {task.strategy}", replaced=changed_files(assignment.program, last.files) if last else (),
    )  # fmt: skip
    generated = _generated_kernel(brief.graph, regions, assignment.kept) if last is None else {}
    same = last is not None and last.files == assignment.program
    defect = assignment.review.defect if assignment.review and same else ""
    room = budget.tokens("last") + beyond
    changes = changed_files(assignment.program, last.files) if last else {}
    repaired = {"defects": (), "suggestions": ()} if defect else {}  # a repair follows no other finding
    evidence = assignment.evidence
    if evidence and last:
        evidence = without_untouched(evidence, assignment.program, last.files)
    return render_prompt(
        "coder",
        common_values(brief, budget)
        | repaired
        | {
            "task": task,
            "structure": structure,
            "claim": claim,
            "host": budget.fit(assignment.plan.host, "host"),
            "regions": budget.fold(task_text(brief.graph, regions, brief.carried), "task regions"),
            "program": shown,
            "form": "_binding.cc\n```" not in shown and not last,  # no example where the program or the draft shows a binding
            "kept": assignment.kept,
            "generated": budget.fit(file_blocks(generated), "generated"),
            "tried": budget.fit(describe_history(assignment.earlier), "tried"),
            "recurring": find_recurring_errors(brief.history),
            "last": last,
            "same": same,
            "defect": defect,
            "last_files": _within(_named_in(defect, last.files) if defect else changes, room, counter) if last else "",
            "ordinal": assignment.ordinal,
            "diagnosis": budget.log(describe_evidence(evidence), "diagnosis") if evidence else "",
            "review": assignment.review,
            "docs": budget.fit(assignment.docs, "docs"),
            "candidates": assignment.candidates,
            "candidate": assignment.candidate,
            "angle": f"the structure {structure.name}" if structure else ANGLES[assignment.candidate % len(ANGLES)],
            "looks": LOOKS if assignment.look is not None else 0,
            "look_tools": assignment.look.tools if assignment.look is not None else (),
            "limits": LOOK_LIMITS,
        },
    )


def _with_shares(task: Task, budget: PromptBudget) -> Task:
    """Returns the task with its strategy and those of its structures cut to their shares."""
    structures = [
        structure.model_copy(update={"strategy": budget.fit(structure.strategy, "structure")}) for structure in task.structures
    ]
    return task.model_copy(update={"strategy": budget.fit(task.strategy, "strategy"), "structures": tuple(structures)})


def _coder_after_error(assignment: Assignment, error: LocalError, budget: PromptBudget) -> str:
    assert assignment.last is not None
    files = assignment.last.files
    return render_prompt(
        "coder_after_error",
        common_values(assignment.brief, budget)
        | {
            "task": assignment.task,
            "error": budget.log(error.text, "local error"),
            "path": error.path,
            "file": excerpt(files, error, budget.tokens("local file"), budget.counter),
            "others": list_files(files, {error.path}),
            "review": assignment.review,
            "docs": budget.fit(assignment.docs, "local docs"),
            "candidates": assignment.candidates,
            "candidate": assignment.candidate,
            "structure": assignment.structure,
            "mend": MENDS[assignment.candidate % len(MENDS)],
            "looks": LOOKS if assignment.look is not None else 0,
        },
    )


def _verifier(assignment: Assignment, draft: Draft, evidence: Evidence, budget: PromptBudget) -> str:
    since, changed = _review_changes(assignment, draft, budget)
    evidence = without_untouched(evidence, assignment.started_from or assignment.program, draft.files)
    return render_prompt(
        "verifier",
        common_values(assignment.brief, budget)
        | {
            "task": assignment.task,
            "claim": _claim(assignment),
            "structure": assignment.structure,
            "tier": evidence.tier,
            "diagnosis": budget.log(describe_evidence(evidence), "diagnosis"),
            "tried": budget.fit(describe_history(assignment.earlier), "tried"),
            "since": since,
            "changed": changed.text,
            "cut": changed.cut,
            "whole": assignment.started_from is not None,
            "remaining": assignment.remaining,
            "claimed": assignment.plan.claimed,
            "listed": [shorten_line(suggestion, SUGGESTED) for suggestion in assignment.brief.suggestions],
            "choice": assignment.choice,
            "meanings": ROUTES,
            "reads": REVIEW_LOOKS,
            "draft": draft,
            "ordinal": assignment.ordinal + 1,
            "docs": budget.fit(assignment.docs, "docs"),
        },
    )


def _review_changes(assignment: Assignment, draft: Draft, budget: PromptBudget) -> tuple[str, ShownChanges]:
    """Returns since when, and what `draft` changed: since the last draft or the program before the task, whichever is the
    shorter text; all since the model started in a review of the whole program, unless the last draft was reviewed so. Kernels
    of this task that the last draft has as well are shown too."""
    tokens, last, whole = budget.tokens("changed") + budget.beyond, assignment.last, assignment.started_from is not None

    def changes(before: Files, after: Files, left: int = tokens) -> ShownChanges:
        return describe_changes(before, after, left, budget.counter, entry=whole)

    since_last = changes(last.files, draft.files) if last else ShownChanges("", ())
    if assignment.started_from is not None and not (last and assignment.review and assignment.review.whole):
        return "since the model started", changes(assignment.started_from, draft.files)
    since_program = changes(assignment.program, draft.files)
    if last is None or len(since_program.text) <= len(since_last.text):
        return "since the program before this task", since_program
    changed = changed_files(last.files, draft.files)
    others = [path for path in changed_files(assignment.program, draft.files) if path in draft.files and path not in changed]
    if not others:
        return "since the last draft of this task", since_last
    before = draft.files | {path: assignment.program.get(path, "") for path in others if path.endswith(KERNELS)}
    kernels = describe_changes(before, draft.files, max(0, tokens - budget.counter.count(since_last.text)), budget.counter)
    said = f"Also of this task, as in the last draft: {', '.join(others)}."
    text = "\n".join(filter(None, [since_last.text, said, kernels.text]))
    return "since the last draft of this task", ShownChanges(text, (*since_last.cut, *kernels.cut))


def shorten_conversation(messages: Sequence[Message], budget: PromptBudget, most: float = MOST) -> list[Message]:
    """Returns the messages of a request; where they have more than `most` tokens, the results of earlier looks are left out,
    the oldest first, but for their headings. The first message and the last two always stay."""
    shown, most = list(messages), most * budget.scale
    for at in range(1, len(shown) - 2):
        if sum(budget.counter.count(message.text) for message in shown) <= most:
            break
        heads = [line for line in shown[at].text.splitlines() if line.startswith(HEADING)]
        if shown[at].speaker == "user" and heads:
            shown[at] = Message("user", "\n".join([*heads, "(Left out here to save room. Look again if you need it.)"]))
    return shown


def room_for_look(messages: Sequence[Message], budget: PromptBudget, most: int = MOST) -> int:
    """Returns how many tokens the results of one look may have, so that a request of these messages stays below `most`. Results
    of earlier looks do not count, since they can be left out."""
    kept = (message.text for message in messages if message.speaker != "user" or message is messages[0])
    used = sum(map(budget.counter.count, kept))
    return max(LEAST_LOOK, int(most * budget.scale) - used - LOOK_FRAME)


def look_results(seen: str, left: int, budget: PromptBudget, room: int | None = None) -> str:
    """Returns the message that shows a coder the results of a look, of which `left` more are allowed. `seen` has the results,
    each after LOOKED. Results of tools are cut to equal shares. Files are shown whole in the order asked for: the first that
    does not fit is cut, the files after it are left for another look. `room`: the most tokens of all together, if that is less
    than their shares."""
    more = f"You may look {counted(left, 'more time')}." if left > 0 else "Now write: there are no looks left."
    parts = [part.strip().partition("\n") for part in seen.split(LOOKED)[1:]]
    tools = sum(not _is_file(head, text) for head, _, text in parts)
    room = budget.tokens("read") + 3 * budget.tokens("tool") if room is None else room
    limit = min(budget.tokens("tool"), 3 * budget.tokens("tool") // max(tools, 1), room // max(tools, 1))
    share = replace(budget, scale=limit / SHARES["tool"])
    found = {at: (head, text) for at, (head, _, text) in enumerate(parts) if not _is_file(head, text)}
    texts = {at: f"{HEADING}{head}\n{share.log(text, 'tool')}" for at, (head, text) in found.items()}
    tokens = min(budget.tokens("read"), room - sum(map(budget.counter.count, texts.values())))
    for at, (head, _, text) in enumerate(parts):
        if at not in texts:
            texts[at] = _start_of_file(head, text, tokens, budget.counter)
            tokens = max(0, tokens - budget.counter.count(texts[at]))
    shown = [texts[at] for at in range(len(parts))]
    return "\n\n".join([*shown, f"{more} Answer as described."])


def _is_file(head: str, text: str) -> bool:
    return head.startswith("read ") and text.startswith("```")


def _start_of_file(head: str, text: str, tokens: int, counter: TokenCounter) -> str:
    """Returns the file, or as many of its first lines as fit into `tokens` and the command that reads the rest."""
    whole = f"### {head}\n{text}"
    if counter.count(whole) <= tokens:
        return whole
    asked = re.fullmatch(r"read (?P<path>.+?)(?: (?P<first>\d+)-\d*)?", head)
    assert asked is not None
    path, first = asked["path"], int(asked["first"] or 1)
    opening, *body, closing = text.splitlines()

    def shown(count: int) -> str:
        end = first + count
        on = f"(Lines {first} to {end - 1} of {first + len(body) - 1}: `read {path} {end}-` shows the rest.)"
        return "\n".join([f"### {head}", opening, *body[:count], closing, on])

    count = bisect.bisect_right(range(len(body)), tokens, key=lambda count: counter.count(shown(count + 1)))
    return shown(count) if count else f"### {head}\n(Not shown, there was no room left: read it in another look.)"


def _claim(assignment: Assignment) -> str:
    """Returns what a task or its structure is to save and who says so; beside a model's claim stands what it can give by the
    cost model."""
    brief, task = assignment.brief, assignment.task
    text = task_claim(task.predicted_by(assignment.structure), assignment.plan.claimed)
    chosen = [region for region in brief.regions if region.id in task.regions]
    if brief.present is None or not chosen or not assignment.plan.claimed or task.id in assignment.kept:
        return text
    device, precision = brief.baseline.device, brief.settings.precision
    most, kernels = most_from_task(brief.present, brief.graph, chosen, device, precision)
    most = max(0.0, most)
    if brief.program_ms is not None:       # the model does not know how fast a kept task's products are
        most = min(most, max(0.0, brief.program_ms - brief.present.floor.ms))
    parts = "one kernel" if kernels == 1 else counted(kernels, "kernel")
    return f"{text}; at its best, as {parts}, it can by the cost model save {milliseconds(most)} of a call as it is now"


def _generated_kernel(graph: OpGraph, regions: Sequence[Region], kept: Iterable[str]) -> dict[str, str]:
    """Returns the built-in compiler's kernel files for a single region that has no kernel yet; {} where it cannot write any."""
    if len(regions) != 1 or regions[0].kind != "fusible" or regions[0].id in kept:
        return {}
    try:
        source = emit(lower(graph, regions[0]))
    except CannotLower:
        return {}
    return {f"kernels/{source.name}.cu": source.cuda, f"kernels/{source.name}_binding.cc": source.binding}


def _list_regions(regions: Sequence[Region], described: dict[str, str], budget: PromptBudget) -> str:
    """Returns the regions within the section's share. Where there is no room for all, those that move most are described, and
    the others keep a line with their ids, operators and instances, equal ones together."""
    listed = [region for region in regions if region.id in described]
    note = "Regions of pure views are left out: they cost nothing." if len(listed) < len(regions) else ""

    def section(whole: Collection[str]) -> str:
        parts: dict[str, list[str]] = {}   # what is said → of which regions
        for region in listed:
            parts.setdefault(described[region.id] if region.id in whole else _name_region(region), []).append(region.id)
        short = [said if ids[0] in whole else f"{', '.join(ids)}: {said}" for said, ids in parts.items()]
        return "\n\n".join(filter(None, [*short, note]))

    if budget.counter.count(everything := section(described)) <= budget.tokens("regions"):
        return everything
    left = budget.tokens("regions") - budget.counter.count(section(()))
    whole: list[str] = []
    for region in sorted(listed, key=lambda region: -region.eager_bytes):
        cost = budget.counter.count(f"{described[region.id]}\n\n")
        if cost <= left:
            whole.append(region.id)
            left -= cost
    return budget.fit(section(whole), "regions")


def _name_region(region: Region) -> str:
    operators = ", ".join(region.operators)
    return shorten_line(f"{region.title} [{region.kind}] × {len(region.nodes)}; operators: {operators}", NAMED)


def _describe_region(region: Region, saving: float, floor: Floor, served_by: str, carried: Mapping[str, int]) -> str:
    instances = f" × {len(region.nodes)} instances" if len(region.nodes) > 1 else ""
    work = f"{counted(region.launches, 'launch')}, {scaled(region.eager_bytes, 'B')} → {scaled(region.fused_bytes, 'B')}"
    work += f", {scaled(region.flops, 'FLOP')}"
    if floor.ms:
        work += f"; floor {milliseconds(floor.ms)}, bound by {floor.binds}"
    if served_by:
        work += f". Own kernels of {served_by} serve it now: what is left there is in the program below"
    elif region.kind == "fusible":
        work += f"; about {milliseconds(saving)} to save by the cost model"
    if region.reason:
        work += f". The built-in compiler cannot write it: {region.reason}"
    if significand := describe_significand(region, carried):
        work += f". {significand[0].upper()}{significand[1:]}"
    return "\n".join([
        f"### {region.id}: {region.title} [{region.kind}]{instances}",
        f"operators: {', '.join(region.operators)}",
        f"in: {_tensors_of(region.inputs)}",
        f"out: {_tensors_of(region.outputs)}",
        f"{work}.",
    ])  # fmt: skip


def _tensors_of(specs: Sequence[TensorSpec]) -> str:
    """Returns the tensors; of more than MOST_TENSORS the first ones and the last, with how many there are between."""
    shown = [tensor_text(spec) for spec in specs]
    if len(shown) > MOST_TENSORS:
        between = len(shown) - MOST_TENSORS
        shown = [*shown[: MOST_TENSORS - 1], f"… ({between:,} more) …", shown[-1]]
    return "; ".join(shown) or "nothing"


def _named_in(defect: str, files: Files) -> dict[str, str]:
    """Returns the files that a defect names, such as "kernels/gelu.cu line 12" or "gelu.cu"."""
    texts = {path: text for path, text in files.items() if isinstance(text, str)}
    names = {path: re.escape(path.rpartition("/")[2]) for path in texts}
    return {path: texts[path] for path, name in names.items() if re.search(rf"(?<![\w.]){name}\b", defect)}


def _within(files: Mapping[str, str], tokens: int, counter: TokenCounter) -> str:
    """Returns files in at most `tokens`: kernels and short files first and whole, what has no room left cut."""
    left = tokens
    shown: dict[str, str] = {}
    for path in sorted(files, key=lambda path: (not path.endswith((".cu", ".cuh")), len(files[path]))):
        block = file_block(path, files[path])
        if counter.count(block) > left:
            frame = counter.count(file_block(path, ""))
            block = file_block(path, fit(files[path], left - frame, counter))
        shown[path] = block
        left = max(0, left - counter.count(block))
    return "\n".join(shown[path] for path in files)


