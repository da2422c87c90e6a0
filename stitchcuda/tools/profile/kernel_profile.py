"""Defines the record of one kernel's hardware counters, and decides by NVIDIA's rule what bounds the kernel.

A figure that was not measured is None, never 0: versions of Nsight Compute know different counters. Nothing is read or run.
Where to look next: `tools/profile/ncu_report.py` (fills the records), `tools/profile/kernel_text.py` (describes them).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stitchcuda.state import Record

Bound = Literal["memory", "compute", "latency"]

LATENCY_PERCENT = 60.0
"""With both units below this share of their peak, neither limits: the kernel waits. From NVIDIA's SOLBottleneck rule
(`latency_bound_threshold` in Nsight Compute's sections/SpeedOfLight.py)."""

BALANCED_PERCENT = 10.0
"""Units closer to each other than this are equally busy in that rule (`balanced_threshold`)."""

FULL_WAVE = 1.0
"""Fewer waves of blocks than this leave multiprocessors empty from the start ("Small Grid" in the same rule)."""

TENSOR_PERCENT = 0.5
"""From this share on, tensor cores did part of the arithmetic, which the counters of instructions per thread leave out."""

_MEMORY_PIPES = ("pipe_lsu", "pipe_tex", "mio", "idc__", "memory_throughput")

_UNITS = (
    ("dram", "DRAM bandwidth"),
    ("fbpa", "DRAM bandwidth"),
    ("lts", "L2 bandwidth"),
    ("l1tex", "L1 and shared memory bandwidth"),
    ("pipe_lsu", "load and store instructions"),
    ("mio", "shared memory and special instructions"),
    ("tensor", "tensor cores"),
    ("pipe_fp64", "FP64 units"),
    ("pipe_fp16", "FP16 units"),
    ("pipe_fma", "FP32 units"),
    ("pipe_alu", "integer and logic units"),
    ("pipe_xu", "special functions and conversions"),
    ("uniform", "uniform instructions"),
    ("issue", "instruction issue"),
    ("inst_executed.", "instruction issue"),
)


class Roofline(Record):
    """Where a kernel stands between what it computes and what it moves. Percentages are of the unit's own peak, 0 to 100."""

    intensity: float | None = None         # flop per byte of device memory; None also where tensor cores did part of it
    flops: float | None = None             # flop per second on CUDA cores, FP64 to FP16; an FMA counts twice
    bytes_per_s: float | None = None       # device memory, read and written
    sm_percent: float | None = None        # the busiest part of the multiprocessors
    memory_percent: float | None = None    # the busiest of L1, L2 and DRAM
    dram_percent: float | None = None
    l2_percent: float | None = None
    l1_percent: float | None = None


class Occupancy(Record):
    """Warps on a multiprocessor, as percent of what it can hold."""

    theoretical: float | None = None       # what registers, shared memory and block size allow
    achieved: float | None = None          # the average while the kernel ran
    limited_by: tuple[str, ...] = ()       # "registers", "shared memory", "blocks", "warps", "barriers"; () if nothing limits
    waves: float | None = None             # blocks over those that fit at once


class Stall(Record):
    """Why warps waited."""

    reason: str                            # ncu's name, such as "long_scoreboard"
    share: float                           # of the time of a warp between two instructions, 0 to 1


class RuleResult(Record):
    """One of Nsight Compute's own findings."""

    rule: str                              # its identifier, such as "CPIStall"
    title: str
    message: str
    speedup_percent: float | None = None   # ncu's estimate
    scope: Literal["kernel", "local"] | None = None  # what the estimate is of: the kernel's time, or one unit's efficiency


class SourceLine(Record):
    """A line of the program and how much of the kernel's time its instructions took."""

    file: str
    line: int
    share: float                           # of the warp samples of the kernel, 0 to 1
    stall: str = ""                        # the reason seen most often there
    text: str = ""                         # "" where the report holds no source


class KernelProfile(Record):
    """One kernel. Of several profiled launches it is the one with the median duration."""

    name: str                              # demangled, as CUPTI shows it
    origin: str = ""                       # own, vendor, framework; "" if nobody said
    launches: int = 1                      # profiled ones
    share: float | None = None             # of the device time of a whole call, 0 to 1; given, not measured here
    duration_us: float | None = None       # under the profiler, with a cold cache unless asked otherwise
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None           # per thread
    shared_bytes: int | None = None        # per block, static and dynamic
    bound: Bound | None = None             # None: the two throughputs were not measured
    limiter: str = ""                      # one phrase
    roofline: Roofline = Roofline()
    occupancy: Occupancy = Occupancy()
    l1_hit_percent: float | None = None
    l2_hit_percent: float | None = None
    dram_read_bytes: int | None = None
    dram_write_bytes: int | None = None
    dram_gbs: float | None = None          # 1e9 bytes per second
    tensor_percent: float | None = None    # of the tensor pipes' peak
    stalls: tuple[Stall, ...] = ()         # the longest first
    rules: tuple[RuleResult, ...] = ()     # estimates of the kernel's time first, the largest first
    lines: tuple[SourceLine, ...] = ()     # the hottest first
    metrics: dict[str, float] = Field(default_factory=dict)  # what was read, by ncu's names and in ncu's units


def bound_of(roofline: Roofline, busiest_sm: str = "") -> Bound | None:
    """Decides what limits the kernel, from the two throughputs of the section "GPU Speed Of Light Throughput".

    Both below 60 % of their peak: latency. Else the busier one; but if they are within 10 points of each other and the
    multiprocessors' busiest part (`busiest_sm`, a metric's name) issues memory accesses, it is memory, since such a kernel is
    busy loading and not computing. None without both figures.
    """
    sm, memory = roofline.sm_percent, roofline.memory_percent
    if sm is None or memory is None:
        return None
    if max(sm, memory) < LATENCY_PERCENT:
        return "latency"
    if abs(sm - memory) < BALANCED_PERCENT and _is_memory_pipe(busiest_sm):
        return "memory"
    return "memory" if memory >= sm else "compute"


def limiter_of(
    bound: Bound | None,
    occupancy: Occupancy,
    stalls: tuple[Stall, ...],
    busiest_sm: str = "",
    busiest_memory: str = "",
) -> str:
    """Returns the limit in one phrase; "" if it is unknown. The busiest parts are given by their metrics' names."""
    if bound == "memory":
        return unit_of(busiest_memory) or "the memory system"
    if bound == "compute":
        return unit_of(busiest_sm) or "the multiprocessors"
    if bound is None:
        return ""
    reasons = []
    if occupancy.waves is not None and occupancy.waves < FULL_WAVE:
        reasons.append(f"too few blocks ({occupancy.waves:.2g} of a full wave)")
    if stalls:
        what = STALLS.get(stalls[0].reason, stalls[0].reason)
        reasons.append(f"warps wait for {what} ({100 * stalls[0].share:.0f} % of their time)")
    if not reasons and occupancy.achieved is not None and occupancy.achieved < LATENCY_PERCENT:
        reasons.append(f"few warps at a time ({occupancy.achieved:.0f} % of what fits)")
    return ", ".join(reasons) or "latency"


def unit_of(metric: str) -> str:
    """Returns "DRAM bandwidth" for `dram__cycles_active.avg.pct_of_peak_sustained_elapsed`; "" for an unknown metric."""
    return next((unit for part, unit in _UNITS if part in metric), "")


def occupancy_limits(limits: dict[str, float | None], theoretical: float | None) -> tuple[str, ...]:
    """Returns the resources that allow the fewest blocks on a multiprocessor; () if all warps fit anyway."""
    known = {name: blocks for name, blocks in limits.items() if blocks is not None}
    if not known or theoretical is None or theoretical >= 100.0:
        return ()
    fewest = min(known.values())
    return tuple(name for name, blocks in known.items() if blocks == fewest)


def _is_memory_pipe(metric: str) -> bool:
    return any(pipe in metric for pipe in _MEMORY_PIPES)


STALLS = {
    "barrier": "the other warps at a barrier",
    "branch_resolving": "a branch",
    "dispatch_stall": "the dispatcher",
    "drain": "their last stores",
    "gmma": "the tensor cores",
    "imc_miss": "constants that are not in the cache",
    "lg_throttle": "the queue of global and local memory accesses",
    "long_scoreboard": "global or local memory",
    "math_pipe_throttle": "a busy arithmetic unit",
    "membar": "a memory fence",
    "mio_throttle": "the queue of shared memory and special instructions",
    "misc": "other hardware",
    "no_instruction": "instructions to be fetched",
    "no_instructions": "instructions to be fetched",
    "not_selected": "their turn: another warp was issued",
    "short_scoreboard": "shared memory or a special function",
    "sleeping": "their sleep to end",
    "tex_throttle": "the texture queue",
    "wait": "the fixed latency of the instruction before",
}
"""What each of ncu's stall reasons waits for (Nsight Compute, Profiling Guide, "Warp Stall Reasons")."""
