"""What a reference's module holds is put back as it was constructed."""

from __future__ import annotations

import torch
from torch import nn

from stitchcuda.verify.reference.reference_state import ReferenceState


class Counting(nn.Module):
    """Its calls change a parameter, a buffer, and a buffer that no state_dict holds."""

    seen: torch.Tensor
    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight - self.last
        self.weight.add_(1)
        self.seen += 1
        self.last.copy_(x)
        return y


def test_calls_are_undone() -> None:
    module = Counting()
    state = ReferenceState(module, "cpu")
    x = torch.randn(3)
    first = module(x)
    state.reset()
    assert torch.equal(module(x), first)
    state.reset()
    assert [module.last.tolist(), module.seen.tolist(), module.weight.tolist()] == [[0.0] * 3, 0.0, [1.0] * 3]
