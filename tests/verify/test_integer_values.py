"""Integers get other values than get_inputs() shows, within what the reference's operators allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stitchcuda.verify.inputs.integer_values import IntegerUses, can_redraw, redraw
from stitchcuda.verify.inputs.value_changes import leave_range
from stitchcuda.verify.inputs.value_domain import is_narrow
from stitchcuda.verify.reference.operator_uses import OperatorUses
from tests.verify.test_input_ranges import values

INDEX = IntegerUses(indices=frozenset((0,)))
PLACES = IntegerUses(indices=frozenset((0,)), places=frozenset((0,)))


def redrawn(tensor: Tensor, uses: IntegerUses = INDEX) -> Tensor:
    made = redraw(tensor, 0, uses, torch.Generator().manual_seed(1))
    assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)
    return made


def test_bytes_name_all_rows_of_a_table_of_256() -> None:
    given = torch.randint(6, 200, (8, 256), dtype=torch.uint8)
    made = redrawn(given, IntegerUses(indices=frozenset((0,)), sizes={0: 256}))
    assert (int(made.min()), int(made.max())) == (0, 255)


def test_an_index_stays_between_0_and_the_largest() -> None:
    given = torch.randint(5, 90, (8, 64))
    made = redrawn(given)
    assert int((made.amin(-1) == 0).sum()) > 4, "5 was the least"
    lines = redrawn(torch.randint(5, 90, (64, 64)))
    assert 0 < int((lines.amin(-1) == lines.amax(-1)).sum()) < 32, "some hold one value only"
    assert bool((made <= given.amax(-1, keepdim=True)).all())
    assert not torch.equal(made, given)
    coordinates = torch.stack((torch.randint(640, (99,)), torch.randint(480, (99,))), 1)
    assert bool((redrawn(coordinates).amax(0) <= coordinates.amax(0)).all()), "each column has a range of its own"


def test_what_is_only_computed_with_gets_the_other_sign() -> None:
    given = torch.randint(5, 90, (8, 64))
    made = redrawn(given, IntegerUses())
    assert bool((made < 0).any())
    assert bool((made == 0).any())
    assert int(made.abs().max()) <= int(given.max())
    assert int(redrawn(given.to(torch.uint8), IntegerUses()).long().min()) == 0


def test_sorted_integers_stay_sorted_with_their_ends() -> None:
    offsets = torch.tensor([0, 3, 9, 14, 15, 40])
    made = redrawn(offsets)
    assert bool((made.diff() >= 0).all())
    assert (int(made[0]), int(made[-1])) == (0, 40)
    assert not torch.equal(made, offsets)
    falling = torch.arange(40).flip(0)
    assert redraw(falling, 0, INDEX, torch.Generator()) is falling


def test_places_to_write_to_stay_distinct() -> None:
    given = torch.randperm(50)[:20]
    assert len(set(redrawn(given, PLACES).tolist())) == 20
    assert sorted(redrawn(torch.randperm(20), PLACES).tolist()) == list(range(20))
    assert bool((redrawn(given.sort().values, PLACES).diff() > 0).all()), "sorted ones stay sorted"
    assert len(set(redrawn(given).tolist())) < 20, "where nothing is written, they need not be"


def test_masks_get_lines_of_other_density() -> None:
    for given in (torch.rand(32, 64) < 0.5, torch.ones(32, 64, dtype=torch.int64), (torch.rand(32, 64) < 0.5).float()):
        made = redrawn(given, IntegerUses()).float()
        assert set(made.flatten().tolist()) == {0.0, 1.0}
        assert torch.equal(made[:, 0], given[:, 0].float())
        assert float(made.mean(-1).std()) > 0.15


def test_labels_that_a_loss_leaves_out_are_drawn() -> None:
    made = redrawn(torch.randint(5, (256,)), IntegerUses(indices=frozenset((0,)), ignored={0: -100}))
    assert set(made.tolist()) == {-100, 0, 1, 2, 3, 4}


def test_what_the_host_reads_stays() -> None:
    assert not can_redraw(torch.tensor([5, 7]), 0, IntegerUses(read=frozenset((0,))))
    assert not can_redraw(torch.zeros(9, dtype=torch.int64), 0, INDEX), "nothing but 0 is sure to be an index"
    assert can_redraw(torch.tensor(5), 0, INDEX)


def test_probabilities_get_zeros_and_other_sums() -> None:
    given = torch.randn(16, 32).softmax(-1)
    made = leave_range(given, torch.Generator().manual_seed(1))
    assert is_narrow(given)
    assert bool((made == 0).any())
    assert bool((made.sum(-1) > 0.4).all() & (made.sum(-1) < 1.6).all())
    assert float(made.sum(-1).std()) > 0.1


def test_real_numbers_get_an_imaginary_part() -> None:
    given = torch.randn(16, 32).to(torch.complex64)
    made = leave_range(given, torch.Generator().manual_seed(1))
    assert is_narrow(given)
    assert not is_narrow(made)
    torch.testing.assert_close(made.abs(), given.abs())


def of_table(size: int, **others: Any) -> IntegerUses:
    return IntegerUses(indices=frozenset((0,)), sizes={0: size}, **others)


def test_an_index_of_a_known_table_may_name_all_its_rows() -> None:
    made = redrawn(torch.zeros(8, 64, dtype=torch.int64), of_table(30))
    assert can_redraw(torch.zeros(9, dtype=torch.int64), 0, of_table(30))
    assert set(made.flatten().tolist()) == set(range(30))


TABLE, IDS, X = torch.randn(9, 4), torch.randint(9, (16,)), torch.randn(16, 4)


@pytest.mark.parametrize(("call", "expected"), [
    (lambda ids: X * ids.clamp(max=5)[:, None], IntegerUses()),
    (lambda ids: X * (torch.arange(16) < ids[:, None].float()).sum(1, keepdim=True), IntegerUses()),
    (lambda ids: TABLE[ids], of_table(9)),
    (lambda ids: F.embedding(ids.clone().view(4, 4), TABLE) + TABLE[:9][ids.long()].view(4, 4, 4), of_table(9)),
    (lambda ids: F.embedding(ids + 0, TABLE), INDEX),
    (lambda ids: F.embedding(ids, TABLE).sum() + X[ids.flip(0)].sum(), INDEX),
    (lambda ids: X[ids].sum() + TABLE.gather(0, ids[:, None]).sum(), of_table(9)),
    (lambda ids: F.embedding(ids.float().long(), TABLE), of_table(9)),
    (lambda ids: X[:, None].expand(16, 16, 4)[torch.arange(16), ids], INDEX),
    (lambda ids: X[: int(ids.max())], IntegerUses(read=frozenset((0,)))),
    (lambda ids: torch.zeros(9, 4).index_copy(0, ids, X), PLACES),
    (lambda ids: torch.zeros(9, 4).index_add(0, ids, X), of_table(9)),
    (lambda ids: torch.zeros(9, 4).index_put((ids,), X, accumulate=True), INDEX),
    (lambda ids: torch.zeros(9, 4).scatter_add(0, ids[:, None], X), of_table(9)),
    (lambda ids: TABLE.gather(0, ids.amax(keepdim=True)[:, None]), of_table(9)),
    (lambda ids: F.cross_entropy(torch.randn(16, 9), ids), of_table(9, ignored={0: -100})),
    (lambda ids: TABLE[torch.arange(9)] * ids.sum(), IntegerUses()),
])  # fmt: skip
def test_operators_tell_what_integers_are(call: Callable[[Tensor], Tensor], expected: IntegerUses) -> None:
    ids = IDS.clone()
    with OperatorUses(((ids,), {}), {}) as seen:
        call(ids)
    assert seen.uses() == expected


def test_lengths_and_masks_may_be_empty(tmp_path: Path) -> None:
    result = "(x * (torch.arange(16) < lengths[:, None])).sum(1) / lengths.clamp(min=1) + (x * mask).sum(-1)"
    given = "[torch.randn(32, 16), torch.randint(1, 17, (32,)), torch.rand(32, 16) < 0.5]"
    sets, _, notes = values(tmp_path, result, given, names="x, lengths, mask")
    _, lengths, mask = zip(*sets, strict=True)
    assert any(bool((given <= 0).any()) for given in lengths)
    assert any(not bool(given.any(-1).all()) for given in mask)
    assert not [note for note in notes if note.startswith("limited") and "beyond these" not in note]


def test_a_setting_grows_and_gets_the_other_sign(tmp_path: Path) -> None:
    sets, *_ = values(tmp_path, "x * scale.clamp(-4, 4)", "[torch.randn(8, 16), torch.tensor(2.0)]", names="x, scale")
    scales = [float(scale) for _, scale in sets]
    assert max(scales) >= 5
    assert min(scales) < 0


def test_rows_are_small_and_large(tmp_path: Path) -> None:
    sets, *_ = values(tmp_path, "x.clamp(-6, 6)", "[0.01 * torch.randn(1024, 16)]")
    assert float(sets[1][0].abs().max()) > 6
    sizes = sets[1][0].square().mean(-1).sqrt()
    assert bool(((sizes > 0) & (sizes < 1e-7)).any())
