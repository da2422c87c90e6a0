"""Sees by the operators that run how a reference uses its inputs: does any break ties, which integers are indices, read or
labels.

A mode of torch's dispatcher, for the length of one call. Integers are followed through copies, casts and arithmetic; a float
that was computed with others is followed no further. Where to look next: `verify/inputs/integer_values.py` (what follows from
it), `verify/reference/range_search.py` (who calls).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.verify.inputs.input_ranges import list_tensors
from stitchcuda.verify.inputs.integer_values import IntegerUses, holds_whole_numbers

_BREAK_TIES = frozenset(("topk", "sort", "argsort", "argmax", "argmin", "kthvalue", "mode", "median", "nanmedian"))
_WITH_PLACES = frozenset(("max", "min"))   # of these, the overloads that also return where the value was
_ARITHMETIC = frozenset((
    "abs", "add", "alias", "all", "amax", "amin", "any", "as_strided", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd", "contiguous", "copy", "cumsum",
    "detach", "div", "empty_like", "eq", "equal", "exp", "expand", "fill", "flip", "floor", "floor_divide", "fmod", "full_like",
    "ge", "gt", "is_nonzero", "isfinite", "isinf", "isnan", "le", "lift_fresh", "log", "logical_and", "logical_not",
    "logical_or", "logical_xor", "lt", "masked_fill", "max", "maximum", "mean", "min", "minimum", "mul", "ne", "neg",
    "new_empty", "new_full", "new_ones", "new_zeros", "ones_like", "permute", "pow", "prod", "reciprocal", "relu", "remainder",
    "repeat", "roll", "rsqrt", "rsub", "select", "set", "sigmoid", "sign", "slice", "split", "sqrt", "square", "squeeze",
    "stack", "std", "sub", "sum", "t", "tanh", "to", "_to_copy", "transpose", "tril", "triu", "trunc", "unbind", "_unsafe_view",
    "unsqueeze", "var", "view", "where", "zeros_like",
))  # fmt: skip
_CASTS = frozenset(("_to_copy", "to", "clone", "copy", "detach", "alias", "lift_fresh", "set"))
_WRITES = ("scatter", "index_put", "index_copy", "index_fill", "index_add", "index_reduce", "put")
_LOSSES = frozenset(("nll_loss_forward", "nll_loss2d_forward"))


class OperatorUses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a call with `arguments`. `breaks_ties`: whether an operator ran that says where among equal values one is."""

    def __init__(self, arguments: Any) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]
        self.breaks_ties = False
        self._indices: set[int] = set()
        self._read: set[int] = set()
        self._places: set[int] = set()
        self._ignored: dict[int, int] = {}
        self._held: list[torch.UntypedStorage] = []  # so that no other tensor gets their memory
        self._inputs: dict[int, frozenset[int]] = {}  # by the address of a tensor's memory: whose values it holds
        for number, tensor in enumerate(list_tensors(arguments)):
            if holds_whole_numbers(tensor):
                self._follow(tensor, frozenset((number,)))

    def uses(self) -> IntegerUses:
        """What was seen until now."""
        return IntegerUses(frozenset(self._indices), frozenset(self._read), frozenset(self._places), dict(self._ignored))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = func._schema.name.removeprefix("aten::"), func._overloadname
        self.breaks_ties |= name in _BREAK_TIES or (name in _WITH_PLACES and overload.startswith(("dim", "names_dim")))
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        numbers = self._numbers(tensors)
        if numbers:
            whole = self._numbers(tensor for tensor in tensors if not tensor.is_floating_point() and tensor.dtype != torch.bool)
            self._note(name, args, whole)
            for made in pytree.tree_leaves(result):
                if isinstance(made, Tensor) and (not made.is_floating_point() or name.rstrip("_") in _CASTS):
                    self._follow(made, numbers)
        return result

    def _note(self, name: str, args: Any, numbers: frozenset[int]) -> None:
        if name == "_local_scalar_dense":
            self._read |= numbers
        elif name in _LOSSES:
            self._indices |= numbers
            self._ignored.update(dict.fromkeys(self._numbers([args[1]]), int(args[4])))
        elif name.rstrip("_") not in _ARITHMETIC:
            self._indices |= numbers
            if name.startswith(_WRITES):
                self._places |= numbers

    def _follow(self, tensor: Tensor, numbers: frozenset[int]) -> None:
        if tensor.layout is torch.strided and tensor.numel():
            self._held.append(storage := tensor.untyped_storage())
            address = storage.data_ptr()
            self._inputs[address] = self._inputs.get(address, frozenset()) | numbers

    def _numbers(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        """The inputs whose values these tensors hold."""
        plain = (tensor for tensor in tensors if tensor.layout is torch.strided and tensor.numel())
        found = [self._inputs.get(tensor.untyped_storage().data_ptr(), frozenset()) for tensor in plain]
        return frozenset().union(*found)
