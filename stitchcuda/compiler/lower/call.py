"""Gives a lowering rule its operator call: arguments by position or name, as values of the nest or as numbers.

A rule is a function from an `OperatorCall` to the values that the operator returns, or to `()` when it stored them itself. A
rule raises `CannotLower` for arguments that it has no formula for; the operator then stays a library call.

Where to look next: `compiler/lower/pointwise.py`, `compiler/lower/activations.py`, `compiler/lower/reductions.py` and
`compiler/lower/data_movement.py` (the rules, each with a table `RULES`), `compiler/lower/nest.py` (what they build with).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from stitchcuda.compiler.capture.op_graph import Literal_, Node, ValueRef
from stitchcuda.compiler.lower.ir import Fn
from stitchcuda.compiler.lower.nest import CannotLower, Leaf, NestBuilder, Number, Value
from stitchcuda.state import TensorSpec


class Scope(Protocol):
    """What a rule may ask about the graph around its call: the value of a name, where it lies, its shape and dtype."""

    def value(self, name: str) -> Value: ...

    def leaf(self, name: str) -> Leaf | None:
        """Where a value lies in memory; None for one that exists only inside the region."""
        ...

    def spec(self, name: str) -> TensorSpec: ...


class OperatorCall:
    """One operator call: `node`, the nest that its steps are added to, and the scope where its tensors are looked up.

    Arguments are read by position in torch's schema or by name: `call.number(1, "alpha", 1)`.
    """

    def __init__(self, node: Node, nest: NestBuilder, scope: Scope) -> None:
        self.node, self.nest, self.scope = node, nest, scope

    @property
    def out(self) -> TensorSpec:
        return self.node.outputs[0]

    @property
    def dtype(self) -> str:
        return self.out.dtype

    def get(self, position: int, name: str, default: Any = None) -> Any:
        arg = self.node.args[position] if len(self.node.args) > position else self.node.kwargs.get(name, default)
        if isinstance(arg, Literal_):
            return arg.text
        return arg

    def is_tensor(self, position: int, name: str) -> bool:
        return isinstance(self.get(position, name), ValueRef)

    def tensor(self, position: int = 0, name: str = "self") -> Value:
        return self.scope.value(self._ref(position, name))

    def tensors(self, position: int, name: str) -> list[Value]:
        """Returns an argument that is a list of tensors. Raises `CannotLower` for anything else."""
        items = self.get(position, name)
        if not isinstance(items, (tuple, list)) or not all(isinstance(item, ValueRef) for item in items):
            raise CannotLower(f"argument {name} is not a list of tensors")
        return [self.scope.value(item.value) for item in items]

    def maybe_tensor(self, position: int, name: str) -> Value | None:
        return self.tensor(position, name) if self.is_tensor(position, name) else None

    def leaf(self, position: int, name: str) -> Leaf:
        """Returns where a tensor argument lies in memory. Raises `CannotLower` for one computed inside the kernel."""
        leaf = self.scope.leaf(self._ref(position, name))
        if leaf is None:
            raise CannotLower("a part of a value that is not in memory")
        return leaf

    def number(self, position: int, name: str, default: Number | None = None) -> Number:
        arg = self.get(position, name, default)
        if not isinstance(arg, (bool, int, float)):
            raise CannotLower(f"argument {name} is not a number")
        return arg

    def operand(self, position: int, name: str) -> Value | Number:
        """Returns an argument that is a tensor or a number."""
        return self.tensor(position, name) if self.is_tensor(position, name) else self.number(position, name)

    def dims(self, position: int, name: str, rank: int) -> tuple[int, ...]:
        """Returns a `dim` argument as sorted positions from 0; all dimensions when it is None or empty."""
        arg = self.get(position, name)
        if arg is None or (isinstance(arg, (tuple, list)) and not arg):
            return tuple(range(rank))
        listed = [arg] if isinstance(arg, int) else list(arg)
        return tuple(sorted({dim % rank for dim in listed})) if rank else ()

    def do(self, fn: Fn, *operands: Value | Number, dtype: str | None = None) -> Value:
        """Adds a pointwise step, in the type of the operator's result unless `dtype` is given."""
        return self.nest.pointwise(fn, *operands, dtype=dtype or self.dtype)

    def update(self, position: int, name: str, value: Value) -> None:
        """Overwrites the tensor given as an argument (a running statistic) with `value`."""
        spec = self.scope.spec(self.leaf(position, name).key)
        self.nest.update(self.nest.reshape(value, spec.shape), spec)

    def _ref(self, position: int, name: str) -> str:
        arg = self.get(position, name)
        if not isinstance(arg, ValueRef):
            raise CannotLower(f"argument {name} is not a tensor")
        return arg.value


Rule = Callable[[OperatorCall], "Value | tuple[Value, ...]"]
