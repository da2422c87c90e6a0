"""Whole sessions with the real tools and the built-in engineer on the simulator: from Python, and from the bare graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from stitchcuda import Session, build_graph, optimize
from stitchcuda.compiler.templates import rewriting
from stitchcuda.engineers import builtin

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.norm(x))

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return [64]
"""


class Gate(nn.Module):
    """Calls a function that refers to the module itself, as minGPT's block does."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 64))
        self.scaled: Callable[[torch.Tensor], torch.Tensor] = lambda x: x * self.scale

    def forward(self, x: torch.Tensor, *, gate: torch.Tensor) -> torch.Tensor:
        return self.scaled(torch.sigmoid(gate) * x)


@pytest.mark.long
def test_a_module_with_example_inputs(tmp_path: Path) -> None:
    inputs = {"x": torch.randn(8, 64), "gate": torch.randn(8, 64)}
    session = optimize(Gate(), inputs, device="sim", workspace=tmp_path / "w")
    outcome = session.outcome()
    assert (session.name, outcome.accepted, outcome.tier, outcome.speedup) == ("Gate-1", True, "simulated", None)
    assert outcome.program is not None
    assert (Path(outcome.program) / "model_new.py").is_file()


@pytest.mark.long
def test_the_bare_graph_makes_its_own_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_WORKSPACE", str(tmp_path / "w"))
    reference = tmp_path / "norm.py"
    reference.write_text(REFERENCE)
    state = build_graph().invoke({"reference": str(reference), "device": "sim", "max_attempts": 3})
    assert state["session"] == "norm-1"
    assert state["tasks_kept"]
    assert state["final"].tier == "simulated"
    assert (tmp_path / "w" / state["report"]).is_file()
    assert len(Session.open("norm-1").home.store.attempts("norm-1")) == state["attempts"]


@pytest.mark.more
def test_a_session_goes_on_with_the_graph_that_it_rewrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All products count as gaining, whatever their size."""
    monkeypatch.setattr(rewriting, "gaining", lambda products, device: tuple(products))
    monkeypatch.setattr(builtin, "WORTH", -1e9)
    layers = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)).requires_grad_(False)
    session = optimize(layers, (torch.randn(16, 48),), device="sim", workspace=tmp_path / "w")
    state, outcome = session.state(), session.outcome()
    assert outcome.accepted
    assert rewriting.SPLIT_PRODUCTS in state["tasks_kept"]
    assert state["baseline"] is not None
    regions = json.loads(session.home.store.get(state["baseline"].regions))
    assert {region["id"][0] for region in regions} == {"s"}
    assert outcome.program is not None
    text = (Path(outcome.program) / "model_new.py").read_text()
    assert text.count("torch.mm(") == 2
    assert "Prepared(self, PREPARED)" in text
    assert state["plan_version"] == 2
