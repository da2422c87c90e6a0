"""Which CUDA toolkit is found, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from stitchcuda.tools.building import nvcc
from stitchcuda.tools.machine import toolkit
from tests.tools import programs

WHEELS = importlib.util.find_spec("nvidia.cu13") is not None


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a system toolkit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(toolkit, "_system", lambda nvcc: None)
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
    assert "g++" in toolkit.missing()


@pytest.mark.usefixtures("hidden")
def test_nothing_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_wheels", lambda: None)
    assert toolkit.find_toolkit() is None
    assert "no nvcc among the Python packages" in toolkit.missing()
    assert "pip install 'stitchcuda[toolkit]'" in toolkit.missing()
