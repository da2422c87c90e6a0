"""Makes text from models, compilers and programs harmless for figures: one line, shortened, without HTML.

Templates escape HTML; plotly interprets some, so its labels are escaped here. A shortened text ends with an ellipsis.

Where to look next: `sandbox/foreign_text.py` (control characters), `report/page.py` (where all text is filtered),
`report/figure.py` (labels of figures).
"""

from __future__ import annotations

from stitchcuda.sandbox.foreign_text import plain


def label(text: str, width: int = 44) -> str:
    """One line for a plot with at most `width` characters of `text`. plotly interprets HTML and entities, so both are
    escaped."""
    line = clipped(" ".join(plain(text).split()), width)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def clipped(text: str, width: int) -> str:
    """At most `width` characters; one that is cut ends with an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
