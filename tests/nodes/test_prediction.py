"""Predictions of a program: what is in it counts, once; what was taken out, planned or claimed does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import emit
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.lower.lower import bind, lower
from stitchcuda.compiler.printing.manifest import manifest_with_task
from stitchcuda.compiler.printing.program import write_program
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.nodes.prediction import Prediction, Predictor, predict_history, predict_program
from stitchcuda.state import Attempt, Baseline, BuildResult, CheckResult, Evidence, Plan, Settings, State, Task
from stitchcuda.store import Workspace, put_tree
from stitchcuda.tools.device.device import device_facts
from tests.compiler.eager import captured

DEVICE = device_facts("sim")
GRAPH_TASK = "host:cuda_graph"


class Block(torch.nn.Module):
    """Two equal halves of gelu and product, then a residual sum and a norm: regions of one and of two instances."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x + self.second(F.gelu(self.first(F.gelu(x)))), (256,))


GRAPH = captured(Block(), torch.empty(512, 256))
REGIONS = {region.id: region for region in partition(GRAPH)}
FUSIBLE = [name for name, region in REGIONS.items() if region.kind == "fusible"]
WHOLE = [name for name, region in REGIONS.items() if region.kind != "view"]


class Sessions:
    """Makes records of a session that kept some tasks, as the nodes write them."""

    def __init__(self, folder: Path, graph: OpGraph = GRAPH) -> None:
        self.store = Workspace(folder / "workspace").store
        self.graph = graph
        regions = partition(graph)
        put = self.store.put
        self.baseline = Baseline(
            capture=put(graph.model_dump_json().encode()),
            regions=put(json.dumps([region.model_dump(mode="json") for region in regions]).encode()),
            device=DEVICE,
            predicted_ms=cost.eager_ms(graph, regions, DEVICE),
            floor_ms=cost.floor_ms(graph, DEVICE),
        )

    def generated(self, names: Sequence[str], host: Sequence[str] = ()) -> dict[str, str | bytes]:
        """The files of the built-in engineer's program with these regions."""
        kernels = [(name, lower(self.graph, REGIONS[name])) for name in names]
        stitches = [
            Stitch(region=name, kernel=kernel, source=emit(kernel, 0), instances=bind(self.graph, REGIONS[name], kernel))
            for name, kernel in kernels
        ]
        return dict(write_program(self.graph, stitches, tuple(host), reference="", name="block"))

    def kept(
        self, task: str, files: dict[str, str | bytes], *, engineer: str, claim: float = 0.0, replays: bool = False
    ) -> Attempt:
        check = CheckResult(ok=True, tier="simulated", seeds=3, host_seen=("cuda_graph",) if replays else ())
        evidence = Evidence(build=BuildResult(ok=True), check=check, tier="simulated")
        return Attempt(
            id=f"attempt of {task}", parent=None, base=None, task=task, plan_version=1, ordinal=0,
            program=put_tree(self.store, files), evidence=self.store.put(evidence.model_dump_json().encode()), review="",
            tier="simulated", built=True, correct=True, kept=True, route="next_task", route_reason="", predicted_ms=claim,
            engineer=engineer,
        )  # fmt: skip

    def state(self, tasks: Mapping[str, Sequence[str]], kept: Sequence[Attempt]) -> State:
        planned = [Task(id=name, kind="region", title="", regions=tuple(regions)) for name, regions in tasks.items()]
        plan = self.store.put(Plan(version=1, tasks=tuple(planned)).model_dump_json().encode())
        return {
            "baseline": self.baseline, "settings": Settings(), "plans": (plan,), "best": kept[-1] if kept else None,
            "tasks_kept": tuple(attempt.task for attempt in kept),
        }  # fmt: skip

    def by_chat(self, tasks: Mapping[str, Sequence[str]], claim: float = 0.0) -> Prediction:
        """Of a program in which a chat model has stitched these tasks one after the other."""
        kept = [self.kept(name, self.generated(()), engineer="openai:x", claim=claim) for name in tasks]
        found = predict_program(self.store, self.state(tasks, kept), kept)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    return Sessions(tmp_path_factory.mktemp("predictions"))


def test_the_block_has_regions_of_one_and_of_two_instances() -> None:
    assert {len(REGIONS[name].nodes) for name in FUSIBLE} == {1, 2}
    assert any(REGIONS[name].kind == "library" for name in WHOLE)


def test_kernels_of_the_built_in_engineer_cost_what_its_plan_says(made: Sessions) -> None:
    files = made.generated(FUSIBLE, ("cuda_graph",))
    tasks = {GRAPH_TASK: (), **{name: [name] for name in FUSIBLE}}
    kept = [made.kept(task, files, engineer="builtin", replays=True) for task in tasks]
    found = predict_program(made.store, made.state(tasks, kept), kept)
    assert found is not None
    assert found.program_ms == pytest.approx(cost.graph_ms(GRAPH, tuple(REGIONS.values()), FUSIBLE, DEVICE))
    assert found.eager_ms == pytest.approx(made.baseline.predicted_ms)
    issued = [attempt.model_copy(update={"evidence": made.kept("x", files, engineer="").evidence}) for attempt in kept]
    found = predict_program(made.store, made.state(tasks, issued), issued)
    assert found is not None
    assert found.program_ms == pytest.approx(cost.program_ms(GRAPH, tuple(REGIONS.values()), FUSIBLE, DEVICE))


region_sets = st.lists(st.lists(st.sampled_from(WHOLE), min_size=1, unique=True), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=region_sets, claim=st.floats(0, 1e3))
def test_superseded_tasks_and_claims_change_nothing(made: Sessions, parts: list[list[str]], claim: float) -> None:
    tasks = {f"t{number}": regions for number, regions in enumerate(parts)}
    alone = made.by_chat(tasks)
    again = {f"earlier-{name}": regions for name, regions in tasks.items()}
    assert made.by_chat({**again, **tasks}) == alone, "earlier kernels of the same regions are gone"
    assert made.by_chat(tasks, claim) == alone
    assert alone.program_ms >= made.baseline.floor_ms
    assert alone.host_saving_ms + alone.device_saving_ms == pytest.approx(alone.eager_ms - alone.program_ms)
    assert alone.host_saving_ms >= 0


def test_a_task_over_several_regions_is_less_than_its_regions_one_by_one(made: Sessions) -> None:
    apart = made.by_chat({name: [name] for name in WHOLE})
    together = made.by_chat({"one-kernel": WHOLE})
    assert made.baseline.floor_ms <= together.program_ms < apart.program_ms < apart.eager_ms
    inputs_and_weights = 4 * (512 * 256 + 2 * 256 * 256 + 2 * 256)
    (kernel,) = cost.kernels_of_tasks(GRAPH, [[REGIONS[name] for name in WHOLE]], DEVICE)
    products_us = 1e6 * 2 * (2 * 512 * 256 * 256) / (DEVICE.tflops["float32"] * 1e12 * 0.85)
    moved_us = (inputs_and_weights + 4 * 512 * 256) / (DEVICE.bandwidth_gbs * 1e3 * 0.85)
    assert kernel.unit.launches == 1
    assert kernel.unit.device_us == pytest.approx(2.5 + max(products_us, moved_us))


def test_the_bytes_of_a_hand_written_kernel_are_those_at_its_border() -> None:
    graph = captured(lambda x: F.layer_norm(F.softmax(x, -1).view(2, 32, 256), (256,)).sum(0), torch.empty(64, 256))
    regions = partition(graph)
    (kernel,) = cost.kernels_of_tasks(graph, [[region for region in regions if region.kind == "fusible"]], DEVICE)
    whole = 4 * (64 * 256 + 32 * 256)          # x in, the sum out; what is between stays inside
    assert kernel.unit.device_us == pytest.approx(2.5 + whole / (DEVICE.bandwidth_gbs * 1e3 * 0.85))


def test_a_cuda_graph_that_is_gone_is_not_credited(made: Sessions) -> None:
    tasks: dict[str, Sequence[str]] = {GRAPH_TASK: (), "norms": FUSIBLE[:1]}
    first = made.kept(GRAPH_TASK, made.generated((), ("cuda_graph",)), engineer="builtin", replays=True)
    with_it = made.kept("norms", made.generated(()), engineer="openai:x", replays=True)
    without = made.kept("norms", made.generated(()), engineer="openai:x")
    there, gone, never = (
        predict_program(made.store, made.state(tasks, kept), kept) for kept in ([first, with_it], [first, without], [without])
    )
    assert there is not None
    assert gone is not None
    assert there.program_ms < gone.program_ms
    assert there.host_saving_ms > 0.5 * (there.eager_ms - there.program_ms), "a small program waits for the host"
    assert gone == never


def test_what_is_in_the_program_is_told_and_nothing_else(made: Sessions) -> None:
    """A task whose regions a later one serves vanishes, as does a graph that is gone; what is left keeps its claim."""
    one, other = FUSIBLE[:2]
    tasks: dict[str, Sequence[str]] = {GRAPH_TASK: (), "first": [one], "both": [one, other], "part": [other], "streams": ()}
    kept = [made.kept(name, made.generated(()), engineer="openai:x", claim=0.5) for name in tasks]
    found = Predictor(made.store, made.state(tasks, kept), made.baseline).describe(kept)
    assert [(task.id, [region.id for region in task.regions]) for task in found.tasks] == [
        ("both", [one]), ("part", [other]), ("streams", []),
    ]  # fmt: skip
    assert {task.claim_ms for task in found.tasks} == {0.5}
    prediction = Predictor(made.store, made.state(tasks, kept), made.baseline).after(kept)
    assert prediction is not None
    assert prediction.program_ms == found.ms
    nothing = Predictor(made.store, made.state({}, []), made.baseline).describe([])
    assert (nothing.tasks, {node.task for node in nothing.nodes}) == ((), {""})


def test_a_generated_kernel_that_a_chat_model_removed_is_not_credited(made: Sessions) -> None:
    one, other = FUSIBLE[:2]
    before = made.generated([one, other])
    gone = json.loads(str(before["program.json"]))["regions"][0]["kernel"]
    after = {path: text for path, text in before.items() if not path.startswith(f"kernels/{gone}")}
    after["model_new.py"] = "# by hand"
    after["program.json"] = manifest_with_task(after, before, "host:streams", "streams")
    tasks: dict[str, Sequence[str]] = {one: [one], other: [other], "host:streams": ()}
    kept = [made.kept(name, before, engineer="builtin") for name in (one, other)]
    kept.append(made.kept("host:streams", after, engineer="openai:x", claim=0.05))
    both, left = (predict_program(made.store, made.state(tasks, kept[:count]), kept[:count]) for count in (2, 3))
    (region,) = (region["id"] for region in json.loads(str(after["program.json"]))["regions"])
    assert both is not None
    assert left is not None
    assert left.program_ms == pytest.approx(cost.program_ms(GRAPH, tuple(REGIONS.values()), [region], DEVICE))
    assert both.program_ms < left.program_ms
    assert predict_history(made.store, made.state(tasks, kept), kept)[1:] == [both, left]


def test_a_program_that_was_given_up_is_not_what_is_predicted(made: Sessions) -> None:
    tasks: dict[str, Sequence[str]] = {name: [name] for name in FUSIBLE[:2]}
    first, second = [made.kept(name, made.generated(()), engineer="openai:x") for name in tasks]
    now = made.state(tasks, [first])
    assert predict_program(made.store, now, [first, second]) == made.by_chat({FUSIBLE[0]: [FUSIBLE[0]]})
    nothing = predict_program(made.store, made.state(tasks, []), [first, second])
    assert nothing is not None
    assert nothing.speedup == 1
    assert str(nothing).endswith("ms; nothing was timed here)")


def test_it_says_against_what_where_and_whose_saving_it_is() -> None:
    found = Prediction(device="NVIDIA A100", eager_ms=0.142, program_ms=0.106, host_saving_ms=0.021, device_saving_ms=0.015)
    assert str(found) == (
        "1.34× over eager on NVIDIA A100 (0.106 of 0.142 ms; 0.021 ms of the saving is host work, 0.015 ms device time; "
        "nothing was timed here)"
    )


def test_nothing_is_predicted_of_a_reference_that_could_not_be_captured(tmp_path: Path) -> None:
    opaque = OpGraph(inputs=(), call={}, state=(), nodes=(), outputs=None, opaque="it branches on data")
    session = Sessions(tmp_path, opaque)
    kept = [session.kept("t", {"model_new.py": ""}, engineer="openai:x", claim=0.1)]
    state = session.state({"t": ()}, kept)
    assert predict_program(session.store, state, kept) is None
    assert predict_history(session.store, state, kept) == []
    assert predict_program(session.store, {}, []) is None
