"""What the program tests share: a reference captured, through JSON, printed, written to a folder and imported again."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import emit
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.lower.lower import bind, lower
from stitchcuda.compiler.regions.partition import partition
from tests.compiler.zoo import ZOO

SEED = 7
Call = tuple[tuple[Any, ...], dict[str, Any]]


def case(name: str, device: str = "cpu") -> tuple[nn.Module, Call]:
    """A module of the zoo in its mode, without gradients, and its arguments."""
    torch.manual_seed(SEED)
    entry = ZOO[name]
    module = entry.make().train(entry.train).requires_grad_(False).to(device)
    args, kwargs = pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), (entry.args(), entry.kwargs()))
    for part in module.modules():  # plain tensor attributes do not move with the module
        for key, value in list(vars(part).items()):
            if isinstance(value, Tensor):
                setattr(part, key, value.to(device))
    return module, (args, kwargs)


def captured(module: nn.Module, call: Call) -> OpGraph:
    """The graph, once through JSON as the workspace stores it."""
    graph = capture(module, *call)
    assert graph.opaque == ""
    again = OpGraph.model_validate_json(graph.model_dump_json())
    assert again == graph
    return again


def stitched(graph: OpGraph) -> list[Stitch]:
    """A kernel for every region that the compiler can write."""
    stitches = []
    for region in partition(graph):
        if region.kind == "fusible":
            kernel = lower(graph, region)
            stitches.append(Stitch(region.id, kernel, emit(kernel), bind(graph, region, kernel)))
    return stitches


def write(files: dict[str, str | bytes], folder: Path) -> Path:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def load(files: dict[str, str | bytes], folder: Path) -> Any:
    """The module object of model_new.py."""
    write(files, folder)
    spec = importlib.util.spec_from_file_location(f"program_{abs(hash(str(folder)))}", folder / "model_new.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(module: nn.Module, call: Call) -> tuple[Any, list[Tensor]]:
    """What the module returns for copies of the arguments, and those arguments afterwards."""
    args, kwargs = copy.deepcopy(call)
    with torch.no_grad():
        result = module(*args, **kwargs)
    return result, [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]


def tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def memory(values: Sequence[Tensor]) -> list[int]:
    """Which of the tensors share storage: equal numbers do."""
    storages = [value.untyped_storage().data_ptr() for value in values]
    return [storages.index(storage) for storage in storages]
