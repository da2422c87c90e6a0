"""Cross-attention block with rotary positions, grouped keys and values and a padding mask, float16.

Source: the encoder-decoder attention of Vaswani et al. (2017), rotary embedding of Su et al., "RoFormer" (2021), and
grouped queries of Ainslie et al., "GQA" (2023).

    x -> x + out(softmax(rot(q) rot(k)^T / sqrt(d) + mask) v)

Weights and activations are float16. Rotations and the softmax are computed in float32; the cosine and sine tables are
float32 buffers that are looked up by position and are not part of the state dict.

Shapes: x (4, 64, 512) and context (4, 160, 512) float16, x_positions (4, 64) and context_positions (4, 160) int64,
context_mask (4, 160) bool, true where the context is valid; output (4, 64, 512) float16. 8 query heads and 2 key-value
heads of 64.
"""

import torch
import torch.nn as nn
from torch import Tensor

BATCH = 4
QUERIES = 64
KEYS = 160
WIDTH = 512
HEADS = 8
KV_HEADS = 2
MAX_POSITIONS = 512


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the last dimension against each other, in float32."""
    first, second = x.float().chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return rotated.to(x.dtype)


class Model(nn.Module):
    """Pre-norm cross-attention with residual."""

    cos: Tensor
    sin: Tensor

    def __init__(self, width: int, heads: int, kv_heads: int, max_positions: int, base: float = 10_000.0) -> None:
        super().__init__()
        dtype = torch.float16
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_width = width // heads
        self.norm_x = nn.LayerNorm(width, dtype=dtype)
        self.norm_context = nn.LayerNorm(width, dtype=dtype)
        self.q_proj = nn.Linear(width, width, bias=False, dtype=dtype)
        self.k_proj = nn.Linear(width, kv_heads * self.head_width, bias=False, dtype=dtype)
        self.v_proj = nn.Linear(width, kv_heads * self.head_width, bias=False, dtype=dtype)
        self.out_proj = nn.Linear(width, width, bias=False, dtype=dtype)
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.normal_(linear.weight, std=width**-0.5)
        for norm in (self.norm_x, self.norm_context):
            nn.init.normal_(norm.weight, mean=1.0, std=0.1)
            nn.init.normal_(norm.bias, std=0.1)
        frequencies = base ** (-torch.arange(0, self.head_width, 2, dtype=torch.float32) / self.head_width)
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.head_width).transpose(1, 2)

    def forward(
        self, x: Tensor, context: Tensor, x_positions: Tensor, context_positions: Tensor, context_mask: Tensor
    ) -> Tensor:
        context = self.norm_context(context)
        q = self.split(self.q_proj(self.norm_x(x)), self.heads)
        k = self.split(self.k_proj(context), self.kv_heads)
        v = self.split(self.v_proj(context), self.kv_heads)
        q = rotate(q, self.cos[x_positions].unsqueeze(1), self.sin[x_positions].unsqueeze(1))
        k = rotate(k, self.cos[context_positions].unsqueeze(1), self.sin[context_positions].unsqueeze(1))
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = torch.matmul(q, k.transpose(2, 3)) * self.head_width**-0.5
        scores = scores.float().masked_fill(~context_mask[:, None, None, :], torch.finfo(torch.float32).min)
        weights = torch.softmax(scores, dim=-1).to(v.dtype)
        y = torch.matmul(weights, v).transpose(1, 2).flatten(2)
        out: Tensor = x + self.out_proj(y)
        return out


def get_inputs() -> list[Tensor]:
    x = torch.randn(BATCH, QUERIES, WIDTH, dtype=torch.float16)
    context = torch.randn(BATCH, KEYS, WIDTH, dtype=torch.float16)
    x_positions = torch.arange(QUERIES) + torch.randint(MAX_POSITIONS - QUERIES, (BATCH, 1))
    context_positions = torch.arange(KEYS).repeat(BATCH, 1)
    lengths = torch.randint(KEYS // 2, KEYS + 1, (BATCH, 1))
    return [x, context, x_positions, context_positions, context_positions < lengths]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS, KV_HEADS, MAX_POSITIONS]
