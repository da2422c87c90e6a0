"""A printed program is the reference: same keys, same bits, same side effects, and one clear sentence where it cannot run."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.printing.program import read_manifest, write_program
from stitchcuda.compiler.printing.statement_order import NotConvex, relevant_strides, schedule
from stitchcuda.errors import BadInput
from tests.compiler.pipeline import captured, case, load, memory, run, stitched, tensors, write
from tests.compiler.zoo import ZOO


@pytest.mark.parametrize("name", sorted(ZOO))
def test_a_program_without_kernels_equals_eager_bit_by_bit(name: str, tmp_path: Path) -> None:
    module, call = case(name)
    graph = captured(module, call)
    program = load(write_program(graph, name=name), tmp_path).ModelNew("any", arguments=1)
    program.load_state_dict(module.state_dict())
    for _ in range(2):  # the second call starts from what the first one wrote
        expected, inputs = run(module, call)
        found, touched = run(program, call)
        assert pytree.tree_structure(found) == pytree.tree_structure(pytree.tree_map(lambda leaf: leaf, _plain(expected)))
        for left, right in zip(tensors(expected), tensors(found), strict=True):
            assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
            assert torch.equal(left, right)
        assert memory([*inputs, *tensors(expected)]) == memory([*touched, *tensors(found)])
        for left, right in zip(inputs, touched, strict=True):
            assert torch.equal(left, right)
        state, own = module.state_dict(), program.state_dict()
        assert state.keys() == own.keys()
        assert all(torch.equal(state[key], own[key]) for key in state)
        hidden = dict(module.named_buffers())
        assert all(torch.equal(hidden[key], value) for key, value in program.named_buffers() if key in hidden)


def _plain(result: Any) -> Any:
    """Named tuples become tuples in a program."""
    if isinstance(result, dict):
        return {key: _plain(part) for key, part in result.items()}
    if isinstance(result, list):
        return [_plain(part) for part in result]
    return tuple(_plain(part) for part in result) if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", ["transformer", "rotary", "residual_train", "reductions", "stateful"])
def test_the_same_arguments_give_the_same_bytes(name: str) -> None:
    first, second = captured(*case(name)), captured(*case(name))
    assert write_program(first, stitched(first)) == write_program(second, stitched(second))


def test_parameters_are_nan_until_they_are_loaded(tmp_path: Path) -> None:
    program = load(write_program(captured(*case("residual_eval"))), tmp_path).ModelNew()
    assert all(value.isnan().all() for value in program.parameters())
    assert int(program.state_dict()["bn1.num_batches_tracked"]) == 0
    assert not any(value.requires_grad for value in program.parameters())


def test_recurrent_layers_keep_their_weights_as_cudnn_wants_them(tmp_path: Path) -> None:
    program = load(write_program(captured(*case("recurrent"))), tmp_path).ModelNew()
    assert isinstance(program.lstm, nn.LSTM)
    assert (program.lstm.num_layers, program.lstm.bidirectional, program.gru.hidden_size) == (2, True, 5)
    assert all(one is other for one, other in zip(program.lstm._flat_weights, program.lstm.parameters(), strict=True))
    assert all(value.isnan().all() for value in program.parameters())


def test_tied_parameters_stay_one_tensor(tmp_path: Path) -> None:
    program = load(write_program(captured(*case("transformer"))), tmp_path).ModelNew()
    assert program.head.weight is program.tokens.weight


def test_repeated_blocks_are_one_method(tmp_path: Path) -> None:
    text = write_program(captured(*case("transformer")))["model_new.py"]
    assert isinstance(text, str)
    assert text.count("def run_blocks") == 1
    assert text.count("self.run_blocks(self.blocks[") == 6
    assert "blocks.*.attn (Attention)" in text


def test_a_program_survives_copying_and_half_precision_state(tmp_path: Path) -> None:
    module, call = case("residual_eval")
    program = load(write_program(captured(module, call)), tmp_path).ModelNew()
    program.load_state_dict(module.state_dict())
    again = copy.deepcopy(program)
    assert torch.equal(run(again, call)[0], run(module, call)[0])


def _refused(program: nn.Module, *args: Any, **kwargs: Any) -> str:
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        program(*args, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_what_the_program_was_not_made_for_is_refused_in_one_sentence(tmp_path: Path) -> None:
    module, (args, _) = case("residual_eval")
    program = load(write_program(captured(module, (args, {}))), tmp_path).ModelNew()
    program.load_state_dict(module.state_dict())
    x = args[0]
    assert "shape (2, 4, 5, 6)" in _refused(program, torch.randn(2, 4, 5, 6))
    assert ".to(torch.float32)" in _refused(program, x.double())
    assert "x.contiguous()" in _refused(program, x.transpose(2, 3))
    assert "must be a tensor" in _refused(program, [1.0])
    assert "detach the input" in _refused(program, x.clone().requires_grad_())
    with torch.no_grad():
        program(x.clone().requires_grad_())
    assert "call .eval() first" in _refused(program.train(), x)
    program.eval()(x)


def test_the_mode_does_not_matter_where_nothing_depends_on_it(tmp_path: Path) -> None:
    module, call = case("shared")
    program = load(write_program(captured(module, call)), tmp_path).ModelNew()
    program.load_state_dict(module.state_dict())
    assert torch.equal(run(program.train(), call)[0], run(program.eval(), call)[0])


def test_baked_arguments_cannot_be_changed(tmp_path: Path) -> None:
    module, call = case("nested")
    program = load(write_program(captured(module, call)), tmp_path).ModelNew()
    (pair, options, _), _ = call
    assert "power is fixed at 2" in _refused(program, pair, options, 3)
    program(pair, options, 2)


def test_the_manifest_says_what_the_program_is(tmp_path: Path) -> None:
    graph = captured(*case("residual_train"))
    files = write_program(graph, stitched(graph), reference="class Model: ...", name="residual")
    manifest = read_manifest(files)
    assert manifest["mode"] == "train"
    assert manifest["updates"] == sorted(manifest["updates"], key=manifest["updates"].index)
    assert {"bn1.running_mean", "bn2.running_var", "bn1.num_batches_tracked"} <= set(manifest["updates"])
    assert manifest["shape_guard"] == [{"name": "x", "shape": [2, 4, 5, 5], "dtype": "float32", "strides": [100, 25, 5, 1]}]
    assert manifest["tasks"] == [stitch.region for stitch in stitched(graph)]
    assert all(path in files for kernel in manifest["kernels"] for path in kernel["files"])
    assert manifest["regions"][0]["title"] == "batch_norm + relu"
    with pytest.raises(BadInput, match=r"program\.json"):
        read_manifest({})


def test_a_program_with_kernels_says_early_that_there_is_no_gpu(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    graph = captured(*case("residual_eval"))
    for host in ((), ("cuda_graph",)):
        module = load(write_program(graph, stitched(graph) if not host else (), host), tmp_path / str(len(host)))
        with pytest.raises(RuntimeError, match=r"runs on an NVIDIA GPU, and torch sees none on this machine\."):
            module.ModelNew()


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_region_of_the_zoo_can_be_scheduled(name: str) -> None:
    graph = captured(*case(name))
    files = write_program(graph, stitched(graph), ("cuda_graph",) if graph.inputs else ())
    compile(files["model_new.py"], name, "exec")


def _add_twice(stitch: Stitch, values: tuple[str, ...]) -> Stitch:
    return replace(stitch, instances=(values,))


def test_a_region_with_something_in_between_is_refused() -> None:
    class Between(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            return y + torch.softmax(y, -1)

    graph = capture(Between(), (torch.randn(4, 4),), {})
    first = stitched(capture(_Pair(), (torch.randn(4, 4), torch.randn(4, 4)), {}))[0]
    last = graph.nodes[-1].outputs[0].name
    middle = next(node.outputs[0].name for node in graph.nodes if "softmax" in node.op)
    start = graph.nodes[0].outputs[0].name
    arguments = first.kernel.arguments
    assert [argument.role for argument in arguments] == ["in", "in", "out", "out"]
    with pytest.raises(NotConvex, match=first.region):
        schedule(graph, [_add_twice(first, ("x", middle, start, last))])


class _Pair(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x + 1
        return z, z + y


def test_a_stitch_that_does_not_fit_is_refused() -> None:
    graph = captured(*case("transformer"))
    stitch = stitched(graph)[0]
    values = stitch.instances[0]
    with pytest.raises(ValueError, match="kernel arguments"):
        schedule(graph, [replace(stitch, instances=(values[:-1],))])
    with pytest.raises(ValueError, match="does not fit"):
        schedule(graph, [replace(stitch, instances=((graph.state[-1].spec.name, *values[1:]),))])
    with pytest.raises(ValueError, match="same name"):
        write_program(graph, [stitch, stitch])
    with pytest.raises(ValueError, match="host feature"):
        write_program(graph, host=("teleport",))


def test_what_could_not_be_captured_runs_as_the_reference(tmp_path: Path) -> None:
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1 if x.sum() > 0 else x\n"
    )
    scope: dict[str, Any] = {}
    exec(source, scope)
    graph = capture(scope["Model"](), (torch.ones(2),), {})
    assert graph.opaque
    files = write_program(graph, reference=source, name="branchy")
    program = load(files, tmp_path).ModelNew()
    assert torch.equal(program(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(program(-torch.ones(2)), -torch.ones(2))
    assert read_manifest(files)["opaque"] == graph.opaque
    with pytest.raises(BadInput, match=r"give a \.py file"):
        write_program(graph, reference="# a pickle")
    with pytest.raises(ValueError, match="not captured"):
        write_program(graph, host=("cuda_graph",), reference=source)


def test_writing_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(captured(*case("rotary")).model_dump_json())
    code = (
        "import sys; from pathlib import Path; from stitchcuda.compiler.capture.op_graph import OpGraph;"
        "from stitchcuda.compiler.printing.program import write_program;"
        f"write_program(OpGraph.model_validate_json(Path({str(tmp_path / 'graph.json')!r}).read_text()));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("stateful", False), pytest.param("residual_train", True, marks=pytest.mark.more),
        pytest.param("temporaries", True, marks=pytest.mark.more), pytest.param("shapes", False, marks=pytest.mark.more),
    ],
)  # fmt: skip
def test_replayed_programs_run_on_the_simulator(name: str, kernels: bool, tmp_path: Path) -> None:
    module, call = case(name)
    graph = captured(module, call)
    write(write_program(graph, stitched(graph) if kernels else (), ("cuda_graph",)), tmp_path)
    torch.save({"state": module.state_dict(), "call": call}, tmp_path / "given.pt")
    subprocess.run([sys.executable, str(Path(__file__).with_name("simulated_program.py")), str(tmp_path)], check=True)
    results = torch.load(tmp_path / "results.pt")
    for found, touched, state in results:
        expected, inputs = run(module, call)
        for left, right in zip(tensors(_plain(expected)), tensors(found), strict=True):
            torch.testing.assert_close(right, left)
            assert left.stride() == right.stride()
        for left, right in zip(inputs, touched, strict=True):
            torch.testing.assert_close(right, left)
        for key, value in module.state_dict().items():
            torch.testing.assert_close(state[key], value)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(ZOO))
@pytest.mark.parametrize("host", [(), ("cuda_graph",)], ids=["plain", "graph"])
def test_programs_equal_eager_on_a_gpu(name: str, host: tuple[str, ...], tmp_path: Path) -> None:
    module, call = case(name, "cuda")
    graph = captured(module, call)
    if host and not graph.inputs:
        pytest.skip("nothing to copy in")
    program = load(write_program(graph, stitched(graph), host), tmp_path).ModelNew().to("cuda")
    program.load_state_dict(module.state_dict())
    for round in range(4):
        if round == 2:  # new memory and new values: a recorded graph must notice
            state = {key: value * 1 for key, value in module.state_dict().items()}
            program.load_state_dict(state, assign=True)
        expected, inputs = run(module, call)
        found, touched = run(program, call)
        for left, right in zip(tensors(_plain(expected)), tensors(found), strict=True):
            assert left.stride() == right.stride()
            torch.testing.assert_close(right, left)
        assert memory([*inputs, *tensors(expected)]) == memory([*touched, *tensors(found)])
        for left, right in zip(inputs, touched, strict=True):
            torch.testing.assert_close(right, left)
        for key, value in module.state_dict().items():
            torch.testing.assert_close(program.state_dict()[key], value)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_fake_strides_are_the_cpus_own(name: str) -> None:
    module, call = case(name)
    assert _layout(capture(module, *call, observe=False)) == _layout(capture(module, *call, observe=True))


def _layout(graph: OpGraph) -> list[Any]:
    """Everything known of the nodes; strides where they matter (of sizes over 1)."""
    rows = []
    for node in graph.nodes:
        outputs = [(spec.name, spec.shape, spec.dtype, relevant_strides(spec.shape, spec.strides)) for spec in node.outputs]
        rows.append((node.name, node.op, node.aliases, outputs))
    return rows
