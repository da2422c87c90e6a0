"""Parses Python source into a syntax tree, in one thread at a time.

`ast.parse` in several threads at once fails on CPython 3.11 before 3.11.8 and 3.12 before 3.12.2 ("AST constructor recursion
depth mismatch", python/cpython#106905), and several threads read programs: those of a step its candidates, those of a
`VerifierPool` what they judge. ruff refuses `ast.parse` in every other file of the package.

Where to look next: `compiler/printing/program.py` and `tools/build/kernel_names.py` (two that parse).
"""

from __future__ import annotations

import ast
import threading

_PARSING = threading.Lock()


def parse_module(text: str | bytes) -> ast.Module:
    """Returns the syntax tree of a module's source.

    Raises what `ast.parse` does: SyntaxError, ValueError, RecursionError or MemoryError.
    """
    with _PARSING:
        return ast.parse(text)  # noqa: TID251
