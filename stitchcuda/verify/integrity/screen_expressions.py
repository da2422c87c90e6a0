"""Reads syntax trees for the screen: strings made of constants, expressions that are harmless, and names of the file's own.

A name that the file itself binds where it is used is its own, so that `eval` there is not the builtin. In doubt it is not: a
binding at module level counts only if it is unconditional, comes before the use, and is never deleted. Pure functions; nothing
is run. Where to look next: `verify/integrity/screen.py` (who judges).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Scopes(NamedTuple):
    """The `ast.Name` nodes of a tree, by `id(node)`, that the file binds."""

    own: frozenset[int]                    # bound by the file, to anything
    parameters: frozenset[int]             # bound as a parameter of a function, and nowhere else in that function


class _Bound(NamedTuple):
    names: frozenset[str]
    parameters: frozenset[str]


def find_scopes(tree: ast.Module) -> Scopes:
    """Resolves the names of a tree. The result is valid as long as the tree is alive."""
    own: set[int] = set()
    parameters: set[int] = set()
    module = _module_names(tree)
    waiting: list[tuple[ast.AST, tuple[_Bound, ...]]] = [(tree, ())]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, ast.Name):
            holder = next((item for item in reversed(around) if node.id in item.names), None)
            if holder is not None:
                own.add(id(node))
                if node.id in holder.parameters:
                    parameters.add(id(node))
            elif module.get(node.id, node.lineno) < node.lineno:
                own.add(id(node))
        inner = (*around, _function_names(node)) if isinstance(node, _Function) else around
        within = {id(item) for item in _body(node)} if isinstance(node, _Function) else set()
        waiting += [(child, inner if id(child) in within else around) for child in ast.iter_child_nodes(node)]
    return Scopes(frozenset(own), frozenset(parameters))


def _module_names(tree: ast.Module) -> dict[str, int]:
    """The names that the module binds unconditionally and never deletes, with the lines on which they are bound."""
    found: dict[str, int] = {}
    for node in tree.body:
        names = _defined_names(node)
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        for name in names:
            found.setdefault(name, node.end_lineno or node.lineno)
    for inner in ast.walk(tree):           # after a deletion the name means the builtin again
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Del):
            found.pop(inner.id, None)
        elif isinstance(inner, ast.ExceptHandler) and inner.name:
            found.pop(inner.name, None)
    return found


def _function_names(node: _Function) -> _Bound:
    given = node.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    parameters = {argument.arg for argument in arguments if argument is not None}
    bound: set[str] = set()
    elsewhere: set[str] = set()
    for inner in _inside(node):
        bound.update(_defined_names(inner))
        if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
            bound.add(inner.id)
        elif isinstance(inner, ast.Global | ast.Nonlocal):
            elsewhere.update(inner.names)
    return _Bound(frozenset((parameters | bound) - elsewhere), frozenset(parameters - bound - elsewhere))


def _inside(node: _Function) -> Iterator[ast.AST]:
    """All nodes of a function's body except those in nested scopes."""
    waiting: list[ast.AST] = list(_body(node))
    while waiting:
        child = waiting.pop()
        yield child
        if not isinstance(child, _Function | ast.ClassDef | _Comprehension):
            waiting += ast.iter_child_nodes(child)


def _body(node: _Function) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else list(node.body)


def _defined_names(node: ast.AST) -> list[str]:
    """The names that a definition or an import binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    return []


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
