"""Predicts the time of one call of a session's program by the cost model, from the kernels that the program has.

The captured graph is costed twice: as eager torch, and with the program's kernels. The savings that plans predict or claim do
not enter. A task counts as far as its kernels are in the program:

- A region belongs to the latest kept task that names it; an earlier task keeps the regions that no later one names.
- A task of the built-in engineer counts while `program.json` lists its region: a chat model may have removed its kernel.
- CUDA graph replay counts where the last check of the program saw a graph replayed.

torch.compile is not predicted.

Where to look next: `compiler/regions/cost.py` (the cost model), `nodes/report_text.py` and `sessions/outcome.py` (show it).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import TypeAdapter

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.printing.manifest import read_manifest
from stitchcuda.compiler.regions import cost
from stitchcuda.state import Attempt, Baseline, Digest, Evidence, Plan, Record, Region, State, Task
from stitchcuda.store import Store

_REGIONS = TypeAdapter(tuple[Region, ...])


class Prediction(Record):
    """The predicted time of one call, against the reference in eager mode. The two savings add up to the whole saving."""

    against: Literal["eager"] = "eager"
    device: str                            # its name
    eager_ms: float
    program_ms: float
    host_saving_ms: float                  # by fewer launches (or one, of a CUDA graph): less waiting for the host
    device_saving_ms: float                # by less work on the device

    @property
    def speedup(self) -> float:
        return self.eager_ms / self.program_ms if self.program_ms else 1.0

    @property
    def parts(self) -> str:
        """Times and savings: "0.106 of 0.142 ms; 0.021 ms of the saving is host work, 0.015 ms device time"."""
        times = f"{self.program_ms:.3g} of {self.eager_ms:.3g} ms"
        if self.program_ms >= self.eager_ms:
            return times
        return f"{times}; {self.host_saving_ms:.2g} ms of the saving is host work, {self.device_saving_ms:.2g} ms device time"

    def __str__(self) -> str:
        """A text that follows the word "predicted"."""
        return f"{self.speedup:.2f}× over eager on {self.device} ({self.parts}; nothing was timed here)"


def predict_program(store: Store, state: State, attempts: Sequence[Attempt]) -> Prediction | None:
    """Predicts the session's current program; None before the baseline and for a reference that could not be captured. Raises
    Damaged if the store has lost what this is computed from."""
    baseline, best, tasks = state.get("baseline"), state.get("best"), state.get("tasks_kept", ())
    if baseline is None:
        return None
    kept = [attempt for attempt in attempts if attempt.kept and attempt.task in tasks]
    ids = [attempt.id for attempt in kept]
    present = kept[: ids.index(best.id) + 1] if best and best.id in ids else ()
    return Predictor(store, state, baseline).after(present)


def predict_history(store: Store, state: State, attempts: Sequence[Attempt]) -> list[Prediction]:
    """Predicts the best program after each attempt; [] where nothing is predicted. Raises Damaged as `predict_program`."""
    baseline = state.get("baseline")
    predictor = Predictor(store, state, baseline) if baseline else None
    latest = predictor.after(()) if predictor else None
    found: list[Prediction] = []
    kept: list[Attempt] = []
    for attempt in attempts:
        if predictor is None or latest is None:
            return []
        if attempt.kept:
            kept.append(attempt)
            latest = predictor.after(kept) or latest
        found.append(latest)
    return found


class Predictor:
    """Predicts programs of one session. Graph, regions and plans are read from the store on first use."""

    def __init__(self, store: Store, state: State, baseline: Baseline) -> None:
        self._store, self._state, self._baseline = store, state, baseline
        self._graph: OpGraph | None = None
        self._regions: dict[str, Region] = {}
        self._tasks: dict[str, Task] = {}

    def after(self, kept: Sequence[Attempt]) -> Prediction | None:
        """Predicts the program of the last of `kept`, the kept attempts up to it; None for an opaque reference."""
        baseline = self._baseline
        if not baseline.predicted_ms:
            return None
        if not kept:
            return Prediction(
                device=baseline.device.name, eager_ms=baseline.predicted_ms, program_ms=baseline.predicted_ms,
                host_saving_ms=0.0, device_saving_ms=0.0,
            )  # fmt: skip
        graph = self._read()
        check = Evidence.model_validate_json(self._store.get(kept[-1].evidence)).check
        replayed = check is not None and "cuda_graph" in check.host_seen
        precision = self._state["settings"].precision if "settings" in self._state else "reference"
        kernels = cost.kernels_of_tasks(graph, self._covered(kept), baseline.device, precision)
        eager = cost.call_cost(graph, (), baseline.device)
        ours = cost.call_cost(graph, kernels, baseline.device, replayed=replayed)
        program_ms = max(ours.ms, baseline.floor_ms)
        saving = eager.ms - program_ms
        host = min(max(saving - (eager.device_ms - ours.device_ms), 0.0), max(saving, 0.0))
        return Prediction(
            device=baseline.device.name, eager_ms=eager.ms, program_ms=program_ms,
            host_saving_ms=host, device_saving_ms=saving - host,
        )  # fmt: skip

    def _covered(self, kept: Sequence[Attempt]) -> list[list[Region]]:
        """Returns, for each task, the regions whose kernels are in the program of the last attempt."""
        generated = _generated(self._store, kept[-1].program)
        taken: set[str] = set()
        seen: set[str] = set()
        found = []
        for attempt in reversed(kept):
            task = self._tasks.get(attempt.task)
            if task is None or task.id in seen:
                continue
            seen.add(task.id)
            present = self._regions.keys() if attempt.claimed else generated
            found.append([self._regions[name] for name in task.regions if name in present and name not in taken])
            taken.update(task.regions)
        return [regions for regions in found if regions]

    def _read(self) -> OpGraph:
        if self._graph is None:
            get, baseline = self._store.get, self._baseline
            plans = [Plan.model_validate_json(get(digest)) for digest in self._state.get("plans", ())]
            self._tasks = {task.id: task for plan in plans for task in plan.tasks}
            self._regions = {region.id: region for region in _REGIONS.validate_json(get(baseline.regions))}
            self._graph = OpGraph.model_validate_json(get(baseline.capture))
        return self._graph


def _generated(store: Store, program: Digest) -> set[str]:
    """Returns the regions whose generated kernels are in a program, by its program.json; an empty set without that file."""
    digest = json.loads(store.get(program))["files"].get("program.json")
    manifest = read_manifest({"program.json": store.get(digest)}) if digest else {}
    return {region["id"] for region in manifest.get("regions") or ()}
