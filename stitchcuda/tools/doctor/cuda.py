"""Checks for `stitchcuda doctor` whether driver, toolkit, torch and GPU fit each other.

Without a GPU two lines say so, and checks that need one are left out. No setting of the device is changed; torch's check puts
64 numbers on it.
Where to look next: `tools/doctor/doctor.py` (all checks), `tools/doctor/profilers.py` (the profilers).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

from stitchcuda import remedies
from stitchcuda.state import Record
from stitchcuda.tools.device.toolkit import Toolkit, find_toolkit
from stitchcuda.tools.doctor.finding import Check, major_minor, output_of, run_check

# By CUDA major, the oldest driver branch that runs all its minors ("minor version compatibility"): NVIDIA, CUDA Compatibility,
# table 1 (docs.nvidia.com/deploy/cuda-compatibility).
_BRANCHES = {11: 450, 12: 525, 13: 580}
_PLAIN_TORCH = 13                          # the CUDA major of the build that `pip install torch` installs since 2.11
_TRIAL_S = 180.0                           # enough to import torch and make a context on a cold disk
_TRIAL = """
import torch
x = torch.ones(64, device="cuda")
assert x.sum().item() == 64, "a sum over 64 ones is wrong on this GPU"
print("computes on", torch.cuda.get_device_name(), "of", torch.cuda.device_count())
"""


class Driver(Record):
    """The driver and the GPUs of a machine, as nvidia-smi lists them."""

    version: str                           # "580.95.05"
    cuda: tuple[int, int] | None           # the newest CUDA it runs; None if nvidia-smi names none
    gpus: tuple[str, ...]                  # "NVIDIA H200, 143771 MiB"
    capabilities: tuple[str, ...]          # "9.0", one for each GPU

    @property
    def branch(self) -> int:
        """The driver's branch: 580 for "580.95.05"; 0 if the version has none."""
        return (major_minor(self.version) or (0, 0))[0]


class Torch(Record):
    """An installed torch."""

    version: str
    cuda: str | None                       # "13.0"; None for a CPU build


def find_torch() -> Torch | None:
    """Finds the torch that programs would import, from its files, without importing it. None also for leftovers."""
    found = importlib.util.find_spec("torch")
    file = Path(found.origin).parent / "version.py" if found and found.origin else None
    if file is None or not file.is_file():
        return None
    text = file.read_text(errors="replace")
    version = re.search(r"^__version__\s*=\s*'([^']+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b.*?=\s*'([\d.]+)'", text, re.MULTILINE)
    return Torch(version=version.group(1) if version else "of no version", cuda=cuda.group(1) if cuda else None)


def check_gpu() -> tuple[Driver | None, list[Check]]:
    """Returns the driver with its GPUs (None without a GPU that answers), and the checks "driver" and "gpu"."""
    without = "nothing to do: programs run on the simulator; to measure, use a machine with an NVIDIA GPU"

    def none(driver: str, gpu: str, remedy: str) -> tuple[None, list[Check]]:
        lines = [("driver", driver, remedy), ("gpu", gpu, without)]
        return None, [Check(name=name, ok=False, detail=detail, remedy=what) for name, detail, what in lines]

    smi = shutil.which("nvidia-smi")
    if smi is None:
        return none("no NVIDIA driver found", "none", without)
    ok, text = output_of(smi, "--query-gpu=driver_version,name,memory.total,compute_cap", "--format=csv,noheader")
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.count(",") == 3]
    repair = "repair the NVIDIA driver; in a container, start it with --gpus all"
    if not ok or not rows:
        return none(f"nvidia-smi fails: {' '.join(text.split())[:200]}", "none that answers", repair)
    if strange := next((f"{name} ({capability})" for _, name, _, capability in rows if not major_minor(capability)), ""):
        return none(rows[0][0], f"no compute capability is told of {strange}", repair)
    newest = re.search(r"CUDA(?: UMD)? Version\s*:\s*([\d.]+)", output_of(smi)[1])  # "CUDA UMD Version" since driver 610
    driver = Driver(
        version=rows[0][0],
        cuda=major_minor(newest.group(1)) if newest else None,
        gpus=tuple(f"{name}, {memory}" for _, name, memory, _ in rows),
        capabilities=tuple(row[3] for row in rows),
    )
    runs = f"{driver.version}, runs CUDA up to {_dotted(driver.cuda)}" if driver.cuda else driver.version
    return driver, [
        Check(name="driver", ok=True, detail=runs),
        Check(name="gpu", ok=True, detail="; ".join(driver.gpus)),
    ]


def check_versions(driver: Driver | None) -> list[Check]:
    """Checks whether the versions on this machine fit: nvcc and torch always, driver and GPU where there is one."""
    toolkit, torch = find_toolkit(), find_torch()
    checks = run_check("nvcc and torch", lambda: _nvcc_torch(toolkit, torch)) if toolkit and torch else []
    if driver is None:
        return checks
    checks += run_check("driver and CUDA", lambda: _driver_cuda(driver, toolkit, torch))
    if toolkit:
        checks += run_check("nvcc and gpu", lambda: _nvcc_gpu(driver, toolkit))
    if torch:
        checks += run_check("torch and gpu", lambda: _torch_gpu(driver, torch))
    return checks


def _nvcc_torch(toolkit: Toolkit, torch: Torch) -> Check:
    """Compares majors alone: torch.utils.cpp_extension refuses to build under another one and only warns of another minor."""
    name = "nvcc and torch"
    ours, its = major_minor(toolkit.version), major_minor(torch.cuda or "")
    if ours is None or its is None:
        return Check(name=name, ok=True, detail="torch is a CPU build: nothing to match")
    both = f"nvcc {toolkit.version}, torch built for CUDA {torch.cuda}"
    if ours[0] == its[0]:
        return Check(name=name, ok=True, detail=both)
    detail = f"{both}: programs that build through torch.utils.cpp_extension fail; tvm-ffi's build"
    remedy = f"set CUDA_HOME to a CUDA {its[0]} toolkit, or install a torch built for CUDA {ours[0]}"
    return Check(name=name, ok=False, detail=detail, remedy=remedy)


def _driver_cuda(driver: Driver, toolkit: Toolkit | None, torch: Torch | None) -> Check:
    name = "driver and CUDA"
    if driver.cuda is None:
        remedy = "compare by hand: nvidia-smi's driver with nvcc --version"
        return Check(name=name, ok=False, detail=f"nvidia-smi {driver.version} names no CUDA version", remedy=remedy)
    versions = {"nvcc": toolkit.version if toolkit else "", "torch": (torch.cuda or "") if torch else ""}
    here = {name: version for name, text in versions.items() if (version := major_minor(text)) is not None}
    listed = ", ".join(f"{name} is CUDA {_dotted(version)}" for name, version in here.items())
    detail = f"{listed or 'no CUDA is here'}; driver {driver.version} runs up to {_dotted(driver.cuda)}"
    newest = max(here.values(), default=driver.cuda)
    if newest[0] > driver.cuda[0]:
        branch = _BRANCHES.get(newest[0])
        first = f"install driver {branch} or newer" if branch else f"install a driver for CUDA {newest[0]}"
        remedy = f"{first}; or NVIDIA's cuda-compat package (data-centre GPUs); or nvcc and torch for CUDA {driver.cuda[0]}"
        return Check(name=name, ok=False, detail=f"{detail}: it runs nothing of CUDA {newest[0]}", remedy=remedy)
    if newest > driver.cuda:
        detail = f"{detail}: compiled kernels run, PTX of CUDA {_dotted(newest)} does not"
    return Check(name=name, ok=True, detail=detail)


def _nvcc_gpu(driver: Driver, toolkit: Toolkit) -> Check:
    name = "nvcc and gpu"
    known = re.findall(r"sm_\d+", output_of(toolkit.nvcc, "--list-gpu-code")[1])
    lacking = sorted({f"sm_{capability.replace('.', '')}" for capability in driver.capabilities} - set(known))
    if lacking:
        detail = f"nvcc {toolkit.version} compiles for {', '.join(known) or 'nothing'}, not for {', '.join(lacking)}"
        return Check(name=name, ok=False, detail=detail, remedy="set CUDA_HOME to a toolkit that knows this GPU")
    here = ", ".join(sorted(set(driver.capabilities)))
    return Check(name=name, ok=True, detail=f"nvcc compiles for compute capability {here}")


def _torch_gpu(driver: Driver, torch: Torch) -> Check:
    name = "torch and gpu"
    if torch.cuda is None:
        removal, plain = f"{remedies.pip()} uninstall -y torch", torch.version.partition("+")[0]
        remedy = f"{removal} && {remedies.install(f'torch=={plain}')}"
        if driver.cuda and driver.cuda[0] < _PLAIN_TORCH:
            which = f"the build for CUDA {driver.cuda[0]}.x, with the line that pytorch.org/get-started/locally gives"
            remedy = f"{removal}, then install {which}"
        detail = f"torch {torch.version} is a CPU build and does not see the GPU"
        return Check(name=name, ok=False, detail=detail, remedy=remedy)
    ok, text = output_of(sys.executable, "-c", _TRIAL, seconds=_TRIAL_S)
    if ok:
        return Check(name=name, ok=True, detail=(text.splitlines() or ["it says nothing"])[-1])
    errors = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    why = errors[-1] if errors else " ".join(text.split())[-200:]
    remedy = "mend what is not ok above; else check CUDA_VISIBLE_DEVICES and /dev/nvidia-uvm (in a container: --gpus all)"
    return Check(name=name, ok=False, detail=f"torch {torch.version} cannot use the GPU: {why}", remedy=remedy)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
