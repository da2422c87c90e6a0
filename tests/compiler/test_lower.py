"""Lowering against eager: every operator a kernel is written for, in the types, shapes and layouts that a user may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from stitchcuda.compiler.lower.lower import CannotLower, bind, lower, lower_nodes
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions.partition import partition
from tests.compiler.eager import captured, compare

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float32).to(dtype)


def fused(what: nn.Module | Callable[..., Any], *args: torch.Tensor) -> None:
    """The whole function is one fusible region, and it agrees with eager."""
    regions = [region for region in compare(what, *args) if region.kind != "view"]
    assert [region.kind for region in regions] == ["fusible"], [(region.title, region.reason) for region in regions]


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, 3.0, 2.0),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 1.5),
    "selu": F.selu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, -2.0),
    "exp": torch.exp,
    "expm1": torch.expm1,
    "neg": torch.neg,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
    "square": torch.square,
    "log": lambda x: torch.log(x.abs() + 1),
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: (x.abs() + 1).rsqrt(),
    "reciprocal": lambda x: (x.abs() + 1).reciprocal(),
    "log1p": lambda x: x.abs().log1p(),
    "log2": lambda x: (x.abs() + 1).log2(),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow-1": lambda x: (x.abs() + 1) ** -1,
    "pow-2": lambda x: (x.abs() + 1) ** -2,
    "pow0.5": lambda x: x.abs() ** 0.5,
    "pow1.7": lambda x: (x.abs() + 1) ** 1.7,
    "pow0": lambda x: x**0,
    "exp2": lambda x: 2.0**x,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp(min=0.1),
    "rsub": lambda x: 1 - x,
    "rdiv": lambda x: 2 / (x.abs() + 1),
    "alpha": lambda x: torch.add(x, x, alpha=3),
    "rsub_alpha": lambda x: torch.rsub(x, 2.0, alpha=3),
    "scale": lambda x: x * 0.125 + 1,
    "masked_fill": lambda x: x.masked_fill(x > 0.5, -1.0),
    "where": lambda x: torch.where(x > 0, x, -x),
    "where_number": lambda x: torch.where(x > 0, 1.0, x),
    "isnan": torch.isnan,
    "logical": lambda x: (x > 0) & ~(x < 0.5) | (x == 1),
    "compare": lambda x: (x > 0.1).to(x.dtype) + (x <= x * x),
    "remainder": lambda x: x % 0.7,
    "fmod": lambda x: torch.fmod(x, 0.7),
    "floor_divide": lambda x: x // 0.3,
    "lerp": lambda x: torch.lerp(x, x * 2, 0.7),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1),
    "nothing": lambda x: x + 0,
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(),
    "glu": lambda x: F.glu(x, 1),
    "tan": torch.tan,
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "stack": lambda x: torch.stack([x, -x], 1),
    "cat": lambda x: torch.cat([-x[..., 2:], x[..., :2]], -1),
}


@pytest.mark.parametrize("name", UNARY)
def test_pointwise(name: str) -> None:
    fused(UNARY[name], randn(3, 4, 4))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["gelu", "silu", "softplus", "mish", "pow3", "where", "compare", "clamp"])
def test_pointwise_types(name: str, dtype: torch.dtype) -> None:
    fused(UNARY[name], randn(2, 4, 8, dtype=dtype))


INTEGER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + x * 3 - 2,
    "floor": lambda x: x // 3,
    "floor_negative": lambda x: x // -3,
    "trunc": lambda x: torch.div(x, 4, rounding_mode="trunc"),
    "true": lambda x: x / 4,
    "remainder": lambda x: x % 5,
    "remainder_negative": lambda x: x % -5,
    "fmod": lambda x: torch.fmod(x, 5),
    "square": lambda x: x**2,
    "compare": lambda x: (x > 3) & (x != 5),
    "clamp": lambda x: x.clamp(-3, 9),
    "float": lambda x: x.float() * 0.5,
    "mean": lambda x: x.float().mean(-1),
    "sum": lambda x: x.sum(-1),
    "max": lambda x: x.amax(-1),
    "half": lambda x: x > 2.5,
    "where": lambda x: torch.where(x > 0, x, 0),
    "abs": lambda x: -x.abs(),
    "bool": lambda x: x.bool() | (x > 2),
    "any": lambda x: (x > 8).any(-1),
    "all": lambda x: (x > -9).all(-1),
    "round": lambda x: x.floor(),
}


@pytest.mark.more
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", INTEGER)
def test_integers_are_exact(name: str, dtype: torch.dtype) -> None:
    values = torch.arange(-12, 12) * 5
    if dtype == torch.uint8:
        if "negative" in name or name in ("abs", "add", "clamp", "all"):
            pytest.skip("not defined for unsigned elements in eager")
        values = values.abs()
    fused(INTEGER[name], values.to(dtype).reshape(4, 6))


REDUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1),
    "sum_dims": lambda x: x.sum((1, 3), keepdim=True),
    "mean": lambda x: x.mean((2, 3)),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin((0, 2)),
    "max": lambda x: x.max(),
    "prod": lambda x: x.prod(-1),
    "var": lambda x: x.var(-1),
    "var_biased": lambda x: x.var((1, 2), unbiased=False, keepdim=True),
    "std": lambda x: x.std(1),
    "var_all": lambda x: x.var(),
    "var_correction": lambda x: torch.var(x, (0, 2), correction=2),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "norm": lambda x: x.norm(dim=-1),
    "norm1": lambda x: x.norm(1, dim=-1),
    "norm_inf": lambda x: x.norm(float("inf"), dim=(1, 2)),
    "norm3": lambda x: x.norm(3, dim=2),
    "norm_all": lambda x: x.norm(),
    "softmax": lambda x: x.softmax(-1),
    "softmax1": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(2),
    "logsumexp": lambda x: x.logsumexp(-1),
    "masked_softmax": lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1),
    "any": lambda x: (x > 2).any(1),
    "all": lambda x: (x > -2).all(),
    "pool": lambda x: F.adaptive_avg_pool2d(F.relu(x), 1).flatten(1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "l1": lambda x: F.l1_loss(x, x + 1, reduction="sum"),
    "cosine": lambda x: F.cosine_similarity(x, x + 1, dim=-1),
    "standardise": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6),
    "hand_rms": lambda x: x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt(),
    "entropy": lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
    "softmax_f32": lambda x: x.softmax(-1, dtype=torch.float32),
    "two_outputs": lambda x: (x * 2, (x * 2).mean(-1)),
    "permuted": lambda x: x.permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    fused(REDUCTIONS[name], randn(3, 4, 5, 6))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["sum_dim", "var", "softmax1", "log_softmax", "norm", "hand_rms", "pool"])
def test_reduction_types(name: str, dtype: torch.dtype) -> None:
    fused(REDUCTIONS[name], randn(2, 3, 4, 5, dtype=dtype))


NORMS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "layer": (nn.LayerNorm(16), (3, 5, 16)),
    "layer2": (nn.LayerNorm((4, 6)), (3, 4, 6)),
    "layer_plain": (nn.LayerNorm(16, elementwise_affine=False), (3, 16)),
    "rms": (nn.RMSNorm(16), (3, 5, 16)),
    "rms_eps": (nn.RMSNorm(16, eps=1e-3), (3, 16)),
    "group": (nn.GroupNorm(3, 12), (2, 12, 4, 5)),
    "group1": (nn.GroupNorm(1, 6), (2, 6, 7)),
    "group_per_channel": (nn.GroupNorm(6, 6, affine=False), (2, 6, 7)),
    "instance": (nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 3)),
    "batch2d": (nn.BatchNorm2d(4), (3, 4, 5, 2)),
    "batch1d": (nn.BatchNorm1d(4), (6, 4)),
    "batch_plain": (nn.BatchNorm2d(4, affine=False), (3, 4, 2, 2)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_normalisation_layers(name: str, training: bool) -> None:
    module, shape = NORMS[name]
    torch.manual_seed(1)
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.dtype.is_floating_point:
            nn.init.uniform_(tensor, 0.5, 1.5)
    regions = compare(module.train(training), randn(*shape))
    assert any(region.kind == "fusible" and "norm" in region.title for region in regions)


def test_batch_norm_in_training_updates_its_statistics_in_the_same_kernel() -> None:
    module = nn.Sequential(nn.BatchNorm2d(3, momentum=0.3), nn.ReLU())
    graph = captured(module.train(), randn(4, 3, 5, 5))
    region = next(region for region in partition(graph) if region.kind == "fusible")
    kernel = lower(graph, region)
    assert [argument.role for argument in kernel.arguments].count("inout") == 2
    assert region.title == "batch_norm + relu"
    compare(module, randn(4, 3, 5, 5))


class Gated(nn.Module):
    """A gated MLP's middle: two halves of one product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return F.silu(a) * b


def test_halves_of_one_tensor_are_read_in_place() -> None:
    graph = captured(Gated(), randn(3, 5, 16))
    region = next(region for region in partition(graph) if region.kind == "fusible")
    kernel = lower(graph, region)
    loads = [step for step in kernel.steps if step.fn == "load"]
    assert sorted(load.offset for load in loads) == [0, 8]
    assert bind(graph, region, kernel)[0][0] == "x"
    compare(Gated(), randn(3, 5, 16))


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "transposing_copy": lambda x: x.transpose(1, 2).contiguous(),
    "copying_reshape": lambda x: x.transpose(1, 2).reshape(x.shape[0], -1),
    "heads": lambda x: x.reshape(2, 6, 2, 4).permute(0, 2, 1, 3).contiguous() * 2,
    "split": lambda x: torch.split(x, [2, 4, 2], -1)[0] * torch.split(x, [2, 4, 2], -1)[2],
    "slice": lambda x: x[:, 1::2] * x[:, ::2],
    "select": lambda x: x[:, 2] + x[:, -1],
    "unbind": lambda x: x.unbind(1)[3] - x.unbind(1)[0],
    "expand": lambda x: x[:, :1].expand(-1, 6, -1) * x,
    "broadcast": lambda x: x + x[0, 0] + x[:, :1, :1],
    "outer": lambda x: x[0, :, 0, None] * x[0, 0],
    "transposed_twice": lambda x: x[0, :6, :6].exp() + x[0, :6, :6].exp().T,
    "self_transpose": lambda x: x[0, :6, :6] + x[0, :6, :6].T,
    "narrow": lambda x: x.narrow(1, 2, 3).exp(),
    "diagonal": lambda x: x.diagonal(0, 1, 2) * 2,
    "unflatten": lambda x: torch.unflatten(x, 2, (2, 4)).softmax(-1).flatten(2) + x,
    "movedim": lambda x: (x * 2).movedim(0, 2) + 1,
    "unsqueeze": lambda x: (x * 2).unsqueeze(1) - 1,
    "group_mean": lambda x: x - x.reshape(2, 3, 2, 8).mean((2, 3), keepdim=True).expand(2, 3, 2, 8).reshape(2, 6, 8),
    "squeeze": lambda x: (x[:, :1] * 2).squeeze(1) + 1,
    "swap": lambda x: (x * 2).swapaxes(0, 1).reshape(6, 2, 2, 4) + 1,
}


@pytest.mark.more
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
def test_views(name: str, layout: str) -> None:
    x = randn(2, 6, 8)
    if layout == "transposed":
        x = randn(2, 8, 6).transpose(1, 2)
    if layout == "sliced":
        x = randn(2, 7, 16)[:, 1:, ::2]
    compare(VIEWS[name], x)


def test_channels_last_stays_in_its_layout() -> None:
    x = randn(2, 4, 5, 6).to(memory_format=torch.channels_last)
    fused(lambda x, y: F.relu(x + y), x, randn(2, 4, 5, 6).to(memory_format=torch.channels_last))
    graph = captured(lambda x: F.relu(x) * 2, x)
    region = next(region for region in partition(graph) if region.kind == "fusible")
    assert len(lower(graph, region).axes) == 1, "one run through memory"


def test_rounding_on_purpose_is_kept() -> None:
    fused(lambda x: x.to(torch.bfloat16).to(torch.float32) * 3, randn(4, 8))
    fused(lambda x: x.to(torch.int32).to(torch.float32), randn(4, 8) * 10)
    fused(lambda x: (x * 40).to(torch.int8).float(), randn(4, 8))


def test_ranges_and_constants_cost_no_memory() -> None:
    def causal(x: torch.Tensor) -> torch.Tensor:
        position = torch.arange(6)
        return x.masked_fill(position[None, :] > position[:, None], float("-inf")).softmax(-1) + torch.ones(6, 6)

    graph = captured(causal, randn(2, 6, 6))
    region = next(region for region in partition(graph) if region.kind == "fusible")
    assert [argument.role for argument in lower(graph, region).arguments] == ["in", "out"]
    compare(causal, randn(2, 6, 6))


REFUSED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "sum over rows and columns apart": (lambda x: x.softmax(-1).softmax(-2), (4, 5)),
    "no rule": (lambda x: x.cumsum(-1) + 1, (4, 5)),
    "repeated values": (lambda x: x[:, :1].expand(4, 5).sum(-1), (4, 5)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_single_nest_is_refused(name: str) -> None:
    function, shape = REFUSED[name]
    graph = captured(function, randn(*shape))
    flow = Flow(graph)
    with pytest.raises(CannotLower) as refused:
        lower_nodes(flow, [node.name for node in graph.nodes if not flow.is_view(node)])
    assert refused.value.reason
    compare(function, randn(*shape))


Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A random function of two tensors: broadcasting, views, reductions and activations in any order."""
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float64]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4)))
    other = tuple(draw(st.sampled_from([size, 1])) for size in shape)[draw(st.integers(0, len(shape) - 1)) :]
    seed = draw(st.integers(0, 99))
    x = randn(*shape, dtype=dtype, seed=seed)
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(shape))))
        x = x.permute(*order).contiguous().permute(*[order.index(i) for i in range(len(shape))])
    y = randn(*other, dtype=dtype, seed=seed + 1)
    dim = draw(st.integers(0, len(shape) - 1))
    moves: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda a, b: a + b,
        lambda a, b: a * torch.sigmoid(b),
        lambda a, b: a - a.mean(dim, keepdim=True),
        lambda a, b: torch.tanh(a),
        lambda a, b: a.softmax(dim),
        lambda a, b: F.relu(a) * 0.5,
        lambda a, b: torch.where(a > b, a, b * 0.5),
        lambda a, b: a.transpose(0, -1).contiguous().transpose(0, -1),
        lambda a, b: a / (1 + a.abs().amax(dim, keepdim=True)),
        lambda a, b: torch.unflatten(a.flatten(0, 1), 0, a.shape[:2]) * 2,
        lambda a, b: a.double().sin().to(a.dtype),
        lambda a, b: a.reshape(-1, a.shape[-1]).sub(1).reshape(a.shape),
        lambda a, b: a * a.pow(2).mean(-1, keepdim=True).add(1e-3).rsqrt(),
        lambda a, b: a.narrow(dim, a.shape[dim] // 2, 1) + a,
    ]
    chosen = draw(st.lists(st.sampled_from(moves), min_size=1, max_size=7))
    tap = draw(st.integers(0, len(chosen)))

    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        kept = a
        for i, move in enumerate(chosen):
            a = move(a, b)
            if i == tap:
                kept = a * 2
        return a, kept + 1

    return function, (x, y)


@pytest.mark.long
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(programs())
def test_random_programs_agree_with_eager(program: Program) -> None:
    function, args = program
    compare(function, *args)
