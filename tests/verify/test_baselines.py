"""What a program has to beat: times that can be trusted, failures that say why and hinder nothing, nothing timed twice."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.verify.reference.baseline_times import BaselineTime, BaselineTimes, Mode, format_table
from stitchcuda.verify.reference.baselines import _read_cached, time_baselines
from stitchcuda.verify.reference.baselines_worker import HostClock, time_in_turns, time_mode
from stitchcuda.verify.reference.trusted_reference import TrustedReference
from tests.verify.references import source

NORM = source("torch.relu(self.norm(x))", "[torch.randn(16, 8)]", init="self.norm = nn.BatchNorm1d(8)")
LOUD = "print('loading')\n" + source("self.loud(x)", init="self.loud = lambda x: (print('called'), x.sin() * 2)[1]")
IMAGES = source("self.norm(self.conv(x))", "[torch.randn(2, 3, 8, 8)]",
                init="self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)")
EXITS = "import os\n" + source("os._exit(3)")


def reference(folder: Path, content: str = NORM) -> Path:
    path = folder / "reference.py"
    path.write_text(content)
    return path


def a_time(mode: Any, ms: float, *, agrees: bool = True, **more: Any) -> BaselineTime:
    return BaselineTime(mode=mode, ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms, eager_ms=2.0, samples=25, agrees=agrees, **more)


@pytest.mark.more
def test_times_are_kept_and_a_failure_hinders_nothing(tmp_path: Path) -> None:
    path = reference(tmp_path, LOUD)
    found = time_baselines(path, device="cpu", modes=("graph", "eager"), cache=tmp_path)
    graph, eager = found.find("graph"), found.find("eager")
    assert graph is not None
    assert "need a GPU" in graph.failed
    assert eager is not None
    assert eager.ms is not None
    assert eager.low_ms is not None
    assert eager.high_ms is not None
    assert 0 < eager.low_ms <= eager.ms <= eager.high_ms
    assert eager.agrees
    assert "autocast none" in eager.precision
    assert found.best == eager
    assert time_baselines(path, device="cpu", modes=("eager", "graph"), cache=tmp_path).times == (eager, graph), "both are kept"
    (kept,) = (tmp_path / "baselines").iterdir()
    kept.write_text("torn")
    again = time_baselines(path, device="cpu", modes=("eager",), cache=tmp_path).find("eager")
    assert again is not None
    assert again != eager


def test_without_a_home_baselines_are_timed_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise Unavailable("this user has no home: set XDG_CACHE_HOME")

    monkeypatch.setattr("stitchcuda.verify.reference.baselines.user_cache", nobody)
    monkeypatch.setattr("stitchcuda.verify.reference.baselines._time_missing", lambda *_: ([a_time("eager", 2.0)], ""))
    found = time_baselines(reference(tmp_path, LOUD), device="cpu", modes=("eager",))
    assert found.notes == ("baselines are not kept: this user has no home: set XDG_CACHE_HOME",)
    assert found.best is not None


GOOD: dict[str, Any] = {"mode": "eager", "ms": 5.0, "low_ms": 4.0, "high_ms": 6.0, "eager_ms": 5.0, "agrees": True}


@pytest.mark.parametrize(
    ("change", "header", "believed"),
    [
        ({}, {}, True),
        ({}, {"name": "moved.py"}, True),
        ({}, {"reference": "0" * 64}, False),
        ({}, {"device": "NVIDIA OTHER"}, False),
        ({"low_ms": None}, {}, False),
        ({"eager_ms": None}, {}, False),
        ({"agrees": None}, {}, False),
        ({"ms": -1.0, "low_ms": -1.0}, {}, False),
        ({"ms": 0.0, "low_ms": 0.0}, {}, False),
        ({"ms": 3.0}, {}, False),
        ({"ms": float("nan")}, {}, False),
        ({"high_ms": float("inf")}, {}, False),
        ({"ms": None}, {}, False),
        ({"ms": None, "failed": "of memory"}, {}, True),
    ],
)
def test_only_what_can_be_true_of_this_reference_is_believed(
    change: dict[str, Any], header: dict[str, Any], believed: bool, tmp_path: Path
) -> None:
    known = BaselineTimes(reference="a" * 64, name="a.py", device="cpu", torch="2.11", cuda="13.0")
    (place := tmp_path / "kept.json").write_text(json.dumps(known.model_dump() | header | {"times": [GOOD | change]}))
    assert bool(_read_cached(place, known)) == believed


@pytest.mark.more
def test_what_takes_too_long_is_given_up_alone_and_tried_again_with_more_time(tmp_path: Path) -> None:
    path = reference(tmp_path)
    found = time_baselines(path, device="cpu", modes=("compile", "eager"), limit_s=0.5, cache=tmp_path)
    late = found.find("compile")
    assert late is not None
    assert late.failed == "not done within 0.5 s"
    before = time_baselines(path, device="cpu", modes=("compile",), limit_s=0.5, cache=tmp_path)
    assert before.times == (late,), "it is known to take longer"
    place = tmp_path / "baselines" / f"{found.cache_key}.json"
    done = found.model_copy(update={"times": (late.model_copy(update={"limit_s": 0.1}),)})
    place.write_text(done.model_dump_json())
    after = time_baselines(path, device="cpu", modes=("compile",), limit_s=0.5, cache=tmp_path).find("compile")
    assert after is not None
    assert after.limit_s == 0.5


@pytest.mark.more
def test_a_reference_that_cannot_be_timed_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no class Model"):
        time_baselines(reference(tmp_path, "x = 1"), device="cpu", cache=tmp_path)
    with pytest.raises(BadInput, match="cannot be read"):
        time_baselines(tmp_path / "nothing.py", device="cpu", cache=tmp_path)
    found = time_baselines(reference(tmp_path, EXITS), device="cpu", cache=tmp_path)
    assert "could not be prepared" in found.skipped
    assert "exit code 3" in found.skipped
    assert not (tmp_path / "baselines").exists(), "that is not kept"


def test_without_a_gpu_nothing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = time_baselines(reference(tmp_path), cache=tmp_path)
    assert (found.times, found.best) == ((), None)
    assert found.skipped == "no GPU: nvidia-smi is not on the PATH"
    assert "not timed (no GPU" in format_table(found)


def test_what_is_kept_depends_on_reference_device_torch_and_precision() -> None:
    one = BaselineTimes(reference="a" * 64, name="a.py", device="NVIDIA H200", driver="580", torch="2.11", cuda="13.0")
    changes = {"reference": "b" * 64, "device": "NVIDIA H100", "driver": "590", "torch": "2.12", "requested": "tf32"}
    others = {one.model_copy(update={field: value}).cache_key for field, value in changes.items()}
    assert len(others | {one.cache_key}) == 6
    assert one.model_copy(update={"name": "moved.py", "notes": ("note",)}).cache_key == one.cache_key


def test_the_best_is_the_fastest_that_is_right(tmp_path: Path) -> None:
    times = (
        a_time("eager", 2.0, precision="fp32 products fp32, convolutions TF32, autocast none"),
        a_time("graph", 0.5, agrees=False, note="output: 3 of 8 elements differ"),
        a_time("compile", 1.25, compile_s=4.2),
        BaselineTime(mode="max-autotune", failed="not done within 120 s"),
    )
    found = BaselineTimes(reference="a" * 64, name="a.py", device="NVIDIA H200", torch="2.11", times=times)
    assert found.best == times[2]
    assert times[2].speedup == pytest.approx(1.6)
    lines = format_table(found).splitlines()
    assert lines[2].split()[:2] == ["eager", "2.0000"]
    assert "NO" in lines[3]
    assert lines[3].endswith("3 of 8 elements differ")
    assert "1.60x" in lines[4]
    assert lines[5].endswith("failed: not done within 120 s")
    assert lines[6] == "best: compile, 1.2500 ms"
    assert "none agrees" in format_table(found.model_copy(update={"times": times[3:]}))


def test_outputs_and_state_are_held_against_the_verifiers_bound(tmp_path: Path) -> None:
    subject = TrustedReference(reference(tmp_path), "cpu", "reference")
    norm: Any = subject.module.norm
    assert subject.disagreement(subject.module) == ""
    assert subject.disagreement(lambda x: subject.module(x) * 1.001).startswith("output: ")
    assert subject.disagreement(lambda x: subject.module(x).half()).startswith("output: has dtype float16")
    assert "returns" in subject.disagreement(lambda x: (subject.module(x), x))

    def forgetful(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = subject.module(x)
        subject.restore()
        return out

    assert subject.disagreement(forgetful).startswith("buffer:norm.")
    assert float(norm.running_mean.abs().max()) == 0.0, "afterwards everything is as it was"


def test_inputs_that_the_reference_writes_are_compared_and_renewed(tmp_path: Path) -> None:
    subject = TrustedReference(reference(tmp_path, source("x.add_(1)")), "cpu", "reference")
    assert subject.written == [0]
    assert subject.disagreement(subject.module) == ""
    assert subject.disagreement(lambda x: x + 1).startswith("input:0")
    before = subject.inputs[0][0][0].clone()
    assert time_mode("eager", subject, HostClock(), contextlib.nullcontext).agrees
    assert torch.equal(before, subject.inputs[0][0][0])


def test_channels_last_is_a_copy_of_the_reference_that_is_compared_like_any_other_way(tmp_path: Path) -> None:
    subject = TrustedReference(reference(tmp_path, IMAGES), "cpu", "reference")
    assert subject.convolves_images()
    with torch.no_grad():
        subject.module.get_parameter("norm.bias").add_(1.0)  # not what its constructor draws
    other = subject.in_channels_last()
    weights = [way.module.get_parameter("conv.weight") for way in (subject, other)]
    assert torch.equal(*weights)
    assert [weight.is_contiguous(memory_format=torch.channels_last) for weight in weights] == [False, True]
    assert torch.equal(*(way.module.get_parameter("norm.bias") for way in (subject, other)))
    assert other.disagreement(other.module).startswith("output: "), "outputs are compared with what the first one gave"
    with torch.no_grad():
        other.module.get_parameter("norm.bias").sub_(1.0)
    assert other.disagreement(other.module) == "", "its running statistics are compared too, and put back"
    assert float(other.module.get_buffer("norm.running_mean").abs().max()) == 0.0


def test_channels_last_is_not_timed_without_4d_convolutions(tmp_path: Path) -> None:
    series = source("self.conv(x)", "[torch.randn(2, 3, 8)]", init="self.conv = nn.Conv1d(3, 4, 3)")
    for text in (NORM, series):
        time = time_mode("channels-last", TrustedReference(reference(tmp_path, text), "cpu", "reference"), HostClock(),
                         contextlib.nullcontext)
        assert time == BaselineTime(mode="channels-last", note="the reference has no 4-d convolution")
        known = BaselineTimes(reference="a" * 64, name="a.py", device="cpu", times=(time,))
        (place := tmp_path / "kept.json").write_text(known.model_dump_json())
        assert _read_cached(place, known) == (time,), "that is known then"
    assert format_table(known).splitlines()[2].split()[0] == "channels-last"
    assert format_table(known).splitlines()[2].endswith("the reference has no 4-d convolution")


def test_autocast_is_part_of_the_precision(tmp_path: Path) -> None:
    path = reference(tmp_path, source("self.line(x)", init="self.line = nn.Linear(16, 16)"))
    plain, narrow = TrustedReference(path, "cpu", "reference"), TrustedReference(path, "cpu", "bf16")
    assert narrow.disagreement(narrow.module) == ""
    assert narrow.precision().endswith("autocast bfloat16")

    def in_bf16(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out: torch.Tensor = plain.module(x)
        return out.float()

    assert plain.disagreement(in_bf16).startswith("output: ")


class ToldClock(HostClock):
    """Says what it is told, and in which order it was asked."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.seen: list[float] = []

    def stop(self) -> tuple[float, float]:
        self.seen.append(self.ms)
        return self.ms, 0.0


def test_calls_take_turns_and_the_median_has_an_interval() -> None:
    clock = ToldClock()
    drift = iter(range(10_000))

    def slow() -> None:
        clock.ms = 8.0 + next(drift) % 2

    def fast() -> None:
        clock.ms = 1.0

    one, other = time_in_turns(clock, [slow, fast], lambda: ((), {}), budget_ms=1e4)
    assert (one.low, one.value, one.high, one.samples) == (8.5, 8.5, 8.5, 25)
    assert other.value == 1.0
    blocks = [ms < 2 for ms in clock.seen[10::2]]
    assert blocks[:6] == [True, False, False, True, True, False], "first one begins, then the other"
    (long,) = time_in_turns(clock, [slow], lambda: ((), {}), budget_ms=1.0)
    assert long.samples == 6, "slow programs get fewer rounds, but enough for an interval"


def test_the_command_says_what_went_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda.verify.reference.baselines", str(reference(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stdout == "baselines of reference.py: not timed (no GPU: nvidia-smi is not on the PATH)\n"
    done = subprocess.run([*command[:3], str(tmp_path / "no.py")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("baselines: The reference")


@pytest.mark.long
def test_compiled_programs_are_timed_and_agree(tmp_path: Path) -> None:
    modes: tuple[Mode, ...] = ("compile", "max-autotune", "channels-last")
    found = time_baselines(reference(tmp_path, IMAGES), device="cpu", modes=modes, limit_s=250, cache=tmp_path)
    assert [(time.mode, time.agrees, time.failed) for time in found.times] == [(mode, True, "") for mode in modes]
    assert found.times[0].compile_s > 0


@pytest.mark.gpu
def test_all_of_them_on_this_gpu(tmp_path: Path) -> None:
    modes: tuple[Mode, ...] = ("eager", "graph", "compile", "channels-last")
    found = time_baselines(reference(tmp_path, IMAGES), modes=modes, cache=tmp_path)
    assert [(time.mode, time.agrees, time.failed) for time in found.times] == [(mode, True, "") for mode in modes]
    synchronising = source("x * x.sum().item()", "[torch.rand(64)]")
    (time,) = time_baselines(reference(tmp_path, synchronising), modes=("graph",), cache=tmp_path).times
    assert "captur" in time.failed
