"""Between timed spans a program cannot work for its next call: what it does there is too early, or is counted."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.verify.inputs import timed_contents as contents
from stitchcuda.verify.messages.tensor_block import new_block
from stitchcuda.verify.messages.timing_requests import Deliver, LayRow, MoveTensors, PrepareTiming, TimeBlock
from stitchcuda.verify.program.buffer_restoring import BufferRestoring
from stitchcuda.verify.timing.timed_calls import NotPlain, TimedCalls
from tests.verify.timing_stage import Stage, VirtualClock

CALLS = [[0, 11, 0], [0, 12, 1], [0, 13, 0], [0, 14, 0], [0, 15, 1], [0, 16, 0]]


class Ahead:
    """A program that takes 0.5 ms, or nothing for contents that `look` has seen before it is called with them."""

    def __init__(self, stage: Stage, request: PrepareTiming) -> None:
        self.stage = stage
        self.clock = VirtualClock(self.stage.time)
        self.answers: dict[bytes, torch.Tensor] = {}
        self.given: tuple[torch.Tensor, ...] = ()
        self.busy = False
        self.wrap: Callable[[torch.Tensor], Any] = lambda out: out
        self.held = TimedCalls(request, self, self.clock, device="cpu")

    def __call__(self, *given: torch.Tensor) -> Any:
        self.busy = True
        self.given = given
        out = self.answers.pop(self.contents(), None)
        if out is None:
            self.clock.spend(0.5)
            out = self.stage.module(*self.plain())
        result = self.wrap(out)
        self.busy = False
        return result

    def look(self, *_: Any) -> None:
        """What a hook does wherever it runs: the work for what lies where the last call's inputs lay."""
        if self.given and not self.busy:
            self.busy = True
            self.clock.spend(0.5)
            self.answers[self.contents()] = self.stage.module(*self.plain())
            self.busy = False

    def contents(self) -> bytes:
        return b"".join(one.contiguous().numpy().tobytes() for one in self.plain())

    def plain(self) -> list[torch.Tensor]:
        with torch._C.DisableTorchFunction():
            return [one.detach().as_subclass(torch.Tensor) for one in self.given]

    def times(self) -> list[float]:
        with torch.no_grad():
            self.held.move(MoveTensors(spacer=0, call=[0, 10, 0], fresh=2))
            return self.held.block(TimeBlock(calls=CALLS, run=True)).device_ms


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


@pytest.fixture
def ahead(stage: Stage) -> Iterator[Ahead]:
    thresholds = gc.get_threshold()
    yield Ahead(stage, stage.timed_inputs().preparation(trusted=False))
    gc.set_threshold(*thresholds)
    gc.callbacks.clear()


def all_counted(times: list[float]) -> bool:
    return times == pytest.approx([0.5] * len(CALLS))


def test_the_end_of_a_result_comes_before_new_contents(ahead: Ahead) -> None:
    def wrap(out: torch.Tensor) -> torch.Tensor:
        weakref.finalize(out, ahead.look)
        return out

    ahead.wrap = wrap
    assert all_counted(ahead.times())


def test_the_end_of_an_argument_comes_before_new_contents(ahead: Ahead) -> None:
    places: list[list[torch.Tensor]] = []

    def wrap(out: torch.Tensor) -> torch.Tensor:
        places.append([one.detach() for one in ahead.given])
        if len(places) == 2:               # the first call of the block: its memory is written again, in the third
            ahead.wrap = last
        return out

    def last(out: torch.Tensor) -> torch.Tensor:
        weakref.finalize(ahead.given[0], ahead.look)
        ahead.given = tuple(places[1])
        return out

    ahead.wrap = wrap
    assert all_counted(ahead.times())


def test_an_argument_of_another_class_sees_nothing(ahead: Ahead) -> None:
    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunction():
                result = func(*args, **(kwargs or {}))
            ahead.look()
            return result

    def wrap(out: torch.Tensor) -> torch.Tensor:
        for one in ahead.given:
            one.__class__ = Watching
        return out

    ahead.wrap = wrap
    assert all_counted(ahead.times())


def test_a_mode_that_stays_sees_nothing(ahead: Ahead) -> None:
    class Watching(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            ahead.look()
            return result

    with Watching():
        assert all_counted(ahead.times())


def test_a_dispatch_mode_that_stays_is_an_error(ahead: Ahead) -> None:
    class Watching(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Watching(), pytest.raises(NotPlain, match="still in force"):  # type: ignore[no-untyped-call, unused-ignore]
        ahead.times()


def test_collections_wait_for_calls(ahead: Ahead) -> None:
    gc.callbacks.append(ahead.look)
    gc.set_threshold(1, 1, 1)
    assert all_counted(ahead.times())
    assert gc.isenabled()


def test_reading_a_result_of_its_own_type_is_part_of_the_call(ahead: Ahead) -> None:
    class Late(Mapping[str, torch.Tensor]):
        def __init__(self, out: torch.Tensor) -> None:
            self.out = out

        def __getitem__(self, key: str) -> torch.Tensor:
            ahead.clock.spend(0.25)
            return self.out

        def __iter__(self) -> Iterator[str]:
            return iter(["out"])

        def __len__(self) -> int:
            return 1

    ahead.wrap = Late
    assert ahead.times() == pytest.approx([0.75] * len(CALLS))


def test_new_places_are_taken_before_the_calls(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken between two calls, they would take the memory that the next call's output comes from."""
    places: list[int] = []

    def wrap(out: torch.Tensor) -> torch.Tensor:
        places.append(ahead.given[0].data_ptr())
        return out

    ahead.wrap = wrap
    with torch.no_grad():
        ahead.held.move(MoveTensors(spacer=0, call=[0, 10, 0], fresh=2))
        monkeypatch.setattr(contents, "allocate_like", lambda tensors: pytest.fail("memory is taken between calls"))
        ahead.held.block(TimeBlock(calls=CALLS, run=True))
    stays, *rest = places
    assert [place == stays for place in rest] == [not new for *_, new in CALLS]
    assert len(set(places)) == 3


def test_a_row_calls_on_all_that_was_laid(ahead: Ahead) -> None:
    with torch.no_grad():
        ahead.held.lay(LayRow(calls=CALLS))
        began = ahead.stage.time.ms
        ahead.held.row()
        assert 3.0 <= ahead.stage.time.ms - began < 3.1
        rooms = {what: new_block(2**16, "cpu") for what in ("outputs", "inputs_after")}
        said = ahead.held.deliver(Deliver(sample=0, **rooms))
    assert said.structure == {"tensor": 0}


def test_state_is_put_back_without_asking_the_program() -> None:
    class Program(torch.nn.Module):
        asked = 0

        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.BatchNorm1d(3)
            self.register_buffer("seen", torch.zeros(3))

        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            Program.asked += 1
            return super().state_dict(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            Program.asked += 1
            return super().__getattr__(name)

    program = Program()
    values = {"inner.running_mean": torch.full((3,), 2.0), "seen": torch.ones(3)}
    kept = BufferRestoring(program, values, program.state_dict())
    Program.asked = 0
    kept.apply()
    assert Program.asked == 0
    assert program.inner.running_mean is not None
    assert isinstance(program.seen, torch.Tensor)
    program.seen = torch.full((3,), 7.0)   # an honest forward may put a new tensor in the old one's place
    program.inner.running_mean.zero_()
    kept.apply()
    assert program.seen.tolist() == [1.0] * 3
    assert program.inner.running_mean.tolist() == [2.0] * 3
    program.seen.__class__ = type("Own", (torch.Tensor,), {})
    kept.apply()                           # no code of its class runs
