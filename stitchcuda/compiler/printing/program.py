"""Writes a program's files: the captured graph as Python, with calls of its kernels, for a person to read.

`model_new.py` holds `ModelNew`, a plain module whose state_dict keys are the reference's; `kernels/` holds the CUDA sources and
their bindings; `program.json` describes it all. A program needs torch, and with kernels `apache-tvm-ffi[cpp]`, but nothing of
stitchcuda. The same arguments give the same bytes. No torch is needed here.

Where to look next: `compiler/printing/forward_body.py` (the statements), `compiler/printing/constructor.py` (the state),
`compiler/printing/manifest.py` (`program.json`), `compiler/printing/prelude.py` (code that programs share).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from stitchcuda.compiler.capture.dependencies import references
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.printing.constructor import (
    escaped,
    is_constant,
    prepared_table,
    shape_text,
    state_tables,
    write_constructor,
)
from stitchcuda.compiler.printing.forward_body import BodySection, link_sections, write_forward, write_sections
from stitchcuda.compiler.printing.graph_replay import write_replayed_forward
from stitchcuda.compiler.printing.idioms import indent
from stitchcuda.compiler.printing.manifest import manifest_text, read_manifest
from stitchcuda.compiler.printing.signature import Signature, make_signature, return_expression
from stitchcuda.compiler.printing.statement_order import Unit, schedule
from stitchcuda.compiler.printing.variables import Variables
from stitchcuda.compiler.syntax import parse_module
from stitchcuda.errors import BadInput

__all__ = ["read_manifest", "write_program"]

HOST_FEATURES = ("cuda_graph",)


def write_program(
    graph: OpGraph,
    stitches: Sequence[Stitch] = (),
    host: Sequence[str] = (),
    *,
    reference: str = "",
    name: str = "program",
    precision: str = "reference",
    constants: bytes | None = None,
) -> dict[str, str | bytes]:
    """Returns the program's files by path relative to its folder; all are text except `constants.safetensors`.

    `reference` is the reference's source text. `constants` replaces the values in the graph. Raises `NotConvex` (of
    `compiler/printing/statement_order.py`) for a region that cannot be one kernel call, `ValueError` for stitches or host
    features that do not fit, `BadInput` for a pickled reference that could not be captured (it has no source to run instead).
    """
    unknown = [feature for feature in host if feature not in HOST_FEATURES]
    if unknown:
        raise ValueError(f"There is no host feature {unknown[0]!r}.")
    if graph.opaque:
        if stitches or host:
            raise ValueError("Nothing can be stitched into a program that was not captured.")
        return _opaque(graph, reference, name, precision)
    twice = [stitch.source.name for stitch in stitches]
    if len(set(twice)) < len(twice):
        raise ValueError("Two regions have kernels of the same name.")
    units = schedule(graph, stitches)
    files: dict[str, str | bytes] = {"model_new.py": _model(graph, units, stitches, host, name)}
    for stitch in stitches:
        files[f"kernels/{stitch.source.name}.cu"] = stitch.source.cuda
        files[f"kernels/{stitch.source.name}_binding.cc"] = stitch.source.binding
    values = graph.constants if constants is None else constants
    if any(is_constant(entry) for entry in graph.state):
        if not values:
            raise ValueError("The graph has constants, and their values are missing.")
        files["constants.safetensors"] = values
    files["program.json"] = manifest_text(graph, units, stitches, host, reference=reference, name=name, precision=precision)
    return files


def _model(graph: OpGraph, units: Sequence[Unit], stitches: Sequence[Stitch], host: Sequence[str], name: str) -> str:
    made = make_signature(graph)
    names = Variables(graph, units, made.names)
    parts = write_sections(graph, units, names)
    keys = [key for entry in graph.state for key in (entry.key, *entry.tied)]
    workspace = max((stitch.source.workspace_bytes for stitch in stitches), default=0)
    outputs = list(dict.fromkeys(references(graph.outputs)))
    link_sections(parts, [names.text[value] for value in outputs])
    body, methods = write_forward(parts, keys)
    methods = [*methods, *(_workspace_method(workspace) if workspace else [])]
    opening = _opening(graph, made, parts, body, host)
    if "cuda_graph" in host:
        forward = write_replayed_forward(graph, made, names, _checks(graph, made), opening, body)
    else:
        forward = [*_head("forward", made.parameters), *indent([*_checks(graph, made), *opening, *body])]
        forward += indent([f"return {return_expression(graph.outputs, names.text.__getitem__)}"])
    chunks = [
        _docstring(graph, stitches, host, name),
        _imports(graph, stitches, host, forward + methods),
        *state_tables(graph, stitches),
        *[_part(part) for part in _needed_parts(graph, host)],
        *prepared_table(graph),
        *([loader_text()] if stitches else []),
        "\n".join([*write_constructor(graph, stitches, host, workspace), *indent(["", *forward, *methods])]),
    ]
    return "\n".join(line.rstrip() for line in "\n\n".join(chunks).splitlines()) + "\n"


def _head(name: str, parameters: Sequence[str], result: str = "") -> list[str]:
    return [f"def {name}({', '.join(['self', *parameters])}){f' -> {result}' if result else ''}:"]


def _checks(graph: OpGraph, made: Signature) -> list[str]:
    lines = list(made.opening)
    tensors = [made.names[spec.name] for spec in graph.inputs]
    if tensors:
        lines.append(f"check_inputs(({', '.join(tensors)}{',' if len(tensors) == 1 else ''}), INPUTS)")
    if graph.mode_matters:
        mode, call = ("training", "train") if graph.training else ("evaluation", "eval")
        lines.append(f"if {'not ' if graph.training else ''}self.training:")
        lines.append(
            f'    raise RuntimeError("This program computes what the reference does in {mode} mode: call .{call}() first.")'
        )
    return lines


def _opening(
    graph: OpGraph, made: Signature, parts: Sequence[BodySection], body: Sequence[str], host: Sequence[str]
) -> list[str]:
    """Returns the lines that make what is prepared, and bind `kernels` and `device` where the statements use them."""
    lines = ["self._prepared.update()"] if graph.prepared and "cuda_graph" not in host else []
    if any(line.lstrip().startswith("kernels.") for line in body):
        lines.append("kernels = load_kernels()")
    if any("device" in line for part in parts for line in part.lines if not line.startswith("#")):
        source = made.names[graph.inputs[0].name] if graph.inputs else "next(iter([*self.parameters(), *self.buffers()]))"
        stateless = not graph.inputs and not graph.state
        lines.append('device = torch.device("cpu")' if stateless else f"device = {source}.device")
    return lines


def _docstring(graph: OpGraph, stitches: Sequence[Stitch], host: Sequence[str], name: str) -> str:
    guard = [f"    {spec.name}: {spec.dtype} {shape_text(spec.shape)}" for spec in graph.inputs]
    kernels = [f"    {stitch.source.name} ({stitch.region}, {_times(len(stitch.instances))})" for stitch in stitches]
    mode = "training" if graph.training else "evaluation"
    host_line = ["", "Its calls are replayed as one CUDA graph."] if "cuda_graph" in host else []
    return "\n".join(
        [
            f'"""{name}: ModelNew computes what the reference Model does in {mode} mode.',
            "",
            "    program = ModelNew()",
            "    program.load_state_dict(model.state_dict())",
            "",
            *(["For inputs of exactly these shapes:", "", *guard] if guard else ["It takes no tensors."]),
            *(
                ["", "Own kernels, built at the first call:", "", *kernels]
                if kernels
                else ["", "Plain PyTorch: nothing is stitched yet."]
            ),
            *host_line,
            '"""',
        ]
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _imports(graph: OpGraph, stitches: Sequence[Stitch], host: Sequence[str], code: Sequence[str]) -> str:
    constants = any(is_constant(entry) for entry in graph.state)
    options = any(made.options for made in graph.prepared)
    plain = {"import functools": bool(stitches) or options, "import json": constants, "import math": bool(graph.state)}
    plain |= {"import os": bool(stitches), "import shutil": bool(stitches)}
    plain["import copy"] = any("copy.deepcopy" in line for line in code)
    calls, tables = bool(stitches) or "cuda_graph" in host or bool(graph.prepared), bool(graph.inputs or graph.state)
    abstract = ", ".join(name for name, wanted in (("Callable", calls), ("Sequence", tables)) if wanted)
    froms = {
        f"from collections.abc import {abstract}": bool(abstract),
        "from concurrent.futures import ThreadPoolExecutor": bool(stitches),
        "from pathlib import Path": bool(stitches) or constants,
        "from types import SimpleNamespace": bool(stitches),
        "from typing import Any": "cuda_graph" in host or bool(graph.prepared),
    }
    lines = ["from __future__ import annotations", ""]
    lines += sorted(line for line, wanted in plain.items() if wanted) + [line for line, wanted in froms.items() if wanted]
    lines += [""] if lines[-1] else []
    lines += sorted(f"import {package}  # registers operators that are not torch's own" for package in graph.packages)
    lines += ["import torch"]
    lines += ["import torch.nn.functional as F"] if any("F." in line for line in code) else []
    return "\n".join([*lines, "from torch import Tensor, nn"])


def _needed_parts(graph: OpGraph, host: Sequence[str]) -> list[str]:
    parts = {
        "container": bool(graph.state),
        "place": bool(graph.state),
        "fill_lists": bool(graph.state),
        "unfilled": any(not is_constant(entry) for entry in graph.state),
        "read_constants": any(is_constant(entry) for entry in graph.state),
        "check_inputs": bool(graph.inputs),
        **{made.function: True for made in graph.prepared},
        "Prepared": bool(graph.prepared),
        "distinct": "cuda_graph" in host,
        "GraphReplay": "cuda_graph" in host,
    }
    return [part for part, wanted in parts.items() if wanted]


def _part(name: str) -> str:
    return "\n" + prelude_parts()[name]


@cache
def prelude_parts() -> Mapping[str, str]:
    """Returns the source of each function and class in `compiler/printing/prelude.py`, without importing it: it needs torch."""
    text = Path(__file__).with_name("prelude.py").read_text(encoding="utf-8")
    parts = {}
    for node in parse_module(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            source = ast.get_source_segment(text, node)
            assert source is not None
            parts[node.name] = source.replace("  # type: ignore[assignment]", "").replace(
                "  # type: ignore[no-untyped-call]", ""
            )
    return parts


def loader_text() -> str:
    """Returns the source text of `load_kernels`, the same in every program that has kernels."""
    return '''
@functools.cache
def load_kernels() -> SimpleNamespace:
    """Builds the kernels beside this file (seconds each, the first time on a machine) and loads them."""
    import tvm_ffi.cpp

    folder = Path(__file__).resolve().parent / "kernels"
    nvcc = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve()
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc.parents[1], "/usr/local/cuda"]
    headers = [Path(home) / "include" for home in homes if home]
    cuda = next((folder for folder in headers if (folder / "cuda_runtime_api.h").is_file()), headers[0])

    def load(kernel: tuple[str, str, str]) -> Callable[..., None]:
        file, function, digest = kernel
        library = tvm_ffi.cpp.load(
            f"{file}_{digest}",
            cpp_files=[str(folder / f"{file}_binding.cc")],
            cuda_files=[str(folder / f"{file}.cu")],
            extra_cuda_cflags=["-lineinfo"],
            extra_include_paths=[str(cuda)],
        )
        return getattr(library, function)

    with ThreadPoolExecutor() as pool:
        functions = list(pool.map(load, KERNELS))
    return SimpleNamespace(**{function: call for (_, function, _), call in zip(KERNELS, functions, strict=True)})'''


def _workspace_method(size: int) -> list[str]:
    return [
        "",
        "def workspace(self, device: torch.device) -> Tensor:",
        '    """Scratch memory for kernels, kept between calls; the kernels of a stream take turns in it."""',
        "    if self._workspace is None or self._workspace.device != device:",
        f"        self._workspace = torch.empty({size}, dtype=torch.uint8, device=device)",
        "    return self._workspace",
    ]


def _opaque(graph: OpGraph, reference: str, name: str, precision: str) -> dict[str, str | bytes]:
    """Returns the files of a program that runs the reference's own source, for a reference that was not captured."""
    if "class Model" not in reference:
        raise BadInput(
            f"The reference cannot be captured ({graph.opaque}) and has no source file to run instead: give a .py file."
        )
    model = f'''"""{name}: the reference itself. It could not be captured: {escaped(graph.opaque)}

A coder may replace parts of it; `reference.py` is the reference's source.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_reference() -> ModuleType:
    """The module in reference.py beside this file."""
    spec = importlib.util.spec_from_file_location("stitched_reference", Path(__file__).resolve().with_name("reference.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class ModelNew(load_reference().Model):  # type: ignore[misc]
    """The reference, unchanged."""
'''
    text = manifest_text(graph, (), (), (), reference=reference, name=name, precision=precision)
    return {"model_new.py": model, "reference.py": reference, "program.json": text}
