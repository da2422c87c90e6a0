"""What doctor says of a machine with a GPU. The driver and NVIDIA's tools are small executables here, the rest is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda import remedies
from stitchcuda.tools.doctor import cuda as doctor_cuda
from stitchcuda.tools.doctor.cuda import Driver
from stitchcuda.tools.doctor.finding import Check
from stitchcuda.tools.doctor.profilers import check_profilers
from stitchcuda.tools.profile import nsys_command

H200 = Driver(version="580.95.05", cuda=(13, 0), gpus=("NVIDIA H200, 143771 MiB",), capabilities=("9.0",))
ROOT_CAPABILITIES, NO_CAPABILITIES, PERFMON = "000001ffffffffff", "0000000000000000", f"{1 << 38:016x}"


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def driver(tools: Path, version: str = "580.95.05", cuda: str = "CUDA Version: 13.0", capability: str = "9.0") -> None:
    """An nvidia-smi that answers as NVIDIA's does."""
    asked = f'case "$1" in --query*) echo "{version}, NVIDIA H200, 143771 MiB, {capability}";;'
    told = f'*) echo "| NVIDIA-SMI {version}    Driver Version: {version}    {cuda}     |";; esac'
    executable(tools / "nvidia-smi", f"{asked} {told}")


def proc(folder: Path, *, params: str | None, capabilities: str, users: str = "0 0 4294967295") -> Path:
    """The kernel's and the driver's files as they are under /proc."""
    (folder / "self").mkdir(parents=True)
    (folder / "self/status").write_text(f"Name:\tpython\nCapPrm:\t{ROOT_CAPABILITIES}\nCapEff:\t{capabilities}\n")
    (folder / "self/uid_map").write_text(f"         {users}\n")
    if params is not None:
        (folder / "driver/nvidia").mkdir(parents=True)
        (folder / "driver/nvidia/params").write_text(f"ResmanDebugLevel: 4294967295\n{params}\nGrdmaPciTopoCheckOverride: 0\n")
    return folder


def named(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


def check_versions() -> list[Check]:
    found, _ = doctor_cuda.check_gpu()
    return doctor_cuda.check_versions(found)


def with_torch(folder: Path, cuda: str | None, body: str = "") -> list[Check]:
    """The same checks in a process whose torch is another one."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/version.py").write_text(f"__version__ = '2.11.0'\ncuda: Optional[str] = {cuda!r}\n")
    (folder / "torch/__init__.py").write_text(body)
    code = (
        "import json; from stitchcuda.tools.doctor import cuda as d; "
        "print(json.dumps([c.model_dump() for c in d.check_versions(d.check_gpu()[0])]))"
    )
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [Check(**check) for check in json.loads(done.stdout)]


def test_a_gpu_host(tools: Path, tmp_path: Path) -> None:
    driver(tools)
    found, lines = doctor_cuda.check_gpu()
    assert found == H200
    assert [check.detail for check in lines] == ["580.95.05, runs CUDA up to 13.0", "NVIDIA H200, 143771 MiB"]
    torch = "import sys\nprint('computes on NVIDIA H200 of 1')\nsys.exit()\n"  # stands for one that computes
    checks = with_torch(tmp_path / "site", "13.0", torch)
    assert [check.name for check in checks] == ["nvcc and torch", "driver and CUDA", "nvcc and gpu", "torch and gpu"]
    assert [check.name for check in checks if not check.ok] == []
    assert named(checks, "torch and gpu").detail == "computes on NVIDIA H200 of 1"


def test_the_other_spelling_of_the_drivers_cuda(tools: Path) -> None:
    driver(tools, "610.43.02", "CUDA UMD Version: 13.3")
    found, _ = doctor_cuda.check_gpu()
    assert found is not None
    assert found.cuda == (13, 3)


def test_a_driver_that_does_not_answer(tools: Path) -> None:
    executable(tools / "nvidia-smi", 'echo "NVIDIA-SMI has failed because it could not communicate with the driver."; exit 9')
    found, lines = doctor_cuda.check_gpu()
    assert found is None
    assert not lines[0].ok
    assert "could not communicate" in lines[0].detail
    assert "repair the NVIDIA driver" in lines[0].remedy


def test_without_a_gpu_there_is_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found, lines = doctor_cuda.check_gpu()
    checks = [*lines, *doctor_cuda.check_versions(found), *check_profilers(found)]
    assert not {"counters", "driver and CUDA", "torch and gpu"} & {check.name for check in checks}
    for name in ("driver", "gpu", "nsys", "ncu", "compute-sanitizer"):
        check = named(checks, name)
        assert check.ok or "nothing to do" in check.remedy, check


def test_a_driver_too_old_for_the_toolkit(tools: Path) -> None:
    driver(tools, "550.54.15", "CUDA Version: 12.4")
    check = named(check_versions(), "driver and CUDA")
    assert not check.ok
    assert "runs nothing of CUDA 13" in check.detail
    assert check.remedy.startswith("install driver 580 or newer")


def test_a_driver_of_an_older_minor_is_enough(tools: Path, tmp_path: Path) -> None:
    driver(tools)
    check = named(with_torch(tmp_path / "site", "13.2"), "driver and CUDA")
    assert check.ok
    assert "PTX of CUDA 13.2 does not" in check.detail


def test_nvcc_and_torch_of_different_majors(tools: Path, tmp_path: Path) -> None:
    driver(tools)
    check = named(with_torch(tmp_path / "site", "12.8"), "nvcc and torch")
    assert not check.ok
    assert "torch.utils.cpp_extension fail" in check.detail
    assert "CUDA_HOME to a CUDA 12 toolkit" in check.remedy


def test_a_gpu_that_nvcc_does_not_know(tools: Path) -> None:
    driver(tools, capability="3.5")
    check = named(check_versions(), "nvcc and gpu")
    assert not check.ok
    assert "not for sm_35" in check.detail


def test_what_is_left_of_a_torch_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("")
    code = "from stitchcuda.tools.doctor import doctor, cuda as d; print(d.find_torch(), doctor._torch().remedy)"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"None {remedies.install('torch>=2.8')}", done.stderr


@pytest.mark.parametrize(
    ("cuda", "remedy"),
    [
        ("13.0", f"pip uninstall -y torch && {remedies.install('torch==2.11.0')}"),
        ("12.4", "CUDA 12.x, with the line that pytorch.org"),
    ],
)
def test_a_torch_for_the_cpu_beside_a_gpu(tools: Path, tmp_path: Path, cuda: str, remedy: str) -> None:
    driver(tools, cuda=f"CUDA Version: {cuda}")
    check = named(with_torch(tmp_path / "site", None), "torch and gpu")
    assert not check.ok
    assert "CPU build" in check.detail
    assert remedy in check.remedy


def test_a_torch_that_cannot_use_the_gpu_says_why(tools: Path, tmp_path: Path) -> None:
    driver(tools)
    body = 'def ones(*shape, device):\n    raise RuntimeError("No CUDA GPUs are available")\n'
    check = named(with_torch(tmp_path / "site", "13.0", body), "torch and gpu")
    assert not check.ok
    assert check.detail.endswith("cannot use the GPU: RuntimeError: No CUDA GPUs are available")
    assert "CUDA_VISIBLE_DEVICES" in check.remedy


@pytest.mark.parametrize(
    ("params", "capabilities", "users", "ok", "said"),
    [
        ("RmProfilingAdminOnly: 0", NO_CAPABILITIES, "0 0 4294967295", True, "open to every user"),
        ("RmProfilingAdminOnly: 1", ROOT_CAPABILITIES, "0 0 4294967295", True, "this process has CAP_SYS_ADMIN"),
        ("RmProfilingAdminOnly: 1", PERFMON, "0 0 4294967295", True, "this process has CAP_PERFMON"),
        ("RmProfilingAdminOnly: 1", NO_CAPABILITIES, "0 0 4294967295", False, "will say ERR_NVGPUCTRPERM"),
        ("RmProfilingAdminOnly: 1", ROOT_CAPABILITIES, "0 1000 1", False, "will say ERR_NVGPUCTRPERM"),
        (None, ROOT_CAPABILITIES, "0 0 4294967295", True, "does not say who may read them"),
        (None, NO_CAPABILITIES, "0 0 4294967295", False, "may say ERR_NVGPUCTRPERM"),
    ],
)
def test_who_may_read_counters(tmp_path: Path, params: str | None, capabilities: str, users: str, ok: bool, said: str) -> None:
    kernel = proc(tmp_path / "proc", params=params, capabilities=capabilities, users=users)
    check = named(check_profilers(H200, kernel), "counters")
    assert (check.ok, said in check.detail) == (ok, True), check
    if not ok:
        assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in check.remedy
        assert "--cap-add=SYS_ADMIN" in check.remedy


def test_an_older_driver_wants_more_than_perfmon(tmp_path: Path) -> None:
    kernel = proc(tmp_path / "proc", params="RmProfilingAdminOnly: 1", capabilities=PERFMON)
    older = H200.model_copy(update={"version": "550.54.15"})
    assert not named(check_profilers(older, kernel), "counters").ok


def test_tools_that_are_missing_or_broken(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tools / "compute-sanitizer", "echo NVIDIA Compute Sanitizer; echo Version 2025.3.0.0 '(build 36037853)'")
    executable(tools / "ncu", "echo 'libcuda.so.1: cannot open shared object file' >&2; exit 127")
    checks = check_profilers(H200)
    assert named(checks, "compute-sanitizer").detail == f"2025.3.0.0 ({tools}/compute-sanitizer)"
    broken = named(checks, "ncu")
    assert (broken.ok, "cannot open shared object file" in broken.detail) == (False, True)
    assert broken.remedy == "apt install cuda-nsight-compute-13-0 (from NVIDIA's apt repository)"


@pytest.mark.parametrize("says", ["GNU coreutils 9.1", "NVIDIA tool, copyright 2025.1", ""])
def test_tools_that_are_not_what_they_are_called(tools: Path, says: str) -> None:
    for name in ("nsys", "ncu", "compute-sanitizer"):
        executable(tools / name, f"echo {says}")
    checks = check_profilers(H200)
    for name, title in (("nsys", "Nsight Systems"), ("ncu", "Nsight Compute"), ("compute-sanitizer", "Compute Sanitizer")):
        check = named(checks, name)
        said = f"{tools}/{name} is not {title} or does not run: it says {says or 'nothing'}"
        assert (check.ok, check.detail) == (False, said)
        assert "apt install" in check.remedy


def test_a_gpu_of_no_compute_capability(tools: Path) -> None:
    driver(tools, capability="[N/A]")
    found, lines = doctor_cuda.check_gpu()
    assert (found, named(lines, "gpu").ok) == (None, False)
    assert named(lines, "gpu").detail == "no compute capability is told of NVIDIA H200 ([N/A])"


def test_an_importer_that_lacks_a_library(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tools / "nsys", "echo NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0")
    monkeypatch.setattr(nsys_command, "_LIBRARIES", {"libc.so.6": "libc6"})
    check = named(check_profilers(H200), "nsys")
    assert (check.ok, check.detail) == (True, f"2025.3.2.474 ({tools}/nsys)")
    monkeypatch.setattr(nsys_command, "_LIBRARIES", {"libfordoctor.so.7": "libfordoctor7", "libc.so.6": "libc6"})
    check = named(check_profilers(H200), "nsys")
    assert (check.ok, "its importer needs libfordoctor7: traces stay" in check.detail) == (False, True)
    assert check.remedy == "apt install libfordoctor7, or run install.sh of make gpu-bundle"


@pytest.mark.gpu
def test_this_gpu_is_used() -> None:
    found, lines = doctor_cuda.check_gpu()
    assert found is not None, lines
    assert named(doctor_cuda.check_versions(found), "torch and gpu").ok
