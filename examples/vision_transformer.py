"""Small vision transformer, whole: patches, class token, positions, 6 blocks, final norm and head, float32.

Source: Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021), at the width of the Tiny model of Touvron et al.,
"Training data-efficient image transformers" (2021), with half its depth.

Shapes: input (4, 3, 224, 224), output (4, 1000) logits; 16x16 patches, 197 tokens, width 192, 3 heads of 64, MLP
width 768.

Linear weights are Xavier-uniform and position embeddings normal as in the authors' code. The class token and the
head, which start at zero there, are drawn too, and norm gains and biases are drawn around 1 and 0. There is no
dropout, so training and evaluation modes are the same.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 4
IMAGE = 224
PATCH = 16
WIDTH = 192
DEPTH = 6
HEADS = 3
MLP_WIDTH = 768
CLASSES = 1000


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        return x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        y = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Pre-norm encoder block."""

    def __init__(self, width: int, heads: int, mlp_width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, mlp_width), nn.GELU(), nn.Linear(mlp_width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class Model(nn.Module):
    """Image classifier over the final state of the class token."""

    def __init__(self, image: int, patch: int, width: int, depth: int, heads: int, mlp_width: int, classes: int) -> None:
        super().__init__()
        tokens = (image // patch) ** 2 + 1
        self.patch_embedding = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.position_embedding = nn.Parameter(torch.empty(1, tokens, width))
        self.blocks = nn.ModuleList(Block(width, heads, mlp_width) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        nn.init.normal_(self.class_token, std=0.02)
        nn.init.normal_(self.position_embedding, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=0.02)
            elif isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight, mean=1.0, std=0.1)
                nn.init.normal_(module.bias, std=0.1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_embedding(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.position_embedding
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, 3, IMAGE, IMAGE)]


def get_init_inputs() -> list[int]:
    return [IMAGE, PATCH, WIDTH, DEPTH, HEADS, MLP_WIDTH, CLASSES]
