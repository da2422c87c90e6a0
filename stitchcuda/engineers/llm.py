"""A chat model as planner, coder and verifier, through any OpenAI-compatible endpoint.

It renders a prompt, asks for a structured reply and turns it into the session's records; it runs no tool, and it never
takes another path when the endpoint fails (`endpoint.py` says why in one sentence). The wording is in `prompts/`.
"""

from __future__ import annotations

from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.endpoint import Endpoint, Progress
from stitchcuda.engineers.prompt import coder_prompt, planner_prompt, verifier_prompt
from stitchcuda.engineers.reply import DraftReply, Malformed, PlannedTask, PlanReply, ReviewReply, program_path
from stitchcuda.errors import BadInput
from stitchcuda.state import Evidence, Plan, Review, Settings, Task, Usage


class ChatEngineer:
    """`Engineer` over one chat model, `Settings.model` being `openai:NAME`.

    Raises `Unavailable` from the constructor when a key is missing, and from each call when the endpoint cannot be used.
    """

    reads_profiles = True

    def __init__(self, settings: Settings, *, progress: Progress | None = None) -> None:
        provider, _, model = settings.model.partition(":")
        if provider != "openai" or not model:
            raise BadInput(f"A chat model is given as openai:NAME, not {settings.model!r}.")
        self.endpoint = Endpoint(model, settings.base_url, progress=progress)
        self.name = settings.model

    def plan(self, brief: Brief) -> Plan:
        reply = self.endpoint.ask("planner", planner_prompt(brief), PlanReply, lambda plan: _check_plan(plan, brief))
        return Plan(
            version=max((plan.version for plan in brief.plans), default=0) + 1,
            tasks=tuple(_task(planned) for planned in reply.tasks),
            evidence=(brief.baseline.capture, brief.baseline.regions),
            summary=" ".join([reply.summary.strip(), *(f"({note}.)" for note in self.endpoint.notes)]),
        )

    def write(self, assignment: Assignment) -> Draft:
        reply = self.endpoint.ask("coder", coder_prompt(assignment), DraftReply, lambda draft: _check_draft(draft, assignment))
        if not reply.files:
            return Draft(files=dict(assignment.program), note=reply.note, exhausted=reply.exhausted)
        changed: Files = {program_path(file.path): file.content for file in reply.files}
        return Draft(files=assignment.program | changed, note=reply.note.strip())

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        prompt = verifier_prompt(assignment, draft, evidence)
        reply = self.endpoint.ask("verifier", prompt, ReviewReply, _check_review)
        return Review(
            bottleneck=reply.bottleneck.strip(),
            suggestion=reply.suggestion.strip(),
            route=reply.route,
            citations=tuple(reply.citations),
            expected_gain=reply.expected_gain.strip(),
        )

    def spent(self) -> Usage:
        return self.endpoint.usage


def _task(planned: PlannedTask) -> Task:
    host = planned.target.startswith("host:")
    return Task(
        id=planned.target,
        kind="host" if host else "region",
        title=planned.title.strip(),
        regions=() if host else (planned.target,),
        predicted_ms=planned.predicted_ms,
        why=planned.why.strip(),
        strategy=planned.strategy.strip(),
    )


def _check_plan(plan: PlanReply, brief: Brief) -> None:
    """Targets exist, are not in the program yet and come once; predictions are possible at all."""
    regions = {region.id for region in brief.regions}
    whole = brief.baseline.eager_ms or brief.baseline.predicted_ms  # 0: nothing is known of an opaque program
    seen: set[str] = set()
    for task in plan.tasks:
        if task.target not in regions and not (task.target.startswith("host:") and len(task.target) > len("host:")):
            raise Malformed(f"the target {task.target!r} is neither a region's id nor host:NAME")
        if task.target in seen:
            raise Malformed(f"the target {task.target!r} is planned twice")
        if task.target in brief.kept:
            raise Malformed(f"the target {task.target!r} is in the program already")
        if task.predicted_ms < 0 or (task.predicted_ms > whole > 0):
            raise Malformed(f"predicted_ms of {task.target!r} is {task.predicted_ms:g}; the whole program takes {whole:g} ms")
        seen.add(task.target)


def _check_draft(draft: DraftReply, assignment: Assignment) -> None:
    """Paths stay inside the program; a draft changes something or says why not."""
    changed = {program_path(file.path): file.content for file in draft.files}
    if not changed and not draft.exhausted.strip():
        raise Malformed("there are no files, and `exhausted` does not say why")
    if changed and all(assignment.program.get(path) == text for path, text in changed.items()):
        raise Malformed("every file is the same as in the program now: change something, or say in `exhausted` why not")


def _check_review(review: ReviewReply) -> None:
    if not review.bottleneck.strip() or not review.suggestion.strip():
        raise Malformed("`bottleneck` and `suggestion` must not be empty")
