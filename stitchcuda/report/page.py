"""Renders a report as one self-contained HTML file from findings and templates.

Text from models and compilers is escaped by the templates. Only the page's own scripts run, whose hashes its content security
policy names; nothing is loaded from anywhere. Diffs and logs are trimmed until the page fits `LARGEST`. It reads no session.

Where to look next: `report/findings.py` (what comes in), `report/templates/report.html.j2`, `report/trimming.py`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from stitchcuda.report import comparison, figures, profile_figures
from stitchcuda.report.baseline_bars import make_bars
from stitchcuda.report.figure import Figure, ms
from stitchcuda.report.findings import AttemptFindings, Findings
from stitchcuda.report.route_path import path_of
from stitchcuda.report.trimming import FILE, Excerpt, share, shown, size, trimmed
from stitchcuda.report.untrusted_text import clipped
from stitchcuda.sandbox.foreign_text import plain
from stitchcuda.state import Digest, Record
from stitchcuda.store import Store

LARGEST = 2_950_000                        # bytes of a page, if trimming diffs and logs can achieve it
_LEAST = 250_000                           # bytes for diffs and logs, however large the rest is
_LOG = 3                                   # a log gets 1/3 of its attempt's room, or what the diff leaves if that is more
_URL = re.compile(r"https://[^\s()<>\"']+")
_TEMPLATES = Path(__file__).parent / "templates"


class Written(Record):
    """The long texts of an attempt, trimmed."""

    files: tuple[Any, ...]
    log: Excerpt


def page_style() -> str:
    """The style sheet of all pages."""
    return (_TEMPLATES / "page.css").read_text()


def session_page(found: Findings) -> bytes:
    """The report of one session, as HTML."""
    makers = (
        figures.best_time, figures.savings, profile_figures.timeline, profile_figures.roofline, profile_figures.peaks,
        figures.shares,
    )  # fmt: skip
    drawn = [make(found) for make in makers]
    content = {
        "found": found, "card": found.card, "bars": (make_bars(found),),
        "path": path_of(found.attempts, begun=found.baseline is not None, ended=found.card.status in ("done", "nothing_to_do")),
    }  # fmt: skip
    bare = _page("report.html.j2", drawn, texts=_texts(found.attempts, 0), **content)
    return _page("report.html.j2", drawn, texts=_texts(found.attempts, max(_LEAST, LARGEST - len(bare))), **content)


def comparison_page(first: Findings, other: Findings, store: Store) -> bytes:
    """The page that compares two sessions, as HTML; `store` has their programs."""
    changed = comparison.program_changes(first, other, store)
    drawn = (comparison.best_times(first, other),)
    content = {
        "first": first, "other": other, "bars": (make_bars(first), make_bars(other)),
        "settings": comparison.settings(first, other), "matched": comparison.same_reference(first, other),
        "tasks": comparison.tasks(first, other), "why": changed.why, "program": other.program,
    }  # fmt: skip
    bare = _page("comparison.html.j2", drawn, files=trimmed(changed.files, 0), **content)
    room = max(_LEAST, LARGEST - len(bare))
    return _page("comparison.html.j2", drawn, files=trimmed(changed.files, room), **content)


def curves_page(title: str, facts: Sequence[tuple[str, str]], drawn: Sequence[Figure]) -> bytes:
    """A page of curves under a small table of facts, as HTML: what a run of training came to."""
    return _page("curves.html.j2", drawn, title=title, facts=facts)


@cache
def _plotly() -> tuple[str, str]:
    """plotly.js for a page (gzip in base64), and its hash for the page's content security policy."""
    source = get_plotlyjs().encode()
    return base64.b64encode(gzip.compress(source, 9, mtime=0)).decode(), _hash(source)


def _texts(attempts: Sequence[AttemptFindings], room: int) -> Mapping[int, Written]:
    """Diffs and logs by the attempt's number, in `room` bytes. Small ones stay whole; large ones share the room that is
    left."""
    logs = {attempt.number: attempt.evidence.build.log if attempt.evidence else "" for attempt in attempts}
    diffs = {attempt.number: sum(size(file.lines) + FILE for file in attempt.files) for attempt in attempts}
    sizes = {number: diffs[number] + size(log.splitlines()) for number, log in logs.items()}
    most = share(list(sizes.values()), room)
    written = {}
    for attempt in attempts:
        log = shown(logs[attempt.number], max(most // _LOG, most - diffs[attempt.number]))
        written[attempt.number] = Written(files=trimmed(attempt.files, most - size(log.lines)), log=log)
    return written


def _page(template: str, drawn: Sequence[Figure], **content: Any) -> bytes:
    script, (packed, packed_hash) = (_TEMPLATES / "page.js").read_text(), _plotly()
    text = _environment().get_template(template).render(
        figures={figure.id: figure for figure in drawn},
        drawings={figure.id: figure.drawing for figure in drawn if figure.traces},
        style=Markup(page_style()),
        script=Markup(script),
        hashes=(_hash(script.encode()), packed_hash),
        plotly=packed,
        **content,
    )  # fmt: skip
    return text.encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )  # fmt: skip
    made.filters |= {"ms": ms, "place": _place, "address": _address, "cut": clipped}
    return made


def _hash(data: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(data).digest()).decode()}"


def _place(digest: Digest) -> str:
    """The path of an artefact in a workspace's folder."""
    return f"artefacts/{digest[:2]}/{digest[2:]}"


def _address(citation: str) -> str:
    """The web page that a citation names as its source; "" for a header or a file."""
    found = _URL.search(citation)
    return found[0] if found else ""
