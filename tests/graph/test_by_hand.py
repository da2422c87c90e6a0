"""examples/by_hand.py wires the parts as it says, and fits a screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1

def get_inputs():
    return [torch.randn(256, 64)]

def get_init_inputs():
    return []
"""


@pytest.mark.more
def test_the_parts_wired_by_hand_end_with_an_accepted_program(tmp_path: Path) -> None:
    reference = tmp_path / "pointwise.py"
    reference.write_text(REFERENCE)
    example = ROOT / "examples" / "by_hand.py"
    done = subprocess.run([sys.executable, example, reference], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    nodes = done.stdout.split()
    assert nodes[:4] == ["baseline", "planner", "search_docs", "coder"]
    assert "accepted, tier" in done.stdout
    assert len(example.read_text().splitlines()) <= 40
