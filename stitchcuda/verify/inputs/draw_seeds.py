"""Seeds torch's generators before a call, so that a reference and a program draw the same random numbers in `forward`.

A seed of None belongs to a reference that draws nothing: then nothing is seeded. A program's worker gets a seed with the call
that it is for, and never before. Python's `random` and numpy are left alone.
Where to look next: `verify/reference/random_draws.py` (the same numbers in float64), `verify/program/program_worker.py` and
`verify/timing/timed_calls.py` (who seeds).
"""

from __future__ import annotations

import hashlib

import torch

_seed = torch.manual_seed                  # bound before a program is imported
_MASK = 2**63 - 1


def seed_generators(seed: int | None) -> None:
    """Seeds torch's generators of the host and of all GPUs; does nothing for None."""
    if seed is not None:
        _seed(seed)


def seed_for_inputs(seed: int) -> int:
    """Returns the seed of the draws for inputs that were drawn with `seed`, which it does not disclose."""
    return int.from_bytes(hashlib.sha256(b"draws %d" % seed).digest()[:8], "big") & _MASK


def seed_for_turn(seed: int | None, turn: int) -> int | None:
    """Returns the seed for a timed call on a set with this seed, changed by `turn`."""
    return None if seed is None else (seed + turn) & _MASK
