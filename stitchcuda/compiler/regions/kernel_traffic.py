"""Counts the bytes that a kernel moves when each element it touches crosses the memory bus once.

This is compulsory traffic only: caches, sectors and second passes over a row are left out.

Where to look next: `compiler/regions/operator_work.py` (bytes, flops and launches of eager operators),
`compiler/regions/partition.py` (joins operators only where this does not grow).
"""

from __future__ import annotations

import math

from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.lower.ir import Argument, Kernel


def kernel_bytes(kernel: Kernel) -> int:
    """Counts the bytes read and written by one launch; an argument that is updated in place counts twice."""
    return sum(argument_bytes(kernel, argument) for argument in kernel.arguments)


def argument_bytes(kernel: Kernel, argument: Argument) -> int:
    """Counts the bytes of one argument that the kernel reads and writes, each element once per direction."""
    loads = {(step.strides, step.offset) for step in kernel.steps if step.fn == "load" and step.args[0] == argument.name}
    stores = {(store.strides, store.offset) for store in kernel.stores if store.argument == argument.name}
    total = 0
    for accesses in (loads, stores):
        elements = sum(_reach(kernel, strides) for strides, _ in accesses)
        total += min(elements, math.prod(argument.shape)) * size_of(argument.dtype)
    return total


def _reach(kernel: Kernel, strides: tuple[int, ...]) -> int:
    return math.prod(axis.size for axis, stride in zip(kernel.axes, strides, strict=True) if stride)
