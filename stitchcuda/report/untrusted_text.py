"""Makes text from models, compilers and programs harmless to show: no control characters, no hidden direction marks.

Templates escape HTML; this handles what escaping leaves: control characters, terminal colours, marks that turn the direction of
writing, and the HTML that plotly interprets. A shortened text ends with an ellipsis.

Where to look next: `report/page.py` (where all text is filtered), `report/figure.py` (labels of figures).
"""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Invisible characters, which make code look different from what it is.
_INVISIBLE = re.compile(r"[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def plain(text: str) -> str:
    """`text` without terminal colours; other control characters and invisible marks become visible ones, such as ⟨U+200B⟩."""
    text = _COLOURS.sub("", text.replace("\r\n", "\n"))
    text = _CONTROL.sub(_picture, text)
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def label(text: str, width: int = 44) -> str:
    """One line for a plot with at most `width` characters of `text`. plotly interprets HTML and entities, so both are
    escaped."""
    line = clipped(" ".join(plain(text).split()), width)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def clipped(text: str, width: int) -> str:
    """At most `width` characters; one that is cut ends with an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"
