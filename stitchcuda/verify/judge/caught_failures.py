"""Says which failures of its own kernels a program caught, such as a build in a `try` that falls back to torch.

The judge knows which builds failed, from the builder. What failed later (a library that cannot be loaded, on the simulator also
a call of a kernel's function) the program's worker says, which is not to be believed but explains a refusal. The lines of the
`try` are found in the program's source, which is only parsed. It decides nothing.
Where to look next: `verify/program/trial.py` (what was caught), `verify/api.py` (where it is told).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.verify.messages.build_orders import BuildOrder, BuiltLibrary

_LONGEST = 2 * 2**20                       # bytes; longer Python files are not searched
_MOST_NAMED = 500                          # characters of what a worker reported
_MOST_PLACES = 3                           # `try` statements that are named for one failure
_LIMIT = "the simulator cannot run "
_BUILDS = {True: {"load_inline", "build_inline"}, False: {"load", "build"}}  # functions, by whether the sources are inline


def describe(
    program: Path, builds: Iterable[tuple[BuildOrder, BuiltLibrary]], reported: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    """Returns a sentence for each failure that the program (a folder or a file) caught.

    `builds`: its orders with the builder's answers. `reported`: (called function, error) of what its worker says.
    """
    said: dict[str, None] = {}
    for order, built in builds:
        if built.path:
            continue
        where = _caught(program, _BUILDS[order.inline], order.name)
        if built.kind == "refused":
            place = f"{built.construct} ({built.file} line {built.line})"
            said[f"{_LIMIT}{place}, and the program catches that{where}: a GPU can judge it"] = None
        else:
            text = built.first_error or next(iter(built.failure.splitlines()), "")
            said[f"the program's kernels do not build, and it catches that{where}: {text}"] = None
    for called, error in reported:
        where = _caught(program, {called}, "")
        said[f"{called[:_MOST_NAMED]} fails, and the program catches that{where}: {error[:_MOST_NAMED]}"] = None
    return tuple(said)


def of_simulator(sentences: Iterable[str]) -> tuple[str, ...]:
    """Returns those of the sentences of `describe` that name a limit of the simulator, no mistake of the program."""
    return tuple(sentence for sentence in sentences if sentence.startswith(_LIMIT))


def _caught(program: Path, names: set[str], library: str) -> str:
    """Returns " (try in line 3, except in line 9 of model.py)" for the innermost `try` statements around calls of functions of
    these `names`, or of functions of the program that call them; "" if there is none."""
    root = program if program.is_dir() else program.parent
    places: list[str] = []
    for path in sorted(root.rglob("*.py")) if program.is_dir() else [program]:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST:
            continue
        try:
            tree = parse_module(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        file = path.relative_to(root)
        found = [f"try in line {tried.lineno}, except in line {tried.handlers[0].lineno} of {file}"
                 for tried in _tries(tree, names, library)]  # fmt: skip
        places += found
    return f" ({'; '.join(places[:_MOST_PLACES])})" if places else ""


def _tries(tree: ast.Module, names: set[str], library: str) -> list[ast.Try]:
    catching = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and any(map(_goes_on, node.handlers))]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    while names:                           # first what is around the calls themselves, then around those of their callers
        found = [node for node in catching if _calls(node.body, names)]
        found = [node for node in found if _names(node, library)] or found
        if found:
            return [node for node in found if not any(_is_in(other, node) for other in found)]
        callers = {node.name for node in functions if _calls(node.body, names)}
        names = callers - names if not callers <= names else set()
    return []


def _goes_on(handler: ast.ExceptHandler) -> bool:
    return not isinstance(handler.body[-1], ast.Raise)


def _calls(body: Sequence[ast.stmt], names: set[str]) -> bool:
    calls = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(_name(call) in names and (_name(call) != "load" or len(call.args) + len(call.keywords) > 1) for call in calls)


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _names(node: ast.Try, library: str) -> bool:
    return any(isinstance(part, ast.Constant) and part.value == library for part in ast.walk(node))


def _is_in(inner: ast.Try, outer: ast.Try) -> bool:
    return inner is not outer and any(part is inner for statement in outer.body for part in ast.walk(statement))
