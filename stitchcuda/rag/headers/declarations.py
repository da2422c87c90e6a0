"""Parses what a C or C++ header declares, with the comments beside it: functions, types, members, values, macros.

It reads text, as a person would: nothing is preprocessed, of the branches of a condition each counts, and where a header is too
clever something is missed rather than made up. Where to look next: `rag/headers/tokens.py` (its text),
`rag/headers/declared_names.py` (what one declaration names), `rag/headers/comments.py` (what a comment says),
`rag/headers/reading.py` (all headers of a machine).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from stitchcuda.rag.headers import tokens
from stitchcuda.rag.headers.declared_names import Kind, aliases, named, tag, unattributed

_DEFINE = re.compile(r"\s*#\s*define\s+(?P<name>\w+)(?P<arguments>\([^()]*\))?[ \t]*(?P<value>.*)", re.DOTALL)
_NAMESPACE = re.compile(r"(?:^|\s)(?:namespace\b\s*(?P<name>[\w:]*)|extern(?:\s*\"C(?:\+\+)?\")?)$")
_ACCESS = re.compile(r"\b(public|protected|private)\s*:(?!:)")
_AROUND = re.compile(r"(?:(?:[A-Z0-9]*_)+(?:NAMESPACE|SCOPE|DIAG|PUSH|POP|BEGIN|END)(?:_[A-Z0-9_]*)?\b(?:\([^()]*\))?\s*)+")
_BEFORE_TYPE = re.compile(r"(?:_*[A-Z][A-Z0-9_]*(?:\([^()]*\))?\s+)+(?=(?:template|struct|class|union|enum|typedef)\b)")
_INITIALISERS = re.compile(r"(?<=\))\s*:\s*[\w:]+[({<].*$")
_EXPORTED = re.compile(r"using\s+[\w:<>, ]+::(?P<name>\w+)")
_NOT_ASKED_FOR = re.compile(r"\boperator\b|^friend\b|^static_assert\b|=\s*(?:delete|default)$")
_DETAILS = ("detail", "details", "internal", "impl")
_BESIDE = re.compile(r"(?:/\*[*!]|//[/!])<")      # a comment on what stands in front of it
_INLINE_CHARS = 60                         # a comment among the parameters that stays there
_MACRO_CHARS = 160
_OUTDATED = re.compile(r"if\s+defined\s*\(?__CUDA_API_VERSION_INTERNAL\)?(?!.*\|\|)")      # for programs built long ago


@dataclass
class Declaration:
    """One declared name. `comment`: as in the header; `inside`: namespaces and types, joined with `::`; `also`: a type's other
    names."""

    name: str
    kind: Kind
    text: str
    comment: str
    inside: str = ""
    also: tuple[str, ...] = ()
    hidden: bool = False                   # in a namespace for details
    outdated: bool = False                 # only old programs see it


class Header(NamedTuple):
    declarations: list[Declaration]
    macros: list[tuple[str, str]]          # without arguments; those with no value too


def read(source: str) -> Header:
    """Returns everything that a header declares outside of namespaces for details and private parts. Raises nothing."""
    reader = _Reader(tokens.prepared(source))
    reader.run()
    current = {declaration.name for declaration in reader.found if not declaration.outdated}
    shown = []
    for declaration in reader.found:
        *outer, last = declaration.inside.split("::")
        if declaration.outdated and declaration.name in current:
            continue
        if declaration.hidden and declaration.name in reader.exported and last in _DETAILS:
            shown.append(replace(declaration, inside="::".join(outer), hidden=False))
        elif not declaration.hidden:
            shown.append(declaration)
    return Header(shown, reader.macros)


@dataclass
class _Scope:
    kind: Literal["namespace", "class", "enum"]
    name: str
    first: int                             # of the declarations in it
    head: str = ""
    comment: str = ""
    private: bool = False                  # whether what comes next is


class _Branch(NamedTuple):
    """The reader's state where a condition (`#if`) began, from which each of its branches is read."""

    scopes: list[_Scope]
    text: list[str]
    depth: int
    comment: str
    outdated: bool


class _Reader:
    """Reads one header in one pass over its tokens."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[Declaration] = []
        self.macros: list[tuple[str, str]] = []
        self.exported: set[str] = set()
        self.scopes: list[_Scope] = []
        self.branches: list[_Branch] = []
        self.outdated = False              # in such a branch
        self.ended: _Scope | None = None   # a type whose `}` was read and whose `;` was not
        self.text: list[str] = []          # of the declaration that is being read
        self.depth = 0                     # of parentheses in it
        self.comment, self.comment_end = "", 0     # in front of it
        self.last: list[Declaration] = []  # what a comment to the right belongs to
        self.last_end = 0
        self.column, self.lines = -1, 0    # where that comment is, and on how many more lines it goes on

    def run(self) -> None:
        at = 0
        while (token := tokens.TOKEN.match(self.source, at)) is not None:
            at = token.end()
            which, text = token.lastgroup, token.group()
            if which == "comment":
                self._comment(text, token.start(), at)
            elif which == "directive":
                self._directive(text, at)
            elif which != "mark":
                self._code(text, token.start())
            elif text == "{":
                at = self._open(at)
            elif text == "}":
                self._close(at)
            elif text in ";,":
                self._end(text, at)
            else:
                self.depth += 1 if text == "(" else -1
                self.text.append(text)

    def _code(self, text: str, start: int) -> None:
        if self.comment and text.strip() and not self._pending():
            gap = self.source[self.comment_end:start] + text[:len(text) - len(text.lstrip())]
            if not _is_doc(self.comment) and re.search(r"\n[ \t]*\r?\n", gap):
                self.comment = ""          # a headline, or a remark on nothing in particular
        self.text.append(text)

    def _comment(self, text: str, start: int, end: int) -> None:
        between = self.source[self.last_end:start]
        column = start - self.source.rfind("\n", 0, start)
        if self._pending() and self.depth == 0 and not self._head():       # behind `public:`
            self.text = []
        if self._pending():
            words = " ".join(text.split())
            if self.depth > 0 and len(words) <= _INLINE_CHARS and not words.startswith("//"):
                self.text.append(f" {words} ")
            elif self.depth <= 0 and self._in("enum"):
                goes_on = text.startswith("//") and self.comment.startswith("//") and self._follows(start)
                if goes_on or not self.comment or _BESIDE.match(text):
                    between = "\n" if goes_on else "\n\n"
                    self.comment, self.comment_end = f"{self.comment}{between}{text}".strip(), end
        elif self.last_end and "\n" not in between and not between.strip(" \t,;"):
            self.column = column
            for declaration in self.last:          # to the right of a function it is about the last parameter
                # a comment that is no documentation may be a headline: it goes last
                both = [declaration.comment, text] if _is_doc(declaration.comment) else [text, declaration.comment]
                if declaration.kind != "function" and (_is_doc(text) or not declaration.comment):
                    declaration.comment = "\n\n".join(both).strip()
        elif self.column == column and text.startswith("//") and between.count("\n") == 1 + self.lines:
            self.lines += 1
            for declaration in self.last:
                declaration.comment = f"{declaration.comment}\n{text}" if declaration.comment else ""
        elif _BESIDE.match(text):
            for declaration in self.last:
                declaration.comment = f"{declaration.comment}\n{text}" if declaration.comment else text
        elif text.startswith("//") and self.comment.startswith("//") and self._follows(start):
            self.comment, self.comment_end = f"{self.comment}\n{text}", end
        elif _is_doc(text) or not _is_doc(self.comment) or not self._follows(start):
            self.comment, self.comment_end = text, end

    def _follows(self, start: int) -> bool:
        return self.source.count("\n", self.comment_end, start) <= 1

    def _directive(self, text: str, end: int) -> None:
        word = text.lstrip(" \t#")
        if word.startswith("if"):
            self.branches.append(_Branch([*self.scopes], [*self.text], self.depth, self.comment, self.outdated))
            self.outdated = self.outdated or _OUTDATED.match(word) is not None
        elif word.startswith("el") and self.branches:
            scopes, parts, self.depth, self.comment, self.outdated = self.branches[-1]
            self.scopes, self.text = [*scopes], [*parts]
        elif word.startswith("endif") and self.branches:
            self.outdated = self.branches.pop().outdated
        self.last, self.last_end = [], end
        if (found := _DEFINE.match(text.replace("\\\r\n", " ").replace("\\\n", " "))) is not None:
            self._macro(found, end - len(text))
        if not _is_doc(self.comment):
            self.comment = ""

    def _macro(self, found: re.Match[str], start: int) -> None:
        name, arguments, value = found["name"], found["arguments"] or "", " ".join(found["value"].split())
        if not arguments:
            self.macros.append((name, value))
        if name.startswith("_") or self._pending() or not (value or arguments):
            return
        comment = self.comment if self._follows(start) else ""
        self.comment = "" if comment else self.comment
        value = value if len(value) <= _MACRO_CHARS else "..."
        self.last = [Declaration(name, "macro", f"#define {name}{arguments} {value}".strip(), comment)]
        self.found += self.last

    def _open(self, at: int) -> int:
        """Returns where to go on: behind the braces if what they hold declares nothing."""
        head = self._head()
        if self.depth <= 0:
            if (space := _NAMESPACE.search(head)) is not None:
                self._enter(_Scope("namespace", space["name"] or "", len(self.found)))
                return at
            plain = unattributed(head)
            kind = re.search(r"\b(?:enum|class|struct|union)\b", plain)
            if kind is not None and "(" not in plain and "=" not in plain:
                which: Literal["class", "enum"] = "enum" if kind.group() == "enum" else "class"
                self._enter(_Scope(which, tag(plain), len(self.found), head, self.comment, private=kind.group() == "class"))
                return at
        end = tokens.behind_brace(self.source, at)
        if self.depth > 0:                 # a default argument
            self.text.append("{}")
        elif "(" in head and not head.endswith("="):
            self._declare(end)
            self.ended = None
        return end

    def _enter(self, scope: _Scope) -> None:
        self.scopes.append(scope)
        self.last, self.last_end = [], 0
        self._clear()

    def _close(self, at: int) -> None:
        if self._in("enum") and self._pending():
            self._declare(at)
        scope = self.scopes.pop() if self.scopes else None
        self._clear()
        self.ended = scope if scope is not None and scope.kind != "namespace" else None
        self.last, self.last_end = self.last if scope is not None and scope.kind == "enum" else [], at

    def _end(self, mark: str, at: int) -> None:
        if mark == "," and (self.depth > 0 or not self._in("enum")):
            self.text.append(mark)
        elif mark == ";" and self.depth > 0:
            self._clear()                  # some macro's parentheses
        elif self.ended is not None:
            self._type(self.ended, at)
        elif self._pending():
            self._declare(at)
        else:
            self._clear()

    def _type(self, scope: _Scope, at: int) -> None:
        """A type is complete, and so is where its members are."""
        tail = self._head()
        self.ended = None
        self._clear()
        typedef = re.search(r"\btypedef\b", scope.head) is not None
        names = aliases(tail)
        names = list(dict.fromkeys([*names, scope.name] if typedef else [scope.name or "".join(names[:1])]))
        name = next(iter(names), "")
        for declaration in self.found[scope.first:]:
            declaration.inside = self._inside("::".join(part for part in (name, declaration.inside) if part))
        if name:
            head = " ".join(scope.head.split())
            text = f"{head} {{...}} {tail}".strip() if typedef or not scope.name else f"{head} {{...}}"
            kind: Kind = "enum" if scope.kind == "enum" else "type"
            also = tuple(other for other in names if other and other != name)
            self._add(Declaration(name, kind, f"{text};", scope.comment, also=also), at, scope.first)
            if tail and scope.name and not typedef and self._in("class"):
                for field in named(f"{scope.name} {tail}")[1]:
                    self._add(Declaration(field, "field", f"{scope.name} {tail};", ""), at)

    def _declare(self, at: int) -> None:
        head, comment = self._head(), self.comment
        self._clear()
        self.last, self.last_end = [], at
        if self._in("enum"):
            if (value := re.match(r"\w+", head)) is not None:
                self._add(Declaration(value.group(), "value", head, comment), at)
            return
        if (exported := _EXPORTED.fullmatch(head)) is not None:
            self.exported.add(exported["name"])
        elif not _NOT_ASKED_FOR.search(head):
            in_type = self._in("class")
            text = _INITIALISERS.sub("", head)
            kind, names = named(text)
            for name in names:
                constructs = in_type and name == self.scopes[-1].name
                macro = kind == "function" and not constructs and unattributed(text, loud=False).startswith(f"{name}(")
                if not macro and not (in_type and name.startswith("_")):
                    together = self.last
                    self._add(Declaration(name, kind if in_type or kind != "field" else "variable", f"{text};", comment), at)
                    self.last = [*together, *self.last]

    def _add(self, declaration: Declaration, at: int, place: int | None = None) -> None:
        self.last, self.last_end, self.column, self.lines = [], at, -1, 0
        if not any(scope.private for scope in self.scopes):
            declaration.inside = self._inside("")
            spaces = [part for scope in self.scopes if scope.kind == "namespace" for part in scope.name.split("::")]
            declaration.outdated = self.outdated
            declaration.hidden = any(part in _DETAILS or part.startswith("_") for part in spaces)
            self.found.insert(len(self.found) if place is None else place, declaration)
            self.last = [declaration]

    def _inside(self, within: str) -> str:
        """With the namespaces in front; a type that is not complete yet will add itself and them later."""
        if any(scope.kind != "namespace" for scope in self.scopes):
            return within
        return "::".join(part for part in (*(scope.name for scope in self.scopes), within) if part)

    def _in(self, kind: str) -> bool:
        return bool(self.scopes) and self.scopes[-1].kind == kind

    def _pending(self) -> bool:
        return bool("".join(self.text).strip())

    def _head(self) -> str:
        """The declaration so far, in one line; what it says of access counts from here on."""
        text = "".join(self.text)
        if self._in("class"):
            for found in _ACCESS.finditer(text):
                self.scopes[-1].private = found[1] != "public"
            text = _ACCESS.sub(" ", text)
        text = " ".join(text.split())
        for before in (_AROUND, _BEFORE_TYPE) if not self._in("enum") else ():
            if (around := before.match(text)) is not None:
                text = text[around.end():]
        return text

    def _clear(self) -> None:
        self.text, self.depth, self.comment = [], 0, ""


def _is_doc(comment: str) -> bool:
    return comment.startswith(("/**", "/*!", "///", "//!")) and not comment.startswith(("/***", "////"))
