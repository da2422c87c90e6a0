"""What a capture says about a module: operators, memory, state, modes; and why some modules have none."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from stitchcuda.compiler.capture.capture import capture, capture_constants, trace
from stitchcuda.compiler.capture.dependencies import dependencies, memory_owners, writes
from stitchcuda.compiler.capture.op_graph import Literal_, Node, OpGraph, ValueRef
from tests.compiler.pipeline import case
from tests.compiler.zoo import ZOO


def nodes(graph: OpGraph, base: str) -> list[Node]:
    return [node for node in graph.nodes if node.op.split(".")[1] == base]


@pytest.mark.parametrize("name", sorted(ZOO))
def test_capture_leaves_the_module_and_its_inputs_alone(name: str) -> None:
    module, (args, kwargs) = case(name)
    state, given = copy.deepcopy(module.state_dict()), copy.deepcopy((args, kwargs))
    identities = {key: id(value) for key, value in module.named_parameters()}
    capture(module, args, kwargs)
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
    assert {key: id(value) for key, value in module.named_parameters()} == identities
    assert str(given) == str((args, kwargs))


def test_operators_stay_whole_and_know_their_module() -> None:
    module, call = case("transformer")
    graph = capture(module, *call)
    assert len(nodes(graph, "layer_norm")) == 13
    assert len(nodes(graph, "scaled_dot_product_attention")) == 6
    fc1 = nodes(graph, "linear")[2]
    assert (fc1.scope, fc1.scope_type) == ("blocks.0.fc1", "Linear")
    assert not nodes(graph, "dropout"), "dropout does nothing in evaluation mode"


def test_state_is_complete_and_tied_tensors_are_one() -> None:
    module, call = case("transformer")
    graph = capture(module, *call)
    keys = [key for entry in graph.state for key in (entry.key, *entry.tied)]
    assert sorted(keys) == sorted(module.state_dict())
    assert next(entry for entry in graph.state if entry.key == "tokens.weight").tied == ("head.weight",)
    unused = capture(*_flat(case("shared")))
    assert {"unused.weight", "unused.bias"} <= {entry.key for entry in unused.state}


def _flat(
    given: tuple[nn.Module, tuple[tuple[object, ...], dict[str, object]]],
) -> tuple[nn.Module, tuple[object, ...], dict[str, object]]:
    module, (args, kwargs) = given
    return module, args, kwargs


class CallsItsPartsThroughFunctions(nn.Module):
    """As minGPT's block does (KernelBench level 3, problem 44)."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = parts = nn.ModuleDict({"wide": nn.Linear(8, 16), "narrow": nn.Linear(16, 8)})
        self.mlpf: Callable[[Tensor], Tensor] = lambda x: parts["narrow"](torch.tanh(parts["wide"](x)))
        self.widened: Callable[[Tensor], Tensor] = lambda x, given=parts: given["wide"](x)  # type: ignore[misc]
        bound, activation = self.forward_narrow, F.relu

        def inner(x: Tensor, depth: int = 1) -> Tensor:
            return inner(x, depth - 1) if depth else activation(bound(x))

        self.nested: Callable[[Tensor], Tensor] = lambda x: inner(x)
        self.activation = F.relu           # of torch's, and holds nothing of this module

    def forward_narrow(self, x: Tensor) -> Tensor:
        narrow: Tensor = self.mlp["narrow"](x)
        return narrow

    def forward(self, x: Tensor) -> Tensor:
        wide = self.widened(x)
        return self.activation(self.mlpf(x) + wide.sum(-1, keepdim=True)) + self.nested(wide)


def test_parameters_that_a_function_of_the_module_uses_are_state() -> None:
    module = CallsItsPartsThroughFunctions()
    captured = trace(module, (torch.randn(4, 8),), {})
    assert sorted(entry.key for entry in captured.graph.state) == sorted(module.state_dict())
    assert not captured.constants


class Counts(nn.Module):
    """Has attributes that forward sets."""

    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("sums", torch.zeros(8))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.sums += x.sum(0)
        self.last = x * self.sums
        return self.last


def test_a_capture_leaves_attributes_alone() -> None:
    module = Counts()
    assert not capture(module, (torch.randn(4, 8),), {}).opaque
    assert (module.calls, module.last) == (0, None)
    assert not module.sums.any()


def test_updates_of_batch_norm_are_found_in_training_only() -> None:
    trained, evaluated = capture(*_flat(case("residual_train"))), capture(*_flat(case("residual_eval")))
    keys = {entry.spec.name: entry.key for entry in trained.state}
    expected = {f"bn{i}.{name}" for i in (1, 2) for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert {keys[mutation.target] for mutation in trained.mutations} == expected
    assert trained.training
    assert trained.mode_matters
    assert evaluated.mutations == ()
    assert not evaluated.training


def test_inputs_and_views_that_are_written_are_found() -> None:
    graph = capture(*_flat(case("stateful")))
    keys = {entry.spec.name: entry.key for entry in graph.state}
    assert {keys.get(mutation.target, mutation.target) for mutation in graph.mutations} == {
        "count",
        "history",
        "scratch",
        "cache",
    }


def test_in_place_work_on_temporaries_becomes_functional_where_nobody_can_tell() -> None:
    graph = capture(*_flat(case("temporaries")))
    operators = [node.op for node in graph.nodes]
    assert {"aten.relu.default", "aten.mul.Tensor", "aten.clamp.default"} <= set(operators)
    assert "aten.relu_.default" not in operators
    in_place = [node for node in graph.nodes if writes(node)]
    assert {node.op for node in in_place} == {"aten.fill_.Tensor", "aten.add_.Tensor", "aten.copy_.default"}
    assert all(node.aliases is not None for node in in_place)


def test_writes_through_a_view_keep_their_place() -> None:
    graph = capture(*_flat(case("temporaries")))
    order, owner = dependencies(graph), memory_owners(graph)
    fill = next(node for node in graph.nodes if node.op == "aten.fill_.Tensor")
    memory = owner[writes(fill)[0]]
    later = next(node for node in graph.nodes if node.op == "aten.add.Tensor" and owner[node.args[0].value] == memory)  # type: ignore[union-attr]
    assert fill.name in order[later.name]


def test_views_name_the_memory_they_share() -> None:
    module, call = case("shapes")
    graph = capture(module, *call)
    owner = memory_owners(graph)
    split = nodes(graph, "split")[0] if nodes(graph, "split") else nodes(graph, "split_with_sizes")[0]
    assert split.aliases == "x"
    assert len(split.outputs) == 2
    assert owner[nodes(graph, "view")[0].outputs[0].name] == "x"
    assert nodes(graph, "cat")[0].aliases is None


def test_constants_come_with_the_graph() -> None:
    module, call = case("rotary")
    traced = trace(module, *call)
    assert {entry.key for entry in traced.graph.state if not entry.persistent} == {"cos", "sin", "offset"}
    assert set(traced.constants) == {"cos", "sin", "offset"}
    assert torch.equal(capture_constants(module, *call)["cos"], module.get_buffer("cos"))
    again = OpGraph.model_validate_json(traced.graph.model_dump_json())
    assert again.constants == traced.graph.constants != b""


def test_infinities_and_structures_survive_json() -> None:
    graph = capture(*_flat(case("masked")))
    again = OpGraph.model_validate_json(graph.model_dump_json())
    assert nodes(again, "masked_fill")[0].args[2] == float("-inf")
    assert isinstance(again.outputs, dict)
    assert again.outputs["more"][1] is None
    assert isinstance(again.outputs["more"][0], ValueRef)
    assert again.call["kwargs"]["scale"] == 0.5
    assert Literal_(kind="device", text="cpu") in nodes(again, "arange")[0].kwargs.values()


def test_operators_that_nobody_needs_are_left_out() -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x)[0]  # type: ignore[no-any-return]

    graph = capture(Weights(), (torch.randn(1, 3, 4),), {})
    assert not nodes(graph, "mean")


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Item(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.max().item()


class Autocast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


class Nonzero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


@pytest.mark.parametrize("module", [Branch(), Item(), Autocast(), Nonzero()], ids=lambda module: type(module).__name__)
def test_what_depends_on_data_is_opaque_with_a_sentence(module: nn.Module) -> None:
    graph = capture(module, (torch.randn(3, 3),), {})
    assert graph.opaque
    assert "\n" not in graph.opaque
    assert graph.nodes == ()


class Hidden(nn.Module):
    """Calls the kernel behind batch_norm, whose schema hides what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.native_batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1e-5)[0]  # type: ignore[arg-type]


def test_an_update_that_only_functionalisation_sees_is_not_missed() -> None:
    assert "updates mean, variance" in capture(Hidden(), (torch.randn(4, 3),), {}).opaque


def test_train_mode_matters_only_with_layers_that_care() -> None:
    assert not capture(*_flat(case("shared"))).mode_matters
    assert capture(*_flat(case("images"))).mode_matters


def test_the_device_of_a_default_dtype_is_recorded() -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(x, -1) + torch.zeros(3)

    torch.set_default_dtype(torch.float64)
    try:
        graph = capture(Double(), (torch.randn(2, 3),), {})
    finally:
        torch.set_default_dtype(torch.float32)
    assert nodes(graph, "zeros")[0].outputs[0].dtype == "float64"


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(6, 10, **options)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


@pytest.mark.parametrize(("kind", "options"), [
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}), ("LSTM", {"proj_size": 4}),
    ("GRU", {"num_layers": 2}), ("GRU", {"bidirectional": True}),
    ("RNN", {"nonlinearity": "tanh"}), ("RNN", {"nonlinearity": "relu", "bias": False}),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(3, 5, 6), (5, 6)])
@pytest.mark.parametrize("observe", [True, False])
def test_recurrent_layers_are_captured_as_torch_would_step_by_step(
    kind: str, options: dict[str, Any], shape: tuple[int, ...], observe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, given = Recurrent(kind, **options).eval(), torch.randn(shape)
    found = trace(module, (given,), {}, observe=observe)
    monkeypatch.setattr("stitchcuda.compiler.capture.capture.recurrent_layers_at_once", contextlib.nullcontext)
    assert found.graph == trace(module, (given,), {}, observe=observe).graph
    assert not found.graph.opaque


def test_torchs_tables_are_as_before_after_an_export() -> None:
    before = dict(torch.ops.aten.lstm.input.py_kernels)
    trace(Recurrent("LSTM"), (torch.randn(3, 5, 6),), {})
    assert before == torch.ops.aten.lstm.input.py_kernels


class Named(dict[str, Any]):
    """As transformers' ModelOutput: it takes what is no tensor and can be iterated for pairs of names and values."""

    def __init__(self, value: Any) -> None:
        pairs = hasattr(value, "__iter__") and not isinstance(value, Tensor)
        super().__init__(dict(value) if pairs else {"state": value})


pytree.register_pytree_node(
    Named, lambda made: ([made["state"]], None), lambda values, _: Named(next(iter(values))), serialized_type_name="tests.Named"
)


class ReturnsNamed(nn.Module):
    def forward(self, x: Tensor) -> Named:
        return Named(x * 2)


def test_an_output_of_a_class_of_its_own_keeps_its_names() -> None:
    graph = capture(ReturnsNamed(), (torch.randn(3),), {})
    assert list(graph.outputs) == ["state"]
    assert isinstance(graph.outputs["state"], ValueRef)
