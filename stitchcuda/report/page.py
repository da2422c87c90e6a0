"""Renders a report as one self-contained HTML file from findings and templates.

What models and compilers wrote is escaped by the templates, and nothing in the page runs but its own script, whose hash its
policy names; nothing is loaded from anywhere. Long texts are trimmed to the room there is, and say so. It reads no session and
opens no browser. Where to look next: `report/findings.py`, `templates/`, `report/untrusted_text.py`.
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
from stitchcuda.report.baseline_bars import standing
from stitchcuda.report.figure import Figure, ms
from stitchcuda.report.findings import AttemptFindings, Findings
from stitchcuda.report.route_path import path_of
from stitchcuda.report.trimming import FILE, Excerpt, share, shown, size, trimmed
from stitchcuda.report.untrusted_text import clipped, plain
from stitchcuda.state import Digest, Record
from stitchcuda.store import Store

LARGEST = 2_950_000                        # bytes of a page, as far as trimming diffs and logs can make it
_LEAST = 250_000                           # bytes for diffs and logs, however large the rest is
_LOG = 3                                   # a log gets this part of its attempt's room, or what the diff leaves
_URL = re.compile(r"https://[^\s()<>\"']+")
_TEMPLATES = Path(__file__).parent / "templates"


class Written(Record):
    """The long texts of an attempt, as far as there is room."""

    files: tuple[Any, ...]
    log: Excerpt


def session_page(found: Findings) -> bytes:
    """The report of one session."""
    drawn = (
        figures.best_time(found),
        figures.savings(found),
        profile_figures.timeline(found),
        profile_figures.roofline(found),
        profile_figures.peaks(found),
        figures.shares(found),
    )
    content = {
        "found": found, "card": found.card, "bars": (standing(found),),
        "path": path_of(found.attempts, begun=found.baseline is not None, ended=found.card.status in ("done", "nothing_to_do")),
    }  # fmt: skip
    bare = _page("report.html.j2", drawn, texts=_texts(found.attempts, 0), **content)
    return _page("report.html.j2", drawn, texts=_texts(found.attempts, max(_LEAST, LARGEST - len(bare))), **content)


def comparison_page(first: Findings, other: Findings, store: Store) -> bytes:
    """Two sessions of one workspace side by side."""
    changed = comparison.program_changes(first, other, store)
    drawn = (comparison.best_times(first, other),)
    content = {
        "one": first, "other": other, "bars": (standing(first), standing(other)), "settings": comparison.settings(first, other),
        "matched": comparison.same_reference(first, other), "tasks": comparison.tasks(first, other),
        "why": changed.why, "program": other.program,
    }  # fmt: skip
    bare = _page("comparison.html.j2", drawn, files=trimmed(changed.files, 0), **content)
    room = max(_LEAST, LARGEST - len(bare))
    return _page("comparison.html.j2", drawn, files=trimmed(changed.files, room), **content)


@cache
def _plotly() -> tuple[str, str]:
    """plotly.js packed for a page (gzip in base64), and the hash by which the page's policy knows it."""
    source = get_plotlyjs().encode()
    return base64.b64encode(gzip.compress(source, 9, mtime=0)).decode(), _hash(source)


def _texts(attempts: Sequence[AttemptFindings], room: int) -> Mapping[int, Written]:
    """Diffs and logs by the attempt's number. Small ones stay whole; large ones share the room that is left."""
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
    script, (packed, known) = (_TEMPLATES / "page.js").read_text(), _plotly()
    text = _environment().get_template(template).render(
        figures={figure.id: figure for figure in drawn},
        drawings={figure.id: figure.drawing for figure in drawn if figure.traces},
        style=Markup((_TEMPLATES / "page.css").read_text()),
        script=Markup(script),
        hashes=(_hash(script.encode()), known),
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
    """Where an artefact lies in a workspace's folder."""
    return f"artefacts/{digest[:2]}/{digest[2:]}"


def _address(citation: str) -> str:
    """The web page that a citation names as its source; "" for a header or a file."""
    found = _URL.search(citation)
    return found[0] if found else ""
