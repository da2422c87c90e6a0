"""Times copies between the GPU and new pages of the host: the driver's, and by way of pinned memory. Needs a GPU.

`python benchmarks/host_copies.py [--gb 4]` prints GB/s for each direction (`verify/messages/staged_copy.py`). The host's memory
is what a block has: a new memfd to write to, and a mapping of one that was never looked at to read from.
"""

from __future__ import annotations

import argparse
import mmap
import os
import time
from collections.abc import Callable

import torch

from stitchcuda.verify.messages.staged_copy import copy_bytes

Copy = Callable[[torch.Tensor, torch.Tensor], object]


def rates(copy: Copy, held: torch.Tensor) -> tuple[float, float]:
    """GB/s of copies from the GPU to new pages, and from pages that this mapping has not touched to the GPU."""
    size, found = held.numel(), []
    descriptor = os.memfd_create("copies")
    os.ftruncate(descriptor, size)
    for to_host in (True, False):
        with mmap.mmap(descriptor, size) as mapped:
            pages = torch.frombuffer(mapped, dtype=torch.uint8)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            copy(*((pages, held) if to_host else (held, pages)))
            torch.cuda.synchronize()
            found.append(size / 1e9 / (time.perf_counter() - begun))
            del pages
    os.close(descriptor)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=4)
    held = torch.ones(int(parser.parse_args().gb * 1e9), dtype=torch.uint8, device="cuda")
    threads = torch.get_num_threads()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {threads} threads, {held.numel() / 1e9:.1f} GB\n")
    print("| by | to the host GB/s | to the GPU GB/s |\n|---|---|---|")
    copy_bytes(held, torch.ones_like(held, device="cpu"))      # pins its part
    for name, copy in (("the driver", lambda target, source: target.copy_(source)), ("pinned memory", copy_bytes)):
        to_host, to_gpu = rates(copy, held)
        print(f"| {name} | {to_host:.1f} | {to_gpu:.1f} |")


if __name__ == "__main__":
    main()
