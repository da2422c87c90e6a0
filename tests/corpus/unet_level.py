"""One level of a U-Net: GroupNorm double convolutions, pooling, upsampling and skip concatenation, float32.

Source: Ronneberger et al., "U-Net" (2015), with GroupNorm of Wu and He (2018) and padded convolutions.

    skip = double(x);  y = double(maxpool(skip));  y = double(cat(skip, up(y)));  softmax over classes

Shapes: input (2, 3, 96, 96), output (2, 4, 96, 96) class probabilities; 32 channels at full and 64 at half
resolution, 8 groups.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 2
IN_CHANNELS = 3
CHANNELS = 32
CLASSES = 4
GROUPS = 8
SIZE = 96


class DoubleConv(nn.Module):
    """Convolution, GroupNorm and ReLU, twice."""

    def __init__(self, in_channels: int, out_channels: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class Model(nn.Module):
    """Two-resolution U-Net with a pixel classifier."""

    def __init__(self, in_channels: int, channels: int, classes: int, groups: int) -> None:
        super().__init__()
        self.encoder = DoubleConv(in_channels, channels, groups)
        self.bottom = DoubleConv(channels, 2 * channels, groups)
        self.up = nn.ConvTranspose2d(2 * channels, channels, kernel_size=2, stride=2)
        self.decoder = DoubleConv(2 * channels, channels, groups)
        self.head = nn.Conv2d(channels, classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.GroupNorm):
                nn.init.normal_(module.weight, mean=1.0, std=0.1)
                nn.init.normal_(module.bias, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.encoder(x)
        y = self.bottom(F.max_pool2d(skip, kernel_size=2))
        y = self.decoder(torch.cat([skip, self.up(y)], dim=1))
        return torch.softmax(self.head(y), dim=1)


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, IN_CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [IN_CHANNELS, CHANNELS, CLASSES, GROUPS]
