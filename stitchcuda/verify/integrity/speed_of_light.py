"""Refuses times in which the memory could not even read the inputs and write the outputs (the speed of light).

The floor is `SHARE` of the bytes over the memory's peak bandwidth. An honest program may skip inputs that do not matter
(algebra), so an input counts only if every sampled element of it changes the reference's outputs; outputs count beyond what L2
may still hold. `apply_floor` runs in the judge, `find_mattering` in the reference worker and only when a time is too short.
Where to look next: `verify/judge/interleaved_timing.py` (who asks), `verify/timing/rounds.py` (the times).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stitchcuda.state import TimingResult

SHARE = 0.8                                # of the time at peak bandwidth: clocks drift, and the peak is a nominal figure
SAMPLES = 12                               # elements that are tried of each input

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
    """Returns the timing, refused if the program's time is below the floor.

    `inputs`, `outputs`: give the bytes of each input and of all outputs. `at_most`: an upper bound on their sum, which is tried
    first. `bandwidth`: peak bytes per second, 0 if unknown. `l2`: bytes of L2. `matters`: says for each input whether its
    elements matter; it is called last, since the reference must run for it.
    """
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
    """The least milliseconds for `size` bytes: `SHARE` of their time at `bandwidth` bytes per second."""
    return 1e3 * SHARE * size / bandwidth


def find_mattering(run: Run, args: Any, kwargs: Any, tensors: Sequence[torch.Tensor]) -> list[bool]:
    """Says for each input whether each sampled element, made much larger or smaller, changes an output of the reference.

    `tensors` are those in `args` and `kwargs`; they are changed in place and put back. Integers count as not mattering, since
    a changed index could point anywhere.
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
