"""What nvcc is told to build for: this GPU's own code, or what the driver can still use."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import digest_seal
from stitchcuda.tools.build import architecture, disassembly, nvcc, sass
from stitchcuda.tools.device import toolkit
from tests.verify import programs

pytestmark = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
NEWER = "sm_999a"


@pytest.fixture
def kit() -> toolkit.Toolkit:
    found = toolkit.find_toolkit()
    assert found is not None
    digest_seal.notes()
    return found


def test_hopper_gets_its_own_instructions(kit: toolkit.Toolkit) -> None:
    assert architecture.flags(kit, "sm_90a", cubin=True) == ("-arch=sm_90a",)
    assert architecture.flags(kit, "sm_90a", cubin=False) == ("-gencode=arch=compute_90a,code=sm_90a",)
    assert digest_seal.notes() == ()


@pytest.mark.more
def test_a_gpu_that_the_toolkit_does_not_know_gets_ptx(kit: toolkit.Toolkit, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    built = nvcc.build(program, arch=NEWER, cache=tmp_path / "cache", link=True)
    assert built.ok, built.log
    (note,) = digest_seal.notes()
    assert f"does not know {NEWER}: kernels are PTX" in note
    if disassembly.find_tools("cuobjdump"):
        (library,) = (tmp_path / "cache" / "libraries").rglob("*.so")
        assert sass.facts(library) == ()


def test_its_report_is_that_of_the_newest_known(kit: toolkit.Toolkit, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program")
    built = nvcc.build(program, arch=NEWER, cache=tmp_path / "cache", link=False)
    assert built.ok, built.log
    assert built.kernels[0].registers > 0


def test_a_gpu_that_is_too_old_is_said(kit: toolkit.Toolkit) -> None:
    with pytest.raises(Unavailable, match="does not build for sm_20 any more, the oldest is sm_"):
        architecture.flags(kit, "sm_20", cubin=False)
