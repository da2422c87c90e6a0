"""Attention half block of a decoder: RMSNorm, grouped queries, rotary embedding, causal attention, residual; bfloat16.

Source: rotary embedding is Su et al., "RoFormer" (2021); grouped-query attention is Ainslie et al. (2023); RMSNorm is Zhang and
Sennrich (2019).

Shapes: input and output (2, 512, 1024), that is batch, tokens, width; 16 query heads and 4 key and value heads of 64.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH, TOKENS, WIDTH, HEADS, GROUPS = 2, 512, 1024, 16, 4


class Model(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, width: int, heads: int, groups: int, tokens: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        dtype = torch.bfloat16
        self.norm = nn.Parameter(torch.empty(width, dtype=dtype).normal_(1.0, 0.1))
        self.query = nn.Linear(width, width, bias=False, dtype=dtype)
        self.key = nn.Linear(width, groups * self.size, bias=False, dtype=dtype)
        self.value = nn.Linear(width, groups * self.size, bias=False, dtype=dtype)
        self.out = nn.Linear(width, width, bias=False, dtype=dtype)
        for linear in (self.query, self.key, self.value, self.out):
            nn.init.normal_(linear.weight, std=0.02)
        rate = 10000.0 ** (-torch.arange(0, self.size, 2).float() / self.size)
        angle = torch.outer(torch.arange(tokens).float(), rate)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], -1))
        self.register_buffer("sin", torch.cat([angle.sin(), angle.sin()], -1))

    def rotate(self, x: Tensor) -> Tensor:
        """Rotary embedding of (batch, heads, tokens, size), computed in float32."""
        h = x.float()
        half = self.size // 2
        turned = torch.cat([-h[..., half:], h[..., :half]], -1)
        return (h * self.cos + turned * self.sin).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        h = x.float()
        h = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.norm
        q = self.rotate(self.query(h).view(batch, tokens, self.heads, self.size).transpose(1, 2))
        k = self.rotate(self.key(h).view(batch, tokens, self.groups, self.size).transpose(1, 2))
        v = self.value(h).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.groups, 1)
        v = v.repeat_interleave(self.heads // self.groups, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS, GROUPS, TOKENS]
