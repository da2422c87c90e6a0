"""Small modules of every kind that capture and printing must understand; each with its example inputs."""

# Modules are written as users write them: without annotations for their buffers.
# mypy: disable-error-code="no-any-return, operator, index, assignment, call-overload, no-untyped-call, return-value"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(b, t, self.heads, w // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x)))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh")))


class Transformer(nn.Module):
    """Embeddings, six equal blocks, a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 16)
        self.positions = nn.Parameter(torch.randn(1, 5, 16))
        self.blocks = nn.ModuleList([Block(16, 4) for _ in range(6)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions[:, : ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ResidualBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.bn2 = nn.BatchNorm2d(4, momentum=0.3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Rotary(nn.Module):
    """RMSNorm, rotary tables as non-persistent buffers, a plain tensor attribute, slicing and stacking."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1]))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("scale", torch.full((1,), 0.5))
        self.weight = nn.Parameter(torch.rand(4))
        self.offset = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        even, odd = x[..., ::2], x[..., 1::2]
        turned = torch.stack((even * self.cos - odd * self.sin, even * self.sin + odd * self.cos), dim=-1)
        return turned.flatten(-2) * self.scale + self.offset


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 5, batch_first=True)
        self.fc = nn.Linear(5, 2)

    def forward(self, x: Tensor, h0: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y, (h, c) = self.lstm(x, (h0, torch.zeros_like(h0)))
        z, last = self.gru(y)
        return self.fc(z[:, -1]), {"h": h, "c": c, "last": last}


class Multihead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y, weights = self.attention(x, x, x, attn_mask=mask)
        return y, weights


class Masked(nn.Module):
    """Hand-made causal attention: factories, tril, masked_fill, einsum, where, an attention mask."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float = 1.0, keep: Tensor) -> dict[str, Any]:
        t = q.shape[-2]
        causal = torch.tril(torch.ones(t, t, dtype=torch.bool, device=q.device))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1]) * scale
        scores = scores.masked_fill(~causal, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        ramp = torch.arange(t, device=q.device) + torch.full((t,), 2, device=q.device)
        other = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return {"y": weights @ v + other, "more": [torch.where(keep, 1.0, ramp.float()), None]}


class Shapes(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a, b = x.split([1, 2], dim=1)
        c, d = x.unbind(0)[0], x.permute(2, 0, 1).contiguous()
        e = torch.cat([a.expand(-1, 3, -1), x], dim=2).unsqueeze(1).repeat(1, 2, 1, 1)
        f = x.reshape(2, -1)[:, [0, 2]]
        return a, b, c, d, e, f, x.view(-1), x.transpose(0, 1), x, e.squeeze(), d.t() if d.dim() == 2 else d.flatten(1)


class Reductions(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        top = torch.topk(x, 2, dim=-1)
        values, places = x.max(dim=1)
        return {
            "sum": x.sum(), "mean": x.mean((0, 2), keepdim=True), "var": x.var(-1, unbiased=False), "std": x.std(dim=1),
            "top": top.values, "where": top.indices, "largest": values, "places": places, "argmin": x.argmin(-1),
            "lse": x.logsumexp(-1), "cumulative": x.cumsum(1), "product": x.prod(1), "norm": x.norm(dim=-1),
            "log": F.log_softmax(x, dim=1), "count": (x > 0).sum(-1), "any": (x > 2).any(), "clamped": x.clamp(-1, 1).amax(-1),
            "sorted": x.sort(-1, descending=True)[0], "rest": 1 - x.abs() ** 0.5, "power": 2**x,
        }  # fmt: skip


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool2d(2),
            nn.ConvTranspose2d(8, 4, 2, stride=2), nn.InstanceNorm2d(4, affine=True), nn.Hardswish(), nn.AvgPool2d(2, 1),
        )  # fmt: skip
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        y = F.pad(y, (1, 1, 0, 0), mode="reflect")
        return self.classifier(self.pool(F.leaky_relu(y, 0.2)))


class Volumes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(2, 4, 3, dilation=2, bias=False)
        self.conv3 = nn.Conv3d(1, 2, 2)

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return F.max_pool1d(F.softplus(self.conv1(x)), 2), F.elu(self.conv3(v)).mean((2, 3, 4))


class Stateful(nn.Module):
    """Buffers and an input that the call changes, whole and through a view; one buffer is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("history", torch.zeros(4, 3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        before = self.history.sum()
        self.count += 1
        self.history[1:3].mul_(0.5).add_(x)
        self.scratch.copy_(x[0] * 2)
        cache[:, 0] = x.sum()
        return self.history.mean(0) + before + cache.sum() + self.scratch, self.history


class Temporaries(nn.Module):
    """In-place work on temporaries: some of it visible through another name, some not."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = x * 2
        view = a.view(-1)
        a[:, 0] = 7.0
        b = (a + 1).relu_().mul_(3).clamp_(max=5)
        c = x + 1
        d = c[0]
        d += 100
        e = torch.zeros(2, 3, device=x.device)
        e[0] = x[0]
        return view + 1, b + e, c


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(7, 4, mode="sum")
        self.embedding = nn.Embedding(7, 4, padding_idx=0)

    def forward(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embedding(ids)
        picked = torch.gather(x, 1, rows.unsqueeze(-1).expand(-1, -1, 4))
        return self.table(ids), picked, F.one_hot(ids, 7).to(x.dtype) @ self.embedding.weight


class Casts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.bfloat16))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        h = x.to(torch.float32)
        h = F.layer_norm(h, (4,), self.weight.float(), None)
        return (
            h.to(x.dtype),
            h.type_as(y),
            (h > 0).long(),
            y.double() * h,
            torch.tensor([1.5, 2.5], device=x.device) * y[..., :2],
        )


class Nested(nn.Module):
    """Arguments in lists and dicts; a scalar and a string among them."""

    def forward(self, pair: list[Tensor], options: dict[str, Tensor], power: int, mode: str = "sum") -> list[Tensor]:
        a, b = pair
        y = a**power + options["bias"]
        return [y.sum(0) if mode == "sum" else y.mean(0), b]


class Shared(nn.Module):
    """One layer called twice, names that are Python keywords, a numbered child beside a named one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.add_module("lambda", nn.Linear(3, 3))
        self.mixed = nn.Module()
        self.mixed.add_module("0", nn.Linear(3, 3))
        self.mixed.register_parameter("gain", nn.Parameter(torch.rand(3)))
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(3)) for _ in range(2)])
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(torch.tanh(self.layer(x)))
        y = getattr(self, "lambda")(y) * self.scales[0] + self.scales[1]
        return self.mixed.get_submodule("0")(y) * self.mixed.gain


class NoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))

    def forward(self) -> Tensor:
        return self.weight * torch.arange(3, device=self.weight.device)


class WithGrad(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            y = x.sin()
        with torch.no_grad():
            return y * 2


class Sequence3(nn.Sequential):
    """A root that is itself a list: its keys start with a number."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x)) + 1


class Case(NamedTuple):
    """A module in the mode it is captured in, and its call."""

    make: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    kwargs: Callable[[], dict[str, Any]] = dict
    train: bool = False


def _randn(*shape: int) -> Callable[[], tuple[Tensor]]:
    return lambda: (torch.randn(*shape),)


ZOO: dict[str, Case] = {
    "transformer": Case(Transformer, lambda: (torch.randint(0, 11, (2, 5)),)),
    "residual_eval": Case(ResidualBlock, _randn(2, 4, 5, 5)),
    "residual_train": Case(ResidualBlock, _randn(2, 4, 5, 5), train=True),
    "rotary": Case(Rotary, _randn(2, 6, 4)),
    "recurrent": Case(Recurrent, lambda: (torch.randn(2, 5, 3), torch.randn(4, 2, 4))),
    "multihead": Case(
        Multihead, lambda: (torch.randn(2, 3, 8), torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -1e9)), train=True
    ),
    "masked": Case(
        Masked,
        lambda: tuple(torch.randn(1, 2, 4, 3) for _ in range(3)),
        lambda: {"scale": 0.5, "keep": torch.ones(4, 4, dtype=torch.bool)},
    ),
    "shapes": Case(Shapes, _randn(2, 3, 4)),
    "reductions": Case(Reductions, _randn(2, 3, 4)),
    "images": Case(Images, _randn(2, 3, 16, 16)),
    "volumes": Case(Volumes, lambda: (torch.randn(2, 2, 12), torch.randn(1, 1, 4, 4, 4))),
    "stateful": Case(Stateful, lambda: (torch.randn(2, 3), torch.randn(2, 2))),
    "temporaries": Case(Temporaries, _randn(2, 3)),
    "tokens": Case(Tokens, lambda: (torch.randint(0, 7, (2, 3)), torch.randint(0, 3, (2, 2)))),
    "casts": Case(Casts, lambda: (torch.randn(3, 4, dtype=torch.bfloat16), torch.randn(3, 4, dtype=torch.float64))),
    "nested": Case(Nested, lambda: ([torch.randn(2, 3), torch.randn(2)], {"bias": torch.randn(3)}, 2), lambda: {"mode": "sum"}),
    "shared": Case(Shared, _randn(2, 3)),
    "no_inputs": Case(NoInputs, tuple),
    "with_grad": Case(WithGrad, _randn(3)),
    "sequence": Case(Sequence3, _randn(5, 3), train=True),
    "encoder": Case(Encoder, _randn(2, 4, 8), train=True),
    "channels_last": Case(ChannelsLast, lambda: (torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last),)),
    "sliced_input": Case(Rotary, lambda: (torch.randn(2, 6, 8)[..., ::2],)),
    "empty": Case(WithGrad, _randn(0, 3)),
}
"""Everything that must be captured, printed and run with results equal to eager bit by bit."""
