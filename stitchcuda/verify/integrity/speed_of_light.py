"""Speed of light: no program reads its inputs and writes its outputs faster than the memory's own clock allows.

Looked at only when a time is too short. An honest program may leave inputs out that do not matter (algebra), so inputs count
only when every sampled element of them changes the reference's outputs; outputs count beyond what L2 may still hold.
`judged` is the judge's side, `matters` the reference worker's. Where to look next: `verify/timing/rounds.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stitchcuda.state import TimingResult

SHARE = 0.8                                # of the bytes over the peak rate: clocks drift, and a peak is a nominal figure
SAMPLES = 12                               # elements of each input


Run = Callable[[Any, Any], dict[str, torch.Tensor]]
"""The reference's named outputs for (args, kwargs)."""


def apply_floor(
    timing: TimingResult,
    inputs: Callable[[], Sequence[int]],
    outputs: Callable[[], int],
    *,
    at_most: int,
    bandwidth: float,
    l2: int,
    matters: Callable[[], Sequence[bool]],
) -> TimingResult:
    """The timing, refused if it is below the floor. Bytes of each input and of all outputs, bytes per second, bytes of L2;
    `matters` says per input whether its elements do. They are asked only when `at_most` bytes would be too many."""
    if bandwidth <= 0:
        note = "no floor was computed: the driver does not say how fast its memory is"
        return timing.model_copy(update={"notes": (*timing.notes, note)})
    if timing.program_ms >= floor_ms(at_most, bandwidth):
        return timing
    sizes, written = inputs(), max(0, outputs() - l2)
    if timing.program_ms >= floor_ms(sum(sizes) + written, bandwidth):
        return timing
    needed = sum(size for size, needs in zip(sizes, matters(), strict=True) if needs)
    floor = floor_ms(needed + written, bandwidth)
    if timing.program_ms >= floor:
        return timing
    reason = (
        f"faster than memory: {timing.program_ms:.4f} ms for {(needed + written) / 1e6:.1f} MB of inputs that matter "
        f"and outputs, which take at least {floor:.4f} ms even at {1 / SHARE:.2f} times the peak of {bandwidth / 1e12:.2f} TB/s"
    )
    return timing.model_copy(update={"refused": (*timing.refused, reason)})


def floor_ms(size: int, bandwidth: float) -> float:
    """Milliseconds below which nobody moves so many bytes."""
    return 1e3 * SHARE * size / bandwidth


def find_mattering(run: Run, args: Any, kwargs: Any, tensors: Sequence[torch.Tensor]) -> list[bool]:
    """Whether each sampled element of each input, made much larger or smaller, changes some output of the reference.

    `tensors` are those in `args` and `kwargs`. Integers count as not mattering: they may point anywhere.
    """
    before = run(args, kwargs)
    found = []
    for tensor in tensors:
        found.append(tensor.is_floating_point() and tensor.numel() > 0 and _all_matter(run, args, kwargs, tensor, before))
    return found


def _all_matter(run: Run, args: Any, kwargs: Any, tensor: torch.Tensor, before: dict[str, torch.Tensor]) -> bool:
    places = torch.randint(tensor.numel(), (SAMPLES,)).tolist()
    for place in places:
        index = tuple(int(coordinate) for coordinate in torch.unravel_index(torch.tensor(place), tensor.shape))
        held = copy.deepcopy(tensor[index])
        changed = False
        for value in (held * 1024 + 1024, held * -1024 - 1024):
            tensor[index] = value
            changed = changed or _differ(before, run(args, kwargs))
            tensor[index] = held
            if changed:
                break
        if not changed:
            return False
    return True


def _differ(first: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    def same(left: torch.Tensor, right: torch.Tensor) -> bool:
        return torch.equal(left, right) or bool(torch.allclose(left, right, rtol=0, atol=0, equal_nan=True))

    return first.keys() != other.keys() or not all(same(value, other[name]) for name, value in first.items())
