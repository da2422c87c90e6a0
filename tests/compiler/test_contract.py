"""Contracts of tasks: what several regions together take, make and update, by the definition and on programs of every kind."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.dependencies import reads, references
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions.contract import TaskContract, task_contract
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.engineers.task_text import task_text
from stitchcuda.state import Region
from tests.compiler.eager import captured
from tests.compiler.zoo import ZOO


@functools.cache
def graph_of(name: str) -> OpGraph:
    case = ZOO[name]
    return capture(case.make().train(case.train), case.args(), case.kwargs())


@functools.cache
def regions_of(name: str) -> tuple[Region, ...]:
    return partition(graph_of(name))


def contract(graph: OpGraph, *chosen: str) -> TaskContract:
    return task_contract(graph, [region for region in partition(graph) if region.id in chosen])


@settings(max_examples=120, deadline=None)
@given(name=st.sampled_from(sorted(ZOO)), data=st.data())
def test_a_task_takes_what_it_reads_and_gives_what_others_need(name: str, data: st.DataObject) -> None:
    graph, regions = graph_of(name), regions_of(name)
    ids = data.draw(st.sets(st.sampled_from([region.id for region in regions]), min_size=1))
    chosen = [region for region in regions if region.id in ids]
    found, flow = task_contract(graph, chosen), Flow(graph)
    for border in (found.whole, *found.instances):
        inside = [node for node in graph.nodes if node.name in border.nodes]
        made = {spec.name for node in inside for spec in node.outputs}
        keys = {f"self.{tensor.key}": tensor.spec.name for tensor in graph.state}
        taken = {keys.get(spec.name, spec.name) for spec in border.inputs}
        given_out = {spec.name for spec in border.outputs}
        assert taken == {value for node in inside for value in reads(node)} - made
        outside = [value for node in graph.nodes if node.name not in border.nodes for value in reads(node)]
        needed = {*outside, *references(graph.outputs), *(mutation.value for mutation in graph.mutations)}
        assert given_out == made & needed
    named = {node for region in chosen for nodes in region.nodes for node in nodes}
    assert named <= found.whole.nodes
    assert all(flow.is_view(flow.nodes[extra]) for extra in found.whole.nodes - named)
    if (count := len(found.instances)) > 1:
        assert all(len(region.nodes) % count == 0 for region in chosen)
        assert sum(len(border.nodes & named) for border in found.instances) == len(named)
        assert len({border.listing.count("\n") for border in found.instances}) == 1


def test_a_region_that_occurs_once_makes_the_task_occur_once() -> None:
    """One sum and two equal norms of it: the task is all three, and what they hand to each other is internal."""
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.cumsum(x, 0)
        return torch.cumsum(F.softmax(total.view(8, 64), -1), 0) + torch.cumsum(F.softmax(y, -1), 0)

    graph = captured(forward, torch.randn(8, 64), torch.randn(8, 64))
    regions = partition(graph)
    softmax = next(region for region in regions if len(region.nodes) == 2 and "softmax" in region.title)
    alone = contract(graph, softmax.id)
    assert len(alone.instances) == 2
    ids = [region.id for region in regions]
    whole = contract(graph, *ids)
    assert len(whole.instances) == 1
    assert [spec.name for spec in whole.whole.inputs] == ["args_0", "args_1"]
    assert [spec.name for spec in whole.whole.outputs] == list(references(graph.outputs))
    text = task_text(graph, regions)
    assert "equal instances" not in text
    times = [f"{region.id} × {len(region.nodes)}" for region in regions if len(region.nodes) > 1]
    assert f"All instances belong to the task: {', '.join(times)}." in text


def test_other_instances_are_named_with_their_tensors() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(torch.cumsum(F.softmax(x, -1), 0), -1)

    graph = captured(forward, torch.randn(8, 64))
    region = next(region for region in partition(graph) if len(region.nodes) == 2)
    text = task_text(graph, [region])
    first, second = (nodes[0] for nodes in region.nodes)
    assert "2 equal instances, in the root module; serve all with the same kernels." in text
    assert f"- instance 2: in cumsum; out {second}" in text
    assert f"out: {first} [8, 64] float32 strides [64, 1]" in text
    assert "Between parts of the task run cumsum: one kernel cannot do it all." in text


def test_inputs_that_are_parts_of_a_tensor_say_of_which() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        first, second = torch.cumsum(x, 0).chunk(2, -1)
        return first.relu() * second.sigmoid()

    graph = captured(forward, torch.randn(4, 16))
    text = task_text(graph, [region for region in partition(graph) if region.kind == "fusible"])
    assert "[4, 8] float32 strides [16, 1] (aten.chunk.default of cumsum [4, 16], from element 8)" in text


def test_buffers_that_are_updated_are_told() -> None:
    graph = graph_of("residual_train")
    text = task_text(graph, partition(graph))
    assert "updated in place: self." in text
    assert "running_mean" in text.split("updated in place: ")[1].split("\n")[0]
