"""The GPU that the simulator's predictions are for: its data sheet, its name, and that a session keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.graph.opening import check_settings, open_tools
from stitchcuda.sessions.session import Session
from stitchcuda.state import Settings
from stitchcuda.tools.device.data_sheets import SHORT_NAMES, sheet_of
from stitchcuda.tools.device.device import device_facts
from tests.graph.tiny import tiny_session

KNOWN = {
    "h200": ("NVIDIA H200", "H200 SXM", "sm_90a"),
    "h200-nvl": ("NVIDIA H200 NVL", "H200 NVL", "sm_90a"),
    "h100": ("NVIDIA H100", "H100 SXM", "sm_90a"),
    "h100-nvl": ("NVIDIA H100 NVL", "H100 NVL", "sm_90a"),
    "h100-pcie": ("NVIDIA H100 PCIe", "H100 PCIe", "sm_90a"),
    "a100": ("NVIDIA A100", "A100 80 GB SXM", "sm_80"),
    "a100-40gb": ("NVIDIA A100 40GB", "A100 40 GB", "sm_80"),
    "l40s": ("NVIDIA L40S", "L40S", "sm_89"),
    "l4": ("NVIDIA L4", "L4", "sm_89"),
    "a10": ("NVIDIA A10", "A10", "sm_86"),
}


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_each_name_gives_that_gpu(short: str) -> None:
    name, title, arch = KNOWN[short]
    for spelt in (short, short.upper(), short.title()):
        facts = device_facts("sim", predict_for=spelt)
        assert (facts.name, facts.arch, facts.target, facts.measured) == (name, arch, "sim", False)
    sheet = sheet_of(name)
    assert sheet is not None
    assert (sheet.title, facts.sm_count) == (title, sheet.sm_count)
    assert 0.8 * sheet.bandwidth_gbs < facts.bandwidth_gbs < sheet.bandwidth_gbs
    assert 0.7 * sheet.tflops["float32"] < facts.tflops["float32"] < sheet.tflops["float32"]


def test_without_a_name_it_is_an_h200() -> None:
    assert device_facts("sim") == device_facts("sim", predict_for="h200")


def test_another_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(BadInput, match="--predict-for 'b300' has no data sheet here: give one of a10, a100, ") as error:
        check_settings({"predict_for": "b300"})
    assert all(short in str(error.value) for short in SHORT_NAMES)


def test_on_a_gpu_it_is_refused() -> None:
    with pytest.raises(BadInput, match="runs on a GPU, by its own figures: leave it out, or add --device sim"):
        check_settings({"predict_for": "a100", "target": "cuda"})


def test_a_session_keeps_it_and_records_of_before_open(tmp_path: Path) -> None:
    session = tiny_session(tmp_path, predict_for="A100")
    again = Session.open(session.name, session.home.root)
    tools = open_tools(again.home, again.record)
    assert (tools.device().name, tools.device().arch) == ("NVIDIA A100", "sm_80")
    before = session.record.settings.model_dump()
    del before["predict_for"]
    assert Settings.model_validate(before).predict_for is None
