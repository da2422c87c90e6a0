"""Llama feed-forward half block: RMSNorm, gated SiLU MLP and residual, bfloat16 weights and activations.

Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); the gated MLP is SwiGLU from
Shazeer, "GLU Variants Improve Transformer" (2020); RMSNorm is Zhang and Sennrich (2019).

    x -> x + down(silu(gate(h)) * up(h)),  h = RMSNorm(x)

RMSNorm is written by hand: it computes in float32 and rounds back to bfloat16 before the gain, as the published
implementations do.

Shapes: input and output (4, 64, 1024), that is batch, tokens, width; hidden width 2816.

Linear weights are normal with standard deviation 0.02; the norm gain is drawn around 1.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 4
TOKENS = 64
WIDTH = 1024
HIDDEN = 2816


class RMSNorm(nn.Module):
    """Root-mean-square norm that computes in float32."""

    def __init__(self, width: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))
        nn.init.normal_(self.weight, mean=1.0, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        h = x.to(torch.float32)
        variance = h.pow(2).mean(dim=-1, keepdim=True)
        h = h * torch.rsqrt(variance + self.eps)
        return self.weight * h.to(x.dtype)


class Model(nn.Module):
    """RMSNorm, SwiGLU MLP and residual connection."""

    def __init__(self, width: int, hidden: int, eps: float = 1e-5) -> None:
        super().__init__()
        dtype = torch.bfloat16
        self.norm = RMSNorm(width, eps, dtype)
        self.gate_proj = nn.Linear(width, hidden, bias=False, dtype=dtype)
        self.up_proj = nn.Linear(width, hidden, bias=False, dtype=dtype)
        self.down_proj = nn.Linear(hidden, width, bias=False, dtype=dtype)
        for linear in (self.gate_proj, self.up_proj, self.down_proj):
            nn.init.normal_(linear.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        h = F.silu(self.gate_proj(h)) * self.up_proj(h)
        out: Tensor = x + self.down_proj(h)
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HIDDEN]
