"""A build can say what the machine code of each kernel does, or why nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.engineers.diagnosis import describe_evidence
from stitchcuda.state import Evidence
from stitchcuda.tools.build import disassembly, nvcc
from tests.marks import more_but

KERNEL = """
#include <cuda_runtime.h>
__global__ void wide(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void narrow(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "copy.cu").write_text(KERNEL)
    return tmp_path / "program"


@pytest.mark.skipif(not disassembly.find_tools("nvdisasm"), reason="no disassembler here")
def test_widths_of_loads_reach_the_engineer(program: Path, tmp_path: Path) -> None:
    built = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=False, machine=True)
    assert built.ok, built.log
    assert built.notes == ()
    said = {kernel.name.split("(")[0]: kernel.machine for kernel in built.kernels}
    assert "no 128-bit loads" in said["narrow"]
    assert "no 128-bit loads" not in said["wide"]
    assert "128" in said["wide"]
    assert said["narrow"] in describe_evidence(Evidence(build=built))


def test_without_a_disassembler_it_is_said_why(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "find_tools", lambda name: [])
    built = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=False, machine=True)
    assert built.ok, built.log
    assert [kernel.machine for kernel in built.kernels] == ["", ""]
    assert "machine code was not looked at" in describe_evidence(Evidence(build=built))


@pytest.mark.parametrize("link", [False, pytest.param(True, marks=pytest.mark.more)])
@pytest.mark.parametrize(
    "script",
    more_but(["exit 3", 'echo "[1,2"', 'echo "[{}, [{\\"a\\":1}]]"', 'echo "[{}, 7]"', "exit 0"], "exit 3", 'echo "[1,2"'),
    ids=["crashes", "cut short", "other JSON", "a number", "silent"],
)
def test_a_disassembler_that_prints_nonsense_costs_no_build(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, link: bool
) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(disassembly, "find_tools", lambda name: [tool])
    built = nvcc.build(program, arch="sm_90a", cache=tmp_path / "cache", link=link, machine=True)
    assert built.ok, built.log
    assert [kernel.machine for kernel in built.kernels] == ["", ""]
    (note,) = built.notes
    assert note.startswith("machine code was not ")
