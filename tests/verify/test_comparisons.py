"""The reference worker's comparisons: what a program wrote is copied once, compared, and named where it is wrong or lost."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from stitchcuda.verify.compare import bound
from stitchcuda.verify.inputs import call_requests, reference_requests
from stitchcuda.verify.inputs.reference_requests import (
    CompareAnswer,
    ComparedAnswer,
    FindChanged,
    FindMattering,
    Forget,
    Receive,
    Received,
    ReferenceWork,
)
from stitchcuda.verify.messages import gpu_memory
from stitchcuda.verify.messages.request import Request, answer_type, read
from stitchcuda.verify.messages.tensor_block import TensorBlock, digest, fill, new_block, pack, unpack
from stitchcuda.verify.messages.timing_requests import TIMING_REQUESTS
from stitchcuda.verify.messages.wire import Channel
from stitchcuda.verify.reference.blocks import Blocks
from stitchcuda.verify.reference.comparisons import AnswerLost, Comparisons
from stitchcuda.verify.reference.reference_worker import ReferenceWorker

X, WEIGHT = torch.randn(8, 16), torch.randn(16)


def outputs(x: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return {"output": x * WEIGHT}, {"output": x.double() * WEIGHT.double()}


class Stage:
    """One input set, x * weight, and answers to it."""

    def __init__(self, seconds: float | None = None) -> None:
        self.blocks = Blocks("cpu")
        self.comparisons = Comparisons("cpu", lambda state: {"weight": WEIGHT}, self.compute, self.blocks)
        self.computed = 0
        self.set = self.comparisons.keep({"tuple": [{"tensor": 0}]}, [X], *outputs(X), seconds=seconds)
        self.state = pack([WEIGHT], "cpu")

    def compute(self, given: reference_requests.InputSet) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        self.computed += 1
        return outputs(unpack(given.inputs, "cpu")[0])

    def receive(
        self, output: torch.Tensor, *, name: str = "a", state: torch.Tensor = WEIGHT, layout: Any = None,
        room: TensorBlock | None = None,
    ) -> Received:  # fmt: skip
        room, inputs, states = room or new_block(4096, "cpu"), new_block(4096, "cpu"), new_block(4096, "cpu")
        written = layout or fill(room, [output])
        return self.comparisons.receive(Receive(
            name, {"tensor": 0}, [digest(state, self.state.key)], room.with_layout(written),
            inputs.with_layout(fill(inputs, [X])), states.with_layout(fill(states, [])),
        ))  # fmt: skip

    def compare(self, name: str = "a") -> ComparedAnswer:
        allowed = {"output": bound.pool_measures(self.set.measures[:1])}
        return self.comparisons.compare(
            CompareAnswer(name, self.set, allowed, outputs_only=False, state=self.state, given_back=("weight",))
        )


def test_right_and_wrong_answers() -> None:
    stage = Stage()
    assert stage.receive(X * WEIGHT) == Received(("output",))
    assert stage.compare().reasons == ()
    stage.receive(X * WEIGHT + 1, name="b", state=WEIGHT + 1)
    wrong, changed = stage.compare("b").reasons
    assert wrong.startswith("output is wrong: largest error 1")
    assert changed == "the program changes weight, which the reference leaves alone"
    assert stage.comparisons.find_changed(FindChanged("a", "b")).names == ("output",)
    assert stage.comparisons.find_changed(FindChanged("a", "a")).names == ()


def test_outputs_that_a_full_gpu_does_not_hold_are_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Blocks, "keeps_on_gpu", lambda blocks, size: False)
    assert not Stage(seconds=1.0).set.recomputed, "the host is faster"
    stage = Stage(seconds=0.0)
    assert stage.set.recomputed
    assert not bool(unpack(stage.set.exact, "cpu")[0].any())
    assert (stage.set.expected.size, stage.set.exact.size) == (Stage().set.expected.size, Stage().set.exact.size)
    stage.receive(X * WEIGHT)
    assert stage.compare().reasons == ()
    stage.receive(X * 0, name="b")
    assert stage.compare("b").reasons[0].startswith("output is wrong")
    assert stage.computed == 2
    other = stage.comparisons.keep({"tuple": [{"tensor": 0}]}, [X + 1], *outputs(X + 1), seconds=0.0)
    bounds = {"output": bound.pool_measures(stage.set.measures)}
    for given, names in ((stage.set, ()), (other, ("output",))):
        asked = reference_requests.FindWrong(stage.state, stage.set, stage.state, given, bounds)
        assert stage.comparisons.find_wrong(asked).names == names


def test_an_answer_that_is_changed_after_it_was_given_is_not_read() -> None:
    stage, room = Stage(), new_block(4096, "cpu")
    layout = fill(room, [X])
    fill(room, [X * WEIGHT])               # the right values, which come too late
    assert "were changed after it had returned them" in stage.receive(X, layout=layout, room=room).unreadable
    del layout["digest"]
    assert stage.receive(X, layout=layout, room=room).unreadable


def test_state_of_which_nothing_is_said_is_wrong() -> None:
    stage = Stage()
    stage.receive(X * WEIGHT)
    stage.comparisons._answers["a"].digests.clear()
    assert "another number of tensors of its state" in stage.compare().reasons[0]


def test_what_cannot_be_read_is_said_and_what_is_lost_is_no_answer() -> None:
    stage = Stage()
    assert "lie outside their memory" in stage.receive(X, layout={"spans": [2**40], "tensors": []}).unreadable
    with pytest.raises(AnswerLost):
        stage.compare()
    stage.receive(X * WEIGHT)
    stage.comparisons.forget(Forget(("a",)))
    with pytest.raises(AnswerLost):
        stage.compare()


@pytest.mark.parametrize(("failures", "how"), [(1, "a part at a time, from the host's memory"), (2, "on the CPU")])
def test_little_memory_is_said(failures: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.receive(X * WEIGHT)
    compare, left = stage.comparisons._compare, [failures]

    def scarce(*arguments: Any) -> ComparedAnswer:
        left[0] -= 1
        if left[0] >= 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compare(*arguments)

    monkeypatch.setattr(stage.comparisons, "_compare", scarce)
    (remark,) = stage.compare().remarks
    assert remark.startswith(f"limited: compared {how}, because the GPU's")
    stage.blocks.on_host = 1
    stage.receive(X * WEIGHT, name="b")
    assert "kept on the host" in stage.compare("b").remarks[0]


def test_every_request_has_a_handler_and_can_be_read() -> None:
    """Those that only a GPU's judge makes, too."""
    defined = {**vars(reference_requests), **vars(call_requests)}
    kinds = [kind for kind in defined.values() if isinstance(kind, type) and issubclass(kind, Request)]
    assert set(ReferenceWorker("sim").handlers) == {*kinds, *TIMING_REQUESTS} - {Request}
    for kind in ReferenceWorker("sim").handlers:
        records: tuple[Any, ...] = (kind, answer_type(object.__new__(kind)))
        for record in records:
            fields = {field.name for field in dataclasses.fields(record)}
            with pytest.raises(ValidationError) as refused:
                read(record, {"unknown": 1})
            named = {str(error["loc"][0]) for error in refused.value.errors()}
            assert {"unknown"} <= named <= fields | {"unknown"}
    given = Stage().set
    sent = pack_message(FindMattering(given, pack([WEIGHT], "cpu")))
    received = read(FindMattering, sent)
    assert received.given.measures == given.measures
    assert unpack(received.given.inputs, "cpu")[0].equal(X)
    trace = ReferenceWork(7, [("gemm", 1, 7, 2)])
    assert read(ReferenceWork, pack_message(trace)) == trace


def pack_message(record: Any) -> dict[str, Any]:
    """The fields of a record as the other end of a channel gets them."""
    ours, theirs = socket.socketpair()
    with contextlib.closing(Channel(ours)) as sending, contextlib.closing(Channel(theirs, takes=True)) as receiving:
        sending.send(vars(record))
        return receiving.receive(5.0)


def test_a_program_is_left_as_much_memory_as_the_reference_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks("cuda")
    monkeypatch.setattr(gpu_memory, "free_and_total", lambda: (20, 24))
    assert blocks.place_for_call(10) == "cuda"
    blocks.call_bytes = 12
    assert blocks.place_for_call(8) == "cuda"
    assert blocks.place_for_call(10) == "cpu"
    assert blocks.on_host == 1             # which a remark says


def test_where_rounding_decides_nothing_is_held_against_a_program() -> None:
    stage = Stage()
    mask = torch.zeros(8, 16, dtype=torch.bool)
    mask[3] = mask[5, 2:4] = True
    exact = {"output": X.double() * WEIGHT.double()}
    stage.set = stage.comparisons.keep(
        {"tuple": [{"tensor": 0}]}, [X], {"output": torch.where(mask, 7.0, X * WEIGHT)}, exact, undecided={"output": mask}
    )
    assert stage.set.measures[0].worst < 1e-6
    assert stage.set.open == (("output", ((48, 64), (82, 84))),)
    other = X * WEIGHT
    other[3, 0], other[5, 3] = 99.0, -99.0
    stage.receive(other)
    assert stage.compare().reasons == ()
    other[5, 4] += 1
    stage.receive(other, name="b")
    assert "wrong" in stage.compare("b").reasons[0]


def test_integers_that_float64_has_otherwise_are_open_where_they_are_few() -> None:
    for differing, found in ((1, (("output", ((16, 32),)),)), (4, ())):
        own, exact = torch.zeros(16, 16, dtype=torch.int64), torch.zeros(16, 16, dtype=torch.int64)
        exact[1 : 1 + differing, 5] = 1
        made = Stage().comparisons.keep({"tuple": [{"tensor": 0}]}, [X], {"output": own}, {"output": exact})
        assert made.open == found
