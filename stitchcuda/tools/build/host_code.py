"""The host's part of CUDA and C++ sources as tokens: what device functions do is left to the machine code that speaks for them.

Comments and white space are left out, and macros that nobody names outside of device functions. A text that is too unusual for
its brackets to be trusted stays whole: to leave out too little parts programs that are alike, to leave out too much would join
others. It expands no macros and knows no types. Where to look next: `tools/build/code_fingerprint.py` (for whom),
`tools/build/masks.py` and `simulator/source.py` (which read sources in the same way).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from stitchcuda.simulator.source import masked
from stitchcuda.tools.build import masks
from stitchcuda.tools.build.program_sources import CXX

SUFFIXES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc", *CXX)

_TOKEN = re.compile(
    r'(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"'
    r'|(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"'
    r"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+'"
    r"|\.?\d(?:[eEpP][+-]|'?[\w.])*|[^\W\d]\w*"
    r"|<<<|>>>|<=>|<<=|>>=|->\*|\.\.\.|::|\.\*|->|\+\+|--|<<|>>|&&|\|\||##|[-+*/%&|^!=<>]="
    r"|(?P<blank>\\\r?\n|\s+)|.",
    re.DOTALL,
)
_BRACKET = re.compile(r"[()\[\]{}]")
_DIRECTIVE = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?P<kind>\w*)(?:[ \t]+(?P<name>\w+)(?P<call>\(?))?(?:[^\\\n]+|\\\n?)*+"
)
_FILE = re.compile(r'[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]')
_UNROLL = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+(?:no)?unroll\b")
_NAMESPACE = re.compile(r'(?:\bnamespace\b[\w:\s]*|\bextern\s*"[^"]*"\s*)\Z')
_DEVICE = re.compile(r"\b__device__\b")
_HEAD = re.compile(r"[^;#]*(?:\)[\s&]*(?:\b(?:const|noexcept|override|final|volatile)\b[\s&]*)*|->[\w\s:<>,*&]+)\Z")
# Defaults that a caller may leave out, and what the host's compiler looks at all the same.
_HOSTS = re.compile(r"=|\b(?:__host__|constexpr|consteval|auto|decltype|virtual|friend|requires|concept)\b")
_BEFORE = re.compile(r"(?:\b(?:static|inline|__inline__|__forceinline__|__noinline__)\s+)+\Z")
_CALLED = re.compile(r"([^\W\d]\w*)\s*\Z")
_ATTRIBUTES = ("__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__", "__align__")
_OPEN, _CLOSE = "([{", ")]}"


def tokens(sources: Mapping[str, str], *, kernels: Collection[str] | None) -> dict[str, list[str]]:
    """The tokens of each source that the host's compiler makes something of; names are paths within the program.

    `kernels` are those whose machine code is known under a name that says their parameters' types. None: no machine code is
    known, and nothing is left out but comments and white space.
    """
    texts = {name: _Text(text) for name, text in sources.items()}
    if kernels is None or not all(text.trusted() for text in texts.values()):
        return {name: [token for chunk in text.chunks((), 0) for token in chunk.tokens] for name, text in texts.items()}
    own = {PurePath(name).name for name in sources}
    included = {name: own & text.included() for name, text in texts.items()}
    everywhere = frozenset().union(*included.values())
    # g++ takes the device functions of a header for plain ones.
    both = any(included[name] for name in texts if name.endswith(CXX))
    read: dict[str, list[_Chunk]] = {}
    for name, text in texts.items():
        header = not name.endswith((".cu", *CXX)) or PurePath(name).name in everywhere
        left_out = [] if name.endswith(CXX) or (header and both) else text.device_functions(kernels)
        read[name] = list(text.chunks(left_out, len(text.bare) if header else text.last_include()))
    named = _named([chunk for chunks in read.values() for chunk in chunks])
    return {
        name: [token for chunk in chunks if not chunk.of or chunk.of in named for token in chunk.tokens]
        for name, chunks in read.items()
    }  # fmt: skip


class _Chunk(NamedTuple):
    """Tokens in a row. `of`: the macro or device function that they define, needed only where somebody names it."""

    tokens: tuple[str, ...]
    of: str = ""


class _LeftOut(NamedTuple):
    """A part of a text, by positions; `of`: a function of that name, which is left out unless somebody names it."""

    start: int
    end: int
    of: str = ""


def _named(chunks: list[_Chunk]) -> set[str]:
    """Words of all chunks that are needed, with what these name in turn."""
    optional = [chunk for chunk in chunks if chunk.of]
    if any("##" in chunk.tokens for chunk in chunks):      # which makes names
        return {chunk.of for chunk in optional}
    named = {token for chunk in chunks if not chunk.of for token in chunk.tokens}
    while more := [chunk for chunk in optional if chunk.of in named]:
        named.update(token for chunk in more for token in chunk.tokens)
        optional = [chunk for chunk in optional if chunk.of not in named]
    return named


class _Text:
    """One source. In `bare` comments are blank, in `code` the insides of literals too, in `plain` directives as well."""

    def __init__(self, text: str) -> None:
        self.bare, self.code = masked(text, literals=False), masked(text)
        self.directives = list(_DIRECTIVE.finditer(self.code))
        self.plain = _DIRECTIVE.sub(lambda one: re.sub(r"[^\n]", " ", one.group()), self.code)

    def included(self) -> set[str]:
        """Names of the files that it includes, without folders."""
        found = (_FILE.match(self.bare, one.start()) for one in self.directives)
        return {PurePath(one[1]).name for one in found if one is not None}

    def last_include(self) -> int:
        return max((one.start() for one in self.directives if one["kind"] == "include"), default=0)

    def chunks(self, left_out: Collection[_LeftOut], kept: int) -> Iterator[_Chunk]:
        """All that counts, in its order. Macros that are defined before `kept` count in any case: a header may look at them.
        So do directives within what is left out, which reach beyond it."""
        at = 0
        for one in self.directives:
            yield from self._between(at, one.start(), left_out)
            at = one.end()
            said = self.bare[one.start() : at]
            if _UNROLL.match(said) and any(part.start <= one.start() < part.end for part in left_out):
                continue
            macro = one["name"] if one["kind"] == "define" and one.start() >= kept else None
            yield _Chunk((*_split(said), "(" if one["call"] else "", "\n"), macro or "")
        yield from self._between(at, len(self.bare), left_out)

    def _between(self, start: int, end: int, left_out: Collection[_LeftOut]) -> Iterator[_Chunk]:
        for one in left_out:
            first, last = max(start, one.start), min(end, one.end)
            if first < last:
                yield _Chunk(_split(self.bare[start:first]))
                if one.of:
                    yield _Chunk(_split(self.bare[first:last]), one.of)
                start = last
        yield _Chunk(_split(self.bare[start:end]))

    def device_functions(self, kernels: Collection[str]) -> list[_LeftOut]:
        """Bodies of kernels and device functions; heads too where no caller on the host could tell."""
        partner, within = _brackets(self.plain)
        found: list[_LeftOut] = []
        for name, body in masks.definitions(self.bare):
            if within.get(body, "(") == "(" or body not in partner:      # in a macro, or in what is handed to one
                continue
            start = self._head(self.plain.rfind("__global__", _statement(self.plain, body), body))
            known = start is not None and name.partition("#")[0] in kernels and "#" not in self.code[start:body]
            if start is None or not known or _HOSTS.search(self.plain, start, body):
                start = body
            found.append(_LeftOut(start, partner[body] + 1))
        for word in _DEVICE.finditer(self.plain):
            body, start = self.plain.find("{", word.end()), self._head(word.start())
            if within.get(body, "(") == "(" or body not in partner or start is None:
                continue
            head = self.code[word.end() : body]
            if not _HEAD.match(head) or _HOSTS.search(self.plain, _statement(self.plain, body), body):
                continue
            if within[body] == "{":        # a class, to whose readers the head says something
                found.append(_LeftOut(body, partner[body] + 1))
            elif name := _called(head):
                found.append(_LeftOut(start, partner[body] + 1, name))
        outer: list[_LeftOut] = []
        for one in sorted(found):
            if not outer or one.start >= outer[-1].end:
                outer.append(one)
        return outer

    def _head(self, word: int) -> int | None:
        """Where the declaration begins that has `__global__` or `__device__` at `word`; None for a lambda's, or without one.

        No further back than what is surely its own: a macro may stand before it.
        """
        before = self.plain[_statement(self.plain, word) : word] if word >= 0 else "]"
        if before.rstrip().endswith("]"):
            return None
        own = _BEFORE.search(before)
        before = before[: own.start()] if own else before
        template = before.rfind("template")
        if template >= 0 and re.fullmatch(r"template\s*<[^<>()]*>\s*", before[template:]):
            before = before[:template]
        return _statement(self.plain, word) + len(before)

    def trusted(self) -> bool:
        """Whether brackets close within each branch of a condition and within each macro, and all are written as such."""
        if any(mark in self.code for mark in ("%:", "<%", "??")):
            return False
        opened: list[str] = []
        floors = [0]

        def closed(part: str) -> bool:
            for one in _BRACKET.findall(part):
                if one in _OPEN:
                    opened.append(one)
                elif len(opened) <= floors[-1] or _OPEN.index(opened.pop()) != _CLOSE.index(one):
                    return False
            return True

        at = 0
        for one in self.directives:
            if not closed(self.code[at : one.start()]):
                return False
            at = one.end()
            if one["kind"] == "define":
                floors.append(len(opened))
                if not closed(one.group()) or len(opened) != floors.pop():
                    return False
            elif one["kind"].startswith("if"):
                floors.append(len(opened))
            elif one["kind"].startswith(("el", "endif")):
                if len(floors) < 2 or len(opened) != floors[-1]:
                    return False
                if one["kind"] == "endif":
                    floors.pop()
        return closed(self.code[at:]) and not opened and len(floors) == 1


def _split(code: str) -> tuple[str, ...]:
    return tuple(one.group() for one in _TOKEN.finditer(code) if one["blank"] is None)


def _statement(code: str, at: int) -> int:
    """Where the statement begins that goes on at this position."""
    return max(code.rfind(mark, 0, at) for mark in ";{}") + 1


def _called(head: str) -> str:
    """The name before the parameters; "" for an operator, and where it is not plain."""
    for one in re.finditer(r"\(", head):
        name = _CALLED.search(head, 0, one.start())
        if name is None or name[1] not in _ATTRIBUTES:
            return name[1] if name else ""
    return ""


def _brackets(code: str) -> tuple[dict[int, int], dict[int, str]]:
    """By position of each `{`: where it is closed, and what it lies in: "(" for any bracket that is none, else "{" for a class
    or a function, else "" for namespaces alone."""
    partner: dict[int, int] = {}
    within: dict[int, str] = {}
    opened: list[tuple[int, str]] = [(-1, "")]
    for one in _BRACKET.finditer(code):
        at, around = one.start(), opened[-1][1]
        if code[at] == "{":
            within[at] = around
            space = around == "" and _NAMESPACE.search(code[_statement(code, at) : at])
            opened.append((at, "" if space else around or "{"))
        elif code[at] in _OPEN:
            opened.append((at, "("))
        elif len(opened) > 1:
            partner[opened.pop()[0]] = at
    return partner, within
