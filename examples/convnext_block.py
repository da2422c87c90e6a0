"""ConvNeXt block: depthwise 7x7 convolution, channels-last LayerNorm and MLP, layer scale, residual, float32.

Source: Liu et al., "A ConvNet for the 2020s" (2022); a block of stage 1 of ConvNeXt-T.

    y = x + permute(scale * fc2(gelu(fc1(LayerNorm(permute(dwconv(x)))))))

Shapes: input and output (4, 96, 56, 56); MLP width 384.

The paper starts layer scale at 1e-6, which hides the branch until it has been trained. Here it is drawn from
[0.5, 1), with Xavier-uniform linear weights, so that the branch and the residual are of comparable size.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 4
CHANNELS = 96
SIZE = 56


class Model(nn.Module):
    """One ConvNeXt block."""

    def __init__(self, channels: int, expansion: int = 4) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.fc1 = nn.Linear(channels, expansion * channels)
        self.fc2 = nn.Linear(expansion * channels, channels)
        self.layer_scale = nn.Parameter(torch.empty(channels).uniform_(0.5, 1.0))
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.1)
        nn.init.normal_(self.norm.bias, std=0.1)
        nn.init.xavier_uniform_(self.fc1.weight)
        nn.init.xavier_uniform_(self.fc2.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dwconv(x)
        y = y.permute(0, 2, 3, 1)
        y = self.norm(y)
        y = self.fc2(F.gelu(self.fc1(y)))
        y = self.layer_scale * y
        y = y.permute(0, 3, 1, 2)
        out: Tensor = x + y
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
