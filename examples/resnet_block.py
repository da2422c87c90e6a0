"""ResNet basic block with a projection shortcut, BatchNorm in training mode, float32.

Source: He et al., "Deep Residual Learning for Image Recognition" (2016); the first block of conv3_x of ResNet-18.

    y = relu(bn2(conv2(relu(bn1(conv1(x))))) + bn_down(conv_down(x)))

The model stays in training mode: every BatchNorm normalises with the statistics of the batch, and a forward updates
its running mean, running variance and batch counter. The output depends on the batch alone, not on those buffers.

Shapes: input (16, 64, 56, 56), output (16, 128, 28, 28).

Convolutions are Kaiming-normal (fan out) as in the usual implementation; BatchNorm gains and biases are drawn around
1 and 0.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 16
IN_CHANNELS = 64
OUT_CHANNELS = 128
SIZE = 56
STRIDE = 2


class Model(nn.Module):
    """Two 3x3 convolutions and a strided 1x1 shortcut, each with BatchNorm over the batch."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, mean=1.0, std=0.1)
                nn.init.normal_(module.bias, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x))


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, IN_CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [IN_CHANNELS, OUT_CHANNELS, STRIDE]
