"""Evaluates Python string expressions made of constants, and finds expressions that the screen need not look at.

Pure functions on syntax trees; no name is looked up. Where to look next: `verify/integrity/screen.py` (who judges).
"""

from __future__ import annotations

import ast


def fold(node: ast.AST, hopeless: set[int] | None = None) -> str | None:
    """The value of a string made of constants only (concatenated, joined, formatted, reversed); None for any other expression.

    `hopeless`: caches the `id` of additions that are no such strings, so that each is tried once.
    """
    hopeless = set() if hopeless is None else hopeless
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bytes):
            return node.value.decode("latin-1")
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        if id(node) not in hopeless:
            left, right = fold(node.left, hopeless), fold(node.right, hopeless)
            if left is not None and right is not None:
                return left + right
            hopeless.add(id(node))
        return None
    if isinstance(node, ast.JoinedStr):
        parts = [fold(part.value if isinstance(part, ast.FormattedValue) else part, hopeless) for part in node.values]
        return "".join(part for part in parts if part is not None) if None not in parts else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and len(node.args) == 1:
        separator, items = fold(node.func.value), node.args[0]
        if separator is not None and isinstance(items, ast.List | ast.Tuple):
            texts = [fold(item) for item in items.elts]
            return separator.join(text for text in texts if text is not None) if None not in texts else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        text = fold(node.value)
        step = node.slice.step
        backwards = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
        if text is not None and backwards and node.slice.lower is None and node.slice.upper is None:
            return text[::-1]
    return None


def find_inert_strings(tree: ast.Module) -> frozenset[int]:
    """The strings that are statements (docstrings), by `id`; none if the file reads docstrings, which could then be code."""
    for node in ast.walk(tree):
        named = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        asked = named in ("__doc__", "getdoc") and isinstance(getattr(node, "ctx", None), ast.Load)
        if asked or (isinstance(node, ast.Constant) and node.value == "__doc__"):
            return frozenset()
    return frozenset(
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def find_harmless_modules(tree: ast.Module) -> frozenset[int]:
    """The expressions, by `id`, that may be `sys.modules`: `sys.modules[__name__]` is the program's own module, and
    `"name" in sys.modules` gives no module."""
    harmless: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == "__name__":
            harmless.add(id(node.value))
        elif isinstance(node, ast.Compare) and all(isinstance(how, ast.In | ast.NotIn) for how in node.ops):
            harmless.update(map(id, node.comparators))
    return frozenset(harmless)
