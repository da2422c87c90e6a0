"""Gives torch.export the shapes of recurrent layers at once: `with recurrent_layers_at_once(): torch.export.export(…)`.

To find the shapes of an LSTM's outputs, torch runs its decomposition on tensors without data, one time step after the other:
half a minute for six layers of 512 steps. Here each layer's outputs are made in one step. It changes torch's tables for the
length of the block only, and computes no values: the exported graph has the layer as one operator, as it has without this.
Where to look next: `compiler/capture/capture.py` (who exports).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


def _outputs(
    x: Tensor, state: Tensor | list[Tensor], _params: Any, _biases: bool, _layers: int, _dropout: float, _train: bool,
    bidirectional: bool, _batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Outputs of `aten::lstm.input` and its like: (output, new state) without values."""
    states = [state] if isinstance(state, Tensor) else state
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty((*x.shape[:-1], width)), *(torch.empty_like(part) for part in states))


@contextlib.contextmanager
def recurrent_layers_at_once() -> Iterator[None]:
    """A context for exporting. Where torch has no decomposition of a layer, nothing is replaced."""
    replaced: list[tuple[Any, DispatchKey, Callable[..., Any]]] = []
    for name in _LAYERS:
        operator = getattr(torch.ops.aten, name).input
        for key in _KEYS:
            if key in operator.py_kernels:
                replaced.append((operator, key, operator.py_kernels[key]))
                operator.py_kernels[key] = _outputs
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, original in replaced:
            operator.py_kernels[key] = original
            operator._dispatch_cache.clear()
