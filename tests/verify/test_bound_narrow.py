"""16-bit outputs: honest programs use half of what they are allowed at most, and what a coarse type used to hide is refused.

A program is one function that is given a rounding: the reference rounds after every operator, as eager torch does; an honest
one rounds there and sums in another order, or in some of these places only, or once at the end.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stitchcuda.verify.compare import bound, narrow_outputs
from stitchcuda.verify.compare.reference_error import Differences, classes
from stitchcuda.verify.inputs import variants

Round = Callable[[Tensor], Tensor]
Program = Callable[..., Tensor]
TYPES = (torch.bfloat16, torch.float16)


def softmax(r: Round, x: Tensor) -> Tensor:
    powers = r(torch.exp(r(x - x.amax(-1, keepdim=True))))
    return r(powers / r(powers.sum(-1, keepdim=True)))


def layer_norm(r: Round, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = r(x - r(x.mean(-1, keepdim=True)))
    scale = r(torch.rsqrt(r(r(r(centred * centred).mean(-1, keepdim=True)) + 1e-5)))
    return r(r(r(centred * scale) * weight) + bias)


def gelu(r: Round, x: Tensor) -> Tensor:
    return r(F.gelu(x))


def product(r: Round, a: Tensor, b: Tensor) -> Tensor:
    return r(a @ b)


def mlp(r: Round, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return r(x + r(r(torch.relu(r(x @ first))) @ second))


def attention(r: Round, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return r(r(torch.softmax(r(r(query @ keys.T) * (1 / math.sqrt(query.shape[1]))), -1)) @ values)


def mean(r: Round, x: Tensor) -> Tensor:
    return r(x.mean(-1))


def loss(r: Round, x: Tensor, y: Tensor) -> Tensor:
    return r(r(r(x - y).square()).mean())


def tanh(r: Round, x: Tensor) -> Tensor:
    return r(torch.tanh(x))


def times(r: Round, a: Tensor, b: Tensor) -> Tensor:
    return r(a * b)


@dataclass(frozen=True)
class Case:
    program: Program
    shapes: tuple[tuple[int, ...], ...]
    varied: int = 1                        # inputs that variants change; the others are parameters
    positive: bool = False


CASES = {
    "softmax": Case(softmax, ((8, 1024),)),
    "layer norm": Case(layer_norm, ((4, 1024), (1024,), (1024,))),
    "gelu": Case(gelu, ((16, 256),)),
    "product": Case(product, ((16, 2048), (2048, 8))),
    "mlp": Case(mlp, ((32, 64), (64, 128), (128, 64))),
    "attention": Case(attention, ((64, 32), (64, 32), (64, 32)), varied=3),
    "mean": Case(mean, ((64, 2048),), positive=True),
    "loss": Case(loss, ((16, 64), (16, 64)), varied=2),
    "tanh": Case(tanh, ((16, 256),)),
    "times": Case(times, ((16, 256), (16, 256)), varied=2),
}


class Rounding:
    """To `dtype` in the places of `mask`; what is rounded there first errs as another order of float32 sums would."""

    def __init__(self, dtype: torch.dtype, mask: int, seed: int) -> None:
        self._dtype, self._mask = dtype, mask
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, x: Tensor) -> Tensor:
        here, self._mask = self._mask & 1, self._mask >> 1
        x = torch.where(x.abs() == 1, x, x * (1 + 1.2e-7 * torch.randn(x.shape, generator=self._generator)))
        return x.to(self._dtype).float() if here else x


@dataclass(frozen=True)
class Asked:
    inputs: list[Tensor]                   # float32, each a number of the narrow type
    own: Tensor
    exact: Tensor


def asked(case: Case, dtype: torch.dtype, seed: int) -> list[Asked]:
    generator = torch.Generator().manual_seed(seed)
    chosen = random.Random(seed)
    sets: list[Asked] = []
    usual: float | None = None
    for variant in ("as given", "patchwork", chosen.choice(variants.SMALL), *chosen.sample(variants.VALUES, 2)):
        draw = torch.rand if case.positive else torch.randn
        given = [draw(shape, generator=generator) for shape in case.shapes]
        data = [x.to(dtype) for x in given[: case.varied]]
        parameters = [(x / math.sqrt(x.shape[0]) if x.dim() > 1 else x).to(dtype) for x in given[case.varied :]]
        given = [*(variants.vary(data, variant, generator) or data), *parameters]
        inputs = [x.float() for x in given]
        own = case.program(lambda x: x.to(dtype).float(), *inputs).to(dtype)
        exact = case.program(lambda x: x, *(x.double() for x in given))
        if not variants.why_unsuitable({"output": own}, {"output": exact}, usual):
            usual = variants.relative_error({"output": own}, {"output": exact}) if usual is None else usual
            sets.append(Asked(inputs, own, exact))
    return sets


def used(given: Tensor, one: Asked, allowed: bound.Bound) -> float:
    """The largest part of what is allowed that an output needs, in norm, at the worst element or in its class."""
    itself = bound.pool_measures([bound.measure_error(one.own, one.exact)])
    found = Differences(given, one.exact)
    limits = bound._limits(found, allowed, None)
    return max(
        found.error.largest / (allowed.max_relative * found.size.largest),
        found.error.norm / (max(allowed.norm_relative, itself.norm_relative) * found.size.norm),
        found.worst(lambda part: part.error / limits[classes(part.size, found.size.largest)], 1.0)[1],
    )


def judge_honest(name: str, dtype: torch.dtype, seed: int) -> None:
    case, chosen = CASES[name], random.Random(f"{name} {seed}")
    sets = asked(case, dtype, seed)
    allowed = bound.bound([one.own for one in sets], [one.exact for one in sets])
    for mask in (0, -1, chosen.getrandbits(16)):
        for one in sets:
            given = case.program(Rounding(dtype, mask, seed), *one.inputs).to(dtype)
            assert bound.judge("output", given, one.own, one.exact, allowed).note == ""
            assert used(given, one, allowed) <= 0.55


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_honest_programs_use_half_of_what_they_may(name: str, dtype: torch.dtype) -> None:
    judge_honest(name, dtype, 0)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_honest_programs_pass_for_many_inputs(name: str) -> None:
    for seed, dtype in itertools.product(range(1, 30), TYPES):
        judge_honest(name, dtype, seed)


def cut(x: Tensor, bits: int) -> Tensor:
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2.0**bits).round() / 2.0**bits, exponent)


def eight_bits(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn).float()


ATTACKS: dict[str, tuple[str, Program]] = {
    "mean over half": ("mean", lambda x: x[:, ::2].mean(-1)),
    "mean over three quarters": ("mean", lambda x: x[:, : 3 * x.shape[1] // 4].mean(-1)),
    **{f"product of {bits} bits": ("product", lambda a, b, bits=bits: cut(a, bits) @ cut(b, bits)) for bits in range(2, 7)},
    **{f"factors of {bits} bits": ("times", lambda a, b, bits=bits: cut(a, bits) * cut(b, bits)) for bits in range(2, 7)},
    "uniform attention": ("attention", lambda q, k, v: v.mean(0, keepdim=True).expand(q.shape[0], -1)),
    "weights in 8 bits": ("attention", lambda q, k, v: eight_bits(torch.softmax(q @ k.T / math.sqrt(q.shape[1]), -1)) @ v),
    "hidden in 8 bits": ("mlp", lambda x, a, b: x + eight_bits(torch.relu(x @ a)) @ b),
    "tanh to 2^-6": ("tanh", lambda x: (torch.tanh(x) * 64).round() / 64),
    "tanh from afar": ("tanh", lambda x: torch.tanh(x) + 2**-6 * torch.sin(9 * x)),
    "statistics of half": (
        "layer norm",
        lambda x, w, b: (x - x[:, ::2].mean(-1, keepdim=True)) * torch.rsqrt(x[:, ::2].var(-1, keepdim=True)) * w + b,
    ),
    "softmax of half": ("softmax", lambda x: torch.exp(x - torch.logsumexp(x[:, ::2], -1, keepdim=True) - math.log(2))),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_coarse_type_used_to_hide_is_refused(name: str, dtype: torch.dtype) -> None:
    of, attack = ATTACKS[name]
    sets = asked(CASES[of], dtype, 7)
    allowed = bound.bound([one.own for one in sets], [one.exact for one in sets])
    verdicts = [bound.judge("output", attack(*one.inputs).to(dtype), one.own, one.exact, allowed) for one in sets]
    assert not all(one.ok for one in verdicts)


def test_partial_sums_in_the_output_type_are_refused() -> None:
    (one, *_) = asked(CASES["product"], torch.bfloat16, 3)
    a, b = one.inputs
    total = torch.zeros(one.own.shape, dtype=torch.bfloat16)
    for part in range(16):
        total = total + (a[:, part::16] @ b[part::16]).bfloat16()
    assert not bound.judge("output", total, one.own, one.exact, bound.bound([one.own], [one.exact])).ok


def test_inputs_on_which_the_reference_is_bad_excuse_no_others() -> None:
    exact = torch.randn(64, 64, dtype=torch.float64)
    good, bad = exact.bfloat16(), (exact * (1 + 0.05 * torch.randn(64, 64, dtype=torch.float64))).bfloat16()
    allowed = bound.bound([good, good, bad], [exact, exact, exact])
    off = (exact * (1 + 0.01 * torch.randn(64, 64, dtype=torch.float64))).bfloat16()
    assert not bound.judge("output", off, good, exact, allowed).ok
    assert bound.judge("output", off, bad, exact, allowed).ok


def test_one_row_that_errs_widens_what_luck_may_do() -> None:
    """A near tie of a sharp softmax makes one row's error many times the others'; which way it falls is luck."""
    exact = torch.ones(64, 64, dtype=torch.float64)
    alike, uneven = (exact * 1.002).bfloat16(), exact.clone()
    uneven[5] *= 1.1
    owns = (alike, uneven.bfloat16())
    shares = [narrow_outputs.share(own.dtype, exact, Differences(own, exact)) for own in owns]
    assert shares[1].even < 0.1 <= shares[0].even


def test_float32_keeps_its_bound() -> None:
    exact = torch.randn(64, 64, dtype=torch.float64)
    own = (exact * (1 + 3e-7)).float()
    allowed, found = bound.bound([own], [exact]), Differences(own, exact)
    assert allowed.norm_relative == pytest.approx(10 * found.error.norm / found.size.norm + 4 * 2**-23)
    assert allowed.max_relative == pytest.approx(10 * found.error.largest / found.size.largest + 4 * 2**-23)
