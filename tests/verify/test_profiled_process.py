"""In which order calls are made where a recording is read later, and what is said around them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stitchcuda.tools.profile.ranges import CALL_RANGE, REGION_PREFIX, TRACED_RANGE
from stitchcuda.verify.program import profiled_process


class Lazy(nn.Module):
    """Makes something at its first call, as a program captures a CUDA graph then."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.linear, self.said, self.made = nn.Linear(4, 4), said, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.said.append("replayed" if self.made else "captured")
        self.made = True
        y: torch.Tensor = self.linear(x)
        return y


REGIONS = ["<(root)", "<linear", "<linear: linear", ">", ">", ">"]
"""Ranges of one call: opened, and closed again."""


def ranged(word: str) -> list[str]:
    return [REGIONS[0], word, *REGIONS[1:]]


@pytest.mark.parametrize(
    ("warm", "before", "first"),
    [
        (3, [*ranged("captured"), "replayed", "replayed"], "replayed"),
        (1, ranged("captured"), "replayed"),
        (0, [], "captured"),
    ],
)
def test_only_the_first_warm_call_and_the_traced_ones_say_where_they_are(warm: int, before: list[str], first: str) -> None:
    said = list[str]()
    module, x = Lazy(said), torch.ones(2, 4)
    order = profiled_process.ProfileOrder(
        how="nsys", calls=2, warm=warm, out="", target="sim", precision="reference",
        called=profiled_process.CalledReference(path="", seed=0),
    )  # fmt: skip

    def push(text: str) -> None:
        said.append("<" + text.removeprefix(REGION_PREFIX))

    for step in (profiled_process._make_warm_calls, profiled_process._make_calls):
        step(module, lambda: module(x), order, push, lambda: said.append(">"))
    call, traced = "<" + CALL_RANGE, "<" + TRACED_RANGE
    assert said == [
        *before,
        call, first, ">", call, "replayed", ">",
        traced, *ranged("replayed"), ">", traced, *ranged("replayed"), ">",
    ]  # fmt: skip
