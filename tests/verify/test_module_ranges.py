"""Ranges say, for every torch function that a module calls, in which of its parts it was called."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stitchcuda.tools.profile.ranges import REGION_PREFIX
from stitchcuda.verify.reference.module_ranges import Regions, function_name, scope


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


class Flat(nn.Module):
    """What a program is like: one forward, on parameters by their path."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Module(), nn.Module()])
        for block in self.blocks:
            block.proj, block.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.blocks[1].proj.weight  # type: ignore[assignment, union-attr]
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, tied = self.blocks[0], self.tied
        y = F.linear(x * self.scale, first.proj.weight, first.proj.bias)  # type: ignore[union-attr, arg-type]
        y = F.linear(weight=tied.weight, input=y)
        y = y + torch.stack([y[0], tied.bias])[0]
        z: torch.Tensor = F.relu(y) + first.norm.running_mean  # type: ignore[union-attr, operator]
        return z


FLAT = [
    (0, "(root)"), (1, "(root): mul"), (1, "blocks.*.proj: linear"), (1, "blocks.*.proj: linear"), (1, "(root): getitem"),
    (1, "tied: stack"), (1, "(root): getitem"), (1, "(root): add"), (1, "(root): relu"), (1, "blocks.*.norm: add"),
]  # fmt: skip


def test_in_a_flat_forward_a_function_is_of_the_module_whose_parameter_it_takes() -> None:
    tape, net, x = Tape(), Flat(), torch.randn(8, 8)
    expected = net(x)
    with Regions(net, tape.push, tape.pop):
        assert torch.equal(net(x), expected)
    assert tape.lines == FLAT


def test_parameters_that_are_replaced_between_calls_are_known_again() -> None:
    tape, net, x = Tape(), Flat(), torch.randn(8, 8)
    with Regions(net, tape.push, tape.pop):
        for _ in range(3):
            old: torch.Tensor = net.blocks[0].proj.weight  # type: ignore[assignment, union-attr]
            for block in net.blocks:
                block.proj = nn.Linear(8, 8)
            net.tied.weight = net.blocks[1].proj.weight  # type: ignore[assignment, union-attr]
            tape.lines.clear()
            net(x)
            assert tape.lines == FLAT
            tape.lines.clear()
            net(old)
            assert tape.lines == FLAT, "what is no parameter any more is nobody's"


def test_what_a_submodule_calls_is_its_own_whatever_it_takes() -> None:
    lender = nn.Linear(8, 8)

    class Borrower(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, lender.weight)

    tape, net = Tape(), nn.Sequential()
    net.add_module("borrower", Borrower())
    net.add_module("lender", lender)
    with Regions(net, tape.push, tape.pop):
        net(torch.randn(8, 8))
    assert tape.lines == [
        (0, "(root)"), (1, "borrower"), (2, "borrower: linear"), (1, "lender"), (2, "lender: linear"),
    ]  # fmt: skip


def test_nothing_stays_behind_and_nothing_comes_before() -> None:
    tape, net, x = Tape(), Net(), torch.randn(8, 8)
    regions = Regions(net, tape.push, tape.pop)
    net(x)
    assert tape.lines == []
    for _ in range(2):
        with regions:
            net(x)
        count = len(tape.lines)
        assert count
        net(x)
        assert len(tape.lines) == count
        tape.lines.clear()


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
