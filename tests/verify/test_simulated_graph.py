"""CUDA graphs on the simulator behave as on a device: capture changes nothing, replay sees the captured memory only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from stitchcuda.verify.program.simulated_device import SimulatedDevice
from stitchcuda.verify.program.simulated_graph import Recorder, SimulatedCapture, SimulatedGraph


def captured(call: Callable[[], torch.Tensor]) -> tuple[SimulatedGraph, torch.Tensor]:
    graph = SimulatedGraph()
    with torch.no_grad(), SimulatedCapture(graph):
        out = call()
    return graph, out


def test_capture_changes_nothing_and_replay_computes() -> None:
    x, total = torch.tensor([1.0, 2.0]), torch.zeros(2)
    graph, out = captured(lambda: total.add_(x) * 2)
    assert total.tolist() == [0.0, 0.0]
    assert out.isnan().all(), "a graph that was never replayed holds nothing"
    graph.replay()
    assert out.tolist() == [2.0, 4.0]
    x.fill_(10.0)
    graph.replay()
    assert total.tolist() == [11.0, 12.0]
    assert out.tolist() == [22.0, 24.0]


def test_replay_reads_the_old_addresses() -> None:
    static = torch.ones(3)
    graph, out = captured(lambda: static + 1)
    static = torch.full((3,), 5.0)
    graph.replay()
    assert out.tolist() == [2.0, 2.0, 2.0], "the new tensor is not what was captured"


def test_views_and_several_outputs() -> None:
    x = torch.arange(6.0)
    graph, out = captured(lambda: torch.cat(x.view(2, 3).sort(descending=True).values.t().unbind(0)))
    graph.replay()
    assert out.tolist() == [2.0, 5.0, 1.0, 4.0, 0.0, 3.0]


def test_kernels_are_recorded() -> None:
    x, y = torch.ones(2), torch.empty(2)

    def kernel(source: torch.Tensor, target: torch.Tensor) -> None:
        target.numpy()[:] = source.numpy() * 3

    def call() -> torch.Tensor:
        assert Recorder.active is not None
        Recorder.active.kernel(kernel, (x, y))
        return y + 1

    y.fill_(-1.0)
    graph, out = captured(call)
    assert y.tolist() == [-1.0, -1.0]
    x.fill_(2.0)
    graph.replay()
    assert out.tolist() == [7.0, 7.0]


def test_reading_the_device_during_capture_is_an_error() -> None:
    x = torch.ones(1)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        captured(lambda: x * x.item())
    Recorder.active = None


def test_an_empty_graph_cannot_be_replayed() -> None:
    with pytest.raises(RuntimeError, match="nothing was captured"):
        SimulatedGraph().replay()


def test_the_simulated_device_maps_devices_both_ways() -> None:
    x = torch.ones(2)
    with SimulatedDevice():
        assert x.is_cuda
        assert x.device.type == "cuda"
        assert torch.empty(3, device="cuda").is_cuda
        assert x.to("cuda:0").cuda().get_device() == 0
        assert torch.zeros(2, device=x.device).add(x).tolist() == [1.0, 1.0]
        assert x.cpu().data_ptr() != x.data_ptr()
        assert torch.nn.Linear(2, 2).to("cuda").weight.is_cuda
        assert torch.empty(2, pin_memory=True).shape == (2,)
    assert not x.is_cuda
    assert x.device.type == "cpu"


def test_installed_torch_cuda_answers_like_a_gpu() -> None:
    """In a process of its own: `install` cannot be undone."""
    program = """
import torch
from stitchcuda.verify.program import simulated_device
simulated_device.install()
x = torch.arange(4.0)
with simulated_device.SimulatedDevice(), torch.no_grad():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = x * 2
    x.record_stream(side)
    x.t().record_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(); end.record(); torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = x + 1
    graph.replay()
    with torch.cuda.nvtx.range("range {}", 1):
        torch.cuda.nvtx.range_push("inner"); torch.cuda.nvtx.mark("here"); torch.cuda.nvtx.range_pop()
    torch.cuda._sleep(100)
    state = torch.cuda.get_rng_state()
    drawn = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert drawn.equal(torch.rand(3, device="cuda"))
    one, other = (torch.Generator(device=device).manual_seed(1) for device in ("cuda", "cpu"))
    assert torch.rand(3, device="cuda", generator=one).equal(torch.rand(3, generator=other))
    assert isinstance(one, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
print(y.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[1.0, 3.0, 5.0, 7.0]", done.stderr
