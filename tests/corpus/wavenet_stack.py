"""WaveNet stack: dilated causal convolutions, gated tanh units, speaker conditioning, skip sums, float32.

Source: van den Oord et al., "WaveNet: A Generative Model for Raw Audio" (2016), one stack of 8 dilations with global
conditioning.

    h = dilated(pad(x)) + condition(speaker);  z = tanh(h_a) * sigmoid(h_b);  x = x + residual(z);  skips += skip(z)

Shapes: samples (2, 2048) int64 in [0, 256), speaker (2,) int64 in [0, 16); outputs are the tuple of log-probabilities
(2, 256, 2048) over the next sample and the last residual state (2, 64, 2048).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 2
SAMPLES = 2048
LEVELS = 256
SPEAKERS = 16
CHANNELS = 64
SKIP_CHANNELS = 128
LAYERS = 8


class GatedLayer(nn.Module):
    """One dilated gated layer with residual and skip outputs."""

    def __init__(self, channels: int, skip_channels: int, condition_width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.dilated = nn.Conv1d(channels, 2 * channels, kernel_size=2, dilation=dilation)
        self.condition = nn.Linear(condition_width, 2 * channels, bias=False)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skip_channels, 1)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        h = self.dilated(F.pad(x, (self.dilation, 0)))
        h = h + self.condition(condition).unsqueeze(-1)
        filtered, gate = h.chunk(2, dim=1)
        z = torch.tanh(filtered) * torch.sigmoid(gate)
        return x + self.residual(z), self.skip(z)


class Model(nn.Module):
    """Quantised audio in, log-probabilities of the next sample and the residual state out."""

    def __init__(self, levels: int, speakers: int, channels: int, skip_channels: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(levels, channels)
        self.speaker = nn.Embedding(speakers, channels)
        self.layers = nn.ModuleList(GatedLayer(channels, skip_channels, channels, 2**i) for i in range(layers))
        self.post1 = nn.Conv1d(skip_channels, skip_channels, 1)
        self.post2 = nn.Conv1d(skip_channels, levels, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv1d):
                nn.init.xavier_normal_(module.weight)

    def forward(self, samples: Tensor, speaker: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(samples).transpose(1, 2)
        condition = self.speaker(speaker)
        skips: Tensor | None = None
        for layer in self.layers:
            x, skip = layer(x, condition)
            skips = skip if skips is None else skips + skip
        assert skips is not None
        y = self.post1(F.relu(skips))
        y = self.post2(F.relu(y))
        return F.log_softmax(y, dim=1), x


def get_inputs() -> list[Tensor]:
    return [torch.randint(LEVELS, (BATCH, SAMPLES)), torch.randint(SPEAKERS, (BATCH,))]


def get_init_inputs() -> list[int]:
    return [LEVELS, SPEAKERS, CHANNELS, SKIP_CHANNELS, LAYERS]
