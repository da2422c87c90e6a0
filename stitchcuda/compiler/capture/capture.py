"""Captures an `nn.Module`, called with example inputs, as an `OpGraph` (uses torch: runs in the reference worker only).

The operators of one forward pass come from torch.export, before decomposition. They are run once more, one by one, on fake
tensors (shapes without data) or on a GPU on copies of the real ones, to see what the export does not say: real strides, which
tensors share memory, what is written in place. In-place operators on temporaries are replaced by their functional form where
the results are the same. A module that cannot be captured gives a graph with `opaque` set. It never changes the module and
decides nothing about fusion.

Where to look next: `compiler/capture/walk.py` (the second run), `compiler/capture/inplace.py` (the functional forms),
`compiler/regions/partition.py` (what is fused).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from stitchcuda.compiler.capture.dependencies import base_name, reads
from stitchcuda.compiler.capture.kept_attributes import kept_attributes
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.capture.recurrent import recurrent_layers_at_once
from stitchcuda.compiler.capture.walk import Capture, Uncapturable, Walk

__all__ = ["Capture", "capture", "capture_constants", "trace"]


def capture(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, observe: bool | None = None) -> OpGraph:
    """Returns the operator graph of `module(*args, **kwargs)` in the mode (train or eval) that the module is in.

    With `observe` the operators run on copies of the real tensors instead of fake ones, so that strides are what this
    device's libraries return (the result of cuDNN's LSTM has other strides than its fake tensor says). The default is to
    observe when a tensor is on a GPU. A program that cannot be captured gives a graph without nodes whose `opaque` says why.
    """
    return trace(module, args, kwargs, observe=observe).graph


def capture_constants(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
    """Returns the values of the graph's constants and non-persistent buffers, by key. `trace` also gives the graph."""
    return trace(module, args, kwargs).constants


def trace(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, observe: bool | None = None) -> Capture:
    """Returns the graph of `capture` and the values of `capture_constants` from one run."""
    if observe is None:
        tensors = (*pytree.tree_leaves((args, kwargs)), *module.parameters(), *module.buffers())
        observe = any(isinstance(value, Tensor) and value.is_cuda for value in tensors)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with recurrent_layers_at_once(), kept_attributes(module):
                exported = torch.export.export(module, args, kwargs, strict=False)
            captured = Walk(module, args, kwargs, observe).run(exported)
            _compare_updates(module, captured.graph, exported)
            return captured
    except Uncapturable as reason:
        text = str(reason)
    except Exception as error:  # torch.export has no common base class for what it cannot do
        text = f"torch.export cannot capture it: {_sentence(error)}"
    return Capture(OpGraph(inputs=(), call={}, state=(), nodes=(), outputs=None, training=module.training, opaque=text))


def _compare_updates(module: nn.Module, graph: OpGraph, exported: Any) -> None:
    """Raises `Uncapturable` if torch's functionalised export updates a buffer that the graph does not.

    That export costs more than all the rest, and only kernels of normalisations write without changing a tensor's version; so
    it is made only when a normalisation is called whose writes `dependencies.writes` does not know. (Before
    `run_decompositions` the export's own list of updates is empty.)
    """
    buffers = {entry.spec.name: {entry.key, *entry.tied} for entry in graph.state if entry.kind == "buffer"}
    unknown = [node for node in graph.nodes if "norm" in node.op and base_name(node.op) not in ("batch_norm", "instance_norm")]
    if not any(value in buffers for node in unknown for value in reads(node)):
        return
    known = {key for mutation in graph.mutations for key in buffers.get(mutation.target, ())}
    missed = set(exported.run_decompositions({}).graph_signature.buffers_to_mutate.values()) - known
    if missed:
        raise Uncapturable(f"It updates {', '.join(sorted(missed))} in a way that cannot be placed.")


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no message'])[0][:300]}"
