"""Defines what a child may use (time, memory, files, environment) and removes what it leaves behind.

Every process that reads generated text (compilers) or runs it (workers) gets its limits here. This module starts no process and
isolates none.
Where to look next: `sandbox/command.py` (compilers), `verify/processes/forkserver.py` (workers).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stitchcuda.sandbox import kernel
from stitchcuda.sandbox.policy import Bounds
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import Record

_PREFIX = "stitchcuda-"
_KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "PYTHONPATH", "VIRTUAL_ENV", "CXX", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "TZ", "SSL_CERT_FILE", "STITCHCUDA_SIM_SCHEDULE", "STITCHCUDA_SIM_CHECK", "STITCHCUDA_SIM_RETURNED",
    "STITCHCUDA_SANDBOX_WITHOUT", "CUTLASS_PATH", "CUTLASS_HOME", "CUDNN_PATH", "CUDNN_HOME", "CUDNN_FRONTEND_PATH",
)  # fmt: skip


class Limits(Record):
    """Limits of one worker. `memory_gib` limits the address space on the simulator only: CUDA maps far more than it uses."""

    check_s: float = 600.0                 # all requests to one worker of a program, wall clock
    load_s: float = 120.0                  # importing a reference and constructing its Model; each call of its get_inputs()
    start_s: float = 240.0                 # building, importing and constructing a program
    call_s: float = 240.0                  # one forward call, including its transfers
    baseline_s: float = 600.0              # one question to the reference
    memory_gib: float = 0.0                # 0: 80 % of this machine's memory
    file_gib: float = 16.0                 # largest single file
    disk_gib: float = 48.0                 # all files that one worker or command writes
    output_gib: float = 1.0                # printed by one worker or command
    tasks: int = 0                         # processes and threads; 0: 1024, and 16 for each core
    scratch_gib: float = 1.0               # free room below which /dev/shm is not used


def for_data(limits: Limits, size: int) -> Limits:
    """Returns limits of memory and disk in proportion to `size`, the bytes of a call's parameters, inputs and outputs. A
    memory limit that the user set stays."""
    memory, whole = 8 * 2**30 + 32 * size, memory_limit(limits)
    changed: dict[str, float] = {} if limits.memory_gib else {"memory_gib": min(memory, whole) / 2**30}
    changed["disk_gib"] = min(limits.disk_gib, 2 + 16 * size / 2**30)
    return limits.model_copy(update=changed)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of a child: a few named variables, so that no key or token reaches generated code."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    kept.update(extra or {})
    return kept


def die_with_parent() -> None:
    """Asks the kernel to kill this process when the thread that started it ends."""
    kernel.prctl(kernel.DEATH_SIGNAL, signal.SIGKILL)


def memory_limit(limits: Limits) -> int:
    """Returns the bytes of address space that a worker on the simulator may have."""
    if limits.memory_gib:
        return int(limits.memory_gib * 2**30)
    return int(0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def bounds_of(limits: Limits, *, address: bool) -> Bounds:
    """Returns the limits as the sandbox takes them. `address`: limit the address space too, which CUDA does not bear."""
    cores = os.cpu_count() or 1
    return Bounds(
        memory=memory_limit(limits),
        address=memory_limit(limits) if address else 0,
        file=int(limits.file_gib * 2**30),
        disk=int(limits.disk_gib * 2**30),
        tasks=limits.tasks or 1024 + 16 * cores,
        output=int(limits.output_gib * 2**30),
    )


def kill_group(pid: int) -> None:
    """Kills a process that leads its own group, with everything in the group."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def make_scratch(limits: Limits | None = None) -> Path:
    """Creates a private folder for a judge and its workers, named after this process: in /dev/shm if it has `scratch_gib` free,
    else in TMPDIR.

    Removes folders of processes that no longer exist: one that is killed with SIGKILL leaves its own behind.
    """
    floor = int((limits or Limits()).scratch_gib * 2**30)
    shared = Path("/dev/shm")
    roots = [shared] if shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > floor else []
    root = (roots or [Path(tempfile.gettempdir())])[0]
    for old in root.glob(f"{_PREFIX}*-*"):
        owner = old.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _alive(int(owner)) and old.stat().st_uid == os.getuid():
            remove(old)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def signal_name(code: int) -> str:
    """Returns "SIGSEGV" for a return code of -11, "exit code 3" for 3."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
