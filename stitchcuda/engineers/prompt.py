"""Renders the prompts of `prompts/*.md.j2`: what each role is shown, from the records of a session.

The wording lives in the templates (strict undefined: a field that a template names and nobody gives is an error); this
module only chooses and formats. It calls no model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.diagnosis import diagnosis
from stitchcuda.fusion.cost import saving_ms
from stitchcuda.fusion.emit import emit
from stitchcuda.fusion.floor import floors, program_floor
from stitchcuda.fusion.graph import Literal_, Node, OpGraph, ValueRef
from stitchcuda.fusion.lower import CannotLower, lower
from stitchcuda.state import Evidence, Policy, Precision, Region, TensorSpec

PRECISIONS: dict[Precision, str] = {
    "reference": "the reference's own dtypes; error against float64 at most 10 times its own, so no TF32 or half for fp32",
    "tf32": "TF32 matrix products are allowed",
    "fp16": "fp16 is allowed inside",
    "bf16": "bf16 is allowed inside",
}
POLICIES: dict[Policy, str] = {
    "stitched": "library operators of torch may remain where nothing better is written",
    "strict": "no framework compute in the end: own kernels, cuBLASLt for GEMM, cuDNN for convolution",
}
LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".cc": "cpp", ".cpp": "cpp", ".h": "cpp", ".json": "json"}


def planner_prompt(brief: Brief) -> str:
    regions = [region for region in brief.regions if region.kind != "view"]
    device, precision = brief.baseline.device, brief.settings.precision
    return _render(
        "planner",
        _common(brief)
        | {
            "baseline": brief.baseline,
            "regions": regions,
            "savings": {region.id: saving_ms(region, device) for region in regions},
            "floor": program_floor(brief.graph, device, precision),
            "floors": floors(regions, device, precision),
            "views": len(brief.regions) - len(regions),
            "kept": brief.kept,
            "plans": brief.plans,
            "history": brief.history,
            "notes": brief.notes,
        },
    )


def coder_prompt(assignment: Assignment) -> str:
    brief = assignment.brief
    region = next((region for region in brief.regions if region.id in assignment.task.regions), None)
    return _render(
        "coder",
        _common(brief)
        | {
            "task": assignment.task,
            "region": region,
            "listing": listing(brief.graph, region) if region else "",
            "program": texts(assignment.program),
            "kept": assignment.kept,
            "last": assignment.last,
            "last_files": changed(assignment.program, assignment.last) if assignment.last else {},
            "ordinal": assignment.ordinal,
            "diagnosis": diagnosis(assignment.evidence) if assignment.evidence else "",
            "first": first_draft(brief.graph, region) if region and assignment.last is None else {},
            "review": assignment.review,
            "docs": assignment.docs,
        },
    )


def verifier_prompt(assignment: Assignment, draft: Draft, evidence: Evidence) -> str:
    return _render(
        "verifier",
        _common(assignment.brief)
        | {
            "task": assignment.task,
            "tier": evidence.tier,
            "diagnosis": diagnosis(evidence),
            "changed": changed(assignment.program, draft),
            "draft": draft,
            "ordinal": assignment.ordinal + 1,
            "docs": assignment.docs,
        },
    )


def texts(files: Files) -> dict[str, str]:
    """What can be read of a program: its binary constants are only named."""
    return {path: text if isinstance(text, str) else f"(binary, {len(text)} bytes; it stays)" for path, text in files.items()}


def changed(program: Files, draft: Draft) -> dict[str, str]:
    """The files of a draft that differ from the program it started from."""
    return {path: text for path, text in draft.files.items() if isinstance(text, str) and program.get(path) != text}


def first_draft(graph: OpGraph, region: Region) -> dict[str, str]:
    """What the built-in compiler writes for the region, as a start that is known to work; nothing where it cannot."""
    if region.kind != "fusible":
        return {}
    try:
        source = emit(lower(graph, region))
    except CannotLower:
        return {}
    return {f"kernels/{source.name}.cu": source.cuda, f"kernels/{source.name}_binding.cc": source.binding}


def listing(graph: OpGraph, region: Region) -> str:
    """The operators of the region's first instance, one a line: `name = op(arguments)  # shape dtype`."""
    names = set(region.nodes[0]) if region.nodes else set()
    keys = {tensor.spec.name: tensor.key for tensor in graph.state}
    return "\n".join(_operator(node, keys) for node in graph.nodes if node.name in names)


def _operator(node: Node, keys: dict[str, str]) -> str:
    arguments = [_argument(arg, keys) for arg in node.args]
    arguments += [f"{name}={_argument(arg, keys)}" for name, arg in node.kwargs.items()]
    names = ", ".join(spec.name for spec in node.outputs) or node.name
    shapes = "; ".join(f"{list(spec.shape)} {spec.dtype}" for spec in node.outputs)
    return f"{names} = {node.op}({', '.join(arguments)})  # {shapes}"


def _argument(arg: Any, keys: dict[str, str]) -> str:
    if isinstance(arg, ValueRef):
        return f"self.{keys[arg.value]}" if arg.value in keys else arg.value
    if isinstance(arg, Literal_):
        return arg.text
    if isinstance(arg, tuple | list):
        return f"[{', '.join(_argument(item, keys) for item in arg)}]"
    return json.dumps(arg) if isinstance(arg, str) else str(arg)


def contract(spec: TensorSpec) -> str:
    return f"{spec.name} {list(spec.shape)} {spec.dtype} strides {list(spec.strides)}"


def _ms(value: float) -> str:
    return f"{value:.3g} ms" if value >= 0.01 else f"{value * 1000:.3g} µs"


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _common(brief: Brief) -> dict[str, Any]:
    return {
        "settings": brief.settings,
        "device": brief.baseline.device,
        "precision": f"{brief.settings.precision} ({PRECISIONS[brief.settings.precision]}).",
        "policy": f"{brief.settings.policy} ({POLICIES[brief.settings.policy]}).",
        "reference": brief.reference.strip(),
    }


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters |= {"contract": contract, "scope": lambda path: path or "the root module"}
    environment.globals |= {
        "ms": _ms,
        "bytes": lambda value: _scaled(value, "B"),
        "flops": lambda value: _scaled(value, "FLOP"),
        "language": lambda path: LANGUAGES.get(Path(path).suffix, ""),
    }
    return environment


def _render(name: str, values: dict[str, Any]) -> str:
    return _environment().get_template(f"{name}.md.j2").render(values).strip() + "\n"
