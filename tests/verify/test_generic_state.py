"""Parameters and buffers get generic values, near the constructor's or of other magnitudes, as far as the reference stands."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from stitchcuda.verify.inputs.reference_requests import Ask, Renew, Renewed
from stitchcuda.verify.inputs.reseeding import WIDEST, find_freedom, perturb, widen
from stitchcuda.verify.inputs.secret_inputs import draw, extend
from stitchcuda.verify.messages.tensor_block import unpack
from tests.verify.references import asking, loaded_worker, source


def generic(value: torch.Tensor) -> torch.Tensor:
    return perturb(value, "any", torch.Generator().manual_seed(3))


@pytest.mark.parametrize("value", [
    torch.zeros(64), torch.ones(64), torch.eye(16), torch.full((4, 4), 1e-4), torch.rand(40), -torch.rand(40),
    torch.tensor(1.0), torch.zeros(1), torch.eye(8, dtype=torch.float64), torch.ones(32, dtype=torch.bfloat16),
    torch.ones(8, dtype=torch.complex64),
])  # fmt: skip
def test_no_element_is_what_a_constructor_writes(value: torch.Tensor) -> None:
    made = generic(value)
    assert (made.shape, made.dtype) == (value.shape, value.dtype)
    assert int((made == value).sum()) <= value.numel() // 8 * (value.dtype is torch.bfloat16)
    if not value.is_complex() and value.numel() > 1:
        assert bool((made > 0).any())
        assert bool((made < 0).any())
    size, change = float(value.abs().square().mean().sqrt()), float((made.abs() - value.abs()).abs().max())
    assert change <= 0.31 * (size or 1.0) * 2**0.5


def test_a_scalar_of_one_sign_gets_the_other() -> None:
    assert float(generic(torch.tensor([2.0]))) < 0
    assert float(generic(torch.tensor(-2.0))) > 0


def test_same_signs_keep_zeros_and_signs() -> None:
    value = torch.tensor([0.0, 1.0, -2.0, 0.0])
    made = perturb(value, "same signs", torch.Generator().manual_seed(0))
    assert made.sign().tolist() == value.sign().tolist()
    assert not torch.equal(made, value)


def test_masks_integers_and_variances_are_told_apart() -> None:
    tril = torch.ones(4, 4).tril()
    assert find_freedom("bias", tril, set()) == "none"
    assert find_freedom("bias", tril, {"bias"}) == "any"
    assert find_freedom("mask", torch.zeros(4, 4).masked_fill(tril == 0, -torch.inf), set()) == "none"
    assert find_freedom("ids", torch.arange(4), set()) == "none"
    assert find_freedom("bn.running_var", torch.ones(4), set()) == "same signs"
    for value in (torch.zeros(4), torch.ones(4), torch.arange(4.0), torch.randn(4)):
        assert find_freedom("scale", value, set()) == "any"


def renewed(folder: Path, result: str, init: str, *, keep: tuple[str, ...] = ()) -> tuple[Renewed, dict[str, torch.Tensor]]:
    ask = asking(folder, source(result, init=init))
    answer = ask(Renew(5, keep=keep))
    names = [line.split("=")[0].strip().removeprefix("self.") for line in init.split(";")]
    return answer, dict(zip(names, unpack(answer.state, "cpu"), strict=True))


ONES = "nn.Parameter(torch.ones(16))"


def test_only_what_the_reference_does_not_stand_is_kept(tmp_path: Path) -> None:
    """A logarithm takes no negative number, so that one parameter of nine keeps its signs; the others do not."""
    init = ";".join(f"self.p{number} = {ONES}" for number in range(9))
    result = "x * self.p0 + " + " + ".join(f"self.p{number}" for number in (1, 2, 4, 5, 6, 7, 8)) + " + self.p3.log()"
    answer, values = renewed(tmp_path, result, init)
    assert [name for name, value in values.items() if bool((value > 0).all())] == ["p3"]
    assert not torch.equal(values["p3"], torch.ones(16))
    assert answer.varied
    kept = "limited: kept with the constructor's zeros and signs, as the reference does not stay finite with others: p3"
    assert answer.notes == (kept,)


def test_a_value_that_must_be_exact_is_kept(tmp_path: Path) -> None:
    init = f"self.p0 = {ONES}; self.p1 = {ONES}"
    answer, values = renewed(tmp_path, "x * self.p0 if bool((self.p1 == 1).all()) else x[:, self.p1.long() * 99]", init)
    assert torch.equal(values["p1"], torch.ones(16))
    assert not torch.equal(values["p0"], torch.ones(16))
    kept = "limited: kept with the constructor's values, as the reference raises IndexError with others: p1"
    assert answer.notes == (kept,)


@pytest.mark.parametrize(("result", "why"), [
    ("(x + self.p0).relu() * (self.p0 > 0)", ""),
    ("x * 0 + (self.p0.min() > 0) * x", "has a constant output"),
    ("torch.where(self.p0.min() > 0, x, x * (x > 2))", "has an output that is mostly zero"),
    ("x if self.p0.min() > 0 else (x, x)", "returns or writes other tensors"),
])  # fmt: skip
def test_outputs_must_say_as_much_as_before(tmp_path: Path, result: str, why: str) -> None:
    answer, values = renewed(tmp_path, result, f"self.p0 = {ONES}")
    assert bool((values["p0"] > 0).all()) == bool(why)
    assert len(answer.notes) == bool(why)
    assert why in "".join(answer.notes)


def test_a_mask_and_integers_are_named(tmp_path: Path) -> None:
    init = (
        "self.w = nn.Parameter(torch.zeros(16)); self.register_buffer('scale', torch.ones(())); "
        "self.register_buffer('mask', torch.arange(16.0) % 2); "
        "self.register_buffer('order', torch.arange(16))"
    )
    ask = asking(tmp_path, source("(x + self.w) * self.scale * self.mask + self.order", init=init))
    answer = ask(Renew(5))
    w, scale, mask, order = unpack(answer.state, "cpu")
    assert bool((w != 0).all())
    assert float(scale) < 0
    assert sorted(set(mask.tolist())) == [0, 1]
    assert order.tolist() == list(range(16))
    assert answer.notes == ("limited: buffers of masks and integers keep the constructor's values: mask, order",)


def test_what_is_found_out_is_remembered_and_keep_is_obeyed(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x * self.p0 + self.p1.sqrt()", init=f"self.p0 = {ONES}; self.p1 = {ONES}"))
    first, second = (dict(zip(("p0", "p1"), unpack(ask(Renew(seed)).state, "cpu"), strict=True)) for seed in (1, 2))
    assert bool((first["p1"] > 0).all())
    assert bool((second["p1"] > 0).all())
    assert not torch.equal(first["p0"], second["p0"])
    kept = ask(Renew(3, keep=("p0",)))
    assert torch.equal(unpack(kept.state, "cpu")[0], torch.ones(16))
    assert len(kept.notes) == 1
    assert "p1" in kept.notes[0]


def wide(value: torch.Tensor, seed: int = 3, *, zeros: bool = True) -> torch.Tensor:
    return widen(value, "any", torch.Generator().manual_seed(seed), zeros=zeros)


@pytest.mark.parametrize("heads", [(), (1,), (4,), (16, 1, 1)])
def test_an_element_of_a_vector_grows_and_keeps_its_sign(heads: tuple[int, ...]) -> None:
    """So a scale of ln(1 / 0.07) passes a limit at ln(100), and one of ln(10) too."""
    for seed in range(50):
        made = wide(torch.full(heads, math.log(10)), seed)
        assert made.shape == heads
        assert float(made.max()) > math.log(100)
        assert float(made.abs().max()) <= 1.4 * WIDEST * math.log(10)


def test_vectors_get_smaller_and_larger_elements_of_both_signs() -> None:
    size = (made := wide(torch.full((256,), 3.0))).abs()
    assert 8 <= int((made == 0).sum()) <= 32
    assert int((size[made != 0] < 1).sum()) > 25
    assert int((size > 9).sum()) > 25
    assert int((made > 0).sum()) > 50
    assert int((made < 0).sum()) > 50
    assert bool((wide(torch.full((256,), 3.0), zeros=False) != 0).all())


@pytest.mark.parametrize("tiny", [torch.full((64,), 1e-6), torch.zeros(64), torch.full((64, 1, 1), -1e-6)])
def test_tiny_vectors_become_of_order_one(tiny: torch.Tensor) -> None:
    size = wide(tiny, zeros=False).abs()
    assert float(size.min()) >= 0.99 / WIDEST
    assert 0.5 < float(size.max()) <= 1.0


@pytest.mark.parametrize(("shape", "axis", "dtype"), [
    ((64, 96), 0, torch.float32), ((1, 64, 96), 1, torch.float64), ((64, 4, 3, 3), 0, torch.bfloat16),
])  # fmt: skip
def test_rows_are_scaled_and_the_size_of_the_whole_is_kept(shape: tuple[int, ...], axis: int, dtype: torch.dtype) -> None:
    value = torch.randn(shape).to(dtype)
    made = wide(value)
    assert (made.shape, made.dtype) == (shape, dtype)
    assert float(made.double().norm()) == pytest.approx(float(value.double().norm()), rel=0.01)
    norms = made.double().movedim(axis, 0).flatten(1).norm(dim=1)
    assert 1 <= int((norms == 0).sum()) <= 12
    assert float(norms.max() / norms[norms > 0].min()) > 16


def test_same_signs_stay_when_magnitudes_change() -> None:
    value = torch.tensor([0.0, 1.0, -2.0, 3.0] * 8)
    made = widen(value, "same signs", torch.Generator().manual_seed(0), zeros=True)
    assert made.sign().tolist() == value.sign().tolist()
    assert widen(value, "none", torch.Generator(), zeros=True) is value


def widened(ask: Ask, names: tuple[str, ...], seed: int = 5) -> tuple[Renewed, dict[str, torch.Tensor]]:
    answer = ask(Renew(seed, wide_for=7, usual=1e-5))
    return answer, dict(zip(names, unpack(answer.state, "cpu"), strict=True))


def test_what_does_not_stand_other_magnitudes_stays_near_the_constructor(tmp_path: Path) -> None:
    """An exponential of an exponential overflows, and a division takes no zero; the others take both."""
    init = ";".join(f"self.p{number} = {ONES}" for number in range(4))
    init += "; self.register_buffer('mask', torch.arange(16.0) % 2)"
    ask = asking(tmp_path, source("(x * self.p0 + self.p1.exp().exp()) * self.mask + self.p3 / self.p2", init=init))
    names = ("p0", "p1", "p2", "p3", "mask")
    extend(ask, draw(ask), 2)              # finds out that no operator breaks ties
    for seed in (5, 6):                    # what was found out is remembered
        answer, values = widened(ask, names, seed)
        assert float((values["p1"].abs() - 1).abs().max()) < 0.4
        assert int((values["p0"] == 0).sum()) >= 1
        assert int((values["p3"] == 0).sum()) >= 1
        assert bool((values["p2"] != 0).all())
        assert all(float(values[name].abs().max()) >= 2.5 for name in ("p0", "p2", "p3"))
        assert values["mask"].tolist() == [0.0, 1.0] * 8
        assert [note for note in answer.notes if "near" in note] == [
            "limited: parameters only near the constructor's values, as the reference does not stay finite with others: p1"
        ]


def test_an_ill_conditioned_call_is_none_to_judge_by(tmp_path: Path) -> None:
    init = f"self.p0 = {ONES}; self.p1 = {ONES}"
    ask = asking(tmp_path, source("x * self.p0 + (self.p1 * 4).exp().sin()", init=init))
    answer, values = widened(ask, ("p0", "p1"))
    assert float(values["p0"].abs().max()) >= 2.5
    assert float((values["p1"].abs() - 1).abs().max()) < 0.4
    assert "becomes ill-conditioned with others: p1" in "".join(answer.notes)


def test_other_magnitudes_take_few_calls_of_the_reference(tmp_path: Path) -> None:
    """Two to see what is usual and what generic values give, one in each precision for the new values."""
    count = "self.calls = torch.zeros(1)"  # in an attribute, which calls leave as it was, but its memory is written to
    init = f"self.layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)]); {count}"
    worker = loaded_worker(tmp_path, source("self.layers(x * self.calls.add_(1).sign())", init=init))
    calls = worker._loaded().module.calls
    assert isinstance(calls, torch.Tensor)
    before = float(calls)
    worker.answer(Renew(5, wide_for=7))
    assert float(calls) - before == 4
