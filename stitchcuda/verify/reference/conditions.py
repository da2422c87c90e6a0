"""Notes which conditions the reference meets on the inputs of a check: was `x > 3` ever true, did a clamp ever act.

A program may leave out what happens under a condition that no input meets, so a verdict names these. A mode of torch's
dispatcher watches calls of the reference in its own precision. What follows from constants alone is left out, and so are
operators on more than `_MOST` elements. Comparisons in plain Python (`x.item() > 3`) are not seen. Flags stay on the device
until the call's input set is taken.
Where to look next: `verify/reference/expected_outputs.py` (which calls are watched), `verify/judge/program_check.py` (who
asks).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.verify.reference.compared_values import COMPARE
from stitchcuda.verify.reference.operator_uses import TrackedMemory

_MOST = 2**24                              # elements of a tensor that is looked at
_WRAPPERS = ("torch/_dynamo/eval_frame.py", "torch/_compile.py")  # of torch's, around each call of a mode
_FEW_BITS = 128                            # numbers from there on may end in a half by chance
_LONGEST = 60                              # characters of source text in a note
_LOGICAL = frozenset((
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf", "isin", "any", "all", "logical_and",
    "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
))  # fmt: skip
_COMBINED = frozenset(("logical_not", "bitwise_not", "mul"))  # `isfinite` multiplies two
_CONDITION = {"where": 0, "masked_fill": 1}  # the position of the condition
_LIMITS = {"clamp": (None, None), "clamp_min": (None,), "clamp_max": (None,), "hardtanh": (-1, 1)}  # with their defaults
_LITERAL = frozenset(("lift_fresh", "lift_fresh_copy"))  # of `torch.tensor(0.5)`
_FILLED = frozenset((
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
    "new_empty_strided",
))  # fmt: skip
_WRITTEN: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Lt: ("lt", "gt"), ast.LtE: ("le", "ge"), ast.Gt: ("gt", "lt"), ast.GtE: ("ge", "le"), ast.Eq: ("eq",),
    ast.NotEq: ("ne",), ast.BitAnd: ("bitwise_and",), ast.BitOr: ("bitwise_or",), ast.BitXor: ("bitwise_xor",),
}  # fmt: skip
"""What an operator of Python calls: of `3 < x` it is `x > 3`."""
_INSIDE = {"isfinite": ("eq", "ne"), "isinf": ("eq",), "isnan": ("ne",)}  # of these a part that is false or true
_ALIASES = {
    "clip": "clamp", "relu6": "hardtanh", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "ReLU6": "hardtanh", "Hardtanh": "hardtanh",
}  # fmt: skip


class _Place(NamedTuple):
    """Where an operator is called. `code`, `at`: the function and instruction in the reference's file; None for a reference
    without one. `inner`: the same of torch's own Python code that calls it, or the number of the call among those of its name
    where there is no file."""

    name: str
    code: CodeType | None
    at: int
    inner: tuple[CodeType | None, int] | None


Flags = dict[tuple[_Place, str], Tensor | bool]
"""By place and regime, such as "true": whether it was met."""


class Conditions:
    """Those of the reference in the file `path`. Calls are watched with `watch`; what they met counts once it was kept."""

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._lines = str(path), source.encode().split(b"\n")
        self._met: dict[tuple[_Place, str], bool] = {}
        self._calls: list[Flags] = []

    def watch(self) -> _Watch:
        """A context for one call of the reference."""
        self._calls.append({})
        return _Watch(self._path, self._calls[-1], self._met)

    def drop(self) -> None:
        """Forgets what was watched since the last calls were kept."""
        self._calls.clear()

    def keep(self, calls: int | None = None) -> None:
        """Counts the first `calls` of those that were watched, else all."""
        for flags in self._calls[:calls]:
            for key, flag in flags.items():
                self._met[key] = self._met.get(key, False) or bool(flag)
        self.drop()

    def comparisons(self) -> list[tuple[CodeType, int, bool]]:
        """Comparisons in the reference's file itself that never had one result: the function and instruction, the result."""
        return [
            (place.code, place.at, regime == "true") for (place, regime), met in self._met.items()
            if not met and place.name in COMPARE and place.code is not None and place.inner is None
        ]  # fmt: skip

    def unmet(self) -> list[str]:
        """What was never met, in the order of the source: "`x > 3` true (line 7)"."""
        rest: dict[str, tuple[dict[int, None], list[str]]] = {}
        for (place, regime), met in self._met.items():
            if not met:
                line, text = self._describe(place)
                lines, regimes = rest.setdefault(text, ({}, []))
                lines[line] = None
                regimes.append(regime)
        found = sorted((sorted(lines), text, regimes) for text, (lines, regimes) in rest.items())
        return [f"{text} {regime}{_in_lines(lines)}" for lines, text, regimes in found for regime in _joined(regimes)]

    def _describe(self, place: _Place) -> tuple[int, str]:
        """Returns (the line, 0 without a file; the operator in words)."""
        if place.code is None:
            return 0, f"`{place.name}`"
        line, last, begin, end = list(place.code.co_positions())[place.at // 2]
        if line is None or last is None or begin is None or end is None:
            return line or 0, f"`{place.name}`"
        parts = self._lines[line - 1 : last]
        parts[-1] = parts[-1][:end]        # of the last line first: it may be the first one
        parts[0] = parts[0][begin:]
        text = " ".join(b" ".join(parts).decode(errors="replace").split())
        short = text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"
        return line, f"`{short}`" if place.inner is None and _calls(text, place.name) else f"`{place.name}` in `{short}`"


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches one call, and adds to `flags`; what is `met` already is not looked at again."""

    supports_higher_order_operators = True  # the float64 call says that they cannot be judged

    def __init__(self, path: str, flags: Flags, met: dict[tuple[_Place, str], bool]) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]
        self._path, self._flags, self._met = path, flags, met
        self._constant = TrackedMemory()          # of tensors that follow from no input, parameter or buffer
        self._seen = TrackedMemory()              # of results of which it is noted whether they were true
        self._indices = TrackedMemory()           # of places of largest values: a number in `_tied`
        self._tied: list[Flags] = []
        self._limits: dict[_Place, bool] = {}     # in some pass of a loop the second of two is a constant, or the first
        self._counts: dict[str, int] = {}

    def __exit__(self, kind: Any, *error: Any) -> None:
        super().__exit__(kind, *error)     # type: ignore[no-untyped-call]
        for number in self._indices.held():  # what is in use still is returned
            self._add(self._tied[int(number)])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **(kwargs or {}))
        name, drawn = _facts(func)
        tensors = _tensors(args)
        if self._indices:
            for number in {number for tensor in tensors if (number := self._indices.get(tensor)) is not None}:
                self._add(self._tied[int(number)])
        constant = name in _LITERAL or not tensors or (
            bool(self._constant) and all(tensor in self._constant for tensor in tensors)
        )
        watched = not constant and name in _WATCHED and all(_is_plain(tensor) for tensor in tensors)
        if watched and name not in _LOGICAL:
            place = self._place(name)
            regimes = self._before(place, func._overloadname, tensors, args, kwargs or {})
            if regimes:
                self._add(self._look(place, regimes))
        result = func(*args, **(kwargs or {}))
        if watched and name in _LOGICAL and isinstance(result, Tensor) and (result.dtype is torch.bool or name[:2] != "bi"):
            self._seen.add(result)
            self._add(self._look(self._place(name), _both(result)))
        elif watched and name in ("max", "min") and func._overloadname == "dim":
            self._indices.add(result[1], len(self._tied))
            self._tied.append(self._look(self._place(name), _ties(args[0], args[1], name)))
        elif name in _COMBINED and isinstance(result, Tensor) and all(tensor in self._seen for tensor in tensors):
            self._seen.add(result)
        constant = not drawn and (constant or name in _FILLED)
        if constant or self._constant:
            follow = self._constant.add if constant else self._constant.discard
            for made in _tensors((result,)):
                follow(made)
        return result

    def _before(
        self, place: _Place, overload: str, tensors: Sequence[Tensor], args: Any, kwargs: dict[str, Any]
    ) -> dict[str, Callable[[], Tensor]]:
        """What there is to see before the operator runs, which may overwrite its argument."""
        name, given = place.name, args[0]
        if name in _CONDITION:
            condition = args[_CONDITION[name]]
            if condition in self._seen or condition in self._constant or condition.dtype is not torch.bool:
                return {}
            return {f"with a condition that is {value}": look for value, look in _both(condition).items()}
        if name in _LIMITS:
            return _limited(name, given, args, kwargs)
        if name in ("maximum", "minimum"):
            constants = [tensor in self._constant for tensor in tensors]
            if constants in ([True, False], [False, True]):
                self._limits[place] = constants[1]
            if place not in self._limits or len(tensors) != 2:
                return {}
            value, limit = tensors if self._limits[place] else tensors[::-1]
            acts = torch.lt if name == "maximum" else torch.gt
            return {"acting": lambda: acts(value, limit).any(), "not acting": lambda: ~acts(value, limit).all()}
        if name == "round" and given.is_floating_point() and not overload.startswith("decimals"):
            return {"at a half": lambda: ((given - given.floor() == 0.5) & (given.abs() < _FEW_BITS)).any()}
        if name in ("argmax", "argmin"):
            return _ties(given, args[1] if len(args) > 1 else kwargs.get("dim"), name)
        if name == "angle" and given.is_complex():
            return {"on the negative real axis": lambda: ((given.imag == 0) & (given.real < 0)).any()}
        if name == "atan2":
            return {"on the negative real axis": lambda: ((args[0] == 0) & (args[1] < 0)).any()}
        if name == "nan_to_num":
            return {"acting": lambda: ~given.isfinite().all()}
        return {}

    def _look(self, place: _Place, regimes: dict[str, Callable[[], Tensor]]) -> Flags:
        """Which of the regimes occur, of those that are not known to have been met."""
        wanted = {(place, regime): look for regime, look in regimes.items()}
        found = {
            key: look() for key, look in wanted.items() if not self._met.get(key) and self._flags.get(key, False) is not True
        }
        return {key: bool(flag) if flag.is_cpu else flag for key, flag in found.items()}

    def _add(self, found: Flags) -> None:
        for key, flag in found.items():
            self._flags[key] = self._flags.get(key, False) | flag

    def _place(self, name: str) -> _Place:
        frame: Any = sys._getframe(2)
        while frame.f_code.co_filename.endswith(_WRAPPERS):
            frame = frame.f_back
        inner = frame.f_code, frame.f_lasti
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back
        if frame is None:
            self._counts[name] = self._counts.get(name, 0) + 1
            return _Place(name, None, 0, (None, self._counts[name]))
        here = frame.f_code, frame.f_lasti
        return _Place(name, *here, None if inner == here else inner)


_WATCHED = _LOGICAL | _CONDITION.keys() | _LIMITS.keys() | {
    "maximum", "minimum", "round", "argmax", "argmin", "max", "min", "angle", "atan2", "nan_to_num",
}  # fmt: skip


@cache
def _facts(func: Any) -> tuple[str, bool]:
    """(An operator's name without "aten::" and "_", whether it draws random numbers.)"""
    name = func._schema.name.partition("::")[2].rstrip("_")
    return name, torch.Tag.nondeterministic_seeded in func.tags


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among an operator's arguments or results, also those in lists."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
    return found


def _is_plain(tensor: Tensor) -> bool:
    narrow = tensor.itemsize == 1 and tensor.is_floating_point()
    return tensor.layout is torch.strided and tensor.numel() <= _MOST and not narrow


def _both(condition: Tensor) -> dict[str, Callable[[], Tensor]]:
    return {"true": condition.any, "false": lambda: ~condition.all()}


def _limited(name: str, given: Tensor, args: Any, kwargs: dict[str, Any]) -> dict[str, Callable[[], Tensor]]:
    """The regimes of a clamp: values below, above and between its limits."""
    words = {"clamp": ("min", "max"), "hardtanh": ("min_val", "max_val"), "clamp_min": ("min",), "clamp_max": ("max",)}[name]
    limits = [
        args[place] if len(args) > place else kwargs.get(word, default)
        for place, (word, default) in enumerate(zip(words, _LIMITS[name], strict=True), 1)
    ]
    least, most = (None, *limits) if name == "clamp_max" else (*limits, None)[:2]
    regimes: dict[str, Callable[[], Tensor]] = {}
    if least is not None:
        regimes["acting from below"] = lambda: (given < least).any()
    if most is not None:
        regimes["acting from above"] = lambda: (given > most).any()

    def between() -> Tensor:
        above = torch.ones_like(given, dtype=torch.bool) if least is None else given >= least
        return (above if most is None else above & (given <= most)).any()

    return {**regimes, "not acting": between}


def _ties(given: Tensor, axis: int | None, name: str) -> dict[str, Callable[[], Tensor]]:
    """Whether a line has its largest value more than once, for "max", or its smallest one."""
    lines = given.flatten() if axis is None or not given.dim() else given
    axis = 0 if axis is None or not given.dim() else axis
    if not lines.numel() or lines.shape[axis] < 2 or given.dtype is torch.bool:
        return {}
    largest = name.endswith("max")

    def look() -> Tensor:
        best = (lines.amax if largest else lines.amin)(axis, keepdim=True)
        return ((lines == best).sum(axis) > 1).any()

    return {f"with equal {'largest' if largest else 'smallest'} values": look}


def _in_lines(lines: Sequence[int]) -> str:
    """Lines for the end of a phrase; 0 is none."""
    listed = ", ".join(str(line) for line in lines if line)
    return f" (line {listed})" if listed else ""


def _joined(regimes: Sequence[str]) -> Iterator[str]:
    """The regimes of one place; of a clamp that neither acts from below nor from above, that it does not act."""
    ends = {"acting from below", "acting from above"}
    both = ends <= set(regimes)
    yield from dict.fromkeys("acting" if both and regime in ends else regime for regime in regimes)


def _calls(text: str, name: str) -> bool:
    """Whether an expression of Python's calls the operator of this name, and not another one that makes use of it."""
    try:
        parsed = parse_module(text).body
    except SyntaxError:
        return False
    match parsed:
        case [ast.Expr(value=ast.Compare(ops=[op]) | ast.BinOp(op=op))]:
            return name in _WRITTEN.get(type(op), ())
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called)))]:
            inside = name in _INSIDE.get(called, ()) or name.startswith(f"{called}_")
            return inside or _ALIASES.get(called, called).rstrip("_") == name
    return False
