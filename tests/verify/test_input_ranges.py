"""Inputs leave the range that get_inputs() shows where the reference stands it; structure stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.verify.inputs import secret_inputs, variants
from stitchcuda.verify.inputs.input_ranges import InputRanges, find_ranges, is_narrow, leave_range, with_rows_of_zeros
from stitchcuda.verify.inputs.integer_values import IntegerUses
from stitchcuda.verify.inputs.reference_requests import Expect
from stitchcuda.verify.inputs.standing import find_standing
from stitchcuda.verify.messages.tensor_block import unpack
from tests.verify.references import asking, source


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

    return find_ranges(lambda: (next(given), {}), stands, torch.Generator().manual_seed(0))


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
    assert not [note for note in notes if note.startswith("limited")]


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
    ("x.argmax(-1)", False), ("x.topk(2).values", False), ("x.max(-1).values", False), ("x.sort(-1).values", False),
    ("(x > 0).int()", False),
])  # fmt: skip
def test_ties_are_not_made_where_they_can_be_broken(tmp_path: Path, result: str, tried: bool) -> None:
    sets, *_ = values(tmp_path, result, "[torch.randn(8, 16)]")
    assert any(bool((given[0] == 0).all(1).any()) for given in sets) == tried


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
