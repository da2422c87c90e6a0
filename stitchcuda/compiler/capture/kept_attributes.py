"""Puts back the attributes of a module and its parts after a call or an export: `with kept_attributes(module): …`.

A reference is called and exported itself and never copied: a function among its attributes (minGPT's
`self.mlpf = lambda x: m.c_fc(x)`) goes on referring to the parts it was made with, whatever holds it. Values of tensors are
not put back.
Where to look next: `compiler/capture/capture.py` (who exports), `verify/reference/float64_truth.py` (who calls, and puts back
values too).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def kept_attributes(module: nn.Module) -> Iterator[None]:
    """A context after which every part of the module has the attributes, parameters, buffers and parts that it had before."""
    groups = [group for part in module.modules() for group in (part._parameters, part._buffers, part._modules, vars(part))]
    before = [(group, dict(group)) for group in groups if type(group) is dict]
    try:
        yield
    finally:
        for group, held in before:
            group.clear()
            group.update(held)
