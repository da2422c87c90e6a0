"""Lowered regions against eager, through the interpreter: what the tests of lowering and partitioning share.

`compare` captures a module, runs every fusible region on the values that eager has there, and compares what it stores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stitchcuda.compiler.capture.capture import capture, capture_constants
from stitchcuda.compiler.capture.dependencies import references
from stitchcuda.compiler.capture.op_graph import Literal_, Node, OpGraph, ValueRef
from stitchcuda.compiler.lower.ir import Kernel
from stitchcuda.compiler.lower.lower import bind, lower
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.printing import prelude
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.state import Region
from tests.compiler.interpreter import allocate, interpret

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Function(nn.Module):
    """A function as a module, for capture."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def captured(what: nn.Module | Callable[..., Any], *args: torch.Tensor) -> OpGraph:
    """The graph of a module or function."""
    module = what if isinstance(what, nn.Module) else Function(what)
    graph = capture(copy.deepcopy(module), args, {})
    assert not graph.opaque, graph.opaque
    return graph


def compare(
    what: nn.Module | Callable[..., Any], *args: torch.Tensor, rewrite: Callable[[OpGraph], OpGraph] = lambda graph: graph
) -> tuple[Region, ...]:
    """Checks every instance of every fusible region against eager, operator by operator; returns the regions."""
    module = what if isinstance(what, nn.Module) else Function(what)
    graph = rewrite(captured(module, *args))
    regions = partition(graph)
    values = evaluate(graph, module, args)
    for region in regions:
        if region.kind != "fusible":
            continue
        kernel = lower(graph, region)
        bound = bind(graph, region, kernel)
        assert len(bound) == len(region.nodes)
        for nodes, keys in zip(region.nodes, bound, strict=True):
            given = {
                argument.name: values.read(nodes, key)
                for argument, key in zip(kernel.arguments, keys, strict=True)
                if argument.role != "out"
            }
            made = run(kernel, given)
            for argument, key in zip(kernel.arguments, keys, strict=True):
                if argument.role != "in":
                    wanted = values.after[key] if argument.role == "inout" else values.before[key]
                    close(made[argument.name], wanted, f"{region.title}: {key}")
    return regions


def run(kernel: Kernel, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the kernel stores, by argument name, from inputs laid out as the kernel says and outputs full of rubbish."""
    tensors = {}
    for argument in kernel.arguments:
        tensor = allocate(argument, lambda shape, dtype: torch.full(shape, 77, dtype=getattr(torch, dtype)))
        tensors[argument.name] = tensor.copy_(given[argument.name]) if argument.role != "out" else tensor
    return interpret(kernel, tensors)


def close(made: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Equal for integers, within a few roundings of the largest finite element for floating point."""
    assert made.shape == wanted.shape, what
    assert made.dtype == wanted.dtype, what
    if not wanted.dtype.is_floating_point:
        assert torch.equal(made, wanted), what
        return
    finite = wanted[torch.isfinite(wanted)].double().abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    torch.testing.assert_close(
        made,
        wanted,
        rtol=TOLERANCE[wanted.dtype],
        atol=TOLERANCE[wanted.dtype] * scale,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}",
    )


class Values:
    """What eager has under each value name: when it is made (`before` any later update), when a node reads it, at the end."""

    def __init__(self) -> None:
        self.before: dict[str, torch.Tensor] = {}
        self.seen: dict[str, dict[str, torch.Tensor]] = {}
        self.after: dict[str, torch.Tensor] = {}

    def read(self, nodes: tuple[str, ...], key: str) -> torch.Tensor:
        """The tensor as the first of these nodes that reads it finds it."""
        return next(self.seen[node][key] for node in nodes if key in self.seen[node])


def evaluate(graph: OpGraph, module: nn.Module, args: tuple[torch.Tensor, ...]) -> Values:
    """Runs the graph's operators one by one in eager mode, on copies of the module's tensors."""
    constants = capture_constants(copy.deepcopy(module), args, {})
    tensors = {**constants, **dict(module.named_parameters()), **dict(module.named_buffers())}
    live: dict[str, torch.Tensor] = {}
    for spec, arg in zip(graph.inputs, args, strict=True):
        live[spec.name] = arg.clone(memory_format=torch.preserve_format)
    for entry in graph.state:
        if entry.kind == "prepared":
            continue
        if entry.key not in tensors:
            raise LookupError(f"the test has no tensor {entry.key}")
        live[entry.spec.name] = tensors[entry.key].detach().clone()
    for made in graph.prepared:
        results = getattr(prelude, made.function)(live[made.source], **dict(made.options))
        live |= dict(zip(made.results, results, strict=True))
    values, flow = Values(), Flow(graph)
    values.before = {name: tensor.clone() for name, tensor in live.items()}
    many: dict[str, Any] = {}
    with torch.no_grad():
        for node in graph.nodes:
            bases = {flow.base(name) for name in references((node.args, node.kwargs))}
            values.seen[node.name] = {name: live[name].clone(memory_format=torch.preserve_format) for name in bases}
            result = _call(node, live, many)
            many[node.name] = result
            for spec, tensor in zip(node.outputs, result if isinstance(result, (tuple, list)) else (result,), strict=False):
                live[spec.name] = tensor
                values.before[spec.name] = tensor.clone(memory_format=torch.preserve_format)
    values.after = live
    return values


def _call(node: Node, live: dict[str, torch.Tensor], many: dict[str, Any]) -> Any:
    def resolve(arg: Any) -> Any:
        if isinstance(arg, ValueRef):
            return live[arg.value] if arg.value in live else many[arg.value]
        if isinstance(arg, Literal_):
            return torch.device(arg.text) if arg.kind == "device" else getattr(torch, arg.text)
        return type(arg)(resolve(item) for item in arg) if isinstance(arg, (tuple, list)) else arg

    args = [resolve(arg) for arg in node.args]
    kwargs = {key: resolve(arg) for key, arg in node.kwargs.items()}
    if "getitem" in node.op:
        return args[0][args[1]]
    packet, overload = node.op.split(".")[1:3]
    return getattr(getattr(torch.ops.aten, packet), overload)(*args, **kwargs)
