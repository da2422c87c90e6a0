"""Ranges say, for every torch function that a module calls, in which of its parts it was called."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stitchcuda.tools.running.ranges import REGION_PREFIX
from stitchcuda.tools.running.regions import Regions, function_name, scope


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.lin = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lin(self.norm(x))
        y += x
        z: torch.Tensor = y.softmax(-1) @ y.mT
        return z


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(2 - self.blocks(x))


class Tape:
    """What was pushed, with its depth."""

    def __init__(self) -> None:
        self.depth, self.lines = 0, list[tuple[int, str]]()

    def push(self, text: str) -> None:
        assert text.startswith(REGION_PREFIX)
        self.lines.append((self.depth, text.removeprefix(REGION_PREFIX)))
        self.depth += 1

    def pop(self) -> None:
        self.depth -= 1


def test_every_function_has_its_place() -> None:
    tape, net, x = Tape(), Net(), torch.randn(8, 8)
    expected = net(x)
    with Regions(net, tape.push, tape.pop):
        torch.ones(3)                      # outside of any call
        assert torch.equal(net(x), expected)
    assert tape.depth == 0
    block = [
        (2, "blocks.*"),
        (3, "blocks.*.norm"), (4, "blocks.*.norm: layer_norm"),
        (3, "blocks.*.lin"), (4, "blocks.*.lin: linear"),
        (3, "blocks.*: add"), (3, "blocks.*: softmax"), (3, "blocks.*: matmul"),
    ]  # fmt: skip
    assert tape.lines == [(0, "(root)"), (1, "blocks"), *block, *block, (1, "(root): sub"), (1, "(root): gelu")]


def test_nothing_stays_behind() -> None:
    tape, net, x = Tape(), Net(), torch.randn(8, 8)
    with Regions(net, tape.push, tape.pop):
        net(x)
    count = len(tape.lines)
    net(x)
    assert len(tape.lines) == count


def test_a_forward_that_raises_leaves_no_range_open() -> None:
    tape, net = Tape(), Net()
    with Regions(net, tape.push, tape.pop):
        with pytest.raises(RuntimeError):
            net(torch.randn(8, 7))
        assert tape.depth == 0
        net(torch.randn(8, 8))
    assert tape.depth == 0


def test_names() -> None:
    assert scope("") == "(root)"
    assert scope("layers.12.mlp.0") == "layers.*.mlp.*"
    assert scope("conv2.norm1") == "conv2.norm1"
    assert function_name(F.linear) == "linear"
    assert function_name(torch.Tensor.__rsub__) == "sub"
    assert function_name(torch.Tensor.__imul__) == "mul"
    assert function_name(torch.Tensor.relu_) == "relu"
