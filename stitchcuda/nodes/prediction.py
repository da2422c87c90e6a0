"""Predicts the time of one call of a session's program by the cost model, from the kernels that the program has.

The captured graph is costed twice: as eager torch, and with the program's kernels. The savings that plans predict or claim do
not enter. A task counts as far as its kernels are in the program:

- A region belongs to the latest kept task that names it; an earlier task keeps the regions that no later one names.
- A task of the built-in engineer counts while `program.json` lists its region: a chat model may have removed its kernel.
- CUDA graph replay counts where the last check of the program saw a graph replayed.

torch.compile is not predicted, nor is a program that an agent has changed.

Where to look next: `compiler/regions/present.py` (describes the program), `nodes/report_text.py` and
`sessions/outcome.py` (show predictions).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import TypeAdapter

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.printing.manifest import read_manifest
from stitchcuda.compiler.regions.measured import with_measured
from stitchcuda.compiler.regions.present import PresentProgram, PresentTask, describe_program
from stitchcuda.engineers.attempt_history import saved_by
from stitchcuda.engineers.builtin import CUDA_GRAPH
from stitchcuda.state import Attempt, Baseline, Digest, Evidence, Plan, Record, Region, State, Task
from stitchcuda.store import Store
from stitchcuda.tools.profile.system_profile import short_name

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
    baseline = state.get("baseline")
    return Predictor(store, state, baseline).after(kept_attempts(state, attempts)) if baseline else None


def predict_history(store: Store, state: State, attempts: Sequence[Attempt]) -> list[Prediction]:
    """Predicts the best program after each attempt, up to the first that cannot be predicted. Raises Damaged as
    `predict_program`."""
    baseline = state.get("baseline")
    predictor = Predictor(store, state, baseline) if baseline else None
    latest = predictor.after(()) if predictor else None
    found: list[Prediction] = []
    kept: list[Attempt] = []
    for attempt in attempts:
        if attempt.kept and predictor is not None:
            kept.append(attempt)
            latest = predictor.after(kept)
        if latest is None:
            break
        found.append(latest)
    return found


class Predictor:
    """Describes and predicts programs of one session. Graph, regions and plans are read from the store on first use, the first
    two only where they are not given."""

    def __init__(
        self, store: Store, state: State, baseline: Baseline, graph: OpGraph | None = None, regions: Sequence[Region] = ()
    ) -> None:
        self._store, self._state, self._baseline = store, state, baseline
        self._graph = graph
        self._regions = {region.id: region for region in regions}
        self._tasks: dict[str, Task] | None = None

    def after(self, kept: Sequence[Attempt]) -> Prediction | None:
        """Predicts the program of the last of `kept`, the kept attempts up to it; None for an opaque reference."""
        baseline = self._baseline
        if not baseline.predicted_ms or self.is_open(kept):
            return None
        if not kept:
            return Prediction(
                device=baseline.device.name, eager_ms=baseline.predicted_ms, program_ms=baseline.predicted_ms,
                host_saving_ms=0.0, device_saving_ms=0.0,
            )  # fmt: skip
        found = self.describe(kept)
        program_ms = max(found.ms, baseline.floor_ms)
        saving = baseline.predicted_ms - program_ms  # of the graph as captured; a rewritten one costs more in eager mode
        before = found.eager.device_ms if baseline.predicted_device_ms is None else baseline.predicted_device_ms
        host = min(max(saving - (before - found.device_ms), 0.0), max(saving, 0.0))
        return Prediction(
            device=baseline.device.name, eager_ms=baseline.predicted_ms, program_ms=program_ms,
            host_saving_ms=host, device_saving_ms=saving - host,
        )  # fmt: skip

    def is_open(self, kept: Sequence[Attempt]) -> bool:
        """Whether an agent has changed the program: then nobody knows which operators its kernels replace."""
        self._read()
        tasks = self._tasks or {}
        return any(attempt.task in tasks and tasks[attempt.task].kind == "open" for attempt in kept)

    def describe(self, kept: Sequence[Attempt]) -> PresentProgram:
        """Describes the program of the last of `kept`; the reference in eager mode if there is none. The reference must have
        been captured."""
        graph = self._read()
        evidence = [Evidence.model_validate_json(self._store.get(attempt.evidence)) for attempt in kept]
        check = evidence[-1].check if evidence else None
        replayed = check is not None and "cuda_graph" in check.host_seen
        precision = self._state["settings"].precision if "settings" in self._state else "reference"
        regions = tuple(self._regions.values())
        tasks = [task for task in self._present(kept) if replayed or task.id != CUDA_GRAPH]
        found = describe_program(graph, regions, tasks, self._baseline.device, precision, replayed=replayed)
        if check is None or check.tier not in ("measured", "timed"):
            return found                   # its steps count bytes
        return with_measured(found, check.steps, _kernel_owners(kept, evidence, [task.id for task in tasks]))

    def _present(self, kept: Sequence[Attempt]) -> list[PresentTask]:
        """Returns the tasks that have kernels in the program of the last attempt, and the kept host-side ones, oldest first."""
        generated = _generated(self._store, kept[-1].program) if kept else set()
        taken: set[str] = set()
        found: dict[str, PresentTask] = {}
        for attempt in reversed(kept):
            task = (self._tasks or {}).get(attempt.task)
            if task is None or task.id in found:
                continue
            present = self._regions.keys() if attempt.claimed else generated
            found[task.id] = PresentTask(
                id=task.id, title=task.title,
                regions=tuple(self._regions[name] for name in task.regions if name in present and name not in taken),
                claim_ms=attempt.predicted_ms if attempt.claimed else None, saving_ms=saved_by(kept, task.id),
            )  # fmt: skip
            taken.update(task.regions)
        return [task for task in reversed(found.values()) if task.regions or not (self._tasks or {})[task.id].regions]

    def _read(self) -> OpGraph:
        get, baseline = self._store.get, self._baseline
        if self._tasks is None:
            plans = [Plan.model_validate_json(get(digest)) for digest in self._state.get("plans", ())]
            self._tasks = {task.id: task for plan in plans for task in plan.tasks}
        if not self._regions:
            self._regions = {region.id: region for region in _REGIONS.validate_json(get(baseline.regions))}
        if self._graph is None:
            self._graph = OpGraph.model_validate_json(get(baseline.capture))
        return self._graph


def kept_attempts(state: State, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Returns the kept attempts that made the session's program, oldest first; () for the program without own kernels."""
    best, tasks = state.get("best"), state.get("tasks_kept", ())
    kept = [attempt for attempt in attempts if attempt.kept and attempt.task in tasks]
    ids = [attempt.id for attempt in kept]
    return kept[: ids.index(best.id) + 1] if best and best.id in ids else ()


def _generated(store: Store, program: Digest) -> set[str]:
    """Returns the regions whose generated kernels are in a program, by its program.json; an empty set without that file."""
    digest = json.loads(store.get(program))["files"].get("program.json")
    manifest = read_manifest({"program.json": store.get(digest)}) if digest else {}
    return {region["id"] for region in manifest.get("regions") or ()}


def _kernel_owners(kept: Sequence[Attempt], evidence: Sequence[Evidence], tasks: Sequence[str]) -> dict[str, str]:
    """Returns the task that wrote each own kernel of the last program, by the kernel's short name: the first kept attempt since
    which the program has a kernel of this name. Where that task has nothing left in the program, the next kept one has it."""
    names = [{short_name(usage.name) for usage in found.build.kernels} for found in evidence]
    owners: dict[str, str] = {}
    for name in names[-1] if names else ():
        since = len(kept)
        while since and name in names[since - 1]:
            since -= 1
        task = next((attempt.task for attempt in kept[since:] if attempt.task in tasks), None)
        if task is not None:
            owners[name] = task
    return owners
