"""Pre-norm transformer block with multi-head self-attention and a GELU MLP, float32.

Source: Vaswani et al., "Attention Is All You Need" (2017), in the pre-norm arrangement of Xiong et al., "On Layer
Normalization in the Transformer Architecture" (2020).

    x -> x + Attention(LayerNorm(x)) -> x + MLP(LayerNorm(x))

Shapes: input and output (4, 128, 512), that is batch, tokens, width; 8 heads of 64; MLP width 2048.

Weights are Xavier-uniform as in the original Transformer. Norm gains and biases are drawn around 1 and 0, as they are
found in a trained network, so that the affine part takes effect.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 4
TOKENS = 128
WIDTH = 512
HEADS = 8
MLP_WIDTH = 2048


class SelfAttention(nn.Module):
    """Bidirectional multi-head self-attention with one fused query-key-value projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        for part in self.qkv.weight.detach().chunk(3, dim=0):
            nn.init.xavier_uniform_(part)
        nn.init.xavier_uniform_(self.proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return out


class Model(nn.Module):
    """One pre-norm encoder block."""

    def __init__(self, width: int, heads: int, mlp_width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, mlp_width)
        self.fc2 = nn.Linear(mlp_width, width)
        for linear in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(linear.weight)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, mean=1.0, std=0.1)
            nn.init.normal_(norm.bias, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS, MLP_WIDTH]
