"""Calls a reference or a program in a process of its own while a profiler records.

Command line: `python -P verify/program/profiled_process.py ORDER`, where ORDER is a JSON file.
Calls are as a user makes them: warm, on the same inputs, caches not flushed, and each waits for the device before the next.
What is recorded here never enters a verdict, since generated code may change it. The order's `how` says which profiler records:
- nsys: calls between cudaProfilerStart and Stop, each in a range CALL_RANGE; then as many, in TRACED_RANGE, with ranges for
  regions. Warm-up calls come between Start and these, in neither range; the first, which captures CUDA graphs, has regions
- ncu: one call between Start and Stop
- cupti: as nsys, through torch.profiler and without recording the warm-up calls; the trace is written to `out`/trace.json
- events: CUDA events around each call; times in ms are written to `out`/events.json
- plain: calls and nothing else, for a tool that records the whole process
Where to look next: `verify/reference/module_ranges.py` (the ranges), `verify/judge/profiled_run.py` (who starts it),
`tools/profile/nsys_export.py`, `tools/profile/cupti_trace.py` (who reads the recordings).
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":                 # the sandbox allows to read the package, but not to list the folder above it
    import importlib.util

    if "stitchcuda" not in sys.modules:
        _home = Path(__file__).resolve().parents[2]
        _init, _folders = _home / "__init__.py", [str(_home)]
        _spec = importlib.util.spec_from_file_location("stitchcuda", _init, submodule_search_locations=_folders)
        assert _spec is not None
        assert _spec.loader is not None
        sys.modules["stitchcuda"] = _package = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_package)

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from stitchcuda.state import Precision, Target
from stitchcuda.tools.profile.ranges import CALL_RANGE, TRACED_RANGE
from stitchcuda.tools.profile.runner import HowCalled
from stitchcuda.verify.messages import wire
from stitchcuda.verify.messages.build_orders import BuildOrder, BuiltLibrary
from stitchcuda.verify.messages.program_requests import LoadProgram, LoadSettings
from stitchcuda.verify.messages.request import read
from stitchcuda.verify.messages.tensor_block import open_saved, unpack
from stitchcuda.verify.program.program_worker import ProgramWorker
from stitchcuda.verify.reference.float64_truth import allow_tf32
from stitchcuda.verify.reference.module_ranges import Pop, Push, Regions
from stitchcuda.verify.reference.reference import load_reference

PlainCall = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class SavedBlock:
    """A block's bytes in a file, and the layout of the tensors in it."""

    path: str
    layout: Any


@dataclass(frozen=True, kw_only=True)
class CalledReference:
    """The reference at `path` is called, on its `get_inputs()` after torch.manual_seed(`seed`)."""

    path: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class CalledProgram:
    """A program is called. `builds`: its build orders, each with the builder's answer. Nothing is built anew."""

    settings: LoadSettings
    init: SavedBlock
    state: SavedBlock
    inputs: SavedBlock
    structure: Any                         # of the arguments
    builds: list[tuple[BuildOrder, BuiltLibrary]]


@dataclass(frozen=True, kw_only=True)
class ProfileOrder:
    """The order. `out`: the folder for what is recorded. `warm`: calls before those that count."""

    how: HowCalled
    calls: int
    warm: int
    out: str
    target: Target
    precision: Precision
    called: CalledReference | CalledProgram

    @property
    def device(self) -> str:
        return "cuda" if self.target == "cuda" else "cpu"


def main() -> None:
    order = read(ProfileOrder, json.loads(Path(sys.argv[1]).read_text()))
    allow_tf32(order.precision)
    with torch.no_grad(), contextlib.ExitStack() as stack:
        called = order.called
        module, call = (
            _load_reference(called, order) if isinstance(called, CalledReference) else _load_program(called, order, stack)
        )
        if order.how != "nsys":            # `_nsys` makes the warm-up calls itself, while nsys records
            for _ in range(order.warm):
                call()
            _wait(order)
        _HOW[order.how](module, call, order)
    print(json.dumps({"calls": order.calls}), flush=True)


def _load_reference(called: CalledReference, order: ProfileOrder) -> tuple[torch.nn.Module, PlainCall]:
    reference = load_reference(called.path, order.device)
    args, kwargs = reference.inputs(called.seed)
    return reference.module, lambda: reference.module(*args, **kwargs)


def _load_program(
    called: CalledProgram, order: ProfileOrder, stack: contextlib.ExitStack
) -> tuple[torch.nn.Module, PlainCall]:
    """Loads the program as its worker does, with the libraries that were built for it already. Nothing is built here."""
    known = dict(called.builds)

    def build(ordered: BuildOrder) -> BuiltLibrary:
        if ordered in known:
            return known[ordered]
        before = dict(next((earlier for earlier in known if earlier.name == ordered.name), ()))
        other = ", ".join(name for name, value in ordered if value != before.get(name)) if before else "name"
        problem = f"the program orders the library {ordered.name} otherwise than when it was called before ({other})"
        return BuiltLibrary(failure=problem)

    worker = ProgramWorker(Path(order.out), order.target, build, lambda *_: None, judged=False)
    init, state, inputs = (open_saved(Path(saved.path), saved.layout) for saved in (called.init, called.state, called.inputs))
    worker.load(LoadProgram(init=init, state=state, **vars(called.settings)))
    args, kwargs = wire.decode(called.structure, unpack(inputs, order.device), order.device)
    stack.enter_context(worker.interceptor.running())
    return worker.program, lambda: worker.program(*args, **kwargs)


def _nsys(module: torch.nn.Module, call: PlainCall, order: ProfileOrder) -> None:
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    with _window():
        _make_warm_calls(module, call, order, push, pop)
        _make_calls(module, call, order, push, pop)


def _make_warm_calls(module: torch.nn.Module, call: PlainCall, order: ProfileOrder, push: Push, pop: Pop) -> None:
    """Makes the warm-up calls. The first has ranges for regions, because it is the one that captures CUDA graphs. The others
    have none, so that code that torch compiled under the ranges is compiled again before calls are timed."""
    for number in range(order.warm):
        with contextlib.nullcontext() if number else Regions(module, push, pop):
            call()
    _wait(order)


def _cupti(module: torch.nn.Module, call: PlainCall, order: ProfileOrder) -> None:
    open_ranges: list[Any] = []

    def push(text: str) -> None:
        open_ranges.append(torch.profiler.record_function(text))
        open_ranges[-1].__enter__()

    def pop() -> None:
        open_ranges.pop().__exit__(None, None, None)

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if order.target == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as recording:
        _make_calls(module, call, order, push, pop)
    recording.export_chrome_trace(f"{order.out}/trace.json")


def _make_calls(module: torch.nn.Module, call: PlainCall, order: ProfileOrder, push: Push, pop: Pop) -> None:
    """Makes calls without and then with ranges for regions. Waiting for the device is outside of each call's range."""
    for text, regions in ((CALL_RANGE, None), (TRACED_RANGE, Regions(module, push, pop))):
        with regions or contextlib.nullcontext():
            for _ in range(order.calls):
                push(text)
                call()
                pop()
                _wait(order)


def _ncu(module: torch.nn.Module, call: PlainCall, order: ProfileOrder) -> None:
    with _window():
        call()
        _wait(order)


def _events(module: torch.nn.Module, call: PlainCall, order: ProfileOrder) -> None:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call, unused-ignore]
    times = []
    for _ in range(order.calls):
        marks[0].record()
        call()
        marks[1].record()
        _wait(order)
        times.append(marks[0].elapsed_time(marks[1]))
    Path(order.out, "events.json").write_text(json.dumps({"ms": times}))


def _plain(module: torch.nn.Module, call: PlainCall, order: ProfileOrder) -> None:
    for _ in range(order.calls):
        call()
    _wait(order)


_HOW: dict[str, Callable[[torch.nn.Module, PlainCall, ProfileOrder], None]] = {
    "nsys": _nsys, "ncu": _ncu, "cupti": _cupti, "events": _events, "plain": _plain,
}  # fmt: skip


@contextlib.contextmanager
def _window() -> Iterator[None]:
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call, unused-ignore]
    yield
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call, unused-ignore]


def _wait(order: ProfileOrder) -> None:
    if order.target == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
