"""Writes a program's sources as a judge model may see them: the code, without what only speaks to a reader.

Left out are comments, docstrings, strings that are mere statements, blocks under `#if 0`, and files that are no source.
Sentences in literals become "…", and so does prose between C++ tokens, where no compiler would take it. CUDA in a string of
Python is written as a source of its own. A program with such text reads the same as without it. Names are left as they are:
what a judge is told about names is in `training/prompts/rubric.md.j2`. Nothing is judged or run here.
Where to look next: `training/rubric.py` (who shows it), `simulator/source.py` (finds comments in C++).
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.simulator.source import without_comments
from stitchcuda.tools.build.program_sources import CXX

MOST_CHARACTERS = 60_000                   # of all sources together
LONGEST_FILE = 240_000                      # bytes of one file
LONGEST_NAME = 64                          # characters of a literal that is shown in Python
_CPP = (".cu", ".cuh", ".h", ".hpp", ".inl", ".inc", ".c", *CXX)
_SOURCE = re.compile(r"__global__|[;{}]\s*(?:\n|$)|#\s*include")
_SENTENCE = re.compile(r"(?<![A-Za-z'])[A-Za-z']{2,}[,.;:!?]?\s+[A-Za-z']{2,}")
_WORDS = re.compile(r"\b[A-Za-z_]\w*(?:[ \t]+[A-Za-z_]\w*){2,}")
_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(?P<word>if\w*|else|elif|endif)\b[ \t]*(?P<rest>.*)")
_SAID = re.compile(r"^[ \t]*#[ \t]*(?:error|warning|pragma[ \t]+message)[^\n]*$", re.MULTILINE)
_AROUND = re.compile(r"[ \t]*([^\w\s#])[ \t]*")  # blanks that C++ does not need
_CPP_WORDS = frozenset(re.findall(r"\w+", (
    "alignas and auto bool break case char class const consteval constexpr continue decltype default define delete do "
    "double else endif enum explicit extern false float for friend if ifdef ifndef include inline int long mutable "
    "namespace new noexcept not operator or pragma private protected public register return short signed sizeof static "
    "struct switch template this throw true try typedef typename union undef unroll unsigned using virtual void volatile "
    "while asm half size_t"
)))


def shown_program(program: Path) -> str:
    """Returns the sources of a program's folder or file, each under its name, at most `MOST_CHARACTERS`."""
    root = program if program.is_dir() else program.parent
    paths = sorted(path for path in program.rglob("*") if path.is_file()) if program.is_dir() else [program]
    parts = [
        f"==== {re.sub(r'[^A-Za-z0-9_./-]', '_', path.relative_to(root).as_posix())[:LONGEST_NAME]}\n{text}"
        for path in paths
        if (text := shown_source(path))
    ]
    text = "\n\n".join(parts)
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]}\n==== (cut here)\n{text[-half:]}"


def shown_source(path: Path) -> str:
    """Returns one file's code; "" for a file that is no source."""
    if path.suffix != ".py" and path.suffix not in _CPP:
        return ""
    if (size := path.stat().st_size) > LONGEST_FILE:
        return f"(this file of {size:,} bytes is not shown)"
    return shown_python(path.read_bytes()) if path.suffix == ".py" else shown_cpp(path.read_text(errors="replace"))


def shown_python(data: bytes) -> str:
    """Returns Python as its syntax tree prints it, and after it the sources that stand in its strings."""
    try:
        tree = _Speechless()
        return "\n".join([ast.unparse(tree.visit(parse_module(data))), *tree.sources])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "(this file is no valid Python: nothing of it is shown)"


def shown_cpp(text: str) -> str:
    """Returns C++ without comments, dead blocks, messages and prose, with as few blanks as it can be written with and indented
    by its braces, so that nothing shows where a comment was."""
    code = _SAID.sub("", _without_dead_blocks(without_comments(text)))
    pieces = re.split(f"({_LITERAL.pattern})", code)
    for number, piece in enumerate(pieces):
        if number % 2:
            pieces[number] = '"…"' if _SENTENCE.search(piece) else piece
        else:
            pieces[number] = "\n".join(map(_compact, piece.split("\n")))
    lines, depth = [], 0
    for line in filter(None, map(str.strip, "".join(pieces).splitlines())):
        depth = max(0, depth - line.startswith("}"))
        lines.append(line if line.startswith("#") else "  " * depth + line)
        depth = max(0, depth + line.count("{") - line.count("}") + line.startswith("}"))
    return "\n".join(lines)


def _without_dead_blocks(text: str) -> str:
    """Leaves out what stands under `#if 0`, up to its #else or #endif."""
    kept, depth = [], 0                    # of directives inside a dead block; 0: outside
    for line in text.split("\n"):
        found = _DIRECTIVE.match(line)
        word = found["word"] if found else ""
        if depth:
            depth += word.startswith("if")
            depth -= word == "endif" or (depth == 1 and word in ("else", "elif"))
        elif found and word == "if" and found["rest"].strip() in ("0", "false"):
            depth = 1
        else:
            kept.append(line)
    return "\n".join(kept)


def _compact(line: str) -> str:
    """A line, or its part beside a literal, with single blanks where C++ needs one; those of a directive have a meaning."""
    line = _WORDS.sub(_without_prose, re.sub(r"[ \t]+", " ", line))
    return line if line.lstrip().startswith("#") else _AROUND.sub(r"\1", line)


def _without_prose(match: re.Match[str]) -> str:
    """Three words in a row that are not C++'s are no code."""
    foreign = [word for word in match[0].split() if word not in _CPP_WORDS and not word.startswith("__")]
    return "…" if len(foreign) > 2 else match[0]


class _Speechless(ast.NodeTransformer):
    """Takes out of a tree what nothing computes with. `sources`: texts of strings that hold C++."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bytes):
            return ast.copy_location(ast.Constant("…"), node)
        if not isinstance(node.value, str):
            return node
        return ast.copy_location(ast.Constant(self._shown(node.value)), node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(getattr(node, "body", None), list) and not node.body and not isinstance(node, ast.Module):  # type: ignore[attr-defined]
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def _shown(self, text: str) -> str:
        if _SOURCE.search(text):
            code = shown_cpp(text)
            name = f"source {hashlib.sha256(code.encode()).hexdigest()[:6]}"
            if (written := f"---- {name}, in a string\n{code}") not in self.sources:
                self.sources.append(written)
            return f"<{name}>"
        return "…" if len(text) > LONGEST_NAME or _SENTENCE.search(text) else text
