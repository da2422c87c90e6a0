"""What each role is shown: the records of a session chosen, shortened to their share of tokens, and put into `prompts/*.md.j2`.

The wording lives in the templates (strict undefined: a field that a template names and nobody gives is an error). Every section
has a share of its own, counted with the model's tokenizer where it is at hand, so a prompt stays below 24,000 tokens however
long a session gets; what a coder looks at comes on top. It calls no model; how a program is shown is in
`engineers/program_excerpts.py`, what was tried in `engineers/attempt_history.py`.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import emit
from stitchcuda.compiler.lower.lower import CannotLower, lower
from stitchcuda.compiler.regions.contract import task_contract
from stitchcuda.compiler.regions.cost import saving_ms
from stitchcuda.compiler.regions.floor import program_floor, region_floors
from stitchcuda.counts import counted
from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.attempt_history import line_of, milliseconds, recurring, tried
from stitchcuda.engineers.diagnosis import diagnosis
from stitchcuda.engineers.program_excerpts import changed, language, program_text
from stitchcuda.engineers.tokens import TokenCounter, fit, fit_log
from stitchcuda.state import Evidence, Policy, Precision, Region, TensorSpec

PRECISIONS: dict[Precision, str] = {
    "reference": "the reference's own dtypes; error against float64 at most 10 times its own, so no TF32 or half for fp32",
    "tf32": "TF32 matrix products are allowed",
    "fp16": "fp16 is allowed inside",
    "bf16": "bf16 is allowed inside",
}
POLICIES: dict[Policy, str] = {
    "stitched": "library operators of torch may remain where nothing better is written",
    "strict": "no framework compute in the end: own kernels, cuBLASLt for GEMM, cuDNN for convolution",
}
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
FITTED = 3                                 # times that it is tried
LOOKED = "### look: "                      # opens what one look has shown
LOOKS = 4
"""How often a coder may look before it writes."""
MOST_TASKS = 6
MOST = 23_500                              # tokens of a prompt
ROOMY, AGAIN = 16_000, 20_000              # up to which a coder's may grow to show more of the program, or of the last draft

SHARES = {
    "reference": 3000, "regions": 3500, "task regions": 2000, "program": 6000, "overview": 3500, "generated": 2200,
    "record": 1800, "tried": 1400, "last": 4000, "diagnosis": 2200, "changed": 6000, "lessons": 600, "docs": 1600,
    "techniques": 1000, "note": 150, "told": 2500, "read": 9000, "profile": 600, "strategy": 1700, "host": 1000,
}  # fmt: skip
"""Tokens of each section, at most. A coder's sections together with the fixed text are about 22,000; what it looks at comes on
top, `told` for each answer of a tool and `read` for all files of one look together."""


@dataclass(frozen=True)
class PromptBudget:
    """How much may be shown: a model's way of counting, the part of every section's share that its window allows, and tokens
    that the program or the last draft has beyond its share."""

    counter: TokenCounter
    scale: float = 1.0
    beyond: int = 0

    def fit(self, text: str, section: str) -> str:
        return fit(text.strip(), self.tokens(section), self.counter)

    def log(self, text: str, section: str) -> str:
        """A compiler's output: errors first."""
        return fit_log(text.strip(), self.tokens(section), self.counter)

    def tokens(self, section: str) -> int:
        return int(SHARES[section] * self.scale)


def planner_prompt(brief: Brief, room: PromptBudget) -> str:
    return _within(room, lambda room: _planner(brief, room))


def coder_prompt(assignment: Assignment, room: PromptBudget, *, looks: int = LOOKS) -> str:
    text = _within(room, lambda room: _coder(assignment, room, looks))
    target = int((AGAIN if assignment.last else ROOMY) * room.scale)
    beyond = target - room.counter.count(text)
    for _ in range(FITTED):
        if beyond <= 0:
            break
        more = _coder(assignment, replace(room, beyond=beyond), looks)
        over = room.counter.count(more) - target
        if over <= 0:
            return more
        beyond -= over                     # what a section had not used of its share, it has too
    return text


def verifier_prompt(assignment: Assignment, draft: Draft, evidence: Evidence, room: PromptBudget) -> str:
    return _within(room, lambda room: _verifier(assignment, draft, evidence, room))


def _within(room: PromptBudget, render: Callable[[PromptBudget], str]) -> str:
    """Below MOST tokens: where the words between the sections are too many, every section gives way."""
    text = render(room)
    for part in (0.85, 0.7, 0.55, 0.4):
        if room.counter.count(text) <= MOST * room.scale:
            return text
        text = render(PromptBudget(room.counter, room.scale * part))
    return text


def _planner(brief: Brief, room: PromptBudget) -> str:
    regions = [region for region in brief.regions if region.kind != "view"]
    device, precision = brief.baseline.device, brief.settings.precision
    lights = region_floors(regions, device, precision)
    listed = [_region(region, saving_ms(region, device), lights[region.id].ms, lights[region.id].binds) for region in regions]
    views = len(brief.regions) - len(regions)
    if views:
        listed.append("Regions of pure views are left out: they cost nothing.")
    return _render(
        "planner",
        _common(brief, room)
        | {
            "baseline": brief.baseline,
            "regions": room.fit("\n\n".join(listed), "regions"),
            "floor": program_floor(brief.graph, device, precision),
            "apart_ms": sum(light.ms for light in lights.values()),
            "kept": brief.kept,
            "finished": brief.finished,
            "program": room.fit(program_text(brief.program, None, room.tokens("overview"), room.counter), "overview"),
            "plans": brief.plans,
            "record": room.fit("\n".join(f"- {line_of(attempt)}" for attempt in brief.history), "record"),
            "recurring": recurring(brief.history),
            "notes": [room.fit(note, "note") for note in brief.notes[-8:]],
            "most": MOST_TASKS,
            "docs": room.fit(brief.docs, "techniques"),
        },
    )


def _coder(assignment: Assignment, room: PromptBudget, looks: int) -> str:
    brief, task = assignment.brief, assignment.task
    regions = [region for region in brief.regions if region.id in task.regions]
    last = assignment.last
    counter, beyond = room.counter, room.beyond  # for the draft that is gone on from, else for the program
    shown = program_text(assignment.program, task.regions, room.tokens("program") + (0 if last else beyond), counter)
    generated = first_draft(brief.graph, regions, assignment.kept) if last is None else {}
    return _render(
        "coder",
        _common(brief, room)
        | {
            "task": task.model_copy(update={"strategy": room.fit(task.strategy, "strategy")}),
            "host": room.fit(assignment.plan.host, "host"),
            "regions": room.fit(_task_regions(brief.graph, regions), "task regions"),
            "program": shown,
            "form": "_binding.cc\n```" not in shown,  # a whole binding shows it better
            "kept": assignment.kept,
            "generated": room.fit(_blocks(generated), "generated"),
            "tried": room.fit(tried(assignment.earlier), "tried"),
            "recurring": recurring(brief.history),
            "last": last,
            "same": last is not None and last.files == assignment.program,
            "last_files": _last(changed(assignment.program, last.files), room.tokens("last") + beyond, counter) if last else "",
            "ordinal": assignment.ordinal,
            "diagnosis": room.log(diagnosis(assignment.evidence), "diagnosis") if assignment.evidence else "",
            "review": assignment.review,
            "docs": room.fit(assignment.docs, "docs"),
            "candidates": assignment.candidates,
            "candidate": assignment.candidate,
            "angle": ANGLES[assignment.candidate % len(ANGLES)],
            "looks": looks if assignment.look is not None else 0,
        },
    )


def _verifier(assignment: Assignment, draft: Draft, evidence: Evidence, room: PromptBudget) -> str:
    return _render(
        "verifier",
        _common(assignment.brief, room)
        | {
            "task": assignment.task,
            "tier": evidence.tier,
            "diagnosis": room.log(diagnosis(evidence), "diagnosis"),
            "tried": room.fit(tried(assignment.earlier), "tried"),
            "changed": room.fit(_blocks(changed(assignment.program, draft.files)), "changed"),
            "draft": draft,
            "ordinal": assignment.ordinal + 1,
            "docs": room.fit(assignment.docs, "docs"),
        },
    )


def looked(seen: str, left: int, room: PromptBudget) -> str:
    """What a coder is shown after it has looked. Answers of tools share their tokens; files come whole, in the order in which
    they were asked for, as long as there is room: the first that does not fit ends where the room does, the others wait."""
    more = f"You may look {counted(left, 'more time')}." if left > 0 else "Now write: there are no looks left."
    parts = [part.strip().partition("\n") for part in seen.split(LOOKED)[1:]]
    tools = sum(not text.startswith("```") or not head.startswith("read ") for head, _, text in parts)
    share = replace(room, scale=room.scale * min(1.0, 3 / max(tools, 1)))
    shown, tokens = [], room.tokens("read")
    for head, _, text in parts:
        if head.startswith("read ") and text.startswith("```"):
            shown.append(_begun(head, text, tokens, room.counter))
            tokens = max(0, tokens - room.counter.count(shown[-1]))
        else:
            shown.append(f"### {head}\n{share.log(text, 'told')}")
    return "\n\n".join([*shown, f"{more} Answer as described."])


def _begun(head: str, text: str, tokens: int, counter: TokenCounter) -> str:
    """A file, or as many of its first lines as there are tokens for, and where to go on."""
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


def first_draft(graph: OpGraph, regions: Sequence[Region], kept: Iterable[str]) -> dict[str, str]:
    """What the built-in compiler writes for a single region that has no kernel yet; nothing where it cannot."""
    if len(regions) != 1 or regions[0].kind != "fusible" or regions[0].id in kept:
        return {}
    try:
        source = emit(lower(graph, regions[0]))
    except CannotLower:
        return {}
    return {f"kernels/{source.name}.cu": source.cuda, f"kernels/{source.name}_binding.cc": source.binding}


def contract(spec: TensorSpec) -> str:
    return f"{spec.name} {list(spec.shape)} {spec.dtype} strides {list(spec.strides)}"


def _task_regions(graph: OpGraph, regions: Sequence[Region]) -> str:
    """The border of a task: what comes in and what must come out, and the operators between, of the first instance."""
    if not regions:
        return ""
    found = task_contract(graph, regions)
    many = max(len(region.nodes) for region in regions)
    lines = [
        f"### {', '.join(f'{region.id} ({region.title})' for region in regions)}",
        f"in: {'; '.join(map(contract, found.inputs)) or 'nothing'}",
        f"out: {'; '.join(map(contract, found.outputs)) or 'nothing'}",
    ]
    if many > 1:
        scopes = sorted({scope or "the root module" for region in regions for scope in region.scopes})
        lines.append(f"{many} equal instances, in {', '.join(scopes)}; serve all with the same kernels. The first one:")
    return "\n".join([*lines, "```", found.listing, "```"])


def _region(region: Region, saving: float, light_ms: float, binds: str) -> str:
    instances = f" × {len(region.nodes)} instances" if len(region.nodes) > 1 else ""
    work = f"{counted(region.launches, 'launch')}, {_scaled(region.eager_bytes, 'B')} → {_scaled(region.fused_bytes, 'B')}"
    work += f", {_scaled(region.flops, 'FLOP')}"
    if light_ms:
        work += f"; floor {milliseconds(light_ms)}, bound by {binds}"
    if region.kind == "fusible":
        work += f"; about {milliseconds(saving)} to save by the cost model"
    if region.reason:
        work += f". The built-in compiler cannot write it: {region.reason}"
    return "\n".join([
        f"### {region.id}: {region.title} [{region.kind}]{instances}",
        f"operators: {', '.join(region.operators)}",
        f"in: {'; '.join(map(contract, region.inputs)) or 'nothing'}",
        f"out: {'; '.join(map(contract, region.outputs)) or 'nothing'}",
        f"{work}.",
    ])  # fmt: skip


def _last(files: dict[str, str], tokens: int, counter: TokenCounter) -> str:
    """The last draft's changes in at most `tokens`: short files whole, what does not fit shortened."""
    shown: dict[str, str] = {}
    left = tokens
    for path in sorted(files, key=lambda path: len(files[path])):
        block = _blocks({path: files[path]})
        if counter.count(block) > left:
            frame = counter.count(_blocks({path: ""}))
            block = _blocks({path: fit(files[path], left - frame, counter)})
        shown[path] = block
        left = max(0, left - counter.count(block))
    return "\n".join(shown[path] for path in files)


def _blocks(files: Files | dict[str, str]) -> str:
    return "\n".join(f"### {path}\n```{language(path)}\n{str(text).rstrip()}\n```" for path, text in files.items())


def _common(brief: Brief, room: PromptBudget) -> dict[str, Any]:
    return {
        "settings": brief.settings,
        "device": brief.baseline.device,
        "precision": f"{brief.settings.precision} ({PRECISIONS[brief.settings.precision]}).",
        "precision_name": brief.settings.precision,
        "policy": f"{brief.settings.policy} ({POLICIES[brief.settings.policy]}).",
        "reference": room.fit(brief.reference, "reference"),
        "dtypes": {spec.dtype for region in brief.regions for spec in region.inputs},
        "program_ms": brief.program_ms,
        "profile": room.fit("\n".join(brief.profile), "profile").splitlines(),
        "lessons": room.fit("\n".join(brief.lessons), "lessons").splitlines(),
    }


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.globals |= {"ms": milliseconds}
    return environment


def _render(name: str, values: dict[str, Any]) -> str:
    return _environment().get_template(f"{name}.md.j2").render(values).strip() + "\n"
