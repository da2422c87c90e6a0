"""Replaces the tensors in nested arguments (copied, moved, widened, changed) so that those that share memory still do.

`replace_tensors` looks at the arguments as a whole, because `forward(x, x)` or `forward(x, x[1:])` would no longer share memory
if each tensor were copied on its own. Where to look next: `verify/reference/float64_truth.py` and
`verify/reference/reference.py` (who use it), `verify/messages/tensor_block.py` (the same for blocks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_PART = 2**26                              # elements that are looked at at a time


def replace_tensors(arguments: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Returns `arguments` with every tensor replaced by `change(tensor)`. Tensors that overlap in memory do so afterwards.

    For overlapping tensors `change` is called once, with their common memory as one flat tensor, whose length it must keep. If
    it returns that tensor itself, they stay as they are. Overlapping tensors of different dtypes are changed one by one.
    """
    leaves, spec = pytree.tree_flatten(arguments)
    tensors = [(position, leaf) for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for group in group_by_memory([tensor for _, tensor in tensors]):
        members = [tensors[number] for number in group]
        first = members[0][1]
        if len(members) == 1:
            leaves[members[0][0]] = change(first)
            continue
        if any(tensor.dtype != first.dtype for _, tensor in members):
            for position, tensor in members:
                leaves[position] = change(tensor)
            continue
        low = min(int(tensor.storage_offset()) for _, tensor in members)
        high = max(int(tensor.storage_offset()) + extent(tensor) for _, tensor in members)
        flat = first.detach().as_strided((high - low,), (1,), low)
        other = change(flat)
        if other is flat:
            continue
        base = int(other.storage_offset())
        step = int(other.stride(0))
        for position, tensor in members:
            strides = [step * stride for stride in tensor.stride()]
            leaves[position] = other.as_strided(tensor.shape, strides, base + step * (int(tensor.storage_offset()) - low))
    return pytree.tree_unflatten(leaves, spec)


def group_by_memory(tensors: list[Tensor]) -> list[list[int]]:
    """Groups the positions of tensors whose memory overlaps; a tensor without elements is a group of its own."""
    ranges = []
    for number, tensor in enumerate(tensors):
        begin = int(tensor.storage_offset()) * tensor.itemsize
        end = begin + extent(tensor) * tensor.itemsize
        # No two storages have one address, unless both are empty.
        place = (str(tensor.device), tensor.untyped_storage().data_ptr() if end > begin else -1 - number)
        ranges.append((place, begin, end, number))
    found: list[list[int]] = []
    last: tuple[str, int] | None = None
    high = 0
    for where, begin, end, number in sorted(ranges):
        if where != last or begin >= high:
            found.append([])
            last, high = where, end
        found[-1].append(number)
        high = max(high, end)
    return sorted(found)


def alias(tensor: Tensor) -> Tensor:
    """Returns another tensor object for the same memory: whoever changes its class or drops it leaves `tensor` as it is.

    Attributes of the object, which may hide its methods, are not copied, and none of them is called.
    """
    return Tensor.detach(tensor)


def memory_of(tensor: Tensor) -> tuple[int, int]:
    """Address and length in bytes, from the first to the last element."""
    return tensor.data_ptr(), extent(tensor) * tensor.element_size()


def is_dense(value: Any) -> bool:
    """Whether `value` is a plain strided tensor, or no tensor at all."""
    return not isinstance(value, Tensor) or (value.layout == torch.strided and not value.is_nested and not value.is_quantized)


def is_float8(tensor: Tensor) -> bool:
    """Whether it holds 8-bit floats, which few of torch's operators take."""
    return tensor.is_floating_point() and tensor.itemsize == 1


def without_float8(tensor: Tensor) -> Tensor:
    """The tensor, 8-bit floats as float32."""
    return tensor.float() if is_float8(tensor) else tensor


def as_real(tensor: Tensor) -> Tensor:
    """The tensor, complex numbers as pairs of real ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def extent(tensor: Tensor) -> int:
    """The number of elements of memory from a tensor's first to its last element, gaps included."""
    return strided_extent(tensor.shape, tensor.stride())


def strided_extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The same for a shape and strides; 0 for an empty tensor."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def flat_parts(tensor: Tensor, most: int = _PART) -> Iterator[Tensor]:
    """Yields a tensor's elements in row-major order, `most` at a time: what is computed of gigabytes at once takes as many."""
    flat = tensor.reshape(-1)
    for begin in range(0, flat.numel(), most):
        yield flat[begin : begin + most]
