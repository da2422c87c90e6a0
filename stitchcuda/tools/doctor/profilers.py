"""Checks for `stitchcuda doctor` the profilers: nsys and its importer, ncu and access to counters, compute-sanitizer.

No program is profiled: whether counters may be read follows from the driver's settings and this process's capabilities.
Where to look next: `tools/doctor/doctor.py` (all checks), `tools/doctor/cuda.py` (driver and GPU).
"""

from __future__ import annotations

import re
from pathlib import Path

from stitchcuda.tools.device.toolkit import find_toolkit
from stitchcuda.tools.doctor.cuda import Driver
from stitchcuda.tools.doctor.finding import NOTHING_WITHOUT_GPU, Check, major_minor, output_of, run_check
from stitchcuda.tools.profile import ncu_report, nsys_command
from stitchcuda.tools.profile.ncu_command import find_ncu
from stitchcuda.tools.profile.sanitizer import find_sanitizer

PROC = Path("/proc")
_SYS_ADMIN, _PERFMON = 21, 38              # bits of CapEff (linux/capability.h)
_PERFMON_DRIVER = 565                      # from this branch on CAP_PERFMON is enough (NVIDIA, ERR_NVGPUCTRPERM)
_WHOLE_USER_MAP = ["0", "0", "4294967295"]  # uid_map of the first user namespace, whose capabilities alone the driver accepts


def check_profilers(driver: Driver | None, proc: Path = PROC) -> list[Check]:
    """Runs this file's checks, in the order in which a profile needs the tools. `proc`: the mount point of /proc."""
    checks = run_check("nsys", lambda: _nsys(driver))
    checks += run_check("ncu", lambda: _tool("ncu", "Nsight Compute", find_ncu(), "cuda-nsight-compute", driver))
    if driver is not None:
        checks += run_check("counters", lambda: _counters(driver, proc))
    checks += run_check("ncu-report", _ncu_report)
    name, title = "compute-sanitizer", "Compute Sanitizer"
    return checks + run_check(name, lambda: _tool(name, title, find_sanitizer(), "cuda-sanitizer", driver))


def _tool(name: str, title: str, found: Path | None, package: str, driver: Driver | None) -> Check:
    """Checks whether the tool `found` runs and prints its `title`. `package`: NVIDIA's apt package, without CUDA's version."""
    toolkit = find_toolkit() if driver else None
    remedy = NOTHING_WITHOUT_GPU
    if driver is not None:
        major, minor = (major_minor(toolkit.version) if toolkit else None) or driver.cuda or (13, 0)
        remedy = f"apt install {package}-{major}-{minor} (from NVIDIA's apt repository)"
    if found is None:
        return Check(name=name, ok=False, detail="not found", remedy=remedy)
    ok, text = output_of(found, "--version")
    version = re.search(r"\d{4}\.\d+[\d.]*", text)
    if ok and version and title in text:
        return Check(name=name, ok=True, detail=f"{version.group(0)} ({found})")
    detail = f"{found} is not {title} or does not run: it says {' '.join(text.split())[-200:] or 'nothing'}"
    return Check(name=name, ok=False, detail=detail, remedy=remedy)


def _nsys(driver: Driver | None) -> Check:
    """Checks nsys, and the libraries without which its importer leaves a .qdstrm file that cannot be read here."""
    check = _tool("nsys", "Nsight Systems", nsys_command.find_nsys(), "cuda-nsight-systems", driver)
    packages = " ".join(nsys_command.missing_packages())
    if not check.ok or not packages:
        return check
    detail = f"{check.detail}; its importer needs {packages}: traces stay .qdstrm files and cannot be read"
    return Check(name="nsys", ok=False, detail=detail, remedy=f"apt install {packages}, or run install.sh of make gpu-bundle")


def _counters(driver: Driver, proc: Path) -> Check:
    """Checks whether ncu may read hardware counters, or fails with ERR_NVGPUCTRPERM.

    The rules and the remedy are NVIDIA's (developer.nvidia.com/ERR_NVGPUCTRPERM). The driver wants the capability in the first
    user namespace: root inside of another one is no administrator to it.
    """
    name = "counters"
    held = _capability(driver, proc)
    try:
        text = (proc / "driver/nvidia/params").read_text()
    except OSError:
        text = ""
    only = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    if only and only.group(1) == "0":
        return Check(name=name, ok=True, detail="open to every user (RmProfilingAdminOnly: 0)")
    rule, then = "kept for administrators (RmProfilingAdminOnly: 1)", "ncu will say ERR_NVGPUCTRPERM"
    if only is None:
        rule, then = f"{proc / 'driver/nvidia/params'} does not say who may read them", "ncu may say ERR_NVGPUCTRPERM"
    if held:
        return Check(name=name, ok=True, detail=f"{rule}; this process has {held}")
    remedy = (
        "as root on the host: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
        "/etc/modprobe.d/nvidia-profiling.conf, then update-initramfs -u and reboot; or run as root; "
        "in a container: --cap-add=SYS_ADMIN. Until then kernel times come from CUPTI"
    )
    detail = f"{rule}, and this process has no CAP_SYS_ADMIN: {then}"
    return Check(name=name, ok=False, detail=detail, remedy=remedy)


def _capability(driver: Driver, proc: Path) -> str:
    """Returns the name of the capability that lets this process read counters, or ""."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", (proc / "self/status").read_text(), re.MULTILINE)
    if effective is None or (proc / "self/uid_map").read_text().split() != _WHOLE_USER_MAP:
        return ""
    bits = int(effective.group(1), 16)
    if bits >> _SYS_ADMIN & 1:
        return "CAP_SYS_ADMIN"
    return "CAP_PERFMON" if bits >> _PERFMON & 1 and driver.branch >= _PERFMON_DRIVER else ""


def _ncu_report() -> Check:
    why, _, remedy = ncu_report.missing().partition("; ")
    return Check(name="ncu-report", ok=not why, detail=why or "Nsight Compute's reports can be read", remedy=remedy)
