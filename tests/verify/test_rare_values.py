"""Kinds of rare inputs (`verify/inputs/rare_values.py`): what each holds, and which the reference stands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from stitchcuda.verify.inputs import rare_values, secret_inputs
from stitchcuda.verify.inputs.input_ranges import InputRanges
from stitchcuda.verify.inputs.rare_values import IN_ROWS, MIXED, ONE, RARE
from stitchcuda.verify.messages.tensor_block import unpack
from tests.verify.references import asking, source

FREE = InputRanges(free=frozenset((0, 1)))


def drawn(name: str, *given: Tensor, ranges: InputRanges = FREE) -> list[Tensor] | None:
    made = rare_values.draw(list(given), name, torch.Generator().manual_seed(3), ranges)
    assert made is None or all(now.dtype == old.dtype and now.shape == old.shape for now, old in zip(made, given, strict=True))
    return made


def one(name: str, given: Tensor, ranges: InputRanges = FREE) -> Tensor:
    made = drawn(name, given, ranges=ranges)
    assert made is not None
    return made[0]


def test_one_index_of_an_axis_is_far_larger() -> None:
    x = torch.randn(6, 8, 16)
    for name, axis in (("first far", 0), ("middle far", 1), ("last far", 2)):
        ratio = (one(name, x) / x).movedim(axis, 0).flatten(1)
        far = ratio[:, 0] >= 2**14
        assert int(far.sum()) == 1
        assert bool((ratio[~far] == 1).all())
    assert drawn("middle far", torch.randn(8, 16)) is None


def test_rows_hold_few_unlike_elements() -> None:
    x = torch.randn(64, 96)
    negative = (one("unlike", x) < 0).sum(-1)
    assert bool(((negative <= 3) | (negative >= 93)).all())
    assert bool(((one("nearly empty", x) != 0).sum(-1) < 20).all())
    alike = one("like the row before", x)
    differ = (alike[0::2] != alike[1::2]).sum(-1)
    assert bool(((differ > 0) & (differ <= 3)).all())
    largest = one("largest few", x).topk(2).indices.diff(dim=-1).abs()
    assert bool((largest > 0).all())


def test_rows_of_one_rare_kind_stand_beside_each_other() -> None:
    mixed = one(MIXED, torch.randn(256, 96))
    differ = (mixed[0::2] != mixed[1::2]).sum(-1)
    assert bool(((differ > 0) & (differ <= 3)).any())


def test_huge_values_are_also_tried_where_they_may_not_be_scaled(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x.exp(), x.tanh()", "[torch.randn(32, 24)]"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    huge = secret_inputs.draw_variant(ask, made, variants=["huge"])
    assert huge is not None
    x = unpack(huge.inputs, "cpu")[0]
    assert bool(((x > 40) & (x < 89)).any())
    assert not bool((x > 89).any())


@pytest.mark.parametrize("name", [*IN_ROWS, MIXED, "first far", "last far", "other units", "one value"])
def test_shares_stay_shares_where_the_reference_stands_no_others(name: str) -> None:
    given = torch.rand(32, 16)
    made = drawn(name, given, ranges=InputRanges())
    assert made is None or bool(((made[0] >= 0) & (made[0] <= 1)).all())


def test_rows_fall_and_alternate() -> None:
    x = torch.randn(64, 32)
    assert bool(((one("falling", x).diff(dim=-1) > 0).sum(-1) <= 1).all())
    steps = one("alternating", x).diff(dim=-1).sign()
    assert bool((steps[:, 1:] == -steps[:, :-1]).all())


def test_complex_numbers_and_matrices_of_special_structure() -> None:
    real = one("real", torch.randn(16, 8, dtype=torch.complex64))
    assert bool(((real.imag == 0) & (real.real < 0)).any())
    matrices = one("special matrices", torch.randn(32, 3, 3))
    assert bool((matrices == torch.diag_embed(matrices.diagonal(dim1=1, dim2=2))).all())
    assert 0 < int((matrices.diagonal(dim1=1, dim2=2).diff(dim=-1) == 0).all(-1).sum()) < 32


def test_rows_keep_their_mantissas_or_are_opposite() -> None:
    x, y = torch.randn(16, 8), torch.randn(16, 8)
    assert torch.equal(one("times 2^k", x).frexp().mantissa, x.frexp().mantissa)
    made = drawn("opposite", x, y)
    assert made is not None
    assert bool(((made[1] + x == 0).sum(-1) >= 5).any())


def test_masks_of_the_least_float_hide_whole_rows() -> None:
    least = torch.finfo(torch.float32).min
    given = (torch.arange(16) >= torch.randint(2, 15, (8, 1))).float() * least
    assert bool((one("rows hidden", given) == least).all(-1).any())
    assert bool((one("all seen", given) == 0).all())


def test_integers_of_rare_structure_stay_between_those_that_are_given() -> None:
    x, y = torch.randint(0, 64, (8, 64)), torch.randint(0, 64, (8, 64))
    assert int((one("chain", x) == (torch.arange(64) - 1).clamp(min=0)).sum()) > 400
    repeated = one("repeating", x)
    assert all(any(int((row[p:] != row[:-p]).sum()) <= 2 for p in range(1, 33)) for row in repeated)
    made = drawn("complementing", x, y)
    assert made is not None
    assert int((made[1] + x == 63).sum()) > 400
    offsets = torch.arange(0, 512, 16)
    early = one("ending early", offsets)
    assert int(early[-1]) < int(offsets[-1])
    assert torch.equal(early[:20], offsets[:20])
    for kept in (one("chain", x), repeated, made[1]):
        assert int(kept.min()) >= 0
        assert int(kept.max()) <= 63
    path = one("path", torch.rand(16, 16) < 0.1)
    reach = torch.linalg.matrix_power(path.float() + torch.eye(16), 15) > 0
    assert int(path.sum()) == 15
    assert bool(reach.any(0).all())


def test_one_value_is_one_that_few_bits_hold_badly() -> None:
    made = one("one value", torch.randn(32, 16))
    value = made[0, 0]
    assert bool((made == value).all())
    for few in (torch.float16, torch.bfloat16):
        assert abs(float(value.to(few).float() / value) - 1) > 1e-4
    columns, rows = (one(name, torch.randn(32, 16)) for name in ("one value a column", "one value a row"))
    for lines in (columns, rows.T):
        assert bool((lines == lines[0]).all())
        assert not bool((lines[0] == lines[0, 0]).all())


def test_masks_begin_elsewhere_and_hide_whole_rows() -> None:
    seen = torch.arange(16) < torch.arange(1, 17)[:, None]
    turned = one("turned masks", seen)
    assert bool((~turned[:-1, 0]).all())
    assert torch.equal(turned.sum(-1), seen.sum(-1))
    infinite = torch.zeros(16, 16).masked_fill(~seen, -torch.inf)
    assert bool((one("rows hidden", infinite) == -torch.inf).all(-1).any())
    assert not bool(one("all seen", infinite).isinf().any())
    assert bool(one("few hide", torch.rand(64, 16) < 0.7)[[0, 32, 63]].all())
    assert not bool(one("nothing seen", seen.long()).any())


def test_an_input_follows_another() -> None:
    x, y = torch.randn(32, 16), torch.randn(32, 16)
    made = drawn("same rows", x, y)
    assert made is not None
    assert torch.equal(made[1][0], x[0])
    assert not torch.equal(made[1], x)
    close = drawn("close", x, y)
    assert close is not None
    assert float((close[1] - close[0]).abs().max()) < 1e-3
    assert drawn("close", x) is None
    assert drawn("close" + ONE, x, y) is None


def test_sorted_values_get_equal_neighbours_and_settings_zeros() -> None:
    steps = one("level", torch.rand(4, 64).cumsum(-1)).diff(dim=-1)
    assert bool((steps >= 0).all())
    assert bool((steps == 0).any())
    assert bool((one("no setting", torch.rand(3)) == 0).any())


@pytest.mark.parametrize(("result", "name", "stands"), [
    ("x.softmax(-1)", "offset", True), ("nn.functional.layer_norm(x, (24,))", "offset", False),
    ("100 * x + nn.functional.layer_norm(x, (24,))", "offset", False),
    ("nn.functional.layer_norm(x, (24,))", "first far", True),
    ("x @ x.T", "first far", True), ("x / x.norm()", "one value", True), ("nn.functional.normalize(x)", "tiny", True),
    ("x / (x.std(-1, keepdim=True) + 1e-9)", "one value a row", False),
])  # fmt: skip
def test_only_what_the_reference_stands_is_drawn(tmp_path: Path, result: str, name: str, stands: bool) -> None:
    ask = asking(tmp_path, source(result, "[torch.randn(32, 24)]"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    assert (secret_inputs.draw_set(ask, made, variants=[name, "as given"]).variant == name) == stands


def test_values_for_which_memory_does_not_suffice_are_left_out(tmp_path: Path) -> None:
    full = "x if x.abs().max() < 1e4 else (_ for _ in ()).throw(torch.OutOfMemoryError('CUDA out of memory'))"
    ask = asking(tmp_path, source(f"({full}) * 2", "[torch.randn(32, 24)]"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    assert secret_inputs.draw_variant(ask, made, variants=["first far"]) is None
    assert "limited: inputs of which one sample is far larger than all others were not tried, for want of memory" in made.notes
    assert secret_inputs.draw_variant(ask, made, variants=["tiny"]) is not None


@pytest.mark.parametrize(("result", "equal"), [("x.topk(3).indices", False), ("x.topk(3).values", True)])
def test_values_become_equal_only_where_torch_says_which_is_named(tmp_path: Path, result: str, equal: bool) -> None:
    ask = asking(tmp_path, source(result, "[torch.randn(64, 24)]"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    found = {given.variant: unpack(given.inputs, "cpu")[0] for given in secret_inputs.draw_rare(ask, made)}
    assert {"tiny", "first far"} < found.keys()
    assert ("whole" in found) == equal
    assert "tiniest" not in found
    assert all(bool((x.sort().values.diff() != 0).all()) for x in found.values()) != equal


def test_integers_far_above_those_shown_get_bounds_of_their_own(tmp_path: Path) -> None:
    text = source("x * (at[:, None].float() * 1.1).cos()", "[torch.randn(64, 24), torch.randint(0, 128, (64,))]", names="x, at")
    ask = asking(tmp_path, text)
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    found = {given.variant: given for given in secret_inputs.draw_rare(ask, made)}
    far = found["far above"]
    assert 127 < int(unpack(far.inputs, "cpu")[1].max()) <= 1016
    usual, own = made.bounds(2)["output"], made.bounds_of([*made.sets, far])["output"]
    assert own.norm_relative >= usual.norm_relative
    assert own.norm_relative < 1e-2


def test_every_kind_is_tried_in_a_small_call(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("x * 2 + y", "[torch.randn(32, 24), torch.randn(32, 24)]", names="x, y"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    fitting = {name for name, kind in RARE.items() if kind.suits(torch.randn(32, 24))}
    names = {given.variant.removesuffix(ONE) for given in secret_inputs.draw_rare(ask, made)}
    assert names - {"blank", "nudged"} >= fitting - {"middle far"}
    again = secret_inputs.draw_set(ask, made, variants=["edges", "as given"], seed=made.sets[0].seed)
    first, edges = (unpack(given.inputs, "cpu")[0].flatten() for given in (made.sets[0], again))
    assert torch.equal(first[48:-48], edges[48:-48])
    assert not torch.equal(first[:48], edges[:48])
