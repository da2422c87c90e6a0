"""MBConv block with squeeze-and-excitation, BatchNorm in evaluation mode, SiLU, float32.

Source: Tan and Le, "EfficientNet" (2019), second block of stage 4 of B0; squeeze-and-excitation is Hu et al. (2018).

    expand 1x1 -> BN -> SiLU -> depthwise 5x5 -> BN -> SiLU -> squeeze-excite -> project 1x1 -> BN -> + x

Shapes: input and output (8, 40, 28, 28); expanded channels 240, squeezed channels 10.

The constructor calls eval(): this is the block at inference, with fixed running statistics. Those and the BatchNorm
gains and biases are drawn as a trained network would have them, not left at 0 and 1.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 8
CHANNELS = 40
SIZE = 28


class SqueezeExcite(nn.Module):
    """Channel gate computed from the spatial mean."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        s = x.mean(dim=(2, 3), keepdim=True)
        s = self.expand(F.silu(self.reduce(s)))
        return x * torch.sigmoid(s)


class Model(nn.Module):
    """Inverted bottleneck with residual."""

    def __init__(self, channels: int, expansion: int = 6, kernel: int = 5) -> None:
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide, eps=1e-3)
        self.depthwise = nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide, bias=False)
        self.bn2 = nn.BatchNorm2d(wide, eps=1e-3)
        self.squeeze_excite = SqueezeExcite(wide, channels // 4)
        self.project = nn.Conv2d(wide, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels, eps=1e-3)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                nn.init.uniform_(module.weight, 0.7, 1.3)
                nn.init.normal_(module.bias, std=0.2)
                nn.init.normal_(module.running_mean, std=0.3)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.bn1(self.expand(x)))
        y = F.silu(self.bn2(self.depthwise(y)))
        y = self.squeeze_excite(y)
        y = self.bn3(self.project(y))
        out: Tensor = x + y
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
