"""Copies around a replayed graph are free where a program without the graph would need none."""

from __future__ import annotations

import pytest
import torch

from stitchcuda.verify.integrity.byte_traffic import ByteTraffic
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder
from stitchcuda.verify.integrity.graph_boundary import Note, free_copies
from stitchcuda.verify.messages.shared_tensors import memory_of
from stitchcuda.verify.program.simulated_graph import Recorder, SimulatedCapture, SimulatedGraph

X, Y, STATIC, OUT, RESULT = (1000, 64), (2000, 64), (3000, 64), (4000, 64), (5000, 64)


def copy(source: tuple[int, int], target: tuple[int, int], name: str = "copy_") -> Note:
    return "copy", 3 * source[1], f"{name} {source[0]} {target[0]} {source[1]}"


def replay(*touched: tuple[int, int]) -> list[Note]:
    return [("replay", 1, ""), *(("touch", length, str(address)) for address, length in touched), ("replayed", 1, "")]


def places(*told: Note) -> list[int]:
    return [one.place for one in free_copies(told, {X, Y}, {RESULT})]


def test_in_and_out_of_a_replay() -> None:
    assert places(copy(X, STATIC), *replay(STATIC, OUT), copy(OUT, RESULT)) == [0, 5]
    assert places(*replay(STATIC, OUT), copy(X, STATIC), copy(OUT, RESULT)) == [5], "too late to be read"
    assert places(copy(X, STATIC), copy(OUT, RESULT), *replay(STATIC, OUT)) == [0], "too early to be written"
    assert places(copy(X, STATIC), copy(OUT, RESULT)) == []


@pytest.mark.parametrize(
    "told",
    [
        [copy((6000, 64), STATIC), *replay(STATIC)],                          # not an input
        [copy((1000, 32), (3000, 32)), *replay(STATIC)],                      # a piece of an input, into a piece
        [copy(X, STATIC), *replay(STATIC, (3000, 128))],                      # pieces are put together in the graph's memory
        [copy(X, STATIC), *replay(OUT)],                                      # nothing there reads it
        [copy(X, RESULT), *replay(RESULT)],                                   # the result itself
        [copy(X, Y), *replay(X, Y)],
        [*replay(X, OUT), copy(X, RESULT)],                                   # the input itself
        [*replay(OUT), copy(OUT, (6000, 64))],                                # not an output
        [("replay", 1, ""), ("touch", 64, "3000"), copy(X, STATIC), copy(STATIC, RESULT), ("replayed", 1, "")],
        [("copy", 9, "copy_ x y z"), ("touch", 1, ""), ("replayed", 1, ""), ("copy", 1, "copy_")],
    ],
)  # fmt: skip
def test_what_else_is_copied_counts(told: list[Note]) -> None:
    assert places(*told) == []


def test_each_input_and_output_once_and_in_place_only_one_of_both() -> None:
    again = (7000, 64)
    assert places(copy(X, STATIC), copy(X, again), *replay(STATIC, again, OUT), copy(OUT, RESULT), copy(OUT, RESULT)) == [0, 7]
    assert places(copy(X, STATIC), *replay(STATIC), copy(STATIC, RESULT)) == [4]


@pytest.mark.parametrize(("change", "free"), [("plain", 5), ("dtype", 2), ("layout", 2), ("spread", 2), ("library", 5)])
def test_a_replay_on_the_simulator(change: str, free: int) -> None:
    """`free` copies of 1 KiB; those of another dtype, layout or shape compute; torch's operators in the graph stay work."""
    x = torch.randn(16, 16)
    given = x[:1] if change == "spread" else x.half() if change == "dtype" else x.t() if change == "layout" else x
    graph, static, out = SimulatedGraph(), torch.empty(16, 16), torch.empty(16, 16)
    with torch.no_grad(), SimulatedCapture(graph):
        if change == "library":
            out.copy_(torch.relu(static))
        else:
            assert Recorder.active is not None
            Recorder.active.kernel(lambda a, b: None, (static, out))
    with torch.no_grad(), DispatchRecorder() as witness, ByteTraffic():
        static.copy_(given)
        graph.replay()
        result = out.clone()
    assert witness.at_boundary({memory_of(given)}, {memory_of(result)}) == free * 1024
    inside = 5 * 1024 if change == "library" else 0
    source = given.numel() * given.element_size()
    assert witness.total("framework") == 2 * 1024 + source + 2 * 1024 + inside
    assert witness.replayed == inside, "what its operators moved, not all that its tensors hold"
    assert witness.reasons == []
