"""The random numbers that the reference draws from torch's generators in one call: recorded, and used again in float64.

A draw in float64 would be another one than that in float32 from the same state of the generator. So the call in the
reference's own precision is recorded, and the float64 run gets the same numbers, widened. Operators that draw inside of what
they compute (a fused attention with dropout) cannot be used again: they are a `BadInput`.
Where to look next: `verify/inputs/draw_seeds.py` (the seeds), `verify/reference/float64_truth.py` (who uses the numbers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs.draw_seeds import seed_generators
from stitchcuda.verify.integrity.call_effects import generators_digest

_FILLING = ("uniform", "normal", "bernoulli", "exponential", "cauchy", "log_normal", "geometric", "random")
_DRAWING = frozenset({
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "multinomial", "poisson", "binomial",
    "_standard_gamma", "_sample_dirichlet", "native_dropout", *_FILLING, *(f"{name}_" for name in _FILLING),
})  # fmt: skip
"""Operators whose result is what they draw (of native_dropout: its mask)."""
_EVEN = frozenset(("rand", "rand_like", "uniform_"))
_MOST_RARE, _SEEDS = 64, 2**13             # numbers of a first draw for which so many seeds are tried


def generator_states() -> list[Tensor]:
    """The states of torch's generators of the host and of the current GPU."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])]  # type: ignore[no-untyped-call]


def same_states(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Whether no generator has drawn anything between two `generator_states`."""
    return len(left) == len(right) and all(map(torch.equal, left, right))


class RandomDraws:
    """The draws of one call after `seed`. `names`: the operators, such as "randn", in order. `generators`: a digest of the
    generators' states after them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.names: list[str] = []
        self.generators = ""
        self._values: list[Tensor] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """A context for the call in the reference's own precision. Seeds the generators and records what is drawn."""
        self.names, self._values = [], []
        seed_generators(self._seed)
        with _Recorder(self.names, self._values):
            yield
        self.generators = generators_digest()

    def rare_seeds(self) -> tuple[int, ...]:
        """Two seeds, of very many, after which the recorded call's first draw holds the least and the largest number; none
        where it draws many numbers first, or not evenly."""
        if not self.names or self.names[0] not in _EVEN or not 0 < self._values[0].numel() <= _MOST_RARE:
            return ()
        first, seeds = self._values[0], range(self._seed, self._seed + _SEEDS)
        ends = []
        for seed in seeds:
            seed_generators(seed)
            ends.append(torch.stack(torch.rand(first.shape, dtype=first.dtype, device=first.device).aminmax()))
        low, high = torch.stack(ends).unbind(1)
        return seeds[int(low.argmin())], seeds[int(high.argmax())]

    def replay(self) -> ReplayedDraws:
        """Returns what gives another call the recorded draws."""
        return ReplayedDraws(self.names, self._values)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, names: list[str], values: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names, self._values = names, values

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        name = _name(func)
        if draws(func, args):
            result = func(*args, **kwargs)
            self._names.append(name)
            self._values.append((result[1] if name == "native_dropout" else result).clone())
            return result
        before = generator_states()
        result = func(*args, **kwargs)
        if not same_states(before, generator_states()):
            raise BadInput(
                f"The reference draws random numbers inside of torch's operator {name}, where they cannot be seen: set its "
                "dropout to 0, or draw with torch.dropout or torch.rand."
            )
        return result


class ReplayedDraws:
    """The recorded draws, used one after the other."""

    def __init__(self, names: Sequence[str], values: Sequence[Tensor]) -> None:
        self._rest = list(zip(names, values, strict=True))[::-1]

    def draw(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Returns what the operator `func` returns for these arguments with the next recorded draw, which is not narrowed.
        Raises `BadInput` where another one was recorded."""
        name, (recorded, value) = _name(func), self._rest.pop() if self._rest else ("", torch.empty(0))
        result = func(*args, **kwargs)     # for its shape and device; what it draws is not used
        made = result[1] if name == "native_dropout" else result
        if _kind(name) != _kind(recorded) or made.shape != value.shape:
            self.fail()
        if name == "native_dropout":
            mask = value.to(made.device, torch.bool)
            return args[0] * mask / (1 - args[1]), mask
        if any(argument.alias_info and argument.alias_info.is_write for argument in func._schema.arguments):
            return made.copy_(value)
        return value.to(made.device, copy=True)

    def check_all_used(self) -> None:
        """Raises `BadInput` if the call drew less than was recorded."""
        if self._rest:
            self.fail()

    def fail(self) -> None:
        raise BadInput(
            "The reference draws other random numbers in float64 than in its own precision: let neither their number nor their "
            "shapes follow from computed values."
        )


def draws(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator is one whose draws can be used again, called so that it draws."""
    name = _name(func)
    return name in _DRAWING and not (name == "native_dropout" and args[2] is False)


def _name(func: Any) -> str:
    return str(func._schema.name).partition("::")[2]


def _kind(name: str) -> str:
    """Dropout draws its mask by either operator, depending on the device."""
    return "bernoulli_" if name == "native_dropout" else name
