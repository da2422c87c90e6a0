"""Which CUDA toolkit is found, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from pathlib import Path

import pytest

from stitchcuda import remedies
from stitchcuda.errors import Unavailable
from stitchcuda.tools.build import nvcc
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.device.device import resolve_target
from stitchcuda.tools.device.nvidia_smi import first_gpu
from stitchcuda.tools.device.probe_command import MOST, run_probe
from tests.verify import programs

WHEELS = importlib.util.find_spec("nvidia.cu13") is not None


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a system toolkit."""
    version = toolkit._version
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(toolkit, "_version", lambda nvcc: version(nvcc) if "site-packages" in str(nvcc) else ("", "hidden"))
    toolkit._search.cache_clear()


@pytest.fixture(autouse=True)
def forget() -> object:
    yield
    toolkit._search.cache_clear()


@pytest.mark.usefixtures("hidden")
@pytest.mark.skipif(not WHEELS, reason="NVIDIA's wheels are not installed")
def test_the_wheels_get_an_overlay_that_links(tmp_path: Path) -> None:
    found = toolkit.find_toolkit()
    assert found is not None
    assert found.source == "wheels"
    assert (found.home / "lib64" / "libcudart.so").resolve().name.startswith("libcudart.so.")
    assert (found.home / "include" / "cuda_runtime.h").is_file()
    said = subprocess.run([found.home / "bin" / "nvcc", "--version"], capture_output=True, text=True, check=True)
    assert found.version in said.stdout
    program = programs.kernel_program(tmp_path / "program")
    built = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=True)
    assert built.ok, built.log


def test_a_system_toolkit_comes_first() -> None:
    found = toolkit.find_toolkit()
    if found is None:
        assert "pip install" in toolkit.missing()
    else:
        assert (found.includes[0] / "cuda_runtime.h").is_file()
        assert toolkit.missing() == ""


def test_no_host_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolkit.find_toolkit() is None
    assert toolkit.missing().endswith("which is not on the PATH); install g++ first"), "the wheels would not help"


@pytest.mark.usefixtures("hidden")
def test_nothing_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_wheels", lambda: None)
    assert toolkit.find_toolkit() is None
    assert "no nvcc among the Python packages" in toolkit.missing()
    assert toolkit.missing().endswith(f"install one with: {remedies.extra('toolkit')}")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec sleep 60", "no answer within 0.2 s"),
        (r"printf 'release 9.\377\n'", "it tells no version (release 9.\ufffd)"),
        ("exit 3", "it tells no version (no output)"),
    ],
)
def test_an_nvcc_that_is_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(toolkit, "_ANSWER_S", 0.2 if "sleep" in script else 20.0)
    monkeypatch.setattr(toolkit, "_wheels", lambda: None)
    named = executable(tmp_path / "bin" / "nvcc", script)
    with pytest.raises(Unavailable) as caught:
        toolkit._system(named)
    assert str(caught.value) == why
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolkit.find_toolkit() is not None or f"{named}: {why}" in toolkit.missing()


@pytest.mark.usefixtures("hidden")
@pytest.mark.skipif(not WHEELS, reason="NVIDIA's wheels are not installed")
def test_wheels_beside_a_cache_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert toolkit.find_toolkit() is None
    assert "NVIDIA's wheels cannot be linked to in the cache: " in toolkit.missing()
    assert toolkit.missing().endswith("; set XDG_CACHE_HOME to a folder you may write to")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    with pytest.raises(Unavailable, match="set XDG_CACHE_HOME"):
        toolkit.user_cache()
    assert toolkit.runtime_cache() == Path(os.devnull) / "runtime"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x7fELF", "nvidia-smi fails: it cannot be run (Exec format error)"),
        (b"#!/bin/sh\nprintf '\\377\\n'", "nvidia-smi finds none (\ufffd)"),
        (b"#!/bin/sh\nexit 4", "nvidia-smi finds none (no output)"),
        (b"#!/bin/sh\necho 'NVIDIA K80, [N/A], 470.1'", "nvidia-smi tells no compute capability of NVIDIA K80 ([N/A])"),
    ],
)
def test_an_nvidia_smi_that_names_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, why: str) -> None:
    (tmp_path / "nvidia-smi").write_bytes(body)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert first_gpu() == (None, why)
    assert resolve_target("auto") == "sim"


def test_what_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    script = executable(tmp_path / "hangs", f"sleep 60 & echo $! > {tmp_path}/pid; read line; wait")
    assert run_probe(script, seconds=0.3).why == "no answer within 0.3 s"
    child = Path("/proc") / (tmp_path / "pid").read_text().strip()
    while child.exists() and "sleep" in (child / "cmdline").read_text():
        time.sleep(0.01)


def test_what_prints_without_end_is_no_answer(tmp_path: Path) -> None:
    answer = run_probe(executable(tmp_path / "prints", "yes; exit 0"), seconds=60)
    assert (answer.ok, answer.text) == (False, "it prints without end")
    assert len(run_probe("head", "-c", str(MOST - 1), "/dev/zero", seconds=60).out) == MOST - 1


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom nobody knows, as in some containers."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "STITCHCUDA_RUNTIME_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
