"""Writes and reads `program.json`: a program's kernels, tasks, input shapes, and what it was made from.

It lets a reader know what is in a program without reading its code. The program itself never reads it. The format's number is
`FORMAT`; a file of another format raises `BadInput`. No torch is needed.

Where to look next: `compiler/printing/program.py` (writes the other files), `verify/inputs/secret_inputs.py` (uses the sizes
that a program leaves free).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.printing.statement_order import KernelCall, Unit
from stitchcuda.errors import BadInput
from stitchcuda.state import TensorSpec

FORMAT = 1
_LARGEST = 2**31 - 1


def source_digest(*texts: str) -> str:
    """Returns the first 8 hexadecimal digits of the SHA-256 of a kernel's files: part of the built library's name."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def with_digests(model: str, files: Mapping[str, str | bytes]) -> str:
    """Returns `model_new.py` with the digests in its table KERNELS as the sources in `files` are, headers too.

    A user's build cache is keyed by names, paths and flags, and looks at the sources' times only: a library that was built from
    other text must have another name. (The judge's cache is keyed by the sources.)
    """

    def row(match: re.Match[str]) -> str:
        cuda, binding = (files.get(f"kernels/{match['file']}{end}") for end in (".cu", "_binding.cc"))
        if not isinstance(cuda, str) or not isinstance(binding, str):
            return match[0]
        headers = [str(files[path]) for path in sorted(files) if path.endswith((".cuh", ".h", ".hpp"))]
        used = headers if '#include "' in cuda + binding else []
        return f'{match["head"]}"{source_digest(cuda, binding, *used)}"'

    def table(match: re.Match[str]) -> str:
        return re.sub(r'(?P<head>\(\s*"(?P<file>\w+)",\s*"\w+",\s*)"[^"\n]*"', row, match[0])

    return re.sub(r"^KERNELS = \(.*?^\)", table, model, flags=re.DOTALL | re.MULTILINE)


def manifest_text(
    graph: OpGraph,
    units: Sequence[Unit],
    stitches: Sequence[Stitch],
    host: Sequence[str],
    *,
    reference: str,
    name: str,
    precision: str,
) -> str:
    """Returns the text of program.json. `reference` is the reference's source, of which the SHA-256 is kept."""
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


def manifest_with_task(files: Mapping[str, str | bytes], before: Mapping[str, str | bytes], task: str, strategy: str) -> str:
    """Returns program.json after an engineer changed the files `before` into `files` for one more task.

    Kernels whose sources are unchanged keep their entry; new and changed ones get an entry from their source. Whether the
    program replays a CUDA graph is read from `model_new.py`, not from the entry before.
    """
    content = read_manifest(files)
    sources = sorted(path for path in files if path.startswith("kernels/") and path.endswith(".cu"))
    same = {path for path in files if files[path] == before.get(path)}
    unchanged = [kernel for kernel in content.get("kernels") or [] if same.issuperset(kernel["files"])]
    known = {path: kernel for kernel in unchanged for path in kernel["files"]}
    kernels = [known.get(path) or _kernel(path, files, strategy) for path in sources]
    model = files.get("model_new.py", "")
    replays = isinstance(model, str) and ("CUDAGraph(" in model or "make_graphed_callables" in model)
    host = [name for name in content.get("host") or [] if name != "cuda_graph"] + (["cuda_graph"] if replays else [])
    served = {kernel["name"] for kernel in kernels}
    kept = [region for region in content.get("regions") or [] if region.get("kernel") in served]
    if len(kept) < len(content.get("regions") or []):  # what replaces it may do that work in another way
        content = {key: held for key, held in content.items() if key not in ("launches", "library_operators")}
    content |= {
        "tasks": list(dict.fromkeys([*(content.get("tasks") or []), task])),
        "kernels": list({kernel["name"]: kernel for kernel in kernels}.values()),
        "regions": kept,
        "host": host,
    }
    return json.dumps(content, indent=1) + "\n"


def _kernel(path: str, files: Mapping[str, str | bytes], strategy: str) -> dict[str, Any]:
    name = path.removeprefix("kernels/").removesuffix(".cu")
    binding = f"kernels/{name}_binding.cc"
    source = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", str(files[path]))
    functions = re.findall(r"__global__[^;{(]*?(\w+)\s*\(", source)
    return {
        "name": name,
        "files": [path, *([binding] if binding in files else [])],
        "functions": list(dict.fromkeys(functions)),
        "strategy": strategy,
    }


def read_manifest(files: Mapping[str, str | bytes]) -> dict[str, Any]:
    """Returns program.json of a program's files. Raises `BadInput` when it is missing or cannot be read."""
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


@dataclass(frozen=True)
class FreeSize:
    """A size that a program does not fix: its symbol, its range, and its places as (input number, axis)."""

    symbol: str
    low: int
    high: int
    places: tuple[tuple[int, int], ...]


def free_sizes(content: Mapping[str, Any]) -> tuple[FreeSize, ...]:
    """Returns the sizes that `shape_guard` states as `{"symbol": "B", "min": 1, "max": 64}` instead of a number.

    A symbol is the same size wherever it stands; its range is what all its places allow. Raises `BadInput` for a guard that
    cannot be read.
    """
    guard = content.get("shape_guard", [])
    found: dict[str, tuple[int, int, list[tuple[int, int]]]] = {}
    if not isinstance(guard, list):
        raise BadInput("shape_guard in program.json is no list.")
    for number, contract in enumerate(guard):
        shape = contract.get("shape") if isinstance(contract, dict) else None
        if not isinstance(shape, list):
            raise BadInput(f"Entry {number} of shape_guard in program.json has no shape.")
        for axis, size in enumerate(shape):
            if type(size) is int:
                continue
            if not isinstance(size, dict) or not isinstance(size.get("symbol"), str):
                raise BadInput(f'Size {axis} of entry {number} of shape_guard is no number and no {{"symbol", "min", "max"}}.')
            low, high = size.get("min", 1), size.get("max", _LARGEST)
            if type(low) is not int or type(high) is not int or not 0 <= low <= high:
                raise BadInput(f"The range of {size['symbol'][:40]} in shape_guard is not 0 <= min <= max.")
            before = found.get(size["symbol"], (low, high, []))
            found[size["symbol"]] = (max(low, before[0]), min(high, before[1]), [*before[2], (number, axis)])
    return tuple(FreeSize(symbol[:40], low, high, tuple(places)) for symbol, (low, high, places) in found.items())


def _region(stitch: Stitch, calls: Sequence[KernelCall]) -> dict[str, Any]:
    from stitchcuda.compiler.printing.forward_body import kernel_title

    return {
        "id": stitch.region,
        "title": kernel_title(calls[0]),
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
