"""Makes text from models, agents, compilers and programs harmless to show: no control characters, no hidden direction marks.

It knows nothing of HTML. Whoever stores or prints foreign text calls it where the text enters.
Where to look next: `report/untrusted_text.py` (labels of figures), `engineers/agents/tools.py` (notes of agents).
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


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"
