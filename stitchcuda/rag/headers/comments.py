"""Turns a header's comment into plain words: doxygen and reStructuredText markup removed, formulas made readable.

What it does comes first, then parameters, notes, details and what is returned: a text cut short keeps what a caller needs. Left
out are lists of related functions, notes that stand on every function, and remarks for NVIDIA's own tools. It knows nothing of
declarations. Where to look next: `rag/headers/declarations.py`, which finds the comments.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

BRIEF_CHARS = 160
_TEXT_CHARS = 20_000                       # longer texts are tables that were parsed wrongly
_RETURN_CHARS = 2000                       # lists of errors are long and say little

_FRAME = re.compile(r"^[ \t]*(?:/\*[*!]*<?|//[/!]*<?|\*+(?!\S*\*\w)(?!/))?[ \t]?", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*\S[^\n]*\n[ \t]*([+=~^-])\1{3,}[ \t]*$", re.MULTILINE)
_RULER = re.compile(r"^[ \t]*[*=+~^-]{4,}[ \t]*$", re.MULTILINE)
_DROPPED = re.compile(
    r"[\\@](?:internal\b.*?[\\@]endinternal|latexonly\b.*?[\\@]endlatexonly|xmlonly\b.*?[\\@]endxmlonly"
    r"|htmlonly\b.*?[\\@]endhtmlonly)\b",
    re.DOTALL,
)
_FORMULA = re.compile(
    r"\\cuda_math_formula\b(?P<cuda>.*?)\\end_cuda_math_formula\b|\\f\$(?P<inline>.*?)\\f\$|\\f\[(?P<block>.*?)\\f\]", re.DOTALL
)
_SIGNS = {
    "pm": "±", "mp": "∓", "infty": "infinity", "times": "×", "cdot": "·", "neq": "!=", "leq": "<=", "le": "<=", "geq": ">=",
    "ge": ">=", "pi": "pi", "qquad": " ", "quad": " ", "left": "", "right": "", "ldots": "...",
}  # fmt: skip
_FRACTION = re.compile(r"\\frac\{([^{}]*)\}\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt\{([^{}]*)\}")
_GROUPED = re.compile(r"\\(?:operatorname|mathrm|text|rm)\{([^{}]*)\}")
_LINK = re.compile(r"[\\@]link\s+\S+\s+(?P<text>.*?)[\\@]endlink", re.DOTALL)
_SINCE = re.compile(r"(?<=\S)[ \t]+[\\@]since\b")
_WORD = re.compile(r"(?<![\\\w])(?:[\\@](?:p|c|a|e|b|em|ref|hl)[ \t]+)+(?=\S)")
_ROLE = re.compile(r":[\w:]+:`([^`<]*?)\s*(?:<[^`]*>)?`|`([^`<]+?)\s*<[^`]*>`_+|``([^`]+)``")
_TAG = re.compile(
    r"</?(?:a|b|i|tt|em|p|br|code|pre|ul|ol|li|table|caption|tr|td|th|sub|sup|small|h\d)(?:\s[^<>]*)?/?>", re.IGNORECASE
)
_RAISED = re.compile(r"<sup>(.*?)</sup>", re.IGNORECASE)
_SCOPE = re.compile(r"(?<![\w:>])::(?=[A-Za-z_])")
_COMMAND = re.compile(r"^[ \t]*[\\@](?P<name>\w+)(?:\[[^\]\n]*\])?(?:\{[^}\n]*\})?[ \t]*(?P<rest>.*)$")
_ANY_COMMAND = re.compile(r"(?<![\\\w])[\\@](?:sa\b|(?=[a-z_]{3})\w+)(?:\{[^}\n]*\})?")
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|#\.|\d+[.)])[ \t]+")
_SENTENCE = re.compile(r"[ \t]*[A-Z][a-z]+ [a-z]")
_LOOSE = re.compile(r"(?<=\() +(?=\S)|(?<=\S) +(?=\)|,\s|\.(?:\s|$))| Is only being read\.")     # of formulas; and no news

_GROUPS = re.compile(r"[\\@](?:defgroup|addtogroup|file|mainpage|name)\b|[\\@][{}]")
_LEFT_OUT = {"sa", "see", "exception", "behavior", "author", "date", "copyright"}     # with what follows up to an empty line
_MARKS = {                                 # with what follows on their line
    "anchor", "class", "cond", "endcond", "endrst", "endverbatim", "enum", "fn", "headerfile", "ingroup", "page", "rst",
    "struct", "typedef", "union", "verbatim",
}  # fmt: skip
_OPENINGS = {                              # of a paragraph: which one, how it begins
    "return": ("returned", ""), "returns": ("returned", ""), "result": ("returned", ""), "retval": ("returned", ""),
    "param": ("parameters", ""), "tparam": ("parameters", ""), "brief": ("brief", ""), "short": ("brief", ""),
    "deprecated": ("warned", "Deprecated. "), "note": ("notes", "Note: "), "warning": ("notes", "Warning: "),
    "attention": ("notes", "Note: "), "remark": ("notes", "Note: "), "remarks": ("notes", "Note: "),
    "since": ("notes", "Since "), "pre": ("notes", "Before: "), "post": ("notes", "After: "), "details": ("details", ""),
    "par": ("details", ""), "section": ("details", ""), "subsection": ("details", ""), "li": ("details", "- "),
    "arg": ("details", "- "),
}  # fmt: skip
_NAMED = {"param", "tparam", "retval"}     # "name - what it is"
_TITLED = {"section", "subsection"}        # "anchor Title"


class Comment(NamedTuple):
    brief: str                             # one line
    text: str                              # all of it, the brief first; lines, at most about 20,000 characters


NOTHING = Comment("", "")


def plain(comment: str) -> Comment:
    """Returns a comment in plain words; `NOTHING` if it only opens or closes a group, or holds no words."""
    if _GROUPS.search(comment):
        return NOTHING
    said = _Paragraphs()
    for line in _inline(_unframed(comment)).split("\n"):
        said.read(line)
    details = said.parts["details"]
    brief = " ".join(said.parts["brief"])
    if not brief and details:
        brief, rest = _first_sentence(details[0])
        details = [rest, *details[1:]]
    if not re.search(r"[A-Za-z]{2}", brief):
        return NOTHING
    parts = said.parts
    lines = [*parts["warned"], brief, *parts["parameters"], *parts["notes"], *details, _returned(parts["returned"])]
    text = _LOOSE.sub("", "\n".join(line for line in lines if line))
    return Comment(cut(_LOOSE.sub("", brief), BRIEF_CHARS), cut(text, _TEXT_CHARS))


def cut(text: str, most: int) -> str:
    """Returns at most about `most` characters of a text, ending with a whole word and "…" if something was left out."""
    if len(text) <= most:
        return text
    head = text[:most - 2]
    end = max((found.start() for found in re.finditer(r"\s", head)), default=most)
    return f"{head[:end if end > most // 2 else len(head)].rstrip(' ,;:')} …"


def _unframed(comment: str) -> str:
    text = re.sub(r"\*+/", " ", comment.strip())
    text = _FRAME.sub("", text.replace("\r\n", "\n").replace("\f", " ").replace("\xa0", " "))
    return _RULER.sub("", _HEADING.sub("", text))


def _inline(text: str) -> str:
    text = _DROPPED.sub(" ", text)
    text = _FORMULA.sub(lambda found: _formula(found["cuda"] or found["inline"] or found["block"] or ""), text)
    text = _LINK.sub(lambda found: found["text"].strip(), text)
    text = re.sub(r"\\n(?![A-Za-z_])", "\n", text).replace("\\ ", "")
    text = _SINCE.sub(r"\n\\since", text)
    text = _WORD.sub("", text)
    text = _ROLE.sub(lambda found: next(part for part in found.groups() if part is not None), text)
    text = html.unescape(_TAG.sub("", _RAISED.sub(r"^\1", text)))
    return _SCOPE.sub("", text)


def _formula(text: str) -> str:
    while (simpler := _GROUPED.sub(r"\1", _ROOT.sub(r"sqrt(\1)", _FRACTION.sub(r"(\1)/(\2)", text)))) != text:
        text = simpler
    text = re.sub(r"\\([A-Za-z]+)", lambda found: _SIGNS.get(found[1], found[1]), text)
    text = re.sub(r"[{}]|\\[,;!]", "", text).replace("\\", "")
    return f" {' '.join(text.split())} "


class _Paragraphs:
    """A comment's paragraphs by what they are about, read line by line."""

    def __init__(self) -> None:
        names = ("brief", "warned", "parameters", "notes", "details", "returned")
        self.parts: dict[str, list[str]] = {name: [] for name in names}
        self.into: str | None = "details"
        self.fresh = True                  # whether the next line begins a paragraph
        self.code = False
        self.margin = -1                   # what reStructuredText has indented by more belongs to a directive

    def read(self, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        if self.margin >= 0 and line.strip() and indent <= self.margin:
            self._to("details", margin=-1)
        if re.match(r"[ \t]*\.\. ", line):
            return self._to("details" if "code" in line else None, margin=indent, code="code" in line)
        found = _COMMAND.match(line)
        name, rest = (found["name"], found["rest"].strip()) if found else ("", line)
        if name in ("code", "endcode"):
            self.code, self.fresh = name == "code", True
            self.into = "details" if self.into == "returned" else self.into
        elif self.code:
            line, ended, _ = line.replace("@endcode", "\\endcode").partition("\\endcode")
            self.code = not ended
            if line.strip():
                self.parts[self.into or "details"].append(line.rstrip())
        elif not line.strip():
            self.fresh = True              # lists of what is returned have empty lines in them
            self.into = self.into if self.into == "returned" or self.margin >= 0 else "details"
        elif name in _OPENINGS:
            self._to(_OPENINGS[name][0])
            if name in _NAMED:
                rest = re.sub(r"^(\S+?),?\s*(?:[-–:]+\s+|\s|$)", r"\1: ", rest)
            elif name in _TITLED:
                rest = rest.partition(" ")[2]
            self._add(_OPENINGS[name][1] + rest)
        elif name in _LEFT_OUT:
            self._to(None)
        elif name in _MARKS or name.startswith("note"):        # \note_async and its like stand on every function
            self.fresh = True
        else:
            self._add(line)

    def _to(self, into: str | None, *, margin: int = -1, code: bool = False) -> None:
        self.into, self.fresh, self.margin, self.code = into, True, margin, code

    def _add(self, line: str) -> None:
        words = " ".join(_ANY_COMMAND.sub("", line).replace("**", "").split())
        words = f"- {words[2:]}" if words.startswith(("* ", "• ")) else words
        if self.into is None or not re.search(r"\w", words):
            return
        if self.into == "returned" and self.fresh and self.parts["returned"] and _SENTENCE.match(line):
            self.into = "details"
        lines = self.parts[self.into]
        if self.fresh or not lines or _ITEM.match(line):
            lines.append(words)
        else:
            lines[-1] = f"{lines[-1]} {words}"
        self.fresh = False


def _returned(lines: list[str]) -> str:
    listed = any(line.startswith("- ") for line in lines)
    text = cut(("\n" if listed else "; ").join(lines), _RETURN_CHARS).rstrip(",")
    return f"Returns:{chr(10) if text.startswith('- ') else ' '}{text}" if text else ""


def _first_sentence(paragraph: str) -> tuple[str, str]:
    found = re.search(r"(?<![ie]\.[ge])(?<!^\d)(?<!^\d\d)\.\s+(?=[A-Z(*\"])", paragraph)
    if found is None or found.start() > BRIEF_CHARS * 2:
        return paragraph, ""
    return paragraph[:found.start() + 1], paragraph[found.end():]
