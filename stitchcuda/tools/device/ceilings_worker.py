"""Measures the bandwidth and FLOP rates of the first GPU, in this process, and prints them as JSON (torch).

It times copies far larger than L2, torch's matrix products and the host's work for one operator: a warm-up, then medians of
times by device events. It caches nothing and refuses no figure. On a CPU the same code runs with the host's clock, for tests.
Where to look next: `tools/device/ceilings.py` (which starts it, and checks and caches the result).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stitchcuda.state import Record
from stitchcuda.tools.device import gpu_lock
from stitchcuda.tools.device.interval import Median, median_of

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
          "float64": torch.float64, "int8": torch.int8}  # fmt: skip
_MOST, _FEWEST, _WARM = 40, 6, 3           # timed calls at most and at least, and warm-up calls
_TINY_KERNELS, _L2_COPIES = 400, 40        # launches in one CUDA graph


class Sizes(Record):
    """How much is measured; the defaults take about 10 s on a data-centre GPU."""

    copies: tuple[int, ...] = (2**28, 2**30)  # bytes that are read; as many are written
    products: tuple[int, ...] = (4096, 8192)  # n of products of two n x n matrices
    operators: int = 300                   # calls per sample
    call_s: float = 0.3                    # seconds for one rate at one size
    longest_ms: float = 60.0               # if one product takes longer, no larger one is measured


Timer = Callable[[Callable[[], object], float], list[float]]
"""timer(call, seconds) returns the milliseconds of each of several calls, after a warm-up, and takes about so many seconds."""


def device_timer(call: Callable[[], object], seconds: float) -> list[float]:
    """Times calls by events on the current stream, which the device works through without pause."""
    for _ in range(_WARM):
        call()
    first = _events(call, 1)[0]
    return _events(call, max(_FEWEST, min(_MOST, int(1e3 * seconds / max(first, 1e-3)))))


def host_timer(call: Callable[[], object], seconds: float) -> list[float]:
    """Times calls by the host's clock, for calls that are done when they return."""
    for _ in range(_WARM):
        call()
    times: list[float] = []
    while len(times) < _FEWEST or (len(times) < _MOST and sum(times) < 1e3 * seconds):
        began = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - began))
    return times


def measure_all(device: str, sizes: Sizes) -> dict[str, Any]:
    """Returns the fields of `ceilings.MeasuredCeilings` except `host`. Raises torch's errors where memory does not suffice."""
    began = time.perf_counter()
    cuda = device == "cuda"
    timer = device_timer if cuda else host_timer
    notes: list[str] = []
    found: dict[str, Any] = {"bandwidth_gbs": copy_gbs(device, timer, sizes)}
    found["tflops"] = {}
    for name in DTYPES:
        try:
            found["tflops"][name] = product_tflops(device, timer, name, sizes)
        except (RuntimeError, NotImplementedError) as error:  # a device without such products, or without memory for them
            notes.append(f"left out: {name} products ({str(error).splitlines()[0][:160]})")
    found["operator_us"] = operator_us(device, sizes)
    found |= _properties() if cuda else {"sm_count": 0, "memory_bytes": 0, "l2_bytes": 0}
    if cuda:
        found["kernel_us"] = kernel_us(timer)
        found["l2_gbs"] = l2_gbs(timer, found["l2_bytes"])
    plain = {name: value.model_dump() if isinstance(value, Median) else value for name, value in found.items()}
    plain["tflops"] = {name: rate.model_dump() for name, rate in found["tflops"].items()}
    return plain | {"seconds": time.perf_counter() - began, "notes": notes}


def copy_gbs(device: str, timer: Timer, sizes: Sizes) -> Median:
    """The rate of a device copy, reads plus writes, at the best size; 1e9 bytes per second."""

    def rate(size: int) -> Median:
        source = torch.ones(size, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return median_of([2 * size / 1e6 / took for took in timer(lambda: target.copy_(source), sizes.call_s)])

    return max((rate(size) for size in sizes.copies), key=lambda found: found.value)


def product_tflops(device: str, timer: Timer, name: str, sizes: Sizes) -> Median:
    """The rate of torch's product of two n x n matrices of normal values at the best n: 2 n^3 per time, 1e12 per second."""
    best: Median | None = None
    for size in sizes.products:
        with _tf32(name == "tf32"):
            times = timer(_product(device, DTYPES[name], size), sizes.call_s)
        rate = median_of([2 * size**3 / 1e9 / took for took in times])
        best = rate if best is None or rate.value > best.value else best
        if median_of(times).value > sizes.longest_ms:
            break
    assert best is not None
    return best


def operator_us(device: str, sizes: Sizes) -> Median:
    """The host's microseconds for one eager addition of tiny tensors, measured over many back to back."""
    x, y = torch.ones(16, device=device), torch.ones(16, device=device)
    samples = []
    for number in range(_FEWEST + 6):
        _wait(device)
        began = time.perf_counter()
        for _ in range(sizes.operators):
            torch.add(x, y)
        took = time.perf_counter() - began
        if number:                         # the first warms up
            samples.append(1e6 * took / sizes.operators)
    return median_of(samples)


def kernel_us(timer: Timer) -> Median:
    """The device's microseconds for a tiny kernel that follows another one in a CUDA graph."""
    x = torch.ones(16, device="cuda")
    replay = _graph(lambda: x.add_(1), _TINY_KERNELS)
    return median_of([1e3 * took / _TINY_KERNELS for took in timer(replay, 0.1)])


def l2_gbs(timer: Timer, l2_bytes: int) -> Median | None:
    """The rate of copies that stay in L2, reads plus writes, one after another in a CUDA graph; launches are included."""
    size = l2_bytes // 4
    if not size:
        return None
    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    replay = _graph(lambda: torch.add(source, 1, out=target), _L2_COPIES)  # a kernel, since a copy may use the copy engine
    return median_of([2 * size * _L2_COPIES / 1e6 / took for took in timer(replay, 0.1)])


def _product(device: str, dtype: torch.dtype, size: int) -> Callable[[], object]:
    generator = torch.Generator(device).manual_seed(0)
    if dtype == torch.int8:
        left, right = (torch.randint(-128, 128, (size, size), dtype=dtype, device=device, generator=generator) for _ in "ab")
        return lambda: torch._int_mm(left, right.t())  # column-major, since Hopper's int8 products read both along k
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    a, b = (torch.randn(size, size, dtype=wide, device=device, generator=generator).to(dtype) for _ in "ab")
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _events(call: Callable[[], object], count: int) -> list[float]:
    event: Any = torch.cuda.Event
    marks = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
    torch.cuda.synchronize()
    for before, after in marks:
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return [float(before.elapsed_time(after)) for before, after in marks]


def _graph(call: Callable[[], object], count: int) -> Callable[[], object]:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph.replay


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _properties() -> dict[str, int]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _fitting(sizes: Sizes) -> Sizes:
    """Returns the sizes with only those copies that fit into a quarter of the free memory and are 4 times L2 or larger.

    Exits with the reason if none is left.
    """
    free = torch.cuda.mem_get_info()[0]
    copies = tuple(size for size in sizes.copies if 4 * size <= free and size >= 4 * _properties()["l2_bytes"])
    if not copies:
        sys.exit(f"only {free / 2**20:.0f} MiB of the GPU's memory are free: another process holds the rest")
    return sizes.model_copy(update={"copies": copies})


def main() -> None:
    """Measures the first GPU while it holds the GPU's lock. If it cannot: one sentence on stderr, exit code 1."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                          # what libraries print goes to stderr
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU: it is a CPU build, or the driver is too old for it")
    name = torch.cuda.get_device_name(0)
    if len(sys.argv) > 1 and sys.argv[1] != name:
        sys.exit(f"torch's first device is {name} and nvidia-smi's {sys.argv[1]}: a slice of a GPU, or CUDA_VISIBLE_DEVICES")
    try:
        with gpu_lock.exclusive(str(torch.cuda.get_device_properties(0).uuid)):
            found = measure_all("cuda", _fitting(Sizes()))
    except RuntimeError as error:          # out of memory among others
        sys.exit(f"{type(error).__name__}: {str(error).splitlines()[0][:300]}")
    answers.write(json.dumps(found))
    answers.flush()


if __name__ == "__main__":
    main()
