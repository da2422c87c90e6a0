"""Seeds torch's generators before a call, so that a reference and a program draw the same random numbers in `forward`.

A seed of None belongs to a reference that draws nothing: then nothing is seeded. A program's worker gets a seed with the call
that it is for, and never before. Python's `random` and numpy are left alone.
Where to look next: `verify/reference/random_draws.py` (the same numbers in float64), `verify/program/program_worker.py` and
`verify/timing/timed_calls.py` (who seeds).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch

# Bound before a program is imported.
_seed = torch.manual_seed
_host = torch.default_generator
_get_state, _set_state = _host.get_state, _host.set_state
_has_gpu: Callable[[], bool] = torch.cuda.is_initialized  # the simulator's device has the generator of the host
_MASK = 2**63 - 1
_SHOWN = 20260304                          # what `initial_seed()` returns after any seed, as for a user who seeds once
_FURTHEST = 2**40                          # numbers that a GPU's generator is ahead by at most


def seed_generators(seed: int | None) -> None:
    """Gives torch's generators of the host and of all GPUs states that follow from the seed; does nothing for None."""
    if seed is None:
        return
    _seed(seed)
    state = _get_state()
    state[:8] = torch.tensor(list(_SHOWN.to_bytes(8, "little")), dtype=torch.uint8)
    _set_state(state)
    for generator in torch.cuda.default_generators if _has_gpu() else ():
        generator.manual_seed(_SHOWN)
        generator.set_offset(4 * (seed % _FURTHEST))


def seed_for_inputs(seed: int) -> int:
    """Returns the seed of the draws for inputs that were drawn with `seed`, which it does not disclose."""
    return int.from_bytes(hashlib.sha256(b"draws %d" % seed).digest()[:8], "big") & _MASK


def seed_for_turn(seed: int | None, turn: int) -> int | None:
    """Returns the seed for a timed call on a set with this seed, changed by `turn`."""
    return None if seed is None else (seed + turn) & _MASK
