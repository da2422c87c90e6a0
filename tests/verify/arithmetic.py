"""Operators computed honestly in several ways, and dishonestly: what `tests/verify/test_bound.py` draws from.

Every function takes float32 (or float64, for the truth) tensors and computes in their dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Compute = Callable[..., Tensor]
Draw = Callable[[torch.Generator], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Operator:
    """`reference` is what a user wrote, `honest` what a good kernel may do instead; `draw` gives inputs of some shape."""

    draw: Draw
    reference: Compute
    honest: tuple[Compute, ...]
    types: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)  # of the output


def _size(generator: torch.Generator, *choices: int) -> int:
    return choices[int(torch.randint(len(choices), (), generator=generator))]


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator)


# products

def _sequential(a: Tensor, b: Tensor, step: int = 8) -> Tensor:
    total = a.new_zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], step):
        total = total + a[:, k : k + step] @ b[k : k + step]
    return total


def _split_k(a: Tensor, b: Tensor) -> Tensor:
    parts = [a[:, i::7] @ b[i::7] for i in range(7)]
    order = torch.randperm(7).tolist()
    total: Tensor = parts[order[0]]
    for i in order[1:]:
        total = total + parts[i]
    return total


def _fma(a: Tensor, b: Tensor) -> Tensor:
    """Products are not rounded before they are added."""
    total = a.new_zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = (total.double() + a[:, k, None].double() * b[k].double()).to(a.dtype)
    return total


def _bf16_parts(a: Tensor, b: Tensor) -> Tensor:
    """Three tensor-core products of the high and low halves, accumulated in fp32."""
    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        high = x.bfloat16().float()
        return high, (x - high).bfloat16().float()

    (a0, a1), (b0, b1) = parts(a), parts(b)
    return a0 @ b1 + a1 @ b0 + a0 @ b0


def rounded(x: Tensor, bits: int) -> Tensor:
    """To `bits` bits of mantissa, to nearest: 10 is TF32, 7 bf16."""
    scaled, exponent = torch.frexp(x)
    return torch.ldexp((scaled * 2.0 ** (bits + 1)).round() / 2.0 ** (bits + 1), exponent)


def _product(generator: torch.Generator) -> tuple[Tensor, ...]:
    m, k, n = _size(generator, 4, 33, 96), _size(generator, 24, 128, 384), _size(generator, 8, 65, 128)
    return _normal(generator, m, k), _normal(generator, k, n)


def _large_product(generator: torch.Generator) -> tuple[Tensor, ...]:
    k = _size(generator, 1024, 1536)
    return _normal(generator, 64, k), _normal(generator, k, 64)


def _uneven(generator: torch.Generator) -> tuple[Tensor, ...]:
    """A layer whose channels differ in scale by six orders of magnitude."""
    a, b = _product(generator)
    return a, b * 10.0 ** torch.empty(b.shape[1]).uniform_(-4, 2, generator=generator)


# rows

def _rows(generator: torch.Generator) -> tuple[Tensor, ...]:
    return (_normal(generator, _size(generator, 3, 40, 200), _size(generator, 32, 256, 1024)),)


def _shifted(generator: torch.Generator) -> tuple[Tensor, ...]:
    return (_rows(generator)[0] + 1.5,)


def _online_softmax(x: Tensor) -> Tensor:
    top, total = x.new_full((x.shape[0], 1), -math.inf), x.new_zeros(x.shape[0], 1)
    for block in torch.split(x, 16, -1):
        new = torch.maximum(top, block.amax(-1, keepdim=True))
        total = total * torch.exp(top - new) + torch.exp(block - new).sum(-1, keepdim=True)
        top = new
    return torch.exp(x - top) / total


def _exp2_softmax(x: Tensor) -> Tensor:
    y = torch.exp2((x - x.amax(-1, keepdim=True)) * math.log2(math.e))
    return y * (1 / y.sum(-1, keepdim=True))


def _welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """(mean, variance) as the 32 lanes of a warp would: each its own running mean, merged by a tree."""
    lanes = x.reshape(x.shape[0], -1, 32)
    mean, spread = x.new_zeros(x.shape[0], 32), x.new_zeros(x.shape[0], 32)
    for count in range(lanes.shape[1]):
        delta = lanes[:, count] - mean
        mean = mean + delta / (count + 1)
        spread = spread + delta * (lanes[:, count] - mean)
    counted = lanes.shape[1]
    while mean.shape[1] > 1:
        half = mean.shape[1] // 2
        delta = mean[:, half:] - mean[:, :half]
        mean = mean[:, :half] + delta * 0.5
        spread = spread[:, :half] + spread[:, half:] + delta * delta * (counted * 0.5)
        counted *= 2
    return mean, spread / x.shape[1]


def _welford_norm(x: Tensor) -> Tensor:
    mean, variance = _welford(x)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def _two_pass_norm(x: Tensor) -> Tensor:
    mean = _strided_sum(x) / x.shape[1]
    return (x - mean) / torch.sqrt(_strided_sum((x - mean).square()) / x.shape[1] + 1e-5)


def _one_pass_norm(x: Tensor) -> Tensor:
    mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    scale = torch.rsqrt(square - mean.square() + 1e-5)
    return x * scale - mean * scale


def _strided_sum(x: Tensor) -> Tensor:
    """As 32 threads would: each adds every 32nd value in order, then a tree."""
    lanes = F.pad(x, (0, -x.shape[-1] % 32)).reshape(*x.shape[:-1], -1, 32)
    total = lanes[..., 0, :]
    for i in range(1, lanes.shape[-2]):
        total = total + lanes[..., i, :]
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total


def _atomic_sum(x: Tensor) -> Tensor:
    total = x.new_zeros(*x.shape[:-1], 1)
    for i in torch.randperm(x.shape[-1]).tolist():
        total = total + x[..., i : i + 1]
    return total


def _masked(generator: torch.Generator) -> tuple[Tensor, ...]:
    n, d = _size(generator, 16, 48), _size(generator, 16, 64)
    return _normal(generator, n, d), _normal(generator, n, d)


def _masked_scores(q: Tensor, k: Tensor, product: Compute = torch.matmul) -> Tensor:
    mask = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
    return product(q, k.T) / math.sqrt(q.shape[1]) + mask.to(q.dtype) * -1e9


def _filled_scores(q: Tensor, k: Tensor) -> Tensor:
    mask = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
    return (_sequential(q, k.T) * (1 / math.sqrt(q.shape[1]))).masked_fill(mask, -1e9)


def _attention(q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax(_masked_scores(q, k), -1) @ k


def _flash(q: Tensor, k: Tensor) -> Tensor:
    scores = _filled_scores(q, k)
    weights = torch.exp2((scores - scores.amax(-1, keepdim=True)) * math.log2(math.e))
    return _sequential(weights, k) / weights.sum(-1, keepdim=True)


def _outlier(generator: torch.Generator) -> tuple[Tensor, ...]:
    (x,) = _rows(generator)
    x.view(-1)[torch.randint(x.numel(), (3,), generator=generator)] = 1e7
    return (x,)


# elementwise

def _sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def _affine(generator: torch.Generator) -> tuple[Tensor, ...]:
    channels = _size(generator, 16, 64)
    x = _normal(generator, _size(generator, 4, 32), channels, 16)
    mean, variance = _normal(generator, channels, 1), torch.rand(channels, 1, generator=generator) + 0.1
    return x, mean, variance, _normal(generator, channels, 1), _normal(generator, channels, 1)


def _batch_norm(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def _folded(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    scale = weight * torch.rsqrt(variance + 1e-5)
    return x * scale + (bias - mean * scale)


def _layers(generator: torch.Generator) -> tuple[Tensor, ...]:
    width = _size(generator, 32, 96)
    return _normal(generator, 24, width), *(_normal(generator, width, width) / math.sqrt(width) for _ in range(2))


def _mlp(x: Tensor, first: Tensor, second: Tensor, product: Compute = torch.matmul) -> Tensor:
    return x + product(torch.relu(product(x, first)), second)


OPERATORS: dict[str, Operator] = {
    "product": Operator(_product, torch.matmul, (_sequential, _split_k, lambda a, b: (b.T @ a.T).T)),
    "product by fma": Operator(_product, lambda a, b: _sequential(a, b, 1), (_fma, torch.matmul)),
    # In float16 single elements of it exceed what float32 inside may cost: where it is no more precise, TF32 has to be allowed.
    "product of bf16 parts": Operator(
        _large_product, lambda a, b: _sequential(a, b, 1), (_bf16_parts,), (torch.float32, torch.bfloat16)
    ),
    "uneven channels": Operator(_uneven, torch.matmul, (_sequential, _split_k)),
    "relu of a product": Operator(
        _product,
        lambda a, b: torch.relu(a @ b),
        (lambda a, b: torch.relu(_sequential(a, b)), lambda a, b: torch.relu(_split_k(a, b))),
    ),
    "mlp": Operator(_layers, _mlp, (lambda x, a, b: _mlp(x, a, b, _sequential), lambda x, a, b: _mlp(x, a, b, _split_k))),
    "softmax": Operator(_rows, lambda x: torch.softmax(x, -1), (_online_softmax, _exp2_softmax)),
    "sharp softmax": Operator(
        _rows, lambda x: torch.softmax(8 * x, -1), (lambda x: _online_softmax(8 * x), lambda x: _exp2_softmax(8 * x))
    ),
    "layer norm": Operator(_rows, lambda x: F.layer_norm(x, x.shape[-1:]), (_welford_norm, _two_pass_norm, _one_pass_norm)),
    "shifted layer norm": Operator(_shifted, lambda x: F.layer_norm(x, x.shape[-1:]), (_welford_norm, _two_pass_norm)),
    "rms norm": Operator(
        _rows,
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
        (lambda x: x / torch.sqrt(_strided_sum(x * x) / x.shape[-1] + 1e-6),),
    ),
    "batch norm": Operator(_affine, _batch_norm, (_folded,)),
    "row sums": Operator(_rows, lambda x: x.sum(-1), (lambda x: _strided_sum(x)[..., 0], lambda x: _atomic_sum(x)[..., 0])),
    "a loss": Operator(
        lambda g: (_rows(g)[0], _rows(g)[0][:1, :1]),
        lambda x, y: (x - y).square().mean(),
        (lambda x, y: _strided_sum((x - y).square().reshape(1, -1))[0, 0] / x.numel(),),
    ),
    "running sums": Operator(
        _rows,
        lambda x: x.cumsum(-1),
        (lambda x: torch.cat([b.cumsum(-1) for b in torch.split(x, 32, -1)], -1) + torch.cat(
            [x[:, :i].sum(-1, keepdim=True).expand(-1, min(32, x.shape[1] - i)) for i in range(0, x.shape[1], 32)], -1
        ),),
    ),
    "log softmax": Operator(_rows, lambda x: torch.log_softmax(x, -1), (lambda x: x - torch.log(_strided_sum(torch.exp(x))),)),
    "masked scores": Operator(_masked, _masked_scores, (_filled_scores, lambda q, k: _masked_scores(q, k, _split_k))),
    "attention": Operator(_masked, _attention, (_flash,)),
    "gelu": Operator(_rows, F.gelu, (_gelu,)),
    "elu": Operator(_rows, F.elu, (lambda x: torch.where(x > 0, x, torch.exp(x) - 1),)),
    "silu": Operator(_rows, F.silu, (lambda x: x / (1 + torch.exp(-x)), lambda x: x * _sigmoid(x))),
    "tanh": Operator(_rows, torch.tanh, (lambda x: 1 - 2 / (torch.exp(2 * x) + 1), lambda x: 2 * _sigmoid(2 * x) - 1)),
    "softplus": Operator(_rows, F.softplus, (lambda x: torch.log(1 + torch.exp(x)),)),
    "outliers": Operator(_outlier, lambda x: x * 0.7 + torch.sin(x), (lambda x: torch.sin(x) + x * 0.7,)),
    "variance": Operator(_rows, lambda x: x.var(-1, correction=0), (lambda x: _welford(x)[1][:, 0],)),
}


def half_zero(y: Tensor) -> Tensor:
    """The second half of the last axis left out."""
    y = y.clone()
    y[..., y.shape[-1] // 2 :] = 0
    return y


def without_small(y: Tensor) -> Tensor:
    """Everything below a ten-thousandth of the largest value left out."""
    return torch.where(y.abs() < 1e-4 * y.abs().max(), torch.zeros_like(y), y)


def one_row_zero(y: Tensor) -> Tensor:
    """The row of the smallest norm left out."""
    y = y.clone()
    rows = y.view(-1, y.shape[-1])
    rows[rows.double().norm(dim=-1).argmin()] = 0
    return y


def one_row_repeated(y: Tensor) -> Tensor:
    """The last row is the one before it."""
    y = y.clone()
    y[-1] = y[-2]
    return y
