"""Maps Nsight Compute's metrics to the fields of a kernel profile.

The caller gives functions that look a metric up by name. A metric that is missing leaves None.
Where to look next: `tools/profile/kernel_profile.py` (the records), `tools/profile/ncu_command.py` (asks for the metrics).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stitchcuda.tools.profile.kernel_profile import (
    TENSOR_PERCENT,
    KernelProfile,
    Occupancy,
    Roofline,
    Stall,
    bound_of,
    limiter_of,
    occupancy_limits,
)

DURATION = "gpu__time_duration.sum"        # ns
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
DRAM_RATE = "dram__bytes.sum.per_second"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
L1_HITS, L2_HITS = "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES = "launch__waves_per_multiprocessor"
REGISTERS = "launch__registers_per_thread"
SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
TENSOR = (
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
)
_TENSOR_OPERATION = re.compile(r"pipe_tensor_(op|type)_")
LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "blocks": "launch__occupancy_limit_blocks",
    "warps": "launch__occupancy_limit_warps",
    "barriers": "launch__occupancy_limit_barriers",
}
FLOPS = {
    f"smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on": 2 if operation == "fma" else 1
    for letter in "fdh"
    for operation in ("add", "mul", "fma")
}
"""Instructions per thread and what one counts for; nvprof's `flop_count_*` in ncu's terms (Nsight Compute CLI, "Metric
Comparison"). Asked for as totals (`.sum`); the roofline chart's own are rates (`.sum.per_cycle_elapsed`)."""

CYCLES_RATE = ("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
OTHERS = (
    "sm__cycles_active.avg",
    "sm__inst_executed.sum",
    "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__sass_average_branch_targets_threads_uniform.pct",
    "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
    "smsp__warp_issue_stalled_branch_resolving_per_warp_active.pct",
)
"""Read for themselves: with those above, what CudaForge (arXiv 2511.01884) found to go with a kernel's run time. Its
`memory_dependency` stall is of chips before Volta and is called `long_scoreboard` since."""

_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALL_PERCENT = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
_STALL_SAMPLES = "smsp__pcsamp_warps_issue_stalled_{}"
_LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
_SAMPLES = "smsp__pcsamp_sample_count"
_REASONS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "no_instructions", "not_selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
_MOST_STALLS = 6
_LINK = re.compile(r"@url:([^:@]*):[^@]*@|@(?:section|sass):[^:@]*:([^@]*)@|@source:[^@]*:\d+:([^@]*)@")


def wanted() -> tuple[str, ...]:
    """Returns the metrics to ask for by name; the sections include all but the last few."""
    named = (DURATION, SM, MEMORY, DRAM, L2, L1, DRAM_RATE, DRAM_READ, DRAM_WRITE, L1_HITS, L2_HITS, ACHIEVED, REGISTERS)
    return (*named, TENSOR[0], *LIMITS.values(), *(f"{name}.sum" for name in FLOPS), *OTHERS)


def read(value: Callable[[str], float | None], text: Callable[[str], str]) -> KernelProfile:
    """Returns a profile with everything that follows from metrics. `value(name)` looks up a number, `text(name)` a text."""
    metrics: dict[str, float] = {}

    def get(name: str) -> float | None:
        if name not in metrics and (found := value(name)) is not None:
            metrics[name] = found
        return metrics.get(name)

    for name in wanted():
        get(name)
    tensor = _tensor(get, text)
    roofline = _roofline(get, tensor)
    occupancy = _occupancy(get)
    stalls = _stalls(get)
    busiest_sm, busiest_memory = _busiest(get, text, SM), _busiest(get, text, MEMORY)
    bound = bound_of(roofline, busiest_sm)
    shared = [get(name) for name in SHARED]
    return KernelProfile(
        name="",
        duration_us=_over(get(DURATION), 1e3),
        grid=_extent(get, "launch__grid_dim"),
        block=_extent(get, "launch__block_dim"),
        registers=_whole(get(REGISTERS)),
        shared_bytes=_whole(sum(part for part in shared if part is not None)) if any(s is not None for s in shared) else None,
        bound=bound,
        limiter=limiter_of(bound, occupancy, stalls, busiest_sm, busiest_memory),
        roofline=roofline,
        occupancy=occupancy,
        l1_hit_percent=get(L1_HITS),
        l2_hit_percent=get(L2_HITS),
        dram_read_bytes=_whole(get(DRAM_READ)),
        dram_write_bytes=_whole(get(DRAM_WRITE)),
        dram_gbs=_over(roofline.bytes_per_s, 1e9),
        tensor_percent=tensor,
        stalls=stalls,
        metrics=metrics,
    )


def plain(message: str) -> str:
    """Returns a rule's message with plain words in place of its links."""
    return _LINK.sub(lambda found: next(part for part in found.groups() if part is not None), message)


Get = Callable[[str], float | None]


def _roofline(get: Get, tensor: float | None) -> Roofline:
    seconds = _over(get(DURATION), 1e9)
    moved = get(DRAM_RATE)
    if moved is None:
        read_bytes, written = get(DRAM_READ), get(DRAM_WRITE)
        moved = (read_bytes + written) / seconds if read_bytes is not None and written is not None and seconds else None
    flops = _flops(get, seconds) if tensor is None or tensor < TENSOR_PERCENT else None
    return Roofline(
        intensity=flops / moved if flops is not None and moved else None,
        flops=flops,
        bytes_per_s=moved,
        sm_percent=get(SM),
        memory_percent=get(MEMORY),
        dram_percent=get(DRAM),
        l2_percent=get(L2),
        l1_percent=get(L1),
    )


def _flops(get: Get, seconds: float | None) -> float | None:
    """Returns flop per second: totals over the duration, else rates per cycle. FP16 counts if it was measured."""
    totals = [(count, weight) for name, weight in FLOPS.items() if (count := get(f"{name}.sum")) is not None]
    if totals and seconds:
        return sum(count * weight for count, weight in totals) / seconds
    rates = [(rate, weight) for name, weight in FLOPS.items() if (rate := get(f"{name}.sum.per_cycle_elapsed")) is not None]
    clock = _first(get, CYCLES_RATE)
    return sum(rate * weight for rate, weight in rates) * clock if rates and clock else None


def _tensor(get: Get, text: Callable[[str], str]) -> float | None:
    """Returns the share of the busiest kind of matrix operation, if ncu separates them; else that of the whole pipe, which on
    an H200 also runs the half-precision operations (HFMA2) by which nvcc loads constants into registers."""
    kinds = (get(name) for name in text(f"breakdown:{SM}").split(",") if _TENSOR_OPERATION.search(name))
    known = [share for share in kinds if share is not None]
    return max(known) if known else _first(get, TENSOR)


def _occupancy(get: Get) -> Occupancy:
    theoretical = get(THEORETICAL)
    limits = {name: get(metric) for name, metric in LIMITS.items()}
    return Occupancy(
        theoretical=theoretical,
        achieved=get(ACHIEVED),
        limited_by=occupancy_limits(limits, theoretical),
        waves=get(WAVES),
    )


def _stalls(get: Get) -> tuple[Stall, ...]:
    """Returns stalls by their share of a warp's time between two instructions; without averages, by their share of samples."""
    for pattern, whole in ((_STALL, get(_LATENCY)), (_STALL_SAMPLES, get(_SAMPLES)), (_STALL_PERCENT, 100.0)):
        shares = {reason: found / whole for reason in _REASONS if whole and (found := get(pattern.format(reason))) is not None}
        if shares:
            longest = sorted(shares, key=lambda reason: -shares[reason])[:_MOST_STALLS]
            return tuple(Stall(reason=reason, share=shares[reason]) for reason in longest if shares[reason] > 0)
    return ()


def _busiest(get: Get, text: Callable[[str], str], throughput: str) -> str:
    """Returns the metric of the part that determines a throughput, the largest of its breakdown; "" without a breakdown."""
    parts = {name: share for name in text(f"breakdown:{throughput}").split(",") if name and (share := get(name)) is not None}
    return max(parts, key=lambda name: parts[name]) if parts else ""


def _extent(get: Get, metric: str) -> tuple[int, int, int] | None:
    x, y, z = (_whole(get(f"{metric}_{axis}")) for axis in "xyz")
    return (x, y, z) if x is not None and y is not None and z is not None else None


def _first(get: Get, names: tuple[str, ...]) -> float | None:
    return next((found for name in names if (found := get(name)) is not None), None)


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None else None


def _over(value: float | None, unit: float) -> float | None:
    return value / unit if value is not None else None
