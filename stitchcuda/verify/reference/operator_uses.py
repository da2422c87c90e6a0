"""Sees by the operators that run how a reference uses its inputs: does any break ties, or look for infinities and NaN, with
which values is an input compared, which integers are indices, read or labels.

A mode of torch's dispatcher, for the length of one call. Integers are followed through copies, casts and arithmetic; a float
that was computed with others is followed no further. Where to look next: `verify/inputs/integer_values.py` (what follows from
it), `verify/reference/range_search.py` (who calls).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.verify.inputs.input_ranges import list_tensors
from stitchcuda.verify.inputs.integer_values import IntegerUses, holds_whole_numbers
from stitchcuda.verify.reference.compared_values import COMPARE, read_compared

_BREAK_TIES = frozenset(("topk", "sort", "argsort", "argmax", "argmin", "kthvalue", "mode", "median", "nanmedian"))
_WITH_PLACES = frozenset(("max", "min"))   # of these, the overloads that also return where the value was
# Which of equal values these name is documented: the first, and for a stable sort each in its order. Of max(dim) and argmax
# torch says: "the indices of the first maximal value are returned".
_DOCUMENTED = frozenset(("argmax", "argmin", "max", "min"))
_NAME_PLACES = (*_BREAK_TIES, "max_pool", "adaptive_max_pool", "fractional_max_pool", "cummax", "cummin", "_cummax", "_cummin")
_NOT_FINITE = frozenset(("nan_to_num", "isnan", "isinf", "isposinf", "isneginf", "nansum", "nanmedian"))
_ARITHMETIC = frozenset((
    "abs", "acos", "add", "addcdiv", "addcmul", "addmm", "alias", "all", "amax", "amin", "aminmax", "any", "as_strided",
    "asin", "atan", "atan2", "avg_pool1d", "avg_pool2d", "baddbmm", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_to", "cat", "ceil", "clamp", "clamp_max",
    "clamp_min", "clone", "constant", "constant_pad_nd", "contiguous", "convolution", "copy", "copysign", "cos", "cosh",
    "cumprod", "cumsum", "detach", "diff", "dist", "div", "dot", "einsum", "elu", "empty_like", "eq", "equal", "erf", "exp",
    "exp2", "expand", "expm1", "fill", "flip", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "full_like", "ge",
    "gelu", "ger", "gt", "hardtanh", "is_nonzero", "isfinite", "isinf", "isnan", "layer_norm", "le", "leaky_relu", "lerp",
    "lift_fresh", "linalg_vector_norm", "linear", "log", "log10", "log1p", "log2", "log_softmax", "_log_softmax",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "__lshift__", "lt", "masked_fill", "matmul",
    "max", "maximum", "mean", "min", "minimum", "mm", "mse_loss", "mul", "mv", "nansum", "native_layer_norm", "ne", "neg",
    "new_empty", "new_full", "new_ones", "new_zeros", "norm", "ones_like", "outer", "pad", "permute", "pow", "prod",
    "reciprocal", "reflection_pad2d", "relu", "remainder", "repeat", "roll", "rot90", "round", "__rshift__", "rsqrt", "rsub",
    "select", "set", "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "slice", "_softmax", "softmax", "softplus",
    "split", "sqrt", "square", "squeeze", "stack", "std", "sub", "sum", "t", "tan", "tanh", "threshold", "to", "_to_copy",
    "transpose", "tril", "triu", "true_divide", "trunc", "unbind", "unfold", "_unsafe_view", "unsqueeze",
    "upsample_nearest2d", "var", "view", "where", "zeros_like",
))  # fmt: skip
_LIMITING = frozenset(("remainder", "clamp_max", "minimum", "bitwise_and"))
_CASTS = frozenset(("_to_copy", "to", "clone", "copy", "detach", "alias", "lift_fresh", "set"))
_WRITES = ("scatter", "index_put", "index_copy", "index_fill", "index_add", "index_reduce", "put")
_PICKING = frozenset(("amax", "amin"))     # whose results are values that they are given
_LOSSES = frozenset(("nll_loss_forward", "nll_loss2d_forward"))


class OperatorUses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a call with `arguments`. `breaks_ties`: whether an operator ran that says where among equal values one is;
    `compares`: or one that compares values. `looked_at`: the inputs of floats, by number, in whose own values one looked for
    infinities or NaN. `compared`: by number, what the inputs' own values were compared with
    (`verify/reference/compared_values.py`); by name, the same of parameters and buffers, which are in `state`."""

    def __init__(self, arguments: Any, state: Mapping[str, Tensor]) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]
        self.breaks_ties = False
        self.compares = False
        self.looked_at: set[int] = set()
        self.compared: dict[int | str, dict[str, float]] = {}  # by what it reads as: -0.0 and 0.0 are two
        self._open = TrackedMemory()             # of places that may be those of any of equal values
        self._floats = TrackedMemory()           # that holds an input's own floats
        self._uses_open = False
        self._indices: set[int | str] = set()
        self._unlimited: set[int | str] = set()  # of these, those that no operator limits
        self._read: set[int | str] = set()
        self._places: set[int | str] = set()
        self._ignored: dict[int | str, int] = {}
        self._sizes: dict[int | str, int] = {}  # of the smallest table that an input is an index of; 0: unknown
        self._as_given: set[int] = set()   # addresses of memory that holds an input's values themselves
        self._held: list[torch.UntypedStorage] = []  # so that no other tensor gets their memory
        self._inputs: dict[int, frozenset[int | str]] = {}  # by the address of a tensor's memory: whose values it holds
        self._limited: set[int] = set()    # addresses of memory whose values an operator limits
        for name, tensor in state.items():
            if tensor.is_floating_point():
                self._floats.add(tensor, name)
            elif not tensor.is_complex():
                self._follow(tensor, frozenset((name,)))
        for number, tensor in enumerate(list_tensors(arguments)):
            if holds_whole_numbers(tensor):
                self._follow(tensor, frozenset((number,)), as_given=True)
            elif tensor.is_floating_point():
                self._floats.add(tensor, number)

    def uses(self) -> IntegerUses:
        """What was seen until now."""
        sizes = {number: size for number, size in self._sizes.items() if size}
        bounded = frozenset(self._indices - self._unlimited)
        kinds = (frozenset(self._indices), frozenset(self._read), frozenset(self._places), bounded)
        return IntegerUses(*kinds, dict(self._ignored), sizes)

    def leaves_ties_open(self, outputs: Mapping[str, Tensor]) -> bool:
        """Whether torch does not document which of equal values an operator named, and what it named was used, or is among the
        `outputs`."""
        return self._uses_open or any(output in self._open for output in outputs.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = func._schema.name.removeprefix("aten::"), func._overloadname
        self.breaks_ties |= name in _BREAK_TIES or (name in _WITH_PLACES and overload.startswith(("dim", "names_dim")))
        self.compares |= name.rstrip("_") in COMPARE
        self._note_compared(name, args)
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        viewed = isinstance(result, Tensor) and result in self._open
        self._uses_open |= not viewed and any(tensor in self._open for tensor in tensors)
        if name.startswith(_NAME_PLACES) and name not in _DOCUMENTED and not (kwargs or {}).get("stable"):
            for made in pytree.tree_leaves(result):
                if isinstance(made, Tensor) and made.dtype is torch.int64:
                    self._open.add(made)
        self._note_floats(name, args, tensors, result)
        numbers = self._numbers(tensors)
        if numbers:
            whole = self._numbers(tensor for tensor in tensors if not tensor.is_floating_point() and tensor.dtype != torch.bool)
            self._note(name, args, whole)
            casts, in_place = name.rstrip("_") in _CASTS, name.endswith("_")
            sources = tensors[1:] if in_place else tensors
            copy = (casts or name in _PICKING) and bool(sources) and all(map(self._holds_as_given, sources))
            for made in pytree.tree_leaves(result):
                if isinstance(made, Tensor) and (not made.is_floating_point() or casts):
                    view = self._holds_as_given(made) and (not in_place or name == "set_")
                    limited = _limits(name, args) or (casts and bool(sources) and all(map(self._is_limited, sources)))
                    self._follow(made, numbers, as_given=copy or view, limited=limited or self._is_limited(made))
        return result

    def _note_compared(self, name: str, args: Any) -> None:
        for place, values in read_compared(name, args):
            given = args[place]
            float_input = self._floats.get(given)
            whole = self._numbers([given]) if self._holds_as_given(given) else frozenset()
            for number in whole if float_input is None else (float_input,):
                self.compared.setdefault(number, {}).update({str(value): value for value in values})

    def _note_floats(self, name: str, args: Any, tensors: list[Tensor], result: Any) -> None:
        if name.rstrip("_") in _NOT_FINITE or _tests_for_nonfinite(name, args):
            self.looked_at.update(number for tensor in tensors if isinstance(number := self._floats.get(tensor), int))
        sources = tensors[1:] if name.endswith("_") else tensors
        number = self._floats.get(sources[0]) if sources and name.rstrip("_") in (*_CASTS, "abs") else None
        if number is not None and isinstance(result, Tensor):
            self._floats.add(result, number)

    def _note(self, name: str, args: Any, numbers: frozenset[int | str]) -> None:
        if name == "_local_scalar_dense":
            self._read |= numbers
        elif name in _LOSSES:
            self._indices |= numbers
            self._unlimited |= numbers
            self._ignored.update(dict.fromkeys(self._numbers([args[1]]), int(args[4])))
            self._limit(args[1], args[0].shape[min(1, args[0].dim() - 1)], numbers)
        elif name.rstrip("_") not in _ARITHMETIC:
            self._indices |= numbers
            found = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor) and not leaf.is_floating_point()]
            self._unlimited |= self._numbers(tensor for tensor in found if not self._is_limited(tensor))
            index, size = _index_and_size(name, args)
            self._limit(index, size, numbers)
            if name.startswith(_WRITES) and not _adds_up(name, args):
                self._places |= numbers

    def _limit(self, index: Tensor | None, size: int, numbers: frozenset[int | str]) -> None:
        """Notes that inputs are an index of a table of `size` rows, if `index` holds their own values."""
        inputs = frozenset(number for number in numbers if isinstance(number, int))
        known = size if index is not None and self._holds_as_given(index) and self._numbers([index]) == inputs else 0
        for number in inputs:
            self._sizes[number] = min(self._sizes.get(number, known), known)

    def _holds_as_given(self, tensor: Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in self._as_given

    def _is_limited(self, tensor: Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in self._limited

    def _follow(
        self, tensor: Tensor, numbers: frozenset[int | str], *, as_given: bool = False, limited: bool = False
    ) -> None:
        if tensor.layout is torch.strided and tensor.numel():
            self._held.append(storage := tensor.untyped_storage())
            address = storage.data_ptr()
            self._inputs[address] = self._inputs.get(address, frozenset()) | numbers
            (self._as_given.add if as_given else self._as_given.discard)(address)
            (self._limited.add if limited else self._limited.discard)(address)

    def _numbers(self, tensors: Iterable[Tensor]) -> frozenset[int | str]:
        """The inputs whose values these tensors hold."""
        plain = (tensor for tensor in tensors if tensor.layout is torch.strided and tensor.numel())
        found = [self._inputs.get(tensor.untyped_storage().data_ptr(), frozenset()) for tensor in plain]
        return frozenset().union(*found)


class TrackedMemory:
    """Memory of tensors, with a number or name each. What was freed is not among it, even if another tensor lies there."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[StorageWeakRef, int | str]] = {}

    def add(self, tensor: Tensor, number: int | str = 0) -> None:
        if tensor.layout is torch.strided and tensor.numel():
            storage = tensor.untyped_storage()
            self._numbers[storage.data_ptr()] = StorageWeakRef(storage), number  # type: ignore[no-untyped-call]

    def get(self, tensor: Tensor) -> int | str | None:
        """The number of the tensor's memory; None if it is not among this."""
        if not self._numbers or tensor.layout is not torch.strided:
            return None
        reference, number = self._numbers.get(tensor.untyped_storage().data_ptr(), (None, 0))
        return number if reference is not None and not reference.expired() else None  # type: ignore[no-untyped-call]

    def discard(self, tensor: Tensor) -> None:
        if tensor.layout is torch.strided:
            self._numbers.pop(tensor.untyped_storage().data_ptr(), None)

    def held(self) -> list[int | str]:
        """The numbers of memory that is in use still."""
        return [number for reference, number in self._numbers.values() if not reference.expired()]  # type: ignore[no-untyped-call]

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def __contains__(self, tensor: Tensor) -> bool:
        return self.get(tensor) is not None


def _tests_for_nonfinite(name: str, args: Any) -> bool:
    """Whether values are compared with themselves, which tells NaN, or with infinity, as `isfinite` does."""
    if name not in COMPARE or len(args) != 2:
        return False
    return args[0] is args[1] or (isinstance(args[1], float) and math.isinf(args[1]))


def _limits(name: str, args: Any) -> bool:
    """Whether an operator keeps whole numbers below a plain number, or below the values of another tensor."""
    return name.rstrip("_") in _LIMITING or (name.rstrip("_") == "clamp" and len(args) > 2 and args[2] is not None)


def _adds_up(name: str, args: Any) -> bool:
    """Whether several values for one place are defined: they are added, or reduced in another way."""
    return "add" in name or "reduce" in name or (name.startswith(("index_put", "put")) and args[3:4] == (True,))


def _index_and_size(name: str, args: Any) -> tuple[Tensor | None, int]:
    """Returns (an operator's index, the number of rows that it may name), or (None, 0) if it has several or is not known."""
    if name in ("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"):
        return args[1], args[0].shape[0]
    if name.rstrip("_") in ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_reduce"):
        return args[2], args[0].shape[args[1]]
    if name == "index" and len(args[1]) == 1 and args[1][0] is not None:
        return args[1][0], args[0].shape[0]
    return None, 0
