"""torch.profiler's trace as a profile: regions, gaps, copies and graphs as nsys would show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stitchcuda.errors import Unavailable
from stitchcuda.tools.profile.cupti_trace import read_trace
from stitchcuda.tools.profile.ranges import CALL_RANGE, REGION_PREFIX, TRACED_RANGE
from stitchcuda.verify.program import profiled_process

HOST, DEVICE = 100, 7


class Trace:
    """Events as torch.profiler writes them, microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]

    def range(self, name: str, start: float, end: float) -> None:
        self._add("user_annotation", name, start, end, HOST)
        self._add("gpu_user_annotation", name, start + 5, end + 5, DEVICE)  # its shadow, which is none

    def launch(self, name: str, at: float, start: float, took: float, **said: Any) -> None:
        number = len(self.events)
        api = said.pop("api", "cudaLaunchKernel")
        kind = said.pop("kind", "kernel")
        self._add("cuda_runtime", api, at, at + 2, HOST, correlation=number)
        for part in said.pop("parts", (name,)):
            self._add(kind, part, start, start + took, DEVICE, correlation=number, stream=7, device=0, context=1, **said)
            start += took

    def _add(self, cat: str, name: str, start: float, end: float, thread: int, **args: Any) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": thread, "ts": start, "dur": round(end - start, 3)}
        self.events.append({**event, "args": args})

    def written(self, folder: Path) -> Path:
        (place := folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return place


@pytest.fixture
def trace() -> Trace:
    """Two plain calls of two kernels, the second with a copy; then a traced one."""
    made = Trace()
    for begin in (0.0, 1000.0):
        made.range(CALL_RANGE, begin, begin + 100)
        made.launch("void own_kernel(float*)", begin + 10, begin + 20, 30)
        made.launch("sm90_gemm", begin + 15, begin + 60, 20)
        copied = {"kind": "gpu_memcpy", "api": "cudaMemcpyAsync", "bytes": 4096}
        made.launch("Memcpy DtoH (Device -> Pinned)", begin + 20, begin + 90, 5, **copied)
    made.launch("void outside(float*)", 3000, 3010, 500)
    made.range(TRACED_RANGE, 5000, 5500)
    made.range(f"{REGION_PREFIX}blocks.*: linear", 5100, 5200)
    made.launch("sm90_gemm", 5110, 5300, 20)
    made.launch("void own_kernel(float*)", 5250, 5400, 30)
    return made


def test_a_trace_is_read(trace: Trace, tmp_path: Path) -> None:
    profile = read_trace(trace.written(tmp_path), own=["own_kernel"], why="there is no nsys")
    assert (profile.source, profile.why, profile.calls) == ("cupti", "there is no nsys", 2)
    assert profile.busy_ms == pytest.approx(0.055)
    assert profile.span_ms == pytest.approx(0.075)
    assert profile.idle_ms == pytest.approx(0.020)
    assert profile.elapsed_ms == pytest.approx(0.085)
    assert profile.gaps is not None
    assert profile.gaps.count == 2
    assert profile.gaps.longest_ms == pytest.approx(0.010)
    assert [(copy.kind, copy.size) for copy in profile.copies] == [("Device-to-Host", 4096)]
    assert {(one.name, one.origin, one.region) for one in profile.kernels} == {
        ("void own_kernel(float*)", "own", "(elsewhere)"), ("sm90_gemm", "vendor", "blocks.*: linear"),
    }  # fmt: skip
    assert profile.host[0].name == "cudaLaunchKernel"


def test_kernels_of_a_graph_belong_to_its_launch(tmp_path: Path) -> None:
    made = Trace()
    made.range(CALL_RANGE, 0, 100)
    made.launch("", 10, 20, 10, api="cudaGraphLaunch", parts=("one", "two", "three"), **{"graph node id": 5})
    profile = read_trace(made.written(tmp_path), why="")
    assert (profile.launches, profile.graph_launches, profile.host_launches, profile.graph_share) == (3, 1, 1, 1.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: no such file"),
        ("", "no trace of torch.profiler, or was cut short"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "na', "cut short"),
        ("[]", "no trace of torch.profiler"),
        ('{"traceEvents": []}', "recorded no kernel"),
        ("[" * 200_000, "RecursionError"),
        ('{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "x", "tid": 1, "ts": 1e999}]}', "OverflowError"),
        ('{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "x", "tid": 1, "ts": 1, "dur": -1}]}', "ends before"),
    ],
)
def test_what_is_no_trace(content: str | None, said: str, tmp_path: Path) -> None:
    place = tmp_path / "trace.json"
    if content is not None:
        place.write_text(content)
    with pytest.raises(Unavailable, match=said):
        read_trace(place, why="")


def test_names_that_are_none(trace: Trace, tmp_path: Path) -> None:
    for event in trace.events:
        event["name"] = 5 if event.get("cat") == "cuda_runtime" else event["name"]
    with pytest.raises(Unavailable, match="is no trace of"):
        read_trace(trace.written(tmp_path), why="")


def test_work_outside_of_calls_is_none_of_theirs(trace: Trace, tmp_path: Path) -> None:
    trace.events = [one for one in trace.events if one["name"] not in (CALL_RANGE, TRACED_RANGE)]
    with pytest.raises(Unavailable, match='nothing was launched in the 0 ranges "stitchcuda:call"'):
        read_trace(trace.written(tmp_path), why="")


def test_the_ranges_are_in_a_real_trace(tmp_path: Path) -> None:
    """Here without a GPU: what a process under torch.profiler writes has the ranges that are looked for."""
    module, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4)
    order = profiled_process.ProfileOrder(
        how="cupti", calls=2, warm=0, out=str(tmp_path), target="sim", precision="reference",
        called=profiled_process.CalledReference(path="", seed=0),
    )  # fmt: skip
    profiled_process._cupti(module, lambda: module(x), order)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [one["name"] for one in events if one.get("cat") == "user_annotation"]
    assert names.count(CALL_RANGE) == names.count(TRACED_RANGE) == 2
    assert names.count(f"{REGION_PREFIX}*: linear") == 2
    with pytest.raises(Unavailable, match="recorded no kernel"):
        read_trace(tmp_path / "trace.json", why="")
