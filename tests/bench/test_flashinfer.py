"""Definitions of flashinfer-bench become references that run, or say why they cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.bench.problems import Problem, read_problems
from stitchcuda.bench.run import run
from stitchcuda.bench.table import read_table
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings
from stitchcuda.verify.reference.reference import load_reference

RUN = """import torch

@torch.no_grad()
def run(x, weight, eps):
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale * weight.float()).to(x.dtype)
"""
DEFINITION: dict[str, Any] = {
    "name": "norm_h32", "op_type": "rmsnorm", "tags": ["status:verified"],
    "axes": {"batch": {"type": "var"}, "hidden": {"type": "const", "value": 32}},
    "inputs": {
        "x": {"shape": ["batch", "hidden"], "dtype": "bfloat16"}, "weight": {"shape": ["hidden"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch", "hidden"], "dtype": "bfloat16"}},
    "reference": RUN,
}  # fmt: skip


def workload(batch: int, **inputs: Any) -> dict[str, Any]:
    given = {"x": {"type": "random"}, "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}} | inputs
    about = {"uuid": f"w{batch}", "axes": {"batch": batch}, "inputs": given}
    return {"definition": "norm_h32", "workload": about, "solution": None, "evaluation": None}


def problem(folder: Path, definition: dict[str, Any], workloads: list[dict[str, Any]]) -> Problem:
    files = {"definitions/x/a.json": [definition], "workloads/x/a.jsonl": workloads}
    for place, objects in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("\n".join(map(json.dumps, objects)))
    (found,) = read_problems("flashinfer", folder, folder / "written")
    return found


def test_a_definition_becomes_a_reference_at_the_median_size(tmp_path: Path) -> None:
    found = problem(tmp_path, DEFINITION, [workload(900), workload(7), workload(30)])
    assert (found.name, found.why_not) == ("a", "")
    reference = load_reference(found.reference)
    (x, weight), _ = reference.inputs(0)
    assert (x.shape, weight.shape, x.dtype) == ((30, 32), (32,), torch.bfloat16)
    (y,) = reference.examine().values()
    assert torch.allclose(y.float(), torch.nn.functional.rms_norm(x.float(), (32,), weight.float(), 1e-6), rtol=1e-2)


CHANGES: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    ({}, [], "no workload"),
    ({}, [workload(3, x={"type": "safetensors", "path": "x", "tensor_key": "x"})], "its input x is data in a file"),
    ({}, [workload(3, eps={"type": "random"})], "no number for its scalar eps"),
    ({"inputs": {"x": {"shape": ["batch"], "dtype": "int32"}}}, [workload(3)], "its input x is int32"),
    ({"inputs": {"x": {"shape": ["other"], "dtype": "float32"}}}, [workload(3)], "how large its axis other is"),
    ({"inputs": {"x y": {"shape": ["batch"], "dtype": "float32"}}}, [workload(3)], "'x y' is no name"),
    ({"inputs": {"eps": {"shape": None, "dtype": "float32"}}}, [workload(3)], "no tensor among its inputs"),
    ({"reference": "def go(): pass"}, [workload(3)], "no function run"),
    ({"reference": "def run(:"}, [workload(3)], "no Python"),
    ({"reference": f"{RUN}\nclass Model: pass"}, [workload(3)], "defines Model"),
    ({"axes": 3}, [workload(3)], "axes: "),
]


@pytest.mark.parametrize(("change", "workloads", "why"), CHANGES)
def test_what_does_not_fit_says_why(change: dict[str, Any], workloads: list[dict[str, Any]], why: str, tmp_path: Path) -> None:
    assert why in problem(tmp_path, DEFINITION | change, workloads).why_not


def test_it_is_a_row_of_the_table_with_the_reason(tmp_path: Path) -> None:
    found = problem(tmp_path / "set", DEFINITION, [])
    run([found], tmp_path / "out", Settings(target="sim"), source="flashinfer", path=tmp_path / "set", tell=lambda line: None)
    table = read_table(tmp_path / "out")
    assert [(row.end, row.reasons) for row in table.problems] == [("could not judge", (found.why_not,))]
    assert (table.not_judged, table.missing) == (1, 0)
    with pytest.raises(BadInput, match="no folder definitions"):
        read_problems("flashinfer", tmp_path, tmp_path)
