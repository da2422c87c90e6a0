"""Documentation for a plan, a draft and a review: what is asked, what is found, and how it is cited.

Queries come from the task, the error and the bottleneck. What was found for one step is kept with the session, so a node that
runs again, here or on another machine, sees the same. It decides nothing. Where to look next: `rag/lookup.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.nodes.context import Context
from stitchcuda.rag import lookup
from stitchcuda.rag.excerpts import citations_in, fit
from stitchcuda.rag.lookup import DocsQuery
from stitchcuda.state import Review, State, Task

PLAN_TOKENS, DRAFT_TOKENS, REVIEW_TOKENS, LOOK_TOKENS = 900, 1500, 1100, 1100
OFF = "search_docs skipped: the built-in engineer reads no documentation"
_ERROR = 1500                              # characters of an error that are asked about
_STRATEGY = 700                            # of a task's strategy
_CITED = 4                                 # entries that an error names, in its review
_MARK = re.compile(r"\berrors?\b|fatal|failed|undefined|status", re.IGNORECASE)


class Documented(NamedTuple):
    """What was found for one step. `text` is what an engineer is shown; `named` cites what an error names."""

    text: str = ""
    notes: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


def for_plan(state: State, context: Context) -> Documented:
    """Techniques for where the program's time goes now."""
    baseline = state["baseline"]
    assert baseline is not None
    profiles = [found for found in (state.get("system"), state.get("counters"), baseline.system) if found and not found.skipped]
    regions = [region.title for region in context.regions(baseline.regions) if region.kind != "view"]
    asked = [DocsQuery(found.bottleneck, 2, ("playbook",)) for found in profiles[:2]]
    asked.append(DocsQuery(", ".join(dict.fromkeys(regions))[:_STRATEGY], 3, ("playbook",)))
    return _found(state, context, f"plan-{state.get('head')}-{state.get('plan_version', 0)}", asked, PLAN_TOKENS)


def for_draft(state: State, context: Context, task: Task, about: str, error: str, review: Review | None) -> Documented:
    """For what went wrong in the last draft, what the review sees in it, and the task itself, in this order."""
    asked = _about_error(error)
    if review is not None:
        asked.append(DocsQuery(f"{review.bottleneck} {review.suggestion}"[:_STRATEGY], 2))
    asked.append(DocsQuery(f"{task.title}. {task.strategy[:_STRATEGY]}", 4 if not error else 2))
    asked.append(DocsQuery(f"{task.title} {task.why}"[:_STRATEGY], 1, ("playbook",)))
    return _found(state, context, f"draft-{about}", asked, DRAFT_TOKENS)


def for_review(state: State, context: Context, about: str, error: str, bottleneck: str) -> Documented:
    """For an error, else for what bounds the program."""
    asked = _about_error(error) or [DocsQuery(bottleneck, 2, ("playbook",))]
    return _found(state, context, f"review-{about}", asked, REVIEW_TOKENS)


def for_look(query: str, model: str) -> str:
    """What a coder is shown that looks a name or words up."""
    return lookup.answer(query, LOOK_TOKENS, TokenCounter(model).count)


def cited(review: Review, shown: Documented) -> Review:
    """The review with citations in full: those of its own as they were shown, and what its error names."""
    known = citations_in(shown.text)
    own = [_in_full(citation, known) for citation in review.citations]
    return review.model_copy(update={"citations": tuple(dict.fromkeys((*own, *shown.named)))})


def _in_full(citation: str, known: Sequence[str]) -> str:
    """The entry of that title; else the only one that begins so; else the citation as it is."""
    said = citation.strip().strip("[]`").lower()
    titles = {full: full.lower().partition(" (")[0] for full in known}
    same = [full for full, title in titles.items() if said in (full.lower(), title) or said.partition(" (")[0] == title]
    begun = [full for full in known if len(said) > 3 and full.lower().startswith(f"{said} ")]
    found = same or begun
    return found[0] if len(found) == 1 else citation


def _about_error(error: str) -> list[DocsQuery]:
    """The lines that say what is wrong, with the source lines below them."""
    lines = error.splitlines()
    telling = [at for at, line in enumerate(lines) if _MARK.search(line)] or list(range(len(lines)))[:3]
    chosen = sorted({near for at in telling for near in (at, at + 1) if near < len(lines)})
    text = "\n".join(lines[at] for at in chosen)[:_ERROR]
    return [DocsQuery(text, 4, error=True)] if text.strip() else []


def _found(state: State, context: Context, name: str, asked: Sequence[DocsQuery], tokens: int) -> Documented:
    if not context.engineer(state).reads_docs:
        return Documented(notes=(OFF,))

    def look() -> str:
        found = lookup.search_all(asked)
        text = fit(found.chunks, tokens, TokenCounter(context.settings.model).count)
        named = [chunk.citation for chunk in found.named if f"[{chunk.citation}]" in text]
        return json.dumps({"text": text, "notes": found.notes, "named": named[:_CITED]})

    found = json.loads(context.once(f"docs-{name}", look))
    return Documented(found["text"], tuple(found["notes"]), tuple(found["named"]))
