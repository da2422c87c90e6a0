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
        self._sizes: dict[int, int] = {}   # of the smallest table that an input is an index of; 0: unknown
        self._as_given: set[int] = set()   # addresses of memory that holds an input's values themselves
        self._held: list[torch.UntypedStorage] = []  # so that no other tensor gets their memory
        self._inputs: dict[int, frozenset[int]] = {}  # by the address of a tensor's memory: whose values it holds
        for number, tensor in enumerate(list_tensors(arguments)):
            if holds_whole_numbers(tensor):
                self._follow(tensor, frozenset((number,)), as_given=True)

    def uses(self) -> IntegerUses:
        """What was seen until now."""
        sizes = {number: size for number, size in self._sizes.items() if size}
        kinds = (frozenset(self._indices), frozenset(self._read), frozenset(self._places))
        return IntegerUses(*kinds, dict(self._ignored), sizes)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = func._schema.name.removeprefix("aten::"), func._overloadname
        self.breaks_ties |= name in _BREAK_TIES or (name in _WITH_PLACES and overload.startswith(("dim", "names_dim")))
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        numbers = self._numbers(tensors)
        if numbers:
            whole = self._numbers(tensor for tensor in tensors if not tensor.is_floating_point() and tensor.dtype != torch.bool)
            self._note(name, args, whole)
            casts, in_place = name.rstrip("_") in _CASTS, name.endswith("_")
            sources = tensors[1:] if in_place else tensors
            copy = casts and bool(sources) and all(map(self._holds_as_given, sources))
            for made in pytree.tree_leaves(result):
                if isinstance(made, Tensor) and (not made.is_floating_point() or casts):
                    view = self._holds_as_given(made) and (not in_place or name == "set_")
                    self._follow(made, numbers, as_given=copy or view)
        return result

    def _note(self, name: str, args: Any, numbers: frozenset[int]) -> None:
        if name == "_local_scalar_dense":
            self._read |= numbers
        elif name in _LOSSES:
            self._indices |= numbers
            self._ignored.update(dict.fromkeys(self._numbers([args[1]]), int(args[4])))
            self._limit(args[1], args[0].shape[min(1, args[0].dim() - 1)], numbers)
        elif name.rstrip("_") not in _ARITHMETIC:
            self._indices |= numbers
            index, size = _index_and_size(name, args)
            self._limit(index, size, numbers)
            if name.startswith(_WRITES):
                self._places |= numbers

    def _limit(self, index: Tensor | None, size: int, numbers: frozenset[int]) -> None:
        """Notes that inputs are an index of a table of `size` rows, if `index` holds their own values."""
        known = size if index is not None and self._holds_as_given(index) and self._numbers([index]) == numbers else 0
        for number in numbers:
            self._sizes[number] = min(self._sizes.get(number, known), known)

    def _holds_as_given(self, tensor: Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in self._as_given

    def _follow(self, tensor: Tensor, numbers: frozenset[int], *, as_given: bool = False) -> None:
        if tensor.layout is torch.strided and tensor.numel():
            self._held.append(storage := tensor.untyped_storage())
            address = storage.data_ptr()
            self._inputs[address] = self._inputs.get(address, frozenset()) | numbers
            (self._as_given.add if as_given else self._as_given.discard)(address)

    def _numbers(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        """The inputs whose values these tensors hold."""
        plain = (tensor for tensor in tensors if tensor.layout is torch.strided and tensor.numel())
        found = [self._inputs.get(tensor.untyped_storage().data_ptr(), frozenset()) for tensor in plain]
        return frozenset().union(*found)


def _index_and_size(name: str, args: Any) -> tuple[Tensor | None, int]:
    """Returns (an operator's index, the number of rows that it may name), or (None, 0) if it has several or is not known."""
    if name in ("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"):
        return args[1], args[0].shape[0]
    if name in ("index_select", "gather"):
        return args[2], args[0].shape[args[1]]
    if name == "index" and len(args[1]) == 1 and args[1][0] is not None:
        return args[1][0], args[0].shape[0]
    return None, 0
