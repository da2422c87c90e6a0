"""Searches documentation for a plan, a draft and a review, and completes the citations of a review.

Queries are made from the task, the error, the review and the bottleneck. Results are recorded in the session's transcript, so a
node that runs again, even on another machine, gets the same. Nothing is searched for an engineer that reads no documentation.

Where to look next: `rag/lookup.py` (the search), `rag/excerpts.py` (excerpts and citations), `nodes/search_docs.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stitchcuda.engineers import Looked
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.nodes.context import Context
from stitchcuda.rag import lookup, playbook_pages
from stitchcuda.rag.excerpts import citations_in, fit
from stitchcuda.rag.lookup import DocsQuery
from stitchcuda.rag.relevance import names_in_draft
from stitchcuda.rag.targets import holds_for, skeletons_for
from stitchcuda.state import Review, State, Task

PLAN_TOKENS, DRAFT_TOKENS, REVIEW_TOKENS, LOOK_TOKENS = 900, 1500, 1100, 1100
OFF = "search_docs skipped: the built-in engineer reads no documentation"
_ERROR = 1500                              # the most characters of an error in a query
_STRATEGY = 700                            # the most characters of any other query
_CITED = 4                                 # the most entries named by an error that its review cites
_MARK = re.compile(r"\berrors?\b|fatal|failed|undefined|status", re.IGNORECASE)


class Documented(NamedTuple):
    """What was found for one step: `text` for the prompt; `named`: citations of entries that the error names."""

    text: str = ""
    notes: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


def search_for_plan(state: State, context: Context) -> Documented:
    """Searches the playbook for techniques for the bottlenecks and regions of the program."""
    baseline = state["baseline"]
    assert baseline is not None
    profiles = [found for found in (state.get("system"), state.get("counters"), baseline.system) if found and not found.skipped]
    regions = [region.title for region in context.regions(baseline.regions) if region.kind != "view"]
    queries = [DocsQuery(found.bottleneck, 2, ("playbook",)) for found in profiles[:2]]
    queries.append(DocsQuery(", ".join(dict.fromkeys(regions))[:_STRATEGY], 3, ("playbook",)))
    return _search_once(state, context, f"plan-{state.get('head')}-{state.get('plan_version', 0)}", queries, PLAN_TOKENS)


def search_for_draft(
    state: State, context: Context, task: Task, about: str, error: str, review: Review | None, draft: Mapping[str, str]
) -> Documented:
    """Searches for the last draft's error, NVIDIA's names on the lines of `draft` that it names, what its review says, and the
    task, in this order. `about`: the attempt's id; `draft`: the files that the last draft changed."""
    queries = _about_error(error)
    if names := names_in_draft(draft, error, f"{task.title} {task.strategy[:_STRATEGY]}") if error else []:
        queries.append(DocsQuery(" ".join(names), 2))
    if review is not None:
        queries.append(DocsQuery(f"{review.bottleneck} {review.suggestion}"[:_STRATEGY], 2))
    queries.append(DocsQuery(f"{task.title}. {task.strategy[:_STRATEGY]}", 4 if not error else 2))
    queries.append(DocsQuery(f"{task.title} {task.why}"[:_STRATEGY], 1, ("playbook",)))
    return _search_once(state, context, f"draft-{about}", queries, DRAFT_TOKENS)


def search_for_review(state: State, context: Context, about: str, error: str, bottleneck: str) -> Documented:
    """Searches for an error; without one, for the bottleneck."""
    queries = _about_error(error) or [DocsQuery(bottleneck, 2, ("playbook",))]
    return _search_once(state, context, f"review-{about}", queries, REVIEW_TOKENS)


def search_for_coder(query: str, model: str, target: str = "cuda", arch: str = "") -> Looked:
    """Searches for a name or words that a coder looks up; returns what to show, of use for a target ("cuda" or "sim") and
    an architecture. `skeleton:NAME` and `playbook:NAME` are shown whole; an unknown one of these
    gets a list, and is not ok."""
    asked = query.strip().strip("`")
    kind, separator, name = asked.rpartition(":")
    if (text := playbook_pages.skeletons().get(name)) is not None and kind in ("", "skeleton"):
        return Looked(True, f"### skeleton:{name}\n```cuda\n{text.rstrip()}\n```")
    if (page := playbook_pages.pages().get(name)) is not None and kind in ("", "playbook"):
        return Looked(True, page.strip())
    if separator and kind in ("skeleton", "playbook"):
        known = skeletons_for(target, arch) if kind == "skeleton" else playbook_pages.pages()
        names = ", ".join(f"{kind}:{known_name}" for known_name in known)
        return Looked(False, f"There is no {asked[:80]!a}. There are: {names}.")
    text = lookup.answer(query, LOOK_TOKENS, TokenCounter(model).count, lambda chunk: holds_for(chunk, target, arch))
    return Looked(True, text)


def complete_citations(review: Review, shown: Documented) -> Review:
    """Returns the review with its citations in full, as they were shown, and with those of entries that the error names."""
    known = citations_in(shown.text)
    own = [_in_full(citation, known) for citation in review.citations]
    return review.model_copy(update={"citations": tuple(dict.fromkeys((*own, *shown.named)))})


def _in_full(citation: str, known: Sequence[str]) -> str:
    """Returns the known entry of that title, else the only one that begins with it, else the citation unchanged."""
    title = citation.strip().strip("[]`").lower()
    titles = {full: full.lower().partition(" (")[0] for full in known}
    same = [full for full, other in titles.items() if title in (full.lower(), other) or title.partition(" (")[0] == other]
    found = same or [full for full in known if len(title) > 3 and full.lower().startswith(f"{title} ")]
    return found[0] if len(found) == 1 else citation


def _about_error(error: str) -> list[DocsQuery]:
    """Returns a query of the lines with an error and the lines below them; [] without an error."""
    lines = error.splitlines()
    marked = [at for at, line in enumerate(lines) if _MARK.search(line)] or list(range(len(lines)))[:3]
    chosen = sorted({near for at in marked for near in (at, at + 1) if near < len(lines)})
    text = "\n".join(lines[at] for at in chosen)[:_ERROR]
    return [DocsQuery(text, 4, error=True)] if text.strip() else []


def _search_once(state: State, context: Context, name: str, queries: Sequence[DocsQuery], tokens: int) -> Documented:
    if not context.engineer(state).reads_docs:
        return Documented(notes=(OFF,))

    baseline = state.get("baseline")
    arch = baseline.device.arch if baseline else ""

    def look() -> str:
        found = lookup.search_all(queries, holds=lambda chunk: holds_for(chunk, context.settings.target, arch))
        asked = "\n".join(query.query for query in queries if not query.error)
        text = fit(found.chunks, tokens, TokenCounter(context.settings.model).count, asked)
        named = [chunk.citation for chunk in found.named if f"[{chunk.citation}]" in text]
        return json.dumps({"text": text, "notes": found.notes, "named": named[:_CITED]})

    found = json.loads(context.record_once(f"docs-{name}", look))
    return Documented(found["text"], tuple(found["notes"]), tuple(found["named"]))
