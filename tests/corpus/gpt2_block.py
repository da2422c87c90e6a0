"""GPT-2 block with explicit softmax attention, a causal mask buffer and the tanh GELU written out, float32.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).

    x -> x + Attention(LayerNorm(x)) -> x + MLP(LayerNorm(x))

The mask is a boolean buffer that is not part of the state dict. It is built for the full context and cut to the length
of the input.

Shapes: input and output (4, 128, 384), that is batch, tokens, width; 6 heads of 64; context 256; MLP width 1536.

Weights are Xavier-normal rather than the paper's 0.02, so that attention is not nearly uniform at this width.
"""

import math

import torch
import torch.nn as nn
from torch import Tensor

BATCH = 4
TOKENS = 128
CONTEXT = 256
WIDTH = 384
HEADS = 6


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class CausalSelfAttention(nn.Module):
    """Masked attention with the score matrix in full."""

    causal_mask: Tensor

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        mask = torch.tril(torch.ones(context, context, dtype=torch.bool)).view(1, 1, context, context)
        self.register_buffer("causal_mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        head_width = width // self.heads
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        q = q.view(batch, tokens, self.heads, head_width).transpose(1, 2)
        k = k.view(batch, tokens, self.heads, head_width).transpose(1, 2)
        v = v.view(batch, tokens, self.heads, head_width).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(head_width)
        scores = scores.masked_fill(~self.causal_mask[:, :, :tokens, :tokens], float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        y = (weights @ v).transpose(1, 2).contiguous().view(batch, tokens, width)
        out: Tensor = self.c_proj(y)
        return out


class Model(nn.Module):
    """One GPT-2 block."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, context)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                nn.init.normal_(module.bias, std=0.02)
            elif isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight, mean=1.0, std=0.1)
                nn.init.normal_(module.bias, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        x = x + self.c_proj(gelu_tanh(self.c_fc(self.ln_2(x))))
        return x


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS, CONTEXT]
