"""What a file of training tasks holds, what the filters refuse and say, and that a killed run goes on with the same tasks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.training.tasks import composition, scaling
from stitchcuda.training.tasks.candidate import Candidate, Refusal, TaskConditions, TrainingTask, judge
from stitchcuda.training.tasks.composition import compose
from stitchcuda.training.tasks.decontamination import HeldOut, read_held_out, structure_of
from stitchcuda.training.tasks.filters import Refused, examine
from stitchcuda.training.tasks.folding import folded
from stitchcuda.training.tasks.operator_tables import ACTIVATIONS, OPERATORS

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
FORWARD = "    def forward(self, {}):\n{}\n\n\ndef get_inputs():\n    return [{}]\n\n\ndef get_init_inputs():\n    return []\n"


def text(body: str, inputs: str = "x", made: str = "torch.randn(4, 16)", init: str = "pass") -> str:
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    return (
        HEAD + f"    def __init__(self):\n        super().__init__()\n        {init}\n\n" + FORWARD.format(inputs, lines, made)
    )


@pytest.mark.parametrize(
    ("source", "filter_", "why"),
    [
        (text("return x.missing()"), "runs", "AttributeError"),
        (text("return torch.log(x - 100)"), "finite", ""),
        (text("return F.dropout(x, 0.5)"), "deterministic", "generator"),
        (text("return torch.softmax(x.sum(dim=1, keepdim=True), dim=1)"), "constant", "is constant (1"),
        (text("return self.fc(x * 0 + 1)", init="self.fc = nn.Linear(16, 4)"), "degenerate", "the same for different inputs"),
        (text("return torch.softmax(x + y.sum(dim=1, keepdim=True), dim=1)", "x, y", "torch.randn(4, 16), torch.randn(4, 16)"),
         "every input", "input 1"),
        (text("return x[: int(x.sum().abs()) + 1].exp()"), "exports", ""),
        (text("return torch.relu(torch.exp(x))"), "no dead operator", "relu"),
    ],
)  # fmt: skip
def test_each_filter_refuses_what_it_is_for(source: str, filter_: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        examine(source)
    assert (refused.value.filter, why in refused.value.why) == (filter_, True), refused.value.why


def test_a_sound_task_passes() -> None:
    examine(text("return F.gelu(self.norm(self.fc(x)))", init="self.fc, self.norm = nn.Linear(16, 8), nn.LayerNorm(8)"))


def test_a_whole_operator_has_to_change_the_output() -> None:
    lines = "x = torch.relu(self.fc(x))\n{}return x"
    init = "self.fc = nn.Linear(16, 8)"
    weak, strong = (text(lines.format(f"x = x + {share} * torch.sin(7 * x)\n"), init=init) for share in (0.03, 0.9))
    without = [("layer", text("return self.fc(y)", init=init)), ("sine", text(lines.format(""), init=init))]
    examine(strong, without=without)
    gate = text(lines.format("x = x * torch.sigmoid(0.1 * x[:1] + 2) + 3\n"), init=init)
    with pytest.raises(Refused, match="without the gate, less than 20%"):
        examine(gate, without=[("gate", text(lines.format(""), init=init))])
    with pytest.raises(Refused, match="without the sine, less than 20% of the output changes"):
        examine(weak, without=without)


def test_a_residual_goes_around_something_that_is_not_linear() -> None:
    around = 0
    for seed in range(400):
        draft = compose(random.Random(seed))
        lines = [line for _, line in draft.forward]
        if draft.residual:
            begin = next(at for at, line in enumerate(lines) if line.startswith("identity = "))
            numbers = {number for number, _ in draft.forward[begin + 1 : lines.index("x = x + identity")]}
            assert any(draft.operators[number].bends for number in numbers), seed
            around += 1
    assert around > 50


def test_both_sides_of_a_residual_matter() -> None:
    """A branch that adds next to nothing is refused, though each of its operators changes much."""
    inputs = [("x", "torch.randn(n, f)")]
    draft = composition.Composition("rows", ["n", "f"], {"n": (6, 6), "f": (16, 16)}, inputs=inputs, residual=True)
    for operator in (ACTIVATIONS[0], OPERATORS["rows"]["mix"][2]):
        composition._add(draft, random.Random(0), operator)
    branch = [line for _, line in draft.forward]
    for scale, sound in ((0.01, False), (10.0, True)):
        lines = ["identity = x", *branch, f"x = {scale} * x", "x = x + identity", "x = torch.sin(x)"]
        draft.forward = [(-1, line) for line in lines]
        sides = draft.without_each()[-2:]
        assert [name for name, _ in sides] == ["residual", "branch beside the residual"]
        if sound:
            examine(draft.write(draft.small()), without=sides)
            continue
        with pytest.raises(Refused, match="without the branch beside the residual"):
            examine(draft.write(draft.small()), without=sides)


def test_an_input_of_a_composed_task_has_to_matter_more() -> None:
    source = text("return torch.relu(x) + 0.05 * y", "x, y", "torch.randn(4, 16), torch.randn(4, 16)")
    examine(source)
    with pytest.raises(Refused, match="hardly depend on input 1"):
        examine(source, without=[])


@pytest.mark.parametrize(("layout", "before", "after", "merges"), [
    ("sequence", ["linear layer"], "feed-forward block", True),
    ("sequence", ["feed-forward block"], "causal self-attention", True),
    ("sequence", ["fusion of two sequences"], "causal self-attention", True),
    ("sequence", ["feed-forward block", "layer norm"], "causal self-attention", False),
    ("image", ["pointwise convolution", "flattening into tokens"], "SwiGLU feed-forward block", True),
    ("image", ["pointwise convolution", "ReLU", "flattening into tokens"], "SwiGLU feed-forward block", False),
    ("rows", ["mean over time"], "linear layer", False),
    ("sequence", ["adaptive layer norm"], "feature-wise modulation", True),
    ("image", ["concatenation with a skip connection"], "weight-standardised convolution", True),
    ("image", ["ReLU", "max pooling"], "global max pooling", True),
    ("image", ["time embedding"], "global max pooling", True),
    ("image", ["instance norm", "GELU"], "global average pooling", True),
    ("image", ["batch norm", "GELU"], "global average pooling", False),
    ("matrices", ["layer norm of the rows", "SiLU"], "variance of rows", True),
])  # fmt: skip
def test_what_algebra_would_merge_does_not_follow(layout: str, before: list[str], after: str, merges: bool) -> None:
    tables = [OPERATORS[layout], OPERATORS["sequence"], {"act": ACTIVATIONS}]
    named = {operator.name: operator for table in reversed(tables) for role in table.values() for operator in role}
    assert composition._merges([named[name] for name in before], named[after]) is merges


def test_structure_forgets_names_numbers_and_docstrings() -> None:
    first = structure_of(text("y = self.fc(x)\nreturn torch.relu(y)", init="self.fc = nn.Linear(16, 8)"))
    second = structure_of(
        text("out = self.other(x)\nreturn torch.relu(out)", init="self.other = torch.nn.Linear(99, 7)")
        .replace("class Model", "class Net").replace("        super", '        """Says it."""\n        super')
    )  # fmt: skip
    third = structure_of(text("y = self.fc(x)\nreturn torch.tanh(y)", init="self.fc = nn.Linear(16, 8)"))
    assert first.digest == second.digest != third.digest
    assert first.overlap(second) == 1.0 > first.overlap(third)


def test_what_is_like_a_held_out_file_is_refused(tmp_path: Path) -> None:
    source = text("return torch.relu(self.fc(x))", init="self.fc = nn.Linear(16, 8)")
    (tmp_path / "problem.py").write_text(source)
    outcome = judge(Candidate(0, name="mine", source=source.replace("16", "64")), TaskConditions((tmp_path,)))
    assert isinstance(outcome, Refusal)
    assert (outcome.filter, outcome.why) == ("held out", "100% like problem")


def test_kernelbench_is_held_out_without_its_text() -> None:
    shipped = read_held_out(())
    assert len(shipped.programs) == 270
    name, overlap = shipped.nearest(shipped.programs[20])
    assert overlap == 1.0
    assert name.startswith("level1-")
    assert HeldOut(()).nearest(shipped.programs[0]) == ("", 0.0)


def test_composed_tasks_are_python_in_kernelbench_s_form() -> None:
    for number in range(150):
        draft = compose(random.Random(f"1/{number}"))
        names: dict[str, object] = {}
        exec(compile(draft.write(draft.small()), "task", "exec"), names)
        assert {"Model", "get_inputs", "get_init_inputs"} <= names.keys()
        assert 1 <= len(draft.operators) <= 5


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"name": "a"}\n')
    out = ["--out", str(tmp_path / "out.jsonl"), "--jobs", "1"]
    for arguments, said in (
        (["filter", str(tmp_path / "none.jsonl"), *out], "there is no file"),
        (["filter", str(tmp_path / "rows.jsonl"), *out], "row 1 has no text"),
        (["synthesise", "--held-out", str(tmp_path / "nothing"), *out], "there is no Python file"),
        (["histogram", str(tmp_path / "rows.jsonl")], "is no file of tasks"),
    ):
        result = CliRunner().invoke(app, ["tasks", *arguments])
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.more
def test_a_killed_run_goes_on_with_the_same_tasks(tmp_path: Path) -> None:
    def make(name: str, count: int) -> bytes:
        arguments = ["--count", str(count), "--seed", "4", "--jobs", "1", "--json", "--out", str(tmp_path / name)]
        result = CliRunner().invoke(app, ["tasks", "synthesise", *arguments])
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["tasks"] == count
        return (tmp_path / name).read_bytes()

    straight = make("straight.jsonl", 3)
    make("killed.jsonl", 1)
    with (tmp_path / "killed.jsonl").open("ab") as file:
        file.write(straight.splitlines()[1][:200])  # a line torn by a kill
    assert make("killed.jsonl", 3) == straight
    tasks = [TrainingTask.model_validate_json(line) for line in straight.splitlines()]
    assert all(1.0 <= task.difficulty.eager_ms <= 100.0 and task.nearest[1] < 0.9 for task in tasks)
    again = CliRunner().invoke(app, ["tasks", "synthesise", "--seed", "5", "--out", str(tmp_path / "killed.jsonl")])
    assert again.exit_code == 2
    assert "was begun with made synthesised from seed 4" in again.stderr


@pytest.mark.more
def test_a_table_is_filtered_and_a_crash_of_one_row_stops_nothing(tmp_path: Path) -> None:
    crash = text("import os\nos._exit(1)")
    big = "torch.randn(65536, 8192)"
    small = text("return F.softmax(x.pow(2), dim=-1)")
    good = {"id": "good", "code": text("return F.softmax(x.pow(2), dim=-1)", made=big), "small": small}
    rows = [{"code": crash}, {"code": "no Python ("}, good, {"code": small}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "kept.jsonl"
    arguments = [str(tmp_path / "rows.jsonl"), "--out", str(out), "--json", "--jobs", "1"]
    result = CliRunner().invoke(app, ["tasks", "filter", *arguments])
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert [json.loads(line)["name"] for line in out.read_text().splitlines()] == ["good"]
    assert {name: refused for name, refused in told["refused"].items() if refused} == {"runs": 2, "duplicate": 1}


def test_no_product_or_sum_folds_into_the_one_before() -> None:
    """Two linear operators in a row are one: something that is not linear stands between them."""
    follows = 0
    for seed in range(400):
        pending = False
        for operator in compose(random.Random(seed)).operators:
            assert not (pending and operator.linear), (seed, operator.name)
            follows += operator.linear
            if operator.linear:
                pending = operator.family in ("product", "convolution")
            elif operator.role not in ("move", "join", "norm", "pool") or operator.family == "attention":
                pending = False
    assert follows > 100


def test_each_of_two_operators_of_one_name_is_left_out_by_itself() -> None:
    relu, layer = ACTIVATIONS[0], OPERATORS["rows"]["mix"][0]
    draft = composition.Composition("rows", ["n", "f"], {"n": (6, 6), "f": (16, 16)}, inputs=[("x", "torch.randn(n, f)")])
    for operator in (relu, layer, relu):
        composition._add(draft, random.Random(0), operator)
    lines = [line for _, line in draft.forward]
    assert lines == ["x = F.relu(x)", "x = self.fc(x)", "x = F.relu(x)"]
    steps = [(name, [line.strip() for line in text.splitlines() if "x = " in line]) for name, text in draft.without_each()]
    assert steps == [("ReLU", lines[1:]), ("ReLU", lines[:2])]
    draft.forward[-1] = (2, "x = x + F.relu(x)")
    draft.forward[0] = (0, "x = x + 0.01 * F.relu(x)")
    with pytest.raises(Refused, match="without the ReLU"):
        examine(draft.write(draft.small()), without=draft.without_each())


@pytest.mark.parametrize(("layout", "shape", "expected"), [
    ("image", ["b", "c", "h", "w"],
     "torch.randn(b, c, h, w) * (0.2 + torch.rand(c, 1, 1) + torch.rand(b, 1, 1, 1)) + torch.randn(b, c, 1, 1)"),
    ("sequence", ["b", "l", "d"],
     "torch.randn(b, l, d) * (0.2 + torch.rand(d) + torch.rand(b, 1, 1)) + torch.randn(b, 1, d)"),
    ("rows", ["b", "f"], "torch.randn(b, f) * (0.2 + torch.rand(f) + torch.rand(b, 1)) + torch.randn(f)"),
])  # fmt: skip
def test_inputs_have_samples_and_channels_that_differ(layout: str, shape: list[str], expected: str) -> None:
    assert composition._uneven(layout, shape) == expected


WIDE, NARROW = "self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 8)", "self.a, self.b = nn.Linear(16, 2), nn.Linear(2, 16)"
CONVOLUTIONS = "return self.b(self.a(x.unsqueeze(0)))"


@pytest.mark.parametrize(("init", "line", "why"), [
    (WIDE, "return self.b(self.a(x))", "linear_1 after linear is one product"),
    (WIDE, "return self.b(self.a(x).view(2, 2, 32))", "linear_1 after linear is one product"),
    (WIDE, "return self.b(torch.relu(self.a(x)))", ""),
    (WIDE, "x = self.a(x)\nreturn self.b(x) + x.sum()", ""),
    (NARROW, "return self.b(self.a(x))", ""),
    (WIDE, "x = self.a(x)\nreturn (self.a.weight.sum() + x).mean(dim=0)", "mean of linear is linear of a mean"),
    (WIDE, "return (self.a(x) + self.a(x).relu()).mean(dim=0)", "mean of linear is linear of a mean"),
    (WIDE, "return (self.a(x).relu() + self.a(x).tanh()).mean(dim=0)", ""),
    (WIDE.replace("Linear(32", "Linear(48"), "return self.b(torch.cat([self.a(x), x], dim=1))", "linear_1 after linear"),
    (WIDE.replace("Linear(32", "Linear(48"), "return self.b(torch.cat([self.a(x).relu(), x], dim=1))", ""),
    ("self.a = nn.Linear(16, 32)", "return self.a(x).mean(dim=0)", "mean of linear is linear of a mean"),
    ("self.a, self.b = nn.Linear(16, 4), nn.Linear(2, 8)", "return self.b(self.a(x).view(4, 2, 2))", ""),
    ("self.a, self.b = nn.Conv1d(4, 8, 1), nn.Conv1d(8, 8, 3)", CONVOLUTIONS, "conv1d_1 after conv1d is one product"),
    ("self.a, self.b = nn.Conv1d(4, 8, 3), nn.Conv1d(8, 8, 3)", CONVOLUTIONS, ""),
    ("self.a, self.b = nn.Conv1d(4, 4, 3, groups=4), nn.Conv1d(4, 8, 1)", CONVOLUTIONS, ""),
])  # fmt: skip
def test_two_products_that_are_one_are_found(init: str, line: str, why: str) -> None:
    found = folded(scaling.shape_graph(text(line, init=init)))
    assert why in found if why else not found
