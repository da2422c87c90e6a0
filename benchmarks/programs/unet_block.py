"""Residual block of a diffusion U-Net: GroupNorm, SiLU and 3x3 convolution twice, a time embedding between; float32.

Source: Ho, Jain and Abbeel, "Denoising Diffusion Probabilistic Models" (2020).

Shapes: input and output (4, 128, 32, 32), that is batch, channels, height, width; time embedding (4, 512).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH, CHANNELS, SIZE, TIME, GROUPS = 4, 128, 32, 512, 32


class Model(nn.Module):
    def __init__(self, channels: int, time: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.embed = nn.Linear(time, 2 * channels)
        self.norm2 = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.embed(F.silu(time))[:, :, None, None].chunk(2, 1)
        h = self.norm2(h) * (1.0 + scale) + shift
        out: Tensor = x + self.conv2(F.silu(h))
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), torch.randn(BATCH, TIME)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, TIME, GROUPS]
