"""Renders Markdown from templates: prompts of the engineers and of training, and the card of an exported model.

A template that names a value which it is not given raises jinja's `UndefinedError`. Nothing is escaped: HTML is not made here.
Where to look next: `engineers/prompt_values.py` (prompts of the roles), `training/session_rows.py` (prompts that are learnt),
`training/export/model_card.py` (the card), `report/page.py` (HTML).
"""

from __future__ import annotations

import functools
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_markdown(template: Path, /, **values: object) -> str:
    """Returns the text of a template, which may include others of its folder."""
    return _templates(template.parent).get_template(template.name).render(values)


@functools.cache
def _templates(folder: Path) -> Environment:
    loader = FileSystemLoader(folder)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
