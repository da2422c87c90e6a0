"""References: what is loaded, what is refused and how, and the float64 run that everything is compared with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor, nn

from stitchcuda.errors import BadInput
from stitchcuda.verify.reference import float64_truth
from stitchcuda.verify.reference import reference as reference_module
from stitchcuda.verify.reference.float64_truth import (
    name_outputs,
    run,
    run64,
    run_row64,
    run_row_in_precision,
    second_run,
)
from stitchcuda.verify.reference.reference import load_reference

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
GOOD = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(2, 4)]


def get_init_inputs():
    return [4]
"""


def reference(tmp_path: Path, source: str, name: str = "reference.py") -> Path:
    path = tmp_path / name
    path.write_text(source)
    return path


def refusal(path: Path, *, examine: bool = False, seconds: float = 0.0) -> str:
    def use() -> None:
        loaded = load_reference(path, seconds=seconds)
        loaded.inputs(0)
        if examine:
            loaded.examine()

    with pytest.raises(BadInput) as caught:
        use()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_a_file_gives_the_same_weights_every_time_and_inputs_by_seed(tmp_path: Path) -> None:
    path = reference(tmp_path, GOOD)
    one, other = load_reference(path), load_reference(path)
    assert torch.equal(one.module.linear.weight, other.module.linear.weight)  # type: ignore[union-attr, arg-type]
    assert torch.equal(one.inputs(3)[0][0], other.inputs(3)[0][0])
    assert not torch.equal(one.inputs(3)[0][0], one.inputs(4)[0][0])
    assert one.module.training
    assert one.source == GOOD
    assert len(one.sha) == 64
    assert list(one.examine()) == ["output"]
    assert not any(parameter.requires_grad for parameter in one.module.parameters())


@pytest.mark.parametrize("given", ["[[4], {}]", "[[], {'width': 4}]", "{'width': 4}", "(4,)"])
def test_constructor_arguments_in_all_forms(given: str, tmp_path: Path) -> None:
    path = reference(tmp_path, GOOD.replace("return [4]", f"return {given}"))
    assert load_reference(path).module.linear.weight.shape == (4, 4)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("class Model", "class Mdl"), "no class Model"),
        (("def get_inputs", "def inputs"), "no function get_inputs()"),
        (
            ("return [torch.randn(2, 4)]", "return [torch.rand(2, 4) / nothing]"),
            "get_inputs() raises NameError: name 'nothing'",
        ),
        (("return [torch.randn(2, 4)]", "return 4"), "get_inputs() in reference.py returns an object of type int"),
        (("return [torch.randn(2, 4)]", "return [torch.ones(2, 4).to_sparse()]"), "The inputs of reference.py hold a sparse"),
        (
            ("return [torch.randn(2, 4)]", "return [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])]"),
            "The inputs of reference.py hold a sparse, nested",
        ),
        (
            ("super().__init__()", "super().__init__(); self.register_buffer('few', torch.eye(4).to_sparse_csr())"),
            "Model in reference.py holds a sparse",
        ),
        (("super().__init__()", "raise ValueError('too wide')"), "constructor of Model raises ValueError: too wide (line 8"),
        (("return [4]", "return [4, 5, 6]"), "get_init_inputs() gives 3 values, but Model.__init__ takes (width) (line 7"),
        (("def get_init_inputs", "def inits"), "There is no get_init_inputs(), but Model.__init__ takes (width) (line 7"),
        (("__init__(self, width):", "__init__(self, w, *a, b=width):"), "Importing reference.py raises NameError"),
        (("super().__init__()", "super().__init__(); None + 1"), "constructor of Model raises TypeError: unsupported operand"),
        (("return [4]", "return [4 / 0]"), "get_init_inputs() raises ZeroDivisionError"),
        (("import torch\n", "import torch, not_a_module\n"), "Importing reference.py raises ModuleNotFoundError"),
        (("import torch\n", "import torch\nexit(1)\n"), "Importing reference.py raises SystemExit"),
        (("def forward(self, x):", "def forward(self, x:"), "not valid Python in line 11"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused_in_one_sentence(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    assert change[0] in GOOD
    assert said in refusal(reference(tmp_path, GOOD.replace(*change)))


def test_a_module_of_ones_own_is_named_with_a_remedy(tmp_path: Path) -> None:
    said = refusal(reference(tmp_path, GOOD.replace("import torch\n", "import torch\nfrom my_layers import Wide\n", 1)))
    assert "ModuleNotFoundError: No module named 'my_layers'" in said
    assert "a reference is stored as one file" in said


@pytest.mark.parametrize("given", ["torch.ones(3)", "[torch.ones(3)]", "{'start': torch.ones(3)}"])
def test_what_the_constructor_was_called_with_is_kept_as_it_was(given: str, tmp_path: Path) -> None:
    source = GOOD.replace("return [4]", f"return {given}").replace("def __init__(self, width):", "def __init__(self, start):")
    source = source.replace("nn.Linear(width, width)", "nn.Linear(4, 4)\n        start.zero_()")
    args, kwargs = load_reference(reference(tmp_path, source)).init
    (start,) = (*args, *kwargs.values())
    assert start.tolist() == [1, 1, 1]


def test_inputs_that_share_memory_go_on_sharing_it() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x.add_(1)
            return y * 2

    base = torch.randn(8)
    for found in (run(Writes(), (base[:6], base[2:]), {}), run64(Writes(), (base[:6], base[2:]), {})):
        assert set(found) == {"output", "input:0", "input:1"}
        expected = torch.cat([base[2:6] + 1, base[6:]]).to(found["output"].dtype)
        torch.testing.assert_close(found["input:1"], expected)
        torch.testing.assert_close(found["output"], 2 * expected)


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    assert "There is no reference at" in refusal(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert "pipe.py is no regular file" in refusal(tmp_path / "pipe.py")
    assert "cannot be read (Input/output error)" in refusal(Path("/proc/self/mem"))
    assert "neither a .py file nor a .pkl" in refusal(reference(tmp_path, "", "model.txt"))
    assert "cannot be unpickled" in refusal(reference(tmp_path, "no pickle", "model.pkl"))
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9")
    assert "not UTF-8" in refusal(tmp_path / "latin.py")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("'text'", "gives an object of type str as output"),
        ("(y, [y, 3])", "gives an object of type int as output.1.1"),
        ("None", "only empty tensors"),
        ("y[:0]", "only empty tensors"),
        ("y.to_sparse()", "a sparse, nested or quantised tensor as output"),
        ("torch.nested.nested_tensor([y[0], y[1][:3]])", "a sparse, nested or quantised tensor as output"),
        ("y + None", "The reference's forward raises TypeError: unsupported operand"),
        ("y * __import__('random').random()", "different results for the same inputs"),
        ("y * __import__('numpy').random.rand()", "for the same inputs: it draws random numbers with Python's random"),
        ("y * 10.0 ** (__import__('time').time_ns() % 99991 / 3000)", "different results for the same inputs"),
        ("torch.dropout(y, 0.5, True) * __import__('random').random()", "different results for the same inputs"),
        ("y + self.__dict__.setdefault('cache', torch.rand(2, 4))", "other results on a second call"),
        ("y.reshape(3, 3)", "forward raises RuntimeError"),
        pytest.param("y.cuda()", "there is no GPU here: remove .cuda()", marks=WITHOUT_GPU),
        ("y.new_empty(1 << 44)", "forward raises MemoryError: 65536.0 GiB more than there is room for: use smaller inputs"),
        ("self.__dict__.setdefault('cache', y) * y", "other results on a second call"),
        ("(self.__dict__.setdefault('calls', []).append(0), y * len(self.calls))[1]", "other results on a second call"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_sentence(result: str, said: str, tmp_path: Path) -> None:
    source = GOOD.replace("return self.linear(x)", f"y = self.linear(x)\n        return {result}")
    assert said in refusal(reference(tmp_path, source), examine=True)


@pytest.mark.parametrize(
    ("takes", "gives", "said"),
    [
        ("x, y", "[torch.ones(2, 4)] * 3", "get_inputs() gives 3 values, but forward takes (x, y) (line 11 of reference.py)"),
        ("x, y", "[torch.ones(2, 4)]", "get_inputs() gives 1 value, but forward takes (x, y) (line 11 of reference.py)"),
        ("", "[torch.ones(2, 4)]", "get_inputs() gives 1 value, but forward takes nothing (line 11 of reference.py)"),
        ("x, *, of: int = 3", "[torch.ones(2, 4)] * 2", "gives 2 values, but forward takes (x, *, of=…) (line 11"),
        ("x, y=1", "{'x': 1, 'z': 2}", "gives values for x, z, but forward takes (x, y=…)"),
        ("x", "[[torch.ones(2, 4)], {'z': 2}]", "gives 1 value and values for z, but forward takes (x)"),
    ],
)
def test_inputs_that_forward_does_not_take(takes: str, gives: str, said: str, tmp_path: Path) -> None:
    source = GOOD.replace("forward(self, x)", f"forward(self, {takes})").replace("[torch.randn(2, 4)]", gives)
    assert said in refusal(reference(tmp_path, source), examine=True)


def test_a_pickle_whose_inputs_do_not_fit(tmp_path: Path) -> None:
    said = refusal(pickled(tmp_path, nn.Identity(), torch.ones(2), torch.ones(3)), examine=True)
    assert said == "the pickle model.pkl gives 2 values, but forward takes (input)."


def test_what_a_hook_makes_fit_is_fine(tmp_path: Path) -> None:
    hook = "self.register_forward_pre_hook(lambda module, args, kwargs: ((args[0],), {}), with_kwargs=True)"
    source = GOOD.replace("        self.linear", f"        {hook}\n        self.linear").replace("4)]", "4), 3]")
    assert list(load_reference(reference(tmp_path, source)).examine()) == ["output"]


SLEEPLESS = "while True:\n        try: nothing\n        except Exception: pass\n    "


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("import torch\n", "import torch\nwhile True: pass\n"), "Importing reference.py and constructing its Model did not"),
        (("super().__init__()", "while True: pass"), "did not end within 1 s and was stopped, in line 8:"),
        (("return [4]", "import time; time.sleep(99)"), "within 1 s and was stopped, in line 20:"),
        (("return [torch.randn(2, 4)]", f"{SLEEPLESS}return [torch.randn(2, 4)]"), "get_inputs() of reference.py did not"),
    ],
)
def test_a_reference_that_does_not_end_is_stopped(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    assert said in refusal(reference(tmp_path, GOOD.replace(*change, 1)), seconds=0.6)


def test_a_bound_that_was_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    load_reference(reference(tmp_path, GOOD), seconds=0.5).inputs(0)
    assert before == (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0)


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ("{'a': y, 'b': (y, None, [y])}", ["output.a", "output.b.0", "output.b.2.0"]),
        ("(y[:0], y)", ["output.0", "output.1"]),
        ("y.argmax(-1)", ["output"]),
        ("__import__('collections').namedtuple('Pair', 'a b')(y, None)", ["output.0"]),
        ("__import__('dataclasses').make_dataclass('Out', ['loss', 'all'])(None, [y, y])", ["output.all.0", "output.all.1"]),
        ("y.double()", ["output"]),
    ],
)
def test_nested_integer_empty_and_wide_results_are_fine(result: str, names: list[str], tmp_path: Path) -> None:
    source = GOOD.replace("return self.linear(x)", f"y = self.linear(x)\n        return {result}")
    assert list(load_reference(reference(tmp_path, source)).examine()) == names


def pickled(tmp_path: Path, module: nn.Module, *args: Any, **kwargs: Any) -> Path:
    path = tmp_path / "model.pkl"
    path.write_bytes(cloudpickle.dumps({"module": module, "args": args, "kwargs": kwargs}))
    return path


def test_a_pickle_gives_fresh_inputs_in_the_same_layout(tmp_path: Path) -> None:
    x, ids, mask = torch.rand(3, 8)[:, ::2].t(), torch.tensor([5, 5, 9]).expand(2, 3), torch.eye(3, dtype=torch.bool)
    loaded = load_reference(pickled(tmp_path, nn.Identity(), x, [ids, 3], mask=mask))
    (y, (other, three)), named = loaded.inputs(1)
    assert three == 3
    assert (y.shape, y.stride(), y.dtype) == (x.shape, x.stride(), x.dtype)
    assert sorted(y.flatten().tolist()) == sorted(x.flatten().tolist()), "what is never negative stays so"
    assert other.stride() == (0, 1)
    assert set(other.flatten().tolist()) <= {5, 9}
    assert sorted(named["mask"].flatten().tolist()) == sorted(mask.flatten().tolist())
    assert torch.equal(y, loaded.inputs(1)[0][0])
    assert not torch.equal(y, loaded.inputs(2)[0][0])


def test_a_pickles_inputs_keep_what_gives_them_sense(tmp_path: Path) -> None:
    mask = torch.zeros(9, 9).masked_fill(torch.ones(9, 9).triu(1) > 0, -torch.inf)
    kept = torch.tensor([0, 3, 9, 14, 20, 21, 30, 44, 50]), mask, torch.rand(8, 4).softmax(-1), torch.ones(3)
    x = 3 + 0.1 * torch.randn(4000)
    loaded = load_reference(pickled(tmp_path, nn.Identity(), *kept, x - 3))
    (*made, y), _ = loaded.inputs(1)
    assert all(map(torch.equal, made, kept))
    assert 0.09 < float(y.std()) < 0.11


def test_a_pickle_may_hold_a_function_that_makes_its_inputs(tmp_path: Path) -> None:
    def stored(make: object) -> Path:
        (tmp_path / "model.pkl").write_bytes(cloudpickle.dumps({"module": nn.Identity(), "make_inputs": make}))
        return tmp_path / "model.pkl"

    loaded = load_reference(stored(lambda: {"input": torch.rand(3) + 5}))
    (given, named), (_, again) = loaded.inputs(1), loaded.inputs(1)
    assert given == ()
    assert bool((named["input"] >= 5).all())
    assert torch.equal(named["input"], again["input"]), "it is seeded"
    assert not torch.equal(named["input"], loaded.inputs(2)[1]["input"])
    with pytest.raises(BadInput, match=r"make_inputs\(\) raises ZeroDivisionError"):
        load_reference(stored(lambda: 1 / 0)).inputs(1)
    with pytest.raises(BadInput, match=r"make_inputs\(\) in model.pkl returns an object of type int: return a list"):
        load_reference(stored(lambda: 7)).inputs(1)


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        self.calls += 1  # type: ignore[assignment, operator]
        cache.mul_(2)
        return self.norm(x) + cache  # type: ignore[no-any-return]


def test_what_a_call_writes_is_part_of_its_result() -> None:
    module, x, cache = Buffered(), torch.randn(5, 4), torch.ones(4)
    before = module.norm.running_mean
    assert before is not None
    kept = before.clone()
    names = {"output", "buffer:calls", "buffer:norm.running_mean", "buffer:norm.running_var", "buffer:norm.num_batches_tracked"}
    assert set(run(module, (x, cache), {})) == names | {"input:1"}
    assert torch.equal(before, kept)
    assert torch.equal(cache, torch.ones(4))
    exact = run64(module, (x, cache), {})
    assert set(exact) == names | {"input:1"}
    assert exact["buffer:norm.running_mean"].dtype == torch.float64


class Careless(nn.Module):
    """Casts, factories and constants that would round in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4, dtype=torch.bfloat16))
        self.offset = torch.tensor([0.1, 0.2, 0.3, 0.4])

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        y = (x.half().float() @ self.weight.float()).to(torch.float16)
        y = torch.softmax(y, -1, dtype=torch.float32) + torch.full((4,), 1 / 3, dtype=torch.float32)
        y = y + self.offset * torch.tensor(0.1) + torch.zeros(4, dtype=torch.bfloat16).fill_(0.1)
        return y, y.sum(dtype=torch.float32), ids.float() / 3, ids + 1


def test_the_float64_run_rounds_nowhere() -> None:
    module, x, ids = Careless(), torch.randn(3, 4), torch.arange(4)
    found = run64(module, (x, ids), {})
    wide = module.weight.double()
    y = torch.softmax(x.double() @ wide, -1) + 1 / 3
    y = y + module.offset.double() * 0.1 + 0.1
    torch.testing.assert_close(found["output.0"], y, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(found["output.1"], y.sum(), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(found["output.2"], ids.double() / 3, rtol=1e-15, atol=0)
    assert found["output.3"].dtype == torch.int64
    assert run(module, (x, ids), {})["output.0"].dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32


@pytest.fixture(params=[False, True], ids=["copies", "put back"])
def _room_for_copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for copies of the state, and with so little that the module's own memory is used and put back."""
    monkeypatch.setattr(float64_truth, "_is_scarce", lambda tensors: request.param)


@pytest.mark.usefixtures("_room_for_copies")
def test_what_is_returned_of_the_state_stays_as_it_was() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.Buffer(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.steps.add_(x)
            return self.steps[:2]

    module, x, other = Counts(), torch.ones(3), 5 * torch.ones(3)
    for found in (run(module, (x,), {}), second_run(module, ((other,), {}), ((x,), {}))[0], run64(module, (x,), {})):
        assert {name: value.tolist() for name, value in found.items()} == {"output": [1, 1], "buffer:steps": [1, 1, 1]}
    assert module.steps.tolist() == [0, 0, 0]


@pytest.mark.usefixtures("_room_for_copies")
def test_calls_in_a_row_find_what_the_one_before_left() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Buffer(torch.zeros(2))
            self.begun = nn.Buffer(torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = x + self.last
            self.last = x  # type: ignore[assignment]
            if not self.begun:
                self.begun.add_(1)
            return y

    module = Remembers()
    row: list[Any] = [((torch.full((2,), value),), {}) for value in (1.0, 2.0, 3.0)]
    for found in (run_row_in_precision(module, row, "reference", "cpu"), run_row64(module, row)):
        assert [outputs["output"].tolist() for outputs in found] == [[1, 1], [3, 3], [5, 5]]
        assert [outputs["buffer:last"].tolist() for outputs in found] == [[1, 1], [2, 2], [3, 3]]
        assert [list(outputs) for outputs in found] == 3 * [["output", "buffer:last", "buffer:begun"]]
    assert module.last.tolist() == [0, 0]


def test_habits_of_a_call() -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, parts: list[Tensor]) -> Any:
            y = parts.pop() * 2
            torch.rand(1)
            return [y, y[1:], self.weight, None]

    def arguments() -> Any:
        return ([torch.ones(3)],), {}

    habits = second_run(Takes(), arguments(), arguments())[1]
    assert habits.structure == {"list": [{"tensor": 0}, {"tensor": 1}, {"tensor": 2}, None]}
    assert (habits.lent, habits.overlapping) == (("output.2",), (("output.0", "output.1"),))
    assert (habits.changes_arguments, habits.moves_generators, habits.settings) == (True, True, ())


@pytest.mark.usefixtures("_room_for_copies")
def test_a_run_leaves_the_module_as_it_was() -> None:
    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.second.weight = self.first.weight
            self.steps, self.view = nn.Buffer(torch.zeros(2)), nn.Buffer(torch.ones(4, 4)[:, ::2])
            self.scale: Callable[[Tensor], Tensor] = lambda x: x * self.first.bias  # refers to this very module
            self.cache: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            assert self.first.weight is self.second.weight
            self.steps.add_(1)
            self.view[0, 0] = 7
            self.cache = x
            self.extra = self.steps.clone()
            return self.scale(self.first(x))

    module, x = Changes(), torch.randn(3, 2)
    held = {name: (tensor, tensor.clone(), tensor.data_ptr()) for name, tensor in module.state_dict(keep_vars=True).items()}
    plain, exact = run(module, (x,), {}), run64(module, (x,), {})
    assert list(plain) == list(exact) == ["output", "buffer:steps", "buffer:view"]
    assert plain["buffer:steps"].tolist() == exact["buffer:steps"].tolist() == [1, 1]
    assert plain["buffer:view"].stride() == (4, 2)
    wide = x.double() @ module.first.weight.double().t() + module.first.bias.double()
    torch.testing.assert_close(exact["output"], wide * module.first.bias.double(), rtol=1e-15, atol=0)
    assert module.cache is None
    assert not hasattr(module, "extra")
    for name, tensor in module.state_dict(keep_vars=True).items():
        same, values, address = held[name]
        assert tensor is same
        assert tensor.data_ptr() == address
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, values)


def test_bit_reinterpretation_has_no_float64_form() -> None:
    class Bits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(torch.int32)

    with pytest.raises(BadInput, match="bits"):
        run64(Bits(), (torch.ones(2),), {})


def test_what_runs_other_functions_has_no_float64_form() -> None:
    class Chooses(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))  # type: ignore[no-any-return, unused-ignore]

    with pytest.raises(BadInput, match=r"torch's operator cond, .*plain Python\.$"):
        run64(Chooses(), (torch.ones(2),), {})


def test_outputs_are_named_by_their_path() -> None:
    assert list(name_outputs({"x": [torch.ones(1), (torch.ones(1),)]})) == ["output.x.0", "output.x.1.0"]


def test_a_reference_inside_a_package_is_told_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "project/gated_layers_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text("from torch import nn\n\n\nclass Gate(nn.Linear):\n    pass\n")
    inside = GOOD.replace("nn.Linear(width, width)", "Gate(width, width)")
    said = refusal(reference(package, f"from .layers import Gate\n{inside}", "model.py"))
    assert "a reference is stored as one file: move what it imports from files of yours into it, or, if " in said
    assert "pip install -e FOLDER) and import from it by its name" in said
    named = reference(tmp_path, f"from gated_layers_of_mine.layers import Gate\n{inside}", "copy.py")  # as a session has it
    said = refusal(named)
    assert said.endswith("pip install -e FOLDER).")
    monkeypatch.syspath_prepend(tmp_path / "project")  # what an editable install does
    loaded = load_reference(named)
    assert type(loaded.module.linear).__name__ == "Gate"


def test_groups_of_rows_are_multiplied_in_float64() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 16, 8))

        def forward(self, x: Tensor, ends: Tensor) -> Tensor:
            return torch._grouped_mm(x, self.weight, offs=ends)

    module, x, ends = Experts(), torch.randn(12, 16), torch.tensor([4, 4, 12], dtype=torch.int32)
    exact = run64(module, (x, ends), {})["output"]
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact[:4], x[:4].double() @ module.weight[0].double())
    torch.testing.assert_close(exact.float(), run(module, (x, ends), {})["output"], rtol=1e-5, atol=1e-5)


class GpuOfTheHost:
    """Stands for a GPU: entering it makes the CPU torch's default device, and is counted."""

    type = "cuda"
    entered = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(("bytes_of_much", "on_device"), [(2**20, False), (8, True)])
def test_large_inputs_are_drawn_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_of_much: int, on_device: bool
) -> None:
    monkeypatch.setattr(reference_module, "_MUCH", bytes_of_much)
    (path := tmp_path / "reference.py").write_text(GOOD)
    loaded = load_reference(path, "cpu")
    loaded.device = gpu = GpuOfTheHost()  # type: ignore[assignment]
    first, again = loaded._draw(3), loaded._draw(3)
    assert torch.equal(first[0][0], again[0][0])
    assert loaded.drawn_on_device is on_device
    assert bool(gpu.entered) is on_device


def test_inputs_that_a_gpu_cannot_draw_are_drawn_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_module, "_MUCH", 8)
    drawn = "    calls.append(0)\n    assert len(calls) != 2\n    return [torch.randn(2, 4)]"
    (path := tmp_path / "reference.py").write_text(f"calls = []\n{GOOD}".replace("    return [torch.randn(2, 4)]", drawn))
    loaded = load_reference(path, "cpu")
    loaded.device = GpuOfTheHost()  # type: ignore[assignment]
    assert loaded._draw(3)[0][0].shape == (2, 4)
    assert loaded.drawn_on_device is False
