"""Says how much memory of the GPU there is and is free, and keeps this process below a limit that the user set.

With a limit (`--gpu-memory-gb`) the GPU counts as one of that size: what any process holds on it is not free. Torch's allocator
gets what is left; memory that generated code takes from the driver itself is not limited. Used by the workers of the verifier.
Where to look next: `verify/reference/blocks.py` (where tensors go if there is too little).
"""

from __future__ import annotations

import torch

_SMALL = 40e9                              # bytes of a GPU's memory
_limit = 0                                 # bytes; 0: all of the GPU


def set_limit(size: int) -> None:
    """Takes the GPU for one with `size` bytes; 0: for what it is."""
    global _limit
    _limit = size
    leave_to_others()


def is_small() -> bool:
    """Whether a program may well need nearly all of the GPU's memory."""
    return free_and_total()[1] < _SMALL


def allow_little() -> None:
    """On a small GPU, has torch put small tensors elsewhere than into the memory of a large one that is free for now: no large
    one would fit there again. To be called before torch takes much memory."""
    if is_small():
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")


def free_and_total() -> tuple[int, int]:
    """Returns (free bytes, all bytes) of the GPU, below the limit."""
    free, total = torch.cuda.mem_get_info()
    return (max(0, _limit - (total - free)), min(total, _limit)) if _limit else (free, total)


def unused() -> int:
    """The bytes of the GPU's memory that torch holds in this process for tensors to come."""
    return torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def start_peak() -> int:
    """Begins to watch how much memory torch takes at most. Returns the bytes that it holds now, for `holds_again`."""
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def holds_again(before: int) -> bool:
    """Whether what torch took at most since `start_peak` would fit once more, beside all that it holds now."""
    return free_and_total()[0] + unused() >= torch.cuda.max_memory_allocated() - before


def leave_to_others() -> None:
    """Allows torch what it holds and what is free below the limit now. To be called again when others have taken memory."""
    if _limit:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + free_and_total()[0]) / total))
