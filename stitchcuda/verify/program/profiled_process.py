"""A process of its own in which a reference or a program is called while a profiler looks on: `python -P
verify/program/profiled_process.py ORDER`.

ORDER is a JSON file (`verify/judge/profiled_run.py` writes it). Calls are as a user's: warm, on the same inputs, nothing
flushed; each waits for the device before the next. What is seen here is evidence, never a verdict: the program's process is the
program's. `how` says who looks on:
- nsys: calls between cudaProfilerStart and Stop, in ranges CALL_RANGE; then as many, in TRACED_RANGE, with ranges for regions.
  Warm ones come between Start and these, in neither range; the first, which captures CUDA graphs, with ranges for regions
- ncu: one call between Start and Stop
- cupti: the same as nsys through torch.profiler, but for the warm calls; the trace is written to `out`/trace.json
- events: CUDA events around each call; `out`/events.json
- plain: calls and nothing else, for a tool that sees the whole process
Where to look next: `verify/reference/module_ranges.py` (the ranges), `verify/judge/profiled_run.py` (who starts it),
`tools/profile/nsys_export.py`, `tools/profile/cupti_trace.py` (who reads).
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":                 # the sandbox may let us read the package, but not list the folder it lies in
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
from typing import Any

import torch

from stitchcuda.tools.profile.ranges import CALL_RANGE, TRACED_RANGE
from stitchcuda.verify.messages import build_orders, wire
from stitchcuda.verify.program.program_worker import ProgramWorker
from stitchcuda.verify.reference.module_ranges import Pop, Push, Regions
from stitchcuda.verify.reference.reference import load_reference

Call = Callable[[], object]


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    out = Path(order["out"])
    if order["precision"] == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    with torch.no_grad(), contextlib.ExitStack() as stack:
        module, call = _of_program(order, stack) if "load" in order else _of_reference(order)
        if order["how"] != "nsys":         # which records the warm calls, too
            for _ in range(order["warm"]):
                call()
            _wait(order)
        _HOW[order["how"]](module, call, order, out)
    print(json.dumps({"calls": order["calls"]}), flush=True)


def _of_reference(order: dict[str, Any]) -> tuple[torch.nn.Module, Call]:
    reference = load_reference(order["reference"], _device(order))
    args, kwargs = reference.inputs(order["seed"])
    return reference.module, lambda: reference.module(*args, **kwargs)


def _of_program(order: dict[str, Any], stack: contextlib.ExitStack) -> tuple[torch.nn.Module, Call]:
    """The program as its worker loads it, with the libraries that were built for it already."""
    known: dict[str, dict[str, Any]] = {build_orders.digest(asked): answer for asked, answer in order["builds"]}

    def build(asked: dict[str, Any]) -> dict[str, Any]:
        if build_orders.digest(asked) in known:
            return known[build_orders.digest(asked)]
        before = next((one for one, _ in order["builds"] if one["name"] == asked["name"]), None)
        other = ", ".join(what for what in asked if asked[what] != before.get(what)) if before else "name"
        said = f"the program orders the library {asked['name']} otherwise than when it was called before ({other})"
        return {"error": said, "kind": "build"}

    worker = ProgramWorker(Path(order["out"]), order["target"], build, lambda *_: None, judged=False)
    worker.load(order["load"])
    module, interceptor = worker.loaded()
    tensors = wire.read_tensors(Path(order["inputs"]), device=_device(order))
    args, kwargs = wire.decode(order["structure"], tensors, _device(order))
    stack.enter_context(interceptor.running())
    return module, lambda: module(*args, **kwargs)


def _nsys(module: torch.nn.Module, call: Call, order: dict[str, Any], out: Path) -> None:
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    with _window():
        _warmed(module, call, order, push, pop)
        _calls(module, call, order, push, pop)


def _warmed(module: torch.nn.Module, call: Call, order: dict[str, Any], push: Push, pop: Pop) -> None:
    """Warm calls. The first says where it is, since it is the one that captures CUDA graphs; the others do not, so that nothing
    that was compiled while it did is what is timed later."""
    for number in range(order["warm"]):
        with contextlib.nullcontext() if number else Regions(module, push, pop):
            call()
    _wait(order)


def _cupti(module: torch.nn.Module, call: Call, order: dict[str, Any], out: Path) -> None:
    open_ranges: list[Any] = []

    def push(text: str) -> None:
        open_ranges.append(torch.profiler.record_function(text))
        open_ranges[-1].__enter__()

    def pop() -> None:
        open_ranges.pop().__exit__(None, None, None)

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if order["target"] == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as seen:
        _calls(module, call, order, push, pop)
    seen.export_chrome_trace(str(out / "trace.json"))


def _calls(module: torch.nn.Module, call: Call, order: dict[str, Any], push: Push, pop: Pop) -> None:
    """Calls as they are, then calls in which every region says where it is. Waiting for the device is no part of either."""
    for text, regions in ((CALL_RANGE, None), (TRACED_RANGE, Regions(module, push, pop))):
        with regions or contextlib.nullcontext():
            for _ in range(order["calls"]):
                push(text)
                call()
                pop()
                _wait(order)


def _ncu(module: torch.nn.Module, call: Call, order: dict[str, Any], out: Path) -> None:
    with _window():
        call()
        _wait(order)


def _events(module: torch.nn.Module, call: Call, order: dict[str, Any], out: Path) -> None:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call, unused-ignore]
    times = []
    for _ in range(order["calls"]):
        marks[0].record()
        call()
        marks[1].record()
        _wait(order)
        times.append(marks[0].elapsed_time(marks[1]))
    (out / "events.json").write_text(json.dumps({"ms": times}))


def _plain(module: torch.nn.Module, call: Call, order: dict[str, Any], out: Path) -> None:
    for _ in range(order["calls"]):
        call()
    _wait(order)


_HOW: dict[str, Callable[[torch.nn.Module, Call, dict[str, Any], Path], None]] = {
    "nsys": _nsys, "ncu": _ncu, "cupti": _cupti, "events": _events, "plain": _plain,
}  # fmt: skip


@contextlib.contextmanager
def _window() -> Iterator[None]:
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call, unused-ignore]
    yield
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call, unused-ignore]


def _device(order: dict[str, Any]) -> str:
    return "cuda" if order["target"] == "cuda" else "cpu"


def _wait(order: dict[str, Any]) -> None:
    if order["target"] == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
