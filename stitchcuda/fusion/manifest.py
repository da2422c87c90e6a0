"""`program.json`: what a program consists of and what it is for, so that nobody has to read its code to know.

Format 1. Torch-free. The program itself does not read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from stitchcuda.errors import BadInput
from stitchcuda.fusion.graph import OpGraph
from stitchcuda.fusion.ir import Stitch
from stitchcuda.fusion.schedule import KernelCall, Unit
from stitchcuda.state import TensorSpec

FORMAT = 1


def source_digest(*texts: str) -> str:
    """SHA-256 of a kernel's files, of which the first 8 digits are part of its library's name."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def manifest(
    graph: OpGraph,
    units: Sequence[Unit],
    stitches: Sequence[Stitch],
    host: Sequence[str],
    *,
    reference: str,
    name: str,
    precision: str,
) -> str:
    """The text of program.json."""
    calls = [unit for unit in units if isinstance(unit, KernelCall)]
    content: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "reference": hashlib.sha256(reference.encode()).hexdigest(),
        "precision": precision,
        "mode": "train" if graph.training else "eval",
        "mode_matters": graph.mode_matters,
        "opaque": graph.opaque,
        "tasks": [*dict.fromkeys(stitch.region for stitch in stitches), *(f"host:{feature}" for feature in host)],
        "host": list(host),
        "shape_guard": [_contract(spec) for spec in graph.inputs],
        "updates": [_key(graph, mutation.target) for mutation in graph.mutations],
        "kernels": [
            {
                "name": stitch.source.name,
                "files": [f"kernels/{stitch.source.name}.cu", f"kernels/{stitch.source.name}_binding.cc"],
                "functions": list(stitch.source.kernels),
                "strategy": stitch.source.strategy,
                "launches": stitch.source.launches,
                "workspace_bytes": stitch.source.workspace_bytes,
            }
            for stitch in stitches
        ],
        "regions": [_region(stitch, [call for call in calls if call.stitch is stitch]) for stitch in stitches],
        "launches": sum(call.stitch.source.launches for call in calls),
        "library_operators": [unit.op for unit in units if not isinstance(unit, KernelCall) and unit.aliases is None],
    }
    return json.dumps(content, indent=1) + "\n"


def read_manifest(files: Mapping[str, str | bytes]) -> dict[str, Any]:
    """program.json of a program's files. Raises `BadInput` when there is none or it cannot be read."""
    text = files.get("program.json")
    if text is None:
        raise BadInput("The program has no program.json: it was not written by StitchCUDA.")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise BadInput(f"program.json is not valid JSON: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput(f"program.json is not of format {FORMAT}: it was written by another version of StitchCUDA.")
    return content


def _region(stitch: Stitch, calls: Sequence[KernelCall]) -> dict[str, Any]:
    from stitchcuda.fusion.body import title

    return {
        "id": stitch.region,
        "title": title(calls[0]),
        "kernel": stitch.source.name,
        "operators": [node.op for node in calls[0].covered],
        "instances": [{"scope": call.covered[-1].scope, "nodes": [node.name for node in call.covered]} for call in calls],
        "contracts": [
            {
                "name": argument.name,
                "role": argument.role,
                "dtype": argument.dtype,
                "shape": list(argument.shape),
                "strides": list(argument.strides),
            }
            for argument in stitch.kernel.arguments
        ],
    }


def _contract(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype, "strides": list(spec.strides)}


def _key(graph: OpGraph, value: str) -> str:
    return next((entry.key for entry in graph.state if entry.spec.name == value), value)
