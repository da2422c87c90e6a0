"""Tests `stitchcuda/verify/reference/conditions.py`: which conditions of a reference were never met, and how they are named."""

import textwrap
from pathlib import Path

import pytest
import torch

from stitchcuda.verify.reference.condition_search import meet
from stitchcuda.verify.reference.conditions import Conditions
from stitchcuda.verify.reference.reference import load_reference

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return {}

def get_inputs():
    return [torch.tensor([[-2.0, 0.25, 3.0], [1.0, 0.5, 0.75]])]
"""


def unmet(tmp_path: Path, expression: str, *inputs: torch.Tensor) -> list[str]:
    """What a reference that returns the expression never meets with these inputs, or with its own."""
    path = tmp_path / "reference.py"
    path.write_text(MODEL.format(expression))
    reference = load_reference(path)
    conditions = Conditions(reference.path, reference.source)
    for given in inputs or reference.inputs(0)[0]:
        with torch.no_grad(), conditions.watch():
            held = reference.module(given)
        del held
        conditions.keep()
    return conditions.unmet()


@pytest.mark.parametrize(("expression", "found"), [
    ("(x > 5).float()", ["`x > 5` true"]),
    ("(5 > x).float()", ["`5 > x` false"]),
    ("torch.where(x.abs() < 1e-6, 0.0, x)", ["`x.abs() < 1e-6` true"]),
    ("((x > 1) & (x < 2)).float()", ["`(x > 1) & (x < 2)` true"]),
    ("torch.where((x > 0).all(), x, -x)", ["`(x > 0).all()` true"]),
    ("torch.where(torch.isfinite(x), x, 0.0)", ["`torch.isfinite(x)` false"]),
    ("torch.isclose(x, x + 1).float()", ["`bitwise_and` in `torch.isclose(x, x + 1)` true"]),
    ("x.clamp(-9, 9)", ["`x.clamp(-9, 9)` acting"]),
    ("x.clamp(-9, 2)", ["`x.clamp(-9, 2)` acting from below"]),
    ("x.clamp(max=5)", ["`x.clamp(max=5)` acting from above"]),
    ("x.clamp(min=4)", ["`x.clamp(min=4)` not acting"]),
    ("F.relu6(x)", ["`hardtanh` in `F.relu6(x)` acting from above"]),
    ("F.normalize(x, dim=1)", ["`clamp_min` in `F.normalize(x, dim=1)` acting from below"]),
    ("torch.maximum(x, torch.tensor(-5.0))", ["`torch.maximum(x, torch.tensor(-5.0))` acting"]),
    ("torch.round(x * 0.9)", ["`torch.round(x * 0.9)` at a half"]),
    ("x.argmax(1)", ["`x.argmax(1)` with equal largest values"]),
    ("x.min(1)", ["`x.min(1)` with equal smallest values"]),
    ("x.gather(1, x.max(1, keepdim=True).indices)", ["`x.max(1, keepdim=True)` with equal largest values"]),
    ("torch.angle(torch.complex(x, x))", ["`torch.angle(torch.complex(x, x))` on the negative real axis"]),
    ("torch.nan_to_num(x)", ["`torch.nan_to_num(x)` acting"]),
])  # fmt: skip
def test_a_condition_that_is_never_met_is_named_by_its_source(tmp_path: Path, expression: str, found: list[str]) -> None:
    named = [text for text in unmet(tmp_path, expression) if text.startswith(tuple(found))]
    assert named == [f"{text} (line 8)" for text in found]


@pytest.mark.parametrize("expression", [
    "(x > 0.5).float()",
    "x.relu() + x.sign() + x.abs()",
    "x.clamp(-1, 1)",
    "F.relu6(x * 4)",
    "torch.round(x)",                      # 0.5 is a half
    "x.max(1).values",                     # which place it was is of no use
    "x.round().argmax(1)",                 # 1 and 1
    "x.masked_fill(torch.arange(3) > 5, 0.0)",
    "x * torch.ones_like(x).clamp(max=5)",
    "x.softmax(1)",
])  # fmt: skip
def test_what_is_met_or_follows_from_constants_is_not_named(tmp_path: Path, expression: str) -> None:
    assert unmet(tmp_path, expression) == []


@pytest.mark.parametrize(("expression", "result"), [
    ("torch.where((x + 0.25 * y + 1).abs() < 1e-6, 0.0, y)", "true"),
    ("((x * 3).sum(1) > 500).float()", "true"),
    ("(x - y == 2).float()", "true"),
    ("(x + y >= 0.125).float()", "false"),
])  # fmt: skip
def test_a_comparison_is_met_where_few_elements_are_moved(tmp_path: Path, expression: str, result: str) -> None:
    path = tmp_path / "reference.py"
    path.write_text(MODEL.format(expression).replace("(self, x)", "(self, x, y)"))
    reference = load_reference(path)
    conditions, generator = Conditions(reference.path, reference.source), torch.Generator().manual_seed(3)
    given = [1 + torch.rand((4, 8), generator=generator) for _ in "xy"]
    with conditions.watch():
        reference.module(*given)
    conditions.keep()
    assert [text.split("` ")[1] for text in conditions.unmet()] == [f"{result} (line 8)"]
    made = meet(reference.module, (tuple(given), {}), conditions.comparisons(), {0, 1}, generator)
    assert made is not None
    with conditions.watch():
        reference.module(*made[0])
    conditions.keep()
    assert conditions.unmet() == []
    assert sum(int((before == after).sum()) for before, after in zip(given, made[0], strict=True)) >= 16


def test_a_comparison_that_cannot_change_is_not_met(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(MODEL.format("(x * x + 1 < 0).float()"))
    reference = load_reference(path)
    conditions, given = Conditions(reference.path, reference.source), torch.rand(8)
    with conditions.watch():
        reference.module(given)
    conditions.keep()
    assert meet(reference.module, ((given,), {}), conditions.comparisons(), {0}, torch.Generator().manual_seed(3)) is None


def test_one_of_several_sets_suffices(tmp_path: Path) -> None:
    assert unmet(tmp_path, "(x > 5).float()", torch.zeros(3), torch.full((3,), 6.0)) == []


def test_a_limit_that_is_a_constant_in_one_pass_of_a_loop_is_met_in_any(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(textwrap.dedent("""
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                best = torch.ones(3)
                for _ in range(2):
                    best = torch.minimum(x * best, best + 2)
                return best

        def get_inputs():
            return [torch.zeros(3)]
    """))
    reference = load_reference(path)
    for x, found in (([1, 1, 1], ["`torch.minimum(x * best, best + 2)` acting (line 8)"]), ([1, 1, 2.5], [])):
        conditions, given = Conditions(reference.path, reference.source), torch.tensor(x)
        with conditions.watch():
            reference.module(given)
        conditions.keep()
        assert conditions.unmet() == found


def test_calls_that_are_dropped_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(MODEL.format("(x > 5).float()"))
    reference = load_reference(path)
    conditions = Conditions(reference.path, reference.source)
    for given in (torch.full((3,), 1.0), torch.full((3,), 6.0)):
        with conditions.watch():
            reference.module(given)
    conditions.keep(1)
    assert conditions.unmet() == ["`x > 5` true (line 8)"]


def test_a_tensor_that_gets_values_of_an_input_is_no_constant(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(textwrap.dedent("""
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                made = torch.zeros(3)
                made[1:] = x[1:]
                return (made > 5).float()

        def get_inputs():
            return [torch.ones(3)]
    """))
    reference = load_reference(path)
    conditions, given = Conditions(reference.path, reference.source), torch.ones(3)
    with conditions.watch():
        reference.module(given)
    conditions.keep()
    assert conditions.unmet() == ["`made > 5` true (line 8)"]
