"""Measured ceilings: what is measured is what the device does, what cannot be is refused, and what is kept is used again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.tools.device import ceilings
from stitchcuda.tools.device.ceilings import (
    MeasuredCeilings,
    MeasuredHost,
    ceilings_of,
    measure,
    plausible,
    read_cached,
    write_cached,
)
from stitchcuda.tools.device.ceilings_worker import Sizes, measure_all
from stitchcuda.tools.device.data_sheets import sheet_of
from stitchcuda.tools.device.device import device_facts
from stitchcuda.tools.device.interval import Median, median_of
from stitchcuda.tools.device.nvidia_smi import Gpu
from tests.tools.device.test_toolkit import homeless

GPU = Gpu(name="NVIDIA H200", capability="9.0", driver="580.65.06")
HOST = MeasuredHost(name=GPU.name, capability="9.0", driver=GPU.driver, torch="2.11.0", cuda="13.0")


def steady(value: float) -> Median:
    return Median(value=value, low=value, high=value, samples=20)


def reached(bandwidth: float = 4280.0, **rates: float) -> MeasuredCeilings:
    rates = rates or {"bfloat16": 770.0, "float32": 50.0}
    return MeasuredCeilings(
        host=HOST, sm_count=132, memory_bytes=2**37, l2_bytes=60 * 2**20, bandwidth_gbs=steady(bandwidth),
        tflops={name: steady(rate) for name, rate in rates.items()}, operator_us=steady(5.5),
    )  # fmt: skip


@pytest.mark.parametrize(("count", "low", "high"), [(25, 7, 17), (9, 1, 7), (6, 0, 5), (3, 0, 2), (1, 0, 0)])
def test_the_interval_of_a_median_is_that_of_the_sign_test(count: int, low: int, high: int) -> None:
    found = median_of([float(number) for number in reversed(range(count))])
    assert (found.low, found.value, found.high) == (low, (count - 1) / 2, high)


def test_measuring_gives_every_figure() -> None:
    sizes = Sizes(copies=(2**18, 2**20), products=(32, 64), operators=50, call_s=0.02)
    found = MeasuredCeilings(host=HOST, **json.loads(json.dumps(measure_all("cpu", sizes))))
    assert {"float32", "tf32", "float64", "bfloat16"} <= found.tflops.keys()
    for rate in (found.bandwidth_gbs, found.operator_us, *found.tflops.values()):
        assert 0 < rate.low <= rate.value <= rate.high
        assert rate.samples >= 6


def test_what_the_worker_says_is_the_measurement() -> None:
    said = reached().model_dump_json(exclude={"host"})
    assert measure(HOST, command=(sys.executable, "-c", f"print({said!r})")) == reached()


@pytest.mark.parametrize("bandwidth", [300.0, 5100.0, 1e30])
def test_a_bandwidth_that_cannot_be_is_refused(bandwidth: float) -> None:
    with pytest.raises(Unavailable, match="of the data sheet's 4800"):
        plausible(reached(bandwidth), sheet_of(GPU.name))
    assert plausible(reached(bandwidth), None).bandwidth_gbs.value == bandwidth, "without a data sheet there is nothing to say"


def test_a_busy_gpu_is_refused() -> None:
    wavering = reached().model_copy(update={"bandwidth_gbs": Median(value=3000.0, low=2500.0, high=4200.0, samples=40)})
    with pytest.raises(Unavailable, match="wavers by 57%"):
        plausible(wavering, sheet_of(GPU.name))


def test_a_rate_that_cannot_be_is_left_out_with_a_note() -> None:
    found = plausible(reached(bfloat16=770.0, float32=90.0), sheet_of(GPU.name))
    assert list(found.tflops) == ["bfloat16"]
    assert "float32 rate" in found.notes[0]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit('only 12 MiB of the GPU are free')", "only 12 MiB"),
        ("print('no json')", "unreadable answer"),
        ("print('{}')", "unreadable answer"),
        ("import time; time.sleep(60)", "no answer within 2 s"),
    ],
)
def test_a_measurement_that_fails_says_why(code: str, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        measure(HOST, limit_s=2.0, command=(sys.executable, "-c", code))


def test_what_is_kept_holds_until_gpu_driver_or_torch_change(tmp_path: Path) -> None:
    assert read_cached(HOST, tmp_path) is None
    assert write_cached(reached(), tmp_path) == ""
    assert read_cached(HOST, tmp_path) == reached()
    assert read_cached(HOST.model_copy(update={"driver": "590.1"}), tmp_path) is None
    write_cached(reached(1e30), tmp_path)
    assert read_cached(HOST, tmp_path) is None
    (path,) = (tmp_path / "ceilings").iterdir()
    path.write_text("torn")
    assert read_cached(HOST, tmp_path) is None


@pytest.mark.parametrize("figure", ["0", "-5", "1e999", "NaN", "Infinity"])
@pytest.mark.parametrize("name", ["bandwidth_gbs", "operator_us", "float32"])
def test_what_is_kept_and_cannot_be_is_measured_anew(tmp_path: Path, name: str, figure: str) -> None:
    write_cached(reached(), tmp_path)
    (path,) = (tmp_path / "ceilings").iterdir()
    held = json.loads(path.read_text())
    part = held["tflops"] if name == "float32" else held
    part[name] = dict.fromkeys(("value", "low", "high"), "here") | {"samples": 9}
    path.write_text(json.dumps(held).replace('"here"', figure))
    assert read_cached(HOST, tmp_path) is None


@pytest.mark.parametrize("figure", [0.0, float("nan"), float("inf")])
def test_a_figure_that_cannot_be_is_refused_without_a_data_sheet(figure: float) -> None:
    with pytest.raises(Unavailable, match="cannot be"):
        plausible(reached(figure), None)
    with pytest.raises(Unavailable, match="operator's time"):
        plausible(reached().model_copy(update={"operator_us": steady(figure)}), None)


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    assert read_cached(HOST) is None
    assert "not kept: this user has no home" in write_cached(reached())
    assert ceilings_of(GPU, measuring=False)[0] is None


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "ceilings").write_text("a file where a folder should be")
    assert "not kept" in write_cached(reached(), tmp_path)


def test_facts_of_a_device_rest_on_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, GPU.name)
    nominal = device_facts("cuda", cache=tmp_path)
    assert (nominal.measured, nominal.bandwidth_gbs, nominal.launch_us) == (False, 4300.0, 4.5)
    assert "python -m stitchcuda.tools.device.ceilings" in nominal.note
    assert "nominal" in nominal.note
    here = reached().model_copy(update={"host": ceilings.host_of(GPU)})
    write_cached(here, tmp_path)
    facts = device_facts("cuda", cache=tmp_path)
    assert (facts.measured, facts.note, facts.bandwidth_gbs) == (True, "", 4280.0)
    assert facts.launch_us == pytest.approx(5.0)
    assert (facts.tflops["bfloat16"], facts.tflops["tf32"]) == (770.0, 385.0), "what was not measured stays nominal"
    assert facts.key == nominal.key


def test_a_gpu_that_torch_cannot_use_leaves_nominal_figures_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    smi(tmp_path, monkeypatch, "NVIDIA A100-SXM4-80GB")
    facts = device_facts("cuda", measure=True, cache=tmp_path)
    assert not facts.measured
    assert "torch finds no GPU" in facts.note
    assert "A100 80 GB SXM" in facts.note
    assert facts.bandwidth_gbs == pytest.approx(0.9 * 2039)
    assert ceilings_of(GPU, measuring=False, cache=tmp_path)[0] is None


def test_a_gpu_without_a_data_sheet_is_a_guess_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "NVIDIA Nobody 9000")
    assert "a guess" in device_facts("cuda", cache=tmp_path).note


def test_the_command_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda.tools.device.ceilings"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ceilings: no GPU: nvidia-smi is not on the PATH\n"


@pytest.mark.gpu
def test_the_command_measures_this_gpu_and_keeps_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda.tools.device.ceilings"]
    here = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = (subprocess.run(command, capture_output=True, text=True, env=here, check=True) for _ in range(2))
    assert first.stdout == second.stdout, "the second reads what the first kept"
    found = MeasuredCeilings.model_validate_json(first.stdout)
    assert found.tflops["bfloat16"].value > found.tflops["float32"].value
    facts = device_facts("cuda", cache=tmp_path / "stitchcuda")
    assert facts.measured
    assert facts.bandwidth_gbs == found.bandwidth_gbs.value


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An nvidia-smi that names this GPU."""
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "{name}, 9.0, 580.65.06"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
