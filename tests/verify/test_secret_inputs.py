"""Exams: the first input set as given, the others varied where the reference stands it; other sizes; shared memory."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stitchcuda.compiler.printing.manifest import FreeSize, free_sizes
from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs import other_parameters, secret_inputs
from stitchcuda.verify.inputs.reference_requests import Ask, CaptureReference, Expect, InputSet, Renew
from stitchcuda.verify.inputs.secret_inputs import SecretInputs
from stitchcuda.verify.messages.tensor_block import unpack
from stitchcuda.verify.reference import expected_outputs
from tests.verify.references import asking, source


def notes(inputs: SecretInputs) -> str:
    return "; ".join(inputs.notes)


def drawn(ask: Ask, folder: Path, count: int) -> SecretInputs:
    one = secret_inputs.draw(ask)
    secret_inputs.extend(ask, one, count)
    return one


def inputs(one: InputSet) -> list[torch.Tensor]:
    return unpack(one.inputs, "cpu")


def answers_of(one: InputSet) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return unpack(one.expected, "cpu"), unpack(one.exact, "cpu")


def test_sets_are_varied_and_the_first_is_as_given(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("self.linear(x)", init="self.linear = nn.Linear(16, 8)"))
    one = drawn(ask, tmp_path, 5)
    chosen = [given.variant for given in one.sets]
    assert chosen[0] == "as given"
    assert chosen[4] == "non-contiguous"
    assert len({*chosen}) == 5
    assert [given.lenient for given in one.sets] == [False] * 4 + [True]
    assert not inputs(one.sets[4])[0].is_contiguous()
    assert notes(one).startswith("limited: values beyond these were not tried: ")
    assert notes(one).count("limited") == 1
    assert set(one.bounds(5)) == {"output"}
    assert one.bounds(3)["output"].max_relative <= one.bounds(5)["output"].max_relative < 1e-4


def test_a_capture_leaves_no_copy_of_the_weights_behind(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("self.linear(x)", init="self.linear = nn.Linear(16, 1237)"))
    gc.collect()
    gc.disable()                           # so that none is removed by chance
    try:
        ask(CaptureReference(0, str(tmp_path / "constants")))
        weights = [value for value in gc.get_objects() if type(value) is nn.Parameter and value.shape == (1237, 16)]
        assert len(weights) == 1
    finally:
        gc.enable()


def test_two_exams_differ(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x * 2"))
    drawn = (secret_inputs.draw(ask) for _ in range(8))
    orders = {tuple(one.variants) for one in drawn}
    assert len(orders) > 1


@pytest.mark.parametrize("result", ["x.exp().exp()", "torch.linalg.cholesky(x @ x.T + 0.1 * torch.eye(4))", "x / x.sum()"])
def test_what_the_reference_does_not_stand_is_left_and_noted(result: str, tmp_path: Path) -> None:
    one = drawn(asking(tmp_path, source(result)), tmp_path, 4)
    for given in one.sets:
        assert all(bool(torch.isfinite(answer).all()) for answers in answers_of(given) for answer in answers)
    if "exp" in result:
        one.variants[:2] = ["scaled up", "outlier"]
        one.sets[1:] = []
        secret_inputs.extend(asking(tmp_path / "again", source(result)), one, 2)
        if one.sets[1].variant == "as given":  # else no row of the patchwork was a large one
            why = "the reference is of no use on them (it does not stay finite)"
            assert f"inputs with large values were not tried: {why}" in notes(one)
        else:
            assert one.sets[1].variant == "patchwork"


def test_nothing_to_vary_is_as_given(tmp_path: Path) -> None:
    one = drawn(asking(tmp_path, source("x.float() * (0.3 + x[0].item())", "[torch.arange(32)]")), tmp_path, 5)
    assert {given.variant for given in one.sets} == {"as given", "non-contiguous"}
    assert "limited: input 0 never varies: a program may ignore it or have it built in" in notes(one)


def test_plain_arguments_that_never_change_are_said(tmp_path: Path) -> None:
    inputs = "[torch.randn(4, 16), 0.5, [True, 3, 3], torch.rand(()).item(), None]"
    one = drawn(asking(tmp_path, source("x * a + b[1] + c", inputs, names="x, a, b, c, d")), tmp_path, 4)
    assert "limited: plain arguments of get_inputs() (0.5, True, 3, None) are always the same" in notes(one)
    plain = drawn(asking(tmp_path / "alone", source("x * 2")), tmp_path / "alone", 4)
    assert "plain arguments" not in notes(plain)


PAIRED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return (x * 2, x + 1) if CONDITION else x * 2

def get_inputs():
    return [torch.randn(16, 64)]
"""


def test_outputs_that_depend_on_values_are_bad_input(tmp_path: Path) -> None:
    text = PAIRED.replace("CONDITION", "int(x[0, 0].abs() * 1e4) % 2")
    one = secret_inputs.draw(asking(tmp_path, text))
    while len({tuple(given.names) for given in one.sets}) < 2:
        one.sets.append(secret_inputs.draw_set(asking(tmp_path, text), one, variants=["as given"]))
    with pytest.raises(BadInput, match="returns or writes other tensors for other inputs of get_inputs"):
        one.bounds(len(one.sets))


def test_a_variant_with_other_outputs_is_left(tmp_path: Path) -> None:
    ask = asking(tmp_path, PAIRED.replace("CONDITION", "x.abs().max() > 12"))
    one = drawn(ask, tmp_path, 1)
    one.sets.append(secret_inputs.draw_set(ask, one, variants=["scaled up", "as given"]))
    assert one.sets[1].variant == "as given"
    why = "the reference is of no use on them (it returns or writes other tensors)"
    assert f"inputs with large values were not tried: {why}" in notes(one)
    assert set(one.bounds(2)) == {"output"}


def test_sizes_may_depend_on_values(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x[x > 1.5] * 0.3", "[torch.randn(16, 64)]"))
    one = drawn(ask, tmp_path, 4)
    assert len({answers_of(given)[0][0].shape for given in one.sets}) > 1
    assert one.bounds(4)["output"].max_relative < 1e-5
    assert secret_inputs.check_reference(ask, one) == ("", [])


def test_sizes_that_follow_from_rounding_are_bad_input(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x[(x / 3 * 3 - x).abs() > 0]", "[torch.randn(16, 64)]"))
    with pytest.raises(BadInput, match=r"The size of output of the reference reference.py follows from rounding"):
        drawn(ask, tmp_path, 1)


def test_a_variant_of_which_the_reference_dies_is_left(tmp_path: Path) -> None:
    real = asking(tmp_path, source("x * 2"))
    asked: list[tuple[str, ...]] = []

    def ask(request: Any) -> Any:
        if isinstance(request, Expect):
            asked.append(request.variants)
            if request.variants[0] == "scaled up":
                raise secret_inputs.ReferenceLost("the reference crashed with SIGABRT")
        return real(request)

    one = drawn(ask, tmp_path, 1)
    one.sets.append(secret_inputs.draw_set(ask, one, variants=["scaled up", "shifted", "as given"]))
    assert one.sets[1].variant == "shifted"
    tried = ("scaled up", "shifted", "as given")
    assert asked[1:] == [tried, tried, ("shifted", "as given")]  # once more with values as shown only
    assert "inputs with large values were not tried: the reference is of no use on them (the reference crashed" in notes(one)
    with pytest.raises(secret_inputs.ReferenceLost):
        secret_inputs.draw_set(ask, one, variants=["scaled up"])


def test_a_reference_that_takes_too_long_is_not_asked_again(tmp_path: Path) -> None:
    real = asking(tmp_path, source("x * 2"))
    one, asked = drawn(real, tmp_path, 1), list[Any]()

    def slow(request: Any) -> Any:
        asked.append(request)
        raise secret_inputs.ReferenceLost("the reference did not finish within 600 s", late=True)

    with pytest.raises(secret_inputs.ReferenceLost, match="600 s"):
        secret_inputs.draw_set(slow, one, variants=["scaled up", "shifted", "as given"])
    with pytest.raises(secret_inputs.ReferenceLost, match="600 s"):
        secret_inputs.check_reference(slow, one)
    assert len(asked) == 2


def test_a_lost_device_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU an index out of range raises, and from then on everything does."""
    ask = asking(tmp_path, source("self.table(x.abs().mul(30).long())", init="self.table = nn.Embedding(200, 4)"))
    one = drawn(ask, tmp_path, 1)
    monkeypatch.setattr(expected_outputs, "alive", lambda device: False)
    with pytest.raises(expected_outputs.LostContext, match="IndexError"):
        secret_inputs.draw_set(ask, one, variants=["outlier", "as given"])


def test_arguments_that_share_memory_arrive_so(tmp_path: Path) -> None:
    text = source("x.add_(1) + y", "(lambda base: [base, base[:]])(torch.randn(8, 16))", names="x, y")
    one = drawn(asking(tmp_path, text), tmp_path, 3)
    for given in one.sets:
        x, y = inputs(given)
        assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        assert set(given.names) == {"output", "input:0", "input:1"}
        expected = dict(zip(given.names, answers_of(given)[1], strict=True))
        torch.testing.assert_close(expected["output"], 2 * (x.double() + 1))
        torch.testing.assert_close(expected["input:1"], x.double() + 1)


def guard(*shapes: list[Any]) -> dict[str, Any]:
    return {"shape_guard": [{"name": "x", "shape": list(shape)} for shape in shapes]}


B = {"symbol": "B", "min": 1, "max": 64}


def test_free_sizes_of_a_manifest() -> None:
    assert free_sizes({}) == ()
    assert free_sizes(guard([4, 16])) == ()
    assert free_sizes(guard([B, 16], [4, {"symbol": "B", "max": 32}])) == (FreeSize("B", 1, 32, ((0, 0), (1, 1))),)


@pytest.mark.parametrize(
    "content",
    [{"shape_guard": 3}, {"shape_guard": [3]}, guard(["B"]), guard([{"min": 1}]), guard([{"symbol": "B", "min": 9, "max": 3}]),
     guard([{"symbol": "B", "min": "1"}]), guard([True]), guard([1.5])],
)  # fmt: skip
def test_a_guard_that_cannot_be_read(content: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        free_sizes(json.loads(json.dumps(content)))


def test_other_sizes_inside_the_guard(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("self.linear(x) + y", "[torch.randn(4, 16), torch.randn(4, 1)]", names="x, y",
                                  init="self.linear = nn.Linear(16, 8)"))  # fmt: skip
    one = drawn(ask, tmp_path, 2)
    smaller, larger = secret_inputs.draw_other_sizes(ask, one, free_sizes(guard([B, 16], [B, 1])))
    assert len(one.sets) == 2
    for given, low, high in ((smaller, 1, 3), (larger, 5, 8)):
        x, y = inputs(given)
        assert low <= x.shape[0] == y.shape[0] <= high
        assert answers_of(given)[0][0].shape == (x.shape[0], 8)
        assert one.bounds_of([*one.sets, given])["output"].max_relative > 0


def test_without_a_free_size_that_is_said(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x * 2"))
    one = drawn(ask, tmp_path, 1)
    assert list(secret_inputs.draw_other_sizes(ask, one, free_sizes(guard([4, 16])))) == []
    assert notes(one).startswith("limited: judged at the given sizes only")


def test_sizes_that_do_not_fit_the_inputs_are_said(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x @ self.w", init="self.w = nn.Parameter(torch.randn(16, 8))"))
    one = drawn(ask, tmp_path, 1)
    assert list(secret_inputs.draw_other_sizes(ask, one, free_sizes(guard([B, B])))) == []
    assert list(secret_inputs.draw_other_sizes(ask, one, free_sizes(guard([4, {"symbol": "C", "min": 1, "max": 32}])))) == []
    assert "free size B is not one size" in notes(one)
    assert "another size was not tried: The reference's forward raises RuntimeError" in notes(one)
    assert len(notes(one).splitlines()) == 1


@pytest.mark.parametrize(("result", "variant"), [("x.tanh()", "exchanged"), ("x.square().mean()", "touched")])
def test_the_first_set_returns_in_another_order_where_that_matters(result: str, variant: str, tmp_path: Path) -> None:
    one = drawn(asking(tmp_path, source(result, "[torch.randn(4, 4096)]")), tmp_path, 4)
    assert one.sets[3].variant == variant
    first, again = inputs(one.sets[0])[0], inputs(one.sets[3])[0]
    assert 0 < int((first != again).sum()) < first.numel() / 64
    same_values = torch.equal(first.flatten().sort().values, again.flatten().sort().values)
    assert same_values == one.sets[3].variant.startswith("exchanged")


def test_a_constant_mask_is_rearranged_unless_the_reference_does_not_stand_it(tmp_path: Path) -> None:
    given = "[torch.randn(64, 16), (torch.arange(1024) % 3 == 0).reshape(64, 16)]"
    free = drawn(asking(tmp_path, source("x + x.masked_fill(mask, 0.0)", given, names="x, mask")), tmp_path, 4)
    assert not torch.equal(inputs(free.sets[1])[1], inputs(free.sets[0])[1])
    assert "never varies" not in notes(free)
    same = "bool((mask == (torch.arange(1024) % 3 == 0).reshape(64, 16)).all())"
    strict = f"x + x.masked_fill(mask, 0.0) + (0 if {same} else 1 / 0)"
    one = drawn(asking(tmp_path / "strict", source(strict, given, names="x, mask")), tmp_path / "strict", 4)
    assert [given.variant for given in one.sets][1::2] == ["patchwork, masks as given", "exchanged, masks as given"]
    assert "input 1 never varies" in notes(one)


@pytest.mark.parametrize(("result", "zeros"), [("self.p0 * x", True), ("(self.p0 * x, (self.p0 * x).argmax(-1))", False)])
def test_parameters_of_other_magnitudes_and_their_bounds(tmp_path: Path, result: str, zeros: bool) -> None:
    """Rows of zeros tie, so a program may give another integer than the reference."""
    ask = asking(tmp_path, source(result, init="self.p0 = nn.Parameter(torch.ones(16))"))
    one = drawn(ask, tmp_path, 3)
    other = other_parameters.redraw_parameters(ask, one)
    assert other is not None
    [values] = unpack(other.state, "cpu")
    assert bool((values == 0).any()) is zeros
    assert float(values.abs().max()) >= 2.5
    assert torch.equal(inputs(other.sets[0])[0], inputs(one.sets[0])[0])
    bounds, usual = other_parameters.wide_bounds(one, other), one.bounds(3)
    assert all(bounds[name].max_relative >= 8 * usual[name].max_relative for name in usual)
    assert not any(bound.unit for bound in bounds.values())
    assert all(bounds[name].max_relative == 0 for name in bounds if not zeros and name.endswith(".1"))


def test_other_magnitudes_of_a_reference_that_draws_at_random(tmp_path: Path) -> None:
    init = "self.p0 = nn.Parameter(torch.ones(16)); self.drop = nn.Dropout(0.5)"
    ask = asking(tmp_path, source("self.drop(x * self.p0)", init=init))
    one = drawn(ask, tmp_path, 1)
    other = other_parameters.redraw_parameters(ask, one)
    assert other is not None
    assert other.notes == []
    assert other.sets[0].draw_seed == one.sets[0].draw_seed


def test_parameters_that_cannot_vary_are_not_drawn_again(tmp_path: Path) -> None:
    result = "x * self.p0 if bool((self.p0 == 1).all()) else x[:, [99]]"
    ask = asking(tmp_path, source(result, init="self.p0 = nn.Parameter(torch.ones(16))"))
    assert other_parameters.redraw_parameters(ask, drawn(ask, tmp_path, 1)) is None


def test_a_reference_that_ends_with_other_magnitudes_is_asked_for_nearer_ones(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x * self.p0", init="self.p0 = nn.Parameter(torch.ones(16))"))
    one = drawn(ask, tmp_path, 1)

    def ends(request: Any) -> Any:
        if isinstance(request, Renew) and request.wide_for is not None:
            raise secret_inputs.ReferenceLost("the reference crashed")
        return ask(request)

    other = other_parameters.redraw_parameters(ends, one)
    assert other is not None
    assert float((unpack(other.state, "cpu")[0].abs() - 1).abs().max()) < 0.4
    assert other.notes == ["limited: parameters only near the constructor's values: with others, the reference crashed"]
