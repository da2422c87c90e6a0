"""Inputs leave the range that get_inputs() shows where the reference stands it; structure stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.verify.inputs import secret_inputs, variants
from stitchcuda.verify.inputs.input_ranges import InputRanges, RangeTests, find_ranges
from stitchcuda.verify.inputs.integer_values import IntegerUses
from stitchcuda.verify.inputs.reference_requests import Expect
from stitchcuda.verify.inputs.standing import find_standing
from stitchcuda.verify.inputs.value_changes import (
    leave_range,
    values_around,
    with_compared,
    with_constant_rows,
    with_grown_integers,
    with_nonfinite,
    with_rows_of_zeros,
    with_ties,
)
from stitchcuda.verify.inputs.value_domain import can_grow, is_narrow
from stitchcuda.verify.messages.tensor_block import unpack
from tests.verify.references import asking, loaded_worker, source


def left(tensor: torch.Tensor) -> torch.Tensor:
    made = leave_range(tensor, torch.Generator().manual_seed(1))
    assert (made.shape, made.dtype, made.stride()) == (tensor.shape, tensor.dtype, tensor.stride())
    return made


@pytest.mark.parametrize("tensor", [
    torch.rand(6, 32), 3 + torch.rand(6, 32), -torch.rand(6, 32), torch.zeros(4, 8), torch.ones(9), torch.tensor(2.0),
    torch.rand(3), torch.rand(6, 32, dtype=torch.float64), torch.rand(6, 32).bfloat16(), torch.rand(32, 6).t(),
])  # fmt: skip
def test_floats_get_the_other_sign_too(tensor: torch.Tensor) -> None:
    assert is_narrow(tensor)
    made = left(tensor)
    assert int((made == tensor).sum()) <= 0.7 * tensor.numel()
    if tensor.numel() > 8:
        assert not is_narrow(made)
        assert bool((made > 0).any())
        assert bool((made < 0).any())


def test_what_has_all_signs_or_a_meaning_is_left_alone() -> None:
    for tensor in (
        torch.randn(6, 32), torch.zeros(9, dtype=torch.int64), torch.randint(3, (8, 8)).float(), torch.arange(9.0),
        torch.empty(0), torch.randn(9, dtype=torch.complex64),
    ):  # fmt: skip
        assert not is_narrow(tensor, 0, IntegerUses(indices=frozenset((0,))))


def test_masks_of_ones_get_zeros_and_keep_the_first_of_each_line() -> None:
    for tensor in (torch.ones(6, 32, dtype=torch.int64), torch.ones(6, 32, dtype=torch.bool), torch.zeros(6, 32) > 1):
        assert is_narrow(tensor)
        made = left(tensor)
        assert set(made.long().flatten().tolist()) == {0, 1}
        assert torch.equal(made[:, 0], tensor[:, 0])


def test_sorted_values_stay_sorted() -> None:
    edges = torch.rand(32).cumsum(0)
    assert bool((left(edges).diff() >= 0).all())
    assert not torch.equal(left(edges), edges)


def test_rows_become_zero() -> None:
    x = torch.rand(8, 40, 16) + 1
    made = with_rows_of_zeros(x, torch.Generator().manual_seed(0))
    zero = (made == 0).all(-1)
    assert int(zero.all(-1).sum()) == 1
    assert int(zero.any(-1).sum()) > 1
    column = (made == 0).all(0).all(0)
    assert int(column.sum()) == 1
    assert torch.equal(made[~zero][:, ~column], x[~zero][:, ~column])
    for shape in ((1, 9), (2, 3), (5, 1)):
        assert int((with_rows_of_zeros(torch.ones(shape), torch.Generator()) != 0).sum()) > 0


def test_standing_members_are_found_with_few_tries() -> None:
    tries = []

    def stands(members: Any) -> bool:
        tries.append(list(members))
        return not {3, 11} & set(members)

    assert sorted(find_standing(range(16), stands)) == [number for number in range(16) if number not in (3, 11)]
    assert len(tries) <= 2 * 2 * 4 + 1
    assert find_standing([], stands) == []
    assert find_standing([1, 2], lambda members: False) == []


def ranges(*draws: Any, refused: Any = ()) -> InputRanges:
    given = iter(draws)

    def stands(arguments: Any) -> bool:
        return not any(bool(refuses(arguments[0])) for refuses in refused)

    return find_ranges(lambda: (next(given), {}), RangeTests(stands, stands_zeros=stands), torch.Generator().manual_seed(0))


def test_each_input_is_tried() -> None:
    found = ranges(
        (torch.rand(8, 8), torch.rand(8, 8), torch.randn(8, 8)),
        refused=[lambda args: (args[1] < 0).any(), lambda args: (args[2] == 0).all(1).any()],
    )
    assert found.free == {0}
    assert found.zeros == {0, 1}
    assert found.notes == ("limited: input 1 has only values like those of get_inputs(): the reference fails on others",)


def test_zeros_in_the_same_places_and_infinities_stay() -> None:
    first, second = (torch.randn(16, 16).tril() for _ in range(2))
    mask = torch.zeros(16, 16).masked_fill(torch.ones(16, 16).triu(1) > 0, -torch.inf)
    found = ranges((first, mask), (second, mask))
    assert found.notes == ("limited: zeros that every draw of get_inputs() has in the same places stay: in input 0, 1",)
    for variant in (*variants.VALUES, "patchwork", "negative"):
        made = variants.vary(((first, mask), {}), variant, torch.Generator().manual_seed(0), found)
        assert made is not None
        assert torch.equal(made[0][0], made[0][0].tril())
        assert torch.equal(made[0][1], mask)


def test_zeros_by_chance_do_not_stay() -> None:
    rows = torch.arange(64), torch.randint(64, (2, 64))
    one_hot = [torch.zeros(64, 64).index_put((rows[0], columns), torch.tensor(0.5)) for columns in rows[1]]
    for first, second in ([torch.randn(64, 64).relu() for _ in range(2)], one_hot):
        found = ranges((first,), (second,))
        assert not found.still
        assert not [note for note in found.notes if "zeros" in note]


def test_what_stays_sorted_or_a_mask_is_named() -> None:
    ids = torch.randint(9, (32,)).sort().values
    draws = [(torch.randn(8, 16), ids, (torch.rand(8, 16) < 0.5).float()) for _ in range(2)]
    assert ranges(*draws).notes == (
        "limited: input 1 stays sorted, as get_inputs() gives it: a program may rely on that",
        "limited: input 2 holds zeros and ones only, as get_inputs() gives it: a program may rely on that",
    )


Sets = list[list[torch.Tensor]]


def values(folder: Path, result: str, inputs: str, *, names: str = "x") -> tuple[Sets, list[str], list[str]]:
    """The inputs of five sets, the variants and the notes."""
    ask = asking(folder, source(result, inputs, names=names))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 5)
    return [unpack(given.inputs, "cpu") for given in made.sets], [given.variant for given in made.sets], made.notes


def test_a_relu_sees_negative_inputs(tmp_path: Path) -> None:
    sets, chosen, notes = values(tmp_path, "x.relu()", "[torch.rand(8, 16)]")
    assert [bool((given[0] < 0).any()) for given in sets] == [False, True, True, False, False]
    assert chosen[1] == "patchwork, outside of the range of get_inputs()"
    assert bool((sets[1][0] == 0).all(1).any())
    assert not [note for note in notes if note.startswith("limited") and "beyond these" not in note]


def test_a_logarithm_does_not(tmp_path: Path) -> None:
    sets, _, notes = values(tmp_path, "x.log()", "[torch.rand(8, 16) + 0.1]")
    assert not any(bool((given[0] <= 0).any()) for given in sets)
    assert "limited: input 0 has only values like those of get_inputs(): the reference fails on others" in notes


def test_initial_states_of_zeros_and_masks_of_ones_vary(tmp_path: Path) -> None:
    result = "x * mask + h * scale"
    given = "[torch.randn(8, 16), torch.zeros(8, 16), torch.ones(8, 16, dtype=torch.int64), torch.tensor(1.0)]"
    sets, _, notes = values(tmp_path, result, given, names="x, h, mask, scale")
    x, h, mask, scale = zip(*sets, strict=True)
    for tensors in (h, mask, scale):
        assert any(not torch.equal(tensors[0], other) for other in tensors[1:])
    assert {0, 1} == set(mask[1].flatten().tolist())
    assert "never varies" not in "; ".join(notes)
    assert len(x) == 5


def test_an_integer_that_the_host_reads_is_named(tmp_path: Path) -> None:
    _, _, notes = values(tmp_path, "x * at.item()", "[torch.randn(8, 16), torch.tensor([5])]", names="x, at")
    assert "limited: input 1 never varies: a program may ignore it or have it built in" in notes


@pytest.mark.parametrize(("result", "tried"), [
    ("x.relu()", True), ("x.amax(-1)", True), ("x.max()", True), ("nn.functional.max_pool1d(x, 2)", True),
    ("x.argmax(-1)", True), ("x.topk(2).values", True), ("x.max(-1)", True), ("x.sort(-1).values", True),
    ("(x > 0).int()", True), ("x.sort(dim=-1, stable=True)", True), ("x.sort(-1)", False), ("x.topk(2)", False),
    ("x.gather(1, x.topk(2).indices)", False), ("nn.functional.max_pool1d(x, 2, return_indices=True)", False),
    ("x.median(-1)", False), ("x.cummax(-1)", False),
])  # fmt: skip
def test_ties_are_not_made_where_torch_leaves_them_open(tmp_path: Path, result: str, tried: bool) -> None:
    sets, *_ = values(tmp_path, result, "[torch.randn(8, 16)]")
    assert any(bool((given[0] == 0).all(1).any()) for given in sets) == tried


def test_lines_hold_their_largest_value_several_times() -> None:
    x = torch.randn(32, 48, 20)
    made = with_ties(x, torch.Generator().manual_seed(0))
    for axis in range(3):
        for value in (made.amax(axis, keepdim=True), made.amin(axis, keepdim=True)):
            assert bool(((made == value).sum(axis) > 1).any())
    assert int((made == x).sum()) > 0.5 * x.numel()
    line = with_ties(torch.randn(64), torch.Generator().manual_seed(0))
    assert int((line == line.max()).sum()) > 1


def test_rows_and_planes_hold_one_small_power_of_two() -> None:
    x = torch.randn(8, 6, 10, 16).abs()
    made = with_constant_rows(x, torch.Generator().manual_seed(0))
    value = 2.0**-10 if float(x.square().mean()) >= 1 else 2.0**-11
    same = made == value
    assert bool(same.all(-1).any())
    assert bool(same.flatten(2).all(-1).any())
    assert int(same.flatten(1).all(-1).sum()) == 1
    assert bool((with_constant_rows(-x, torch.Generator().manual_seed(0)) < 0).all())


def test_nonfinite_values_are_few() -> None:
    x = torch.randn(16, 32)
    made = with_nonfinite((torch.nan, torch.inf, -torch.inf), torch.Generator().manual_seed(0), x)
    assert [int(found.sum()) for found in (made.isnan(), made.isposinf(), made.isneginf())] == [8, 8, 8]
    assert torch.equal(made[made.isfinite()], x[made.isfinite()])


def test_integers_grow_so_that_their_sum_exceeds_32_bits() -> None:
    x = torch.randint(1, 1000, (4, 256))
    assert can_grow(x)
    made = with_grown_integers(x, torch.Generator().manual_seed(0), 2**30)
    assert int(made.max()) <= 2**30
    assert bool((made.sum(-1) > 2**31).all())
    assert {2, 8} <= set((made // x).flatten().tolist())
    for tensor in (torch.randint(2, (4, 64)), torch.arange(64), torch.randn(4, 64)):
        assert not can_grow(tensor)


def found_ranges(folder: Path, result: str, inputs: str = "[torch.randn(32, 24)]", *, names: str = "x") -> InputRanges:
    worker = loaded_worker(folder, source(result, inputs, names=names))
    made = secret_inputs.draw(worker.answer)
    secret_inputs.extend(worker.answer, made, 2)
    assert worker._outputs.ranges is not None
    return worker._outputs.ranges


@pytest.mark.parametrize(("result", "huge"), [("x.softmax(-1)", 8192.0), ("x.exp()", 85.0), ("x.logsumexp(-1)", 8192.0)])
def test_exponentials_overflow_where_the_reference_stands_it(tmp_path: Path, result: str, huge: float) -> None:
    assert found_ranges(tmp_path, result, "[torch.rand(32, 24)]").huge == {0: huge}


NORM = "(x - x.mean(-1, keepdim=True)) / "


@pytest.mark.parametrize(("result", "constant"), [
    ("nn.functional.layer_norm(x, (24,))", True), ("(x - x.amin(-1, keepdim=True)) / (x.amax() + 1e-8)", True),
    (NORM + "(x.std(-1, keepdim=True) + 1e-8)", False), (NORM + "(x.var(-1, keepdim=True) + 1e-5).sqrt()", True),
    ("x / (x.std(-1, keepdim=True) + 1e-3)", True), (NORM + "x.std(-1, keepdim=True)", False),
])  # fmt: skip
def test_constant_rows_are_tried_where_rounding_does_not_decide(tmp_path: Path, result: str, constant: bool) -> None:
    assert found_ranges(tmp_path, result).constant == ({0} if constant else set())


@pytest.mark.parametrize(("result", "found"), [
    ("torch.nan_to_num(x, 0.5, 8.0, -8.0)", 3), ("torch.nan_to_num(x.clamp(-3, 3))", 0), ("torch.where(x.isnan(), 0, x)", 1),
    ("torch.where(torch.isfinite(x), x, torch.zeros_like(x))", 3), ("x.nansum(-1)", 1), ("x.relu()", 0),
    ("torch.nan_to_num(x.softmax(-1))", 0), ("torch.where(x != x, 0, x)", 1), ("x.masked_fill(x.isinf(), 0)", 2),
])  # fmt: skip
def test_nan_is_tried_where_the_reference_looks_for_it(tmp_path: Path, result: str, found: int) -> None:
    assert len(found_ranges(tmp_path, result).nonfinite.get(0, ())) == found


@pytest.mark.parametrize(("result", "values"), [
    ("torch.where(x > 0.5, x, 2 * x)", {0.5, 0.75}), ("x.clamp(-1e4, 1e4) * 3", {-1e4, 1e4, 1.5e4}),
    ("nn.functional.hardshrink(x, 0.25)", {-0.25, 0.25}), ("torch.where(x == -999, 0, x)", {-999.0}),
    ("torch.bucketize(x, torch.tensor([-1.5, 1.5]))", {-1.5, 1.5}), ("x.round() + x", {0.5, 1.5, -2.5}),
    ("x.floor() * x", {1.0}), ("torch.copysign(torch.ones(()), x)", {0.0}), ("x.remainder(0.5)", {0.5, 1.0}),
])  # fmt: skip
def test_inputs_hold_the_values_that_the_reference_compares_with(tmp_path: Path, result: str, values: set[float]) -> None:
    found = found_ranges(tmp_path, result).compared[0]
    assert values <= set(found)
    assert len(found) == len(set(map(str, found)))
    ask = asking(tmp_path / "again", source(result, "[torch.randn(32, 24)]"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 5)
    assert any(values <= set(unpack(given.inputs, "cpu")[0].flatten().tolist()) for given in made.sets)


def test_both_zeros_are_compared(tmp_path: Path) -> None:
    assert {"0.0", "-0.0"} <= set(map(str, found_ranges(tmp_path, "torch.copysign(torch.ones(()), x)").compared[0]))


def test_what_a_dtype_rounds_is_met_on_both_sides_only(tmp_path: Path) -> None:
    found = found_ranges(tmp_path, "torch.where(x > 0.1, x, 2 * x)").compared[0]
    tenth = torch.tensor(0.1)
    assert float(tenth) not in found
    assert {float(tenth.nextafter(torch.tensor(end))) for end in (1.0, -1.0)} <= set(found)


@pytest.mark.parametrize(("values", "uses", "kept"), [
    ((3, 200), IntegerUses(), (3, 200)), ((3, 70), IntegerUses(frozenset((0,)), sizes={0: 64}), (3,)),
    ((3, 70), IntegerUses(frozenset((0,))), (3,)), ((3,), IntegerUses(read=frozenset((0,))), ()),
    ((3,), IntegerUses(places=frozenset((0,))), ()), ((2.5, 1e30), IntegerUses(), ()),
])  # fmt: skip
def test_whole_numbers_stay_in_their_range(values: tuple[float, ...], uses: IntegerUses, kept: tuple[float, ...]) -> None:
    tensor = torch.tensor([[5, 60, 7, 0], [9, 2, 33, 21], [1, 5, 4, 8]])
    assert values_around(values, tensor, 0, uses, free=False) == kept
    assert values_around(values, torch.arange(12), 0, uses, free=False) == ()


@pytest.mark.parametrize("shape", [(64, 33), (4096,), (3, 5, 7, 11), (2, 3)])
def test_each_value_is_planted_in_some_rows(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    given, values = torch.zeros(shape), (1.0, 2.0, 3.0)
    monkeypatch.setattr("stitchcuda.verify.inputs.value_changes._SLOTS", 128)
    made = with_compared(values, torch.Generator().manual_seed(2), given)
    counts = [int((made == value).sum()) for value in values]
    assert min(counts) == max(counts) == max(1, min(given.numel() // 256, 128 // 3))
    assert not bool(given.any())
    assert made.dim() == 1 or bool((made.flatten(0, -2) == 0).all(1).any())


def test_floats_stay_in_their_domain() -> None:
    given = torch.rand(16, 4)
    assert values_around((0.5, 1.0, -2.0), given, 0, IntegerUses(), free=False)[:2] == (0.5, 1.0)
    assert max(values_around((0.5, 1.0, -2.0), given, 0, IntegerUses(), free=False)) == 1.0
    assert min(values_around((0.5, 1.0, -2.0), given, 0, IntegerUses(), free=True)) == -3.0
    half = values_around((0.5, 0.1), given.half(), 0, IntegerUses(), free=False)
    assert 0.5 in half
    assert 0.1 not in half


@pytest.mark.parametrize(("result", "blank"), [
    ("x / x.abs().amax().clamp(min=1e-8)", True), ("x / x.norm()", False), ("x + 1", True), ("x.log_softmax(-1)", True),
])  # fmt: skip
def test_inputs_of_zeros_are_tried(tmp_path: Path, result: str, blank: bool) -> None:
    assert found_ranges(tmp_path, result).blank == ({0} if blank else set())
    ask = asking(tmp_path / "again", source(result, "[torch.randn(32, 24)]"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 1)
    drawn = [given for given in secret_inputs.draw_rare(ask, made) if given.variant in ("blank", "nudged")]
    assert [given.variant for given in drawn] == (["blank", "nudged"] if blank else ["nudged"])
    assert not any(bool(unpack(given.inputs, "cpu")[0].any()) for given in drawn if given.variant == "blank")


def test_full_masks_and_small_changes_are_tried(tmp_path: Path) -> None:
    given = "[torch.randn(32, 24), torch.rand(32, 24) < 0.5]"
    ask = asking(tmp_path, source("x.masked_fill(~mask, 0.0)", given, names="x, mask"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    rare = {given.variant: unpack(given.inputs, "cpu") for given in secret_inputs.draw_rare(ask, made)}
    first, full, nudged, alike = unpack(made.sets[0].inputs, "cpu"), *(rare[name] for name in ("full", "nudged", "alike"))
    assert bool(full[1].all())
    assert len(set(map(tuple, alike[0].tolist()))) == 2
    assert 0 < float((rare["drifted"][0] / first[0] - 1).abs().max()) < 1e-5
    changed = (nudged[0] / first[0] - 1).abs()
    assert bool(((changed > 1e-4) & (changed < 1e-2)).all())
    assert torch.equal(nudged[1], first[1])


def test_a_crash_beyond_the_range_ends_such_tries(tmp_path: Path) -> None:
    """As an index out of range does on a GPU. The variants are then drawn in the range that get_inputs() shows."""
    ask = asking(tmp_path, source("x.sqrt()", "[torch.rand(8, 16)]"))
    asked: list[bool] = []

    def fragile(request: Any) -> Any:
        if isinstance(request, Expect):
            asked.append(request.beyond)
            if request.beyond and len(request.variants) > 1:
                raise secret_inputs.ReferenceLost("the reference crashed")
        return ask(request)

    made = secret_inputs.draw(fragile)
    secret_inputs.extend(fragile, made, 3)
    assert asked == [True, True, False, False]
    assert [given.variant for given in made.sets][1] == "patchwork"
    assert "limited: only values like those of get_inputs() were tried: for others, the reference crashed" in made.notes
