"""What doctor says is true of this machine, and what is missing comes with a remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.sandbox.protections import NAMES as PROTECTIONS
from stitchcuda.sandbox.protections import WITHOUT
from stitchcuda.tools.doctoring import doctor
from stitchcuda.tools.doctoring.doctor import Check, examine
from stitchcuda.tools.machine import toolkit

NAMES = [
    "python",
    "torch",
    "g++",
    "toolkit",
    "nvcc",
    "tvm-ffi",
    "simulator",
    "workspace",
    "cache",
    "runtime",
    "driver",
    "gpu",
    "nvcc and torch",
    "nsys",
    "ncu",
    "ncu-report",
    "compute-sanitizer",
    "disassemblers",
    "sandbox",
    "endpoint",
]


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a machine with a GPU has more lines")
def test_everything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    checks = examine(tmp_path / "ws")
    found = by_name(checks)
    assert [check.name for check in checks] == NAMES
    for name in doctor.REQUIRED:
        assert found[name].ok, found[name]
    assert "a kernel was built and run" in found["simulator"].detail
    assert "GB free" in found["workspace"].detail
    assert not found["endpoint"].ok
    for check in checks:
        assert check.detail
        assert check.ok or check.remedy, f"{check.name} is missing and says nothing of what to do"
    assert not (tmp_path / "ws").exists(), "looking changes nothing"


def test_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda", "doctor", "--json", "--workspace", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert {frozenset(check) for check in checks} == {frozenset({"name", "ok", "detail", "remedy"})}
    assert {check["name"] for check in checks} >= set(NAMES)
    command = [sys.executable, "-m", "stitchcuda", "doctor", "--workspace", "/proc/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, "a workspace is required"
    assert "simulator" in done.stdout


def test_a_machine_without_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty PATH is a machine where nothing is installed; the toolkit's wheels need g++ too."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = by_name(examine(tmp_path))
    for name in ("g++", "toolkit", "simulator", "driver"):
        assert not found[name].ok, found[name]
        assert found[name].remedy
    assert found["torch"].ok


def test_each_protection_that_is_denied_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "landlock,seccomp")
    whole, *denied = doctor._sandbox()
    assert not whole.ok
    assert whole.detail.endswith(f"of {len(PROTECTIONS)} protections in force")
    found = by_name(denied)
    for name in ("sandbox: files (landlock)", "sandbox: system calls"):
        assert (found[name].ok, found[name].remedy) == (False, f"unset {WITHOUT}")
        assert WITHOUT in found[name].detail
    assert len(denied) == len(PROTECTIONS) - int(whole.detail.split()[0])


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert doctor._endpoint() == Check(name="endpoint", ok=True, detail="OPENAI_API_KEY is set, for api.openai.com")


def test_an_endpoint_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        assert doctor._endpoint().ok
    assert not doctor._endpoint().ok, "now nobody listens there"
    assert "does not answer" in doctor._endpoint().detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_workspace_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert not doctor._workspace(tmp_path).ok


def test_a_workspace_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (Path("/proc/nowhere"), tmp_path / "file", tmp_path / "file" / "ws"):
        check = doctor._workspace(folder)
        assert not check.ok, folder
        assert "--workspace" in check.remedy


def test_a_cache_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    check = doctor._cache()
    assert (check.ok, "XDG_CACHE_HOME" in check.remedy) == (False, True)


def test_where_the_simulators_libraries_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_RUNTIME_CACHE", str(tmp_path / "kept"))
    found = doctor._runtime(toolkit.runtime_cache())
    assert (found.ok, found.detail) == (True, f"the simulator's libraries are kept in {tmp_path}/kept, versions there: 0")
    assert not (tmp_path / "kept").exists()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    found = doctor._runtime(toolkit.runtime_cache())
    assert (found.ok, "others may write to" in found.detail) == (False, True)
    assert "STITCHCUDA_RUNTIME_CACHE" in found.remedy
    monkeypatch.delenv("STITCHCUDA_RUNTIME_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert toolkit.runtime_cache() == tmp_path / "stitchcuda" / "runtime"
