"""Collects the steps of a kernel: lowering rules add loads, pointwise steps, reductions and stores to a `NestBuilder`.

Shapes follow torch's broadcasting from the right. Loops stay symbolic until `finish`, which orders them by the memory order of
what is stored, merges neighbours, drops unused steps and computes equal steps once. It knows no operator.

Where to look next: `compiler/lower/loops.py` (symbolic loops), `compiler/lower/finish.py` (makes the `Kernel`),
`compiler/lower/pointwise.py` and `compiler/lower/reductions.py` (rules that use it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stitchcuda.compiler.lower.dtypes import KINDS, Kind
from stitchcuda.compiler.lower.finish import Load, ProtoStep, UnfinishedKernel, Write, finish_kernel
from stitchcuda.compiler.lower.ir import Fn, Kernel
from stitchcuda.compiler.lower.loops import CannotLower, Dim, Loop, leaves, regroup, tie
from stitchcuda.state import TensorSpec

Number = float | int | bool
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGIC = frozenset({"and", "or", "not"})
NARROW_INTEGERS = frozenset({"int32", "int16", "int8", "uint8"})
NO_LOOPS: Dim = ()
WRAPPING = frozenset({"add", "sub", "mul", "neg", "abs", "sum", "prod"})


@dataclass(frozen=True)
class Leaf:
    """A tensor in memory as a region sees it: element `i` is at `offset + sum(i * strides)` of the value named `key`."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Value:
    """A tensor that exists only inside the nest. `step` is a step's name, or the number that every element is."""

    step: str | Number
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[Dim, ...]

    @property
    def kind(self) -> Kind:
        return kind_of(self.dtype)


def kind_of(dtype: str) -> Kind:
    """Returns the compute type of an element type. Raises `CannotLower` for complex, float8 and other types without one."""
    if dtype not in KINDS:
        raise CannotLower(f"elements of type {dtype}")
    return KINDS[dtype]


def as_kind(number: Number, kind: Kind) -> Number:
    """Returns a Python number converted to a compute type. Raises `CannotLower` for inf or nan as an integer."""
    if kind == "bool":
        return bool(number)
    if kind == "int64":
        if number != number or number in (float("inf"), float("-inf")):
            raise CannotLower("a number that no integer holds")
        return int(number)
    return float(number)


class NestBuilder:
    """Collects the steps of a kernel. Methods that compute return a `Value`; all may raise `CannotLower`."""
    """Collects the steps of one region. One object per lowering; a failed lowering leaves it unusable."""

    def __init__(self) -> None:
        self.draft = UnfinishedKernel()

    # leaves ------------------------------------------------------------------------------------------------------------

    def load(self, leaf: Leaf) -> Value:
        kind_of(leaf.dtype)
        dims: list[Dim] = []
        strides: list[tuple[Loop, int]] = []
        for size, stride in zip(leaf.shape, leaf.strides, strict=True):
            if size == 0:
                raise CannotLower("a tensor without elements")
            if size == 1:
                dims.append(())
                continue
            loop = Loop(size)
            dims.append((loop,))
            strides.append((loop, stride))
        name = self._add(
            ProtoStep("load", (), kind_of(leaf.dtype), load=Load(leaf.key, leaf.offset, tuple(strides))), tuple(dims)
        )
        return Value(name, leaf.dtype, leaf.shape, tuple(dims))

    def constant(self, number: Number, dtype: str) -> Value:
        return Value(as_kind(number, kind_of(dtype)), dtype, (), ())

    def index(self, value: Value, dim: int) -> Value:
        """The position along dimension `dim` of `value`, as int64 with the same rank and size one elsewhere."""
        dim %= len(value.shape)
        loops = value.dims[dim]
        dims = tuple(loops if i == dim else () for i in range(len(value.shape)))
        shape = tuple(size if i == dim else 1 for i, size in enumerate(value.shape))
        if not loops:
            return Value(0, "int64", shape, dims)
        return Value(self._add(ProtoStep("index", (), "int64", loops=loops), dims), "int64", shape, dims)

    # arithmetic --------------------------------------------------------------------------------------------------------

    def pointwise(self, fn: Fn, *operands: Value | Number, dtype: str) -> Value:
        """`fn` over broadcast operands, converted to the type it is computed in; `dtype` is torch's type of the result."""
        values = [operand for operand in operands if isinstance(operand, Value)]
        shape, dims = self._broadcast(values)
        kind = kind_of(dtype)
        if fn in COMPARISONS:
            wants = [self._common(operands)] * len(operands)
        elif fn in LOGIC:
            wants = ["bool"] * len(operands)
        elif fn == "where":
            wants = ["bool", kind, kind]
        else:
            wants = [kind] * len(operands)
        args = [self._operand(operand, want) for operand, want in zip(operands, wants, strict=True)]
        if not any(isinstance(arg, str) for arg in args):
            args[0] = self._add(ProtoStep("const", (args[0],), wants[0]), ())
        name = self._add(ProtoStep(fn, tuple(args), "bool" if fn in COMPARISONS else kind), dims)
        result = Value(name, dtype, shape, dims)
        return self.narrow(result) if fn in WRAPPING else result

    def narrow(self, value: Value) -> Value:
        """Wraps integers of less than 64 bits as the reference's arithmetic does."""
        if value.dtype not in NARROW_INTEGERS:
            return value
        return Value(
            self._add(ProtoStep("cast", (self._name(value),), value.dtype), value.dims), value.dtype, value.shape, value.dims
        )

    def cast(self, value: Value, dtype: str) -> Value:
        """An explicit conversion: rounds as `dtype` does, then computes on in the wider type."""
        if value.dtype == dtype:
            return value
        kind = kind_of(dtype)
        if kind == value.kind and dtype in ("float32", "float64", "int64", "bool"):
            return Value(value.step, dtype, value.shape, value.dims)  # the wider type holds it already
        if not isinstance(value.step, str) and dtype in ("float32", "float64", "int64", "bool"):
            return Value(as_kind(value.step, kind), dtype, value.shape, value.dims)
        if kind == "bool":
            return self.pointwise("ne", value, 0, dtype="bool")
        return Value(self._add(ProtoStep("cast", (self._name(value),), dtype), value.dims), dtype, value.shape, value.dims)

    def reduce(self, fn: Fn, value: Value, dims: Sequence[int], dtype: str) -> Value:
        """Reduces over `dims`, which stay with size one."""
        gone = {dim % len(value.shape) for dim in dims} if value.shape else set()
        kept = tuple(() if i in gone else loops for i, loops in enumerate(value.dims))
        shape = tuple(1 if i in gone else size for i, size in enumerate(value.shape))
        kind = kind_of(dtype)
        over = tuple(loop for i in sorted(gone) for loop in value.dims[i])
        if not over:  # over one element every reduction but any/all returns the element
            step = self._operand(value, kind)
            return Value(step, dtype, shape, kept)
        arg = self._operand(value, kind)
        if not isinstance(arg, str):
            raise CannotLower("a reduction of a constant")
        name = self._add(ProtoStep(fn, (arg,), kind, loops=over), kept)
        result = Value(name, dtype, shape, kept)
        return self.narrow(result) if fn in WRAPPING else result

    # shape -------------------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == value.shape:
            return value
        return Value(value.step, value.dtype, tuple(shape), regroup(value.dims, shape))

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        shape = tuple(value.shape[i] for i in order)
        return Value(value.step, value.dtype, shape, tuple(value.dims[i] for i in order))

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Broadcasts to `shape`; new dimensions come first, as in torch."""
        lead = len(shape) - len(value.shape)
        dims: list[Dim] = []
        for i, size in enumerate(shape):
            old = value.dims[i - lead] if i >= lead else ()
            dims.append(old if old or size == 1 else (Loop(size),))
        return Value(value.step, value.dtype, tuple(shape), tuple(dims))

    def repeat(self, value: Value, shape: Sequence[int], *, inner: bool = False) -> Value:
        """Repeats each dimension up to `shape`: as a whole (`Tensor.repeat`), or element by element with `inner`."""
        lead = len(shape) - len(value.shape)
        dims: list[Dim] = []
        for i, size in enumerate(shape):
            old = value.dims[i - lead] if i >= lead else ()
            times = size // (value.shape[i - lead] if i >= lead else 1)
            more: Dim = (Loop(times),) if times > 1 else ()
            dims.append(old + more if inner else more + old)
        return Value(value.step, value.dtype, tuple(shape), tuple(dims))

    # stores ------------------------------------------------------------------------------------------------------------

    def store(self, value: Value, spec: TensorSpec, offset: int = 0, *, shape: tuple[int, ...] | None = None) -> None:
        """Writes `value` (of `shape`, default all of `spec`) into the output named by `spec`, `offset` elements in."""
        shape = spec.shape if shape is None else shape
        if value.shape != shape:
            raise CannotLower(f"a value of shape {value.shape} where the graph says {shape}")
        strides = _strides_by_loop(value.dims, spec.strides)
        stored = self.cast(value, spec.dtype) if value.kind != kind_of(spec.dtype) else value
        self.draft.writes.append(Write(spec, self._name(stored), strides, offset, stored.dims, inout=False))

    def align(self, values: Sequence[Value]) -> None:
        """Makes values of equal shape run over the same loops, so that they can be stored side by side."""
        for value in values[1:]:
            for dim, other in zip(values[0].dims, value.dims, strict=True):
                if bool(dim) != bool(other):
                    raise CannotLower("parts of different sizes")
                tie(dim, other)

    def update(self, value: Value, spec: TensorSpec) -> None:
        """Overwrites a tensor that the kernel also reads."""
        strides = _strides_by_loop(value.dims, spec.strides)
        self.draft.writes.append(Write(spec, self._name(value), strides, 0, value.dims, inout=True))

    def finish(self, name: str, specs: dict[str, TensorSpec], comment: str = "") -> Kernel:
        """Returns the kernel; `specs` describes every tensor that was loaded. Raises `CannotLower`."""
        return finish_kernel(self.draft, name, specs, comment)

    # -------------------------------------------------------------------------------------------------------------------

    def _add(self, step: ProtoStep, dims: tuple[Dim, ...]) -> str:
        return self.draft.add(step, dims)

    def _name(self, value: Value) -> str:
        if isinstance(value.step, str):
            return value.step
        return self._add(ProtoStep("const", (value.step,), value.kind), ())

    def _operand(self, operand: Value | Number, kind: Kind) -> str | Number:
        if not isinstance(operand, Value):
            return as_kind(operand, kind)
        if not isinstance(operand.step, str):
            return as_kind(operand.step, kind)
        if operand.kind == kind:
            return operand.step
        if kind == "bool":
            return self._add(ProtoStep("ne", (operand.step, as_kind(0, operand.kind)), "bool"), operand.dims)
        return self._add(ProtoStep("cast", (operand.step,), kind), operand.dims)

    def _common(self, operands: Sequence[Value | Number]) -> Kind:
        """Returns the compute type in which torch compares these operands."""
        kinds = [operand.kind for operand in operands if isinstance(operand, Value)]
        numbers = [operand for operand in operands if not isinstance(operand, Value)]
        for kind in ("float64", "float32"):
            if kind in kinds:
                return "float64" if kind == "float64" else "float32"
        if any(isinstance(number, float) for number in numbers):
            return "float32"
        if "int64" in kinds or any(type(number) is int for number in numbers):
            return "int64"
        return "bool"

    def _broadcast(self, values: Sequence[Value]) -> tuple[tuple[int, ...], tuple[Dim, ...]]:
        rank = max((len(value.shape) for value in values), default=0)
        shape: list[int] = []
        dims: list[Dim] = []
        for position in range(rank):
            size, dim = 1, NO_LOOPS
            for value in values:
                at = position - (rank - len(value.shape))
                if at < 0 or not value.dims[at]:
                    continue
                if dim:
                    tie(dim, value.dims[at])
                else:
                    size, dim = value.shape[at], value.dims[at]
            shape.append(size)
            dims.append(dim)
        return tuple(shape), tuple(dims)


def _strides_by_loop(dims: Sequence[Dim], strides: Sequence[int]) -> tuple[tuple[Loop, int], ...]:
    """Element strides of the loops that these dimensions, with these strides, consist of."""
    pairs: list[tuple[Loop, int]] = []
    for dim, stride in zip(dims, strides, strict=True):
        for loop in reversed(dim):
            pairs.append((loop, stride))
            stride *= loop.size
    return tuple(pairs)


__all__ = ["CannotLower", "Leaf", "NestBuilder", "Value", "as_kind", "kind_of", "leaves"]
