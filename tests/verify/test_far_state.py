"""Values far from the constructor's: each kind changes what it says, as far as a reference stands it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from stitchcuda.verify.inputs import other_parameters, secret_inputs
from stitchcuda.verify.inputs.far_state import KINDS, BufferFacts, Draw, concerns, drawn_far
from stitchcuda.verify.inputs.integer_values import IntegerUses, crowd
from stitchcuda.verify.inputs.reseeding import Freedom, perturb_far
from stitchcuda.verify.messages.tensor_block import unpack
from tests.verify.references import asking, source

NONE = BufferFacts()
COMPLEX = torch.complex64


def drawn(kind: str, own: torch.Tensor, strength: float, freedom: Freedom = "any", facts: BufferFacts = NONE) -> torch.Tensor:
    assert concerns(KINDS[kind], own, freedom)
    return drawn_far(KINDS[kind], Draw(own, freedom, torch.Generator().manual_seed(1), facts), strength)


def test_matrices_grow_and_shrink_as_a_whole_and_vectors_by_element() -> None:
    matrix, ones = torch.randn(32, 48), torch.ones(64)
    assert float(drawn("large", matrix, 64.0).norm() / matrix.norm()) == pytest.approx(64, rel=0.1)
    assert int((drawn("large", ones, 64.0).abs() >= 2).sum()) == 16
    small = drawn("small", matrix, 64.0)
    assert float(small.norm() / matrix.norm()) < 1 / 50
    assert 0.05 < float((small == 0).float().mean()) < 0.2
    assert [int((drawn("small", ones, 64.0).abs() < most).sum()) for most in (1e-4, 1e-2)] == [22, 44]


def test_squares_of_a_recurrence_get_a_spectral_radius_and_gates_stay_open() -> None:
    made = drawn("long memory", 0.05 * torch.randn(96, 32), 1.0)
    radii = [float(torch.linalg.eigvals(block).abs().max()) for block in made.view(3, 32, 32)]
    assert all(0.7 < radius < 1.5 for radius in radii)
    gates = drawn("long memory", torch.zeros(64), 1.0)
    assert int((gates > 3.5).sum()) == int((gates < -3.5).sum()) == 24
    assert not concerns(KINDS["long memory"], torch.randn(7, 5), "any")


def test_complex_numbers_get_the_sizes_of_real_ones_and_generic_phases() -> None:
    matrix = torch.randn(32, 48, dtype=COMPLEX)
    large = drawn("large", matrix, 64.0)
    assert float(large.norm() / matrix.norm()) == pytest.approx(64, rel=0.1)
    assert float((large / matrix).imag.abs().max()) > 1
    assert 0.4 < float((drawn("pruned", matrix, 0.5) == 0).float().mean()) < 0.7
    assert int((drawn("large", torch.ones(64, dtype=COMPLEX), 64.0).abs() >= 2).sum()) == 16
    square = drawn("long memory", 0.05 * torch.randn(32, 32, dtype=COMPLEX), 1.0)
    assert 0.7 < float(torch.linalg.eigvals(square).abs().max()) < 1.5
    far = perturb_far(matrix, torch.Generator().manual_seed(1)) / matrix
    assert float((far - 1).abs().min()) > 0
    assert far.shape == matrix.shape


@pytest.mark.parametrize(("own", "facts", "strength", "least", "most"), [
    (torch.zeros(16, dtype=torch.int64), NONE, 3.0, 2**16, 2**20),
    (torch.tensor(0), BufferFacts(step=4, lengths=(256,)), 2.0, 252, 252),
    (torch.tensor(0), BufferFacts(names=True, step=4, lengths=(256,)), 3.0, 0, 0),
    (torch.randint(-8, 8, (48, 64), dtype=torch.int8), NONE, 3.0, -128, 127),
    (torch.randint(-8, 8, (48, 64), dtype=torch.int8), BufferFacts(names=True), 3.0, -8, 7),
    (torch.tensor(False), NONE, 3.0, 1, 1),
])  # fmt: skip
def test_whole_numbers_are_as_a_checkpoint_may_hold_them(
    own: torch.Tensor, facts: BufferFacts, strength: float, least: int, most: int
) -> None:
    made = drawn("loaded", own, strength, "none", facts)
    assert made.dtype is own.dtype
    assert least <= int(made.min()) <= int(made.max()) <= most
    assert int(made.max()) == most or own.numel() < 100


def test_permutations_are_reordered_and_what_is_in_order_stays() -> None:
    perm = (torch.arange(64) * 37 + 11) % 64
    made = drawn("loaded", perm, 3.0, "none")
    assert sorted(made.tolist()) == list(range(64))
    assert not torch.equal(made, perm)
    assert torch.equal(drawn("loaded", torch.arange(64), 3.0, "none"), torch.arange(64))


def test_crowded_integers_are_nearly_all_alike_and_sorted_ones_one_run() -> None:
    generator, ids = torch.Generator().manual_seed(0), torch.randint(0, 16, (1024,))
    made = crowd(ids, 0, IntegerUses(), generator, rising=False)
    assert int(made.bincount().max()) > 900
    assert set(made.tolist()) < set(ids.tolist())
    offsets = torch.arange(0, 1024, 8)
    run = crowd(offsets, 0, IntegerUses(), generator, rising=True)
    assert len(set(run.tolist())) <= 3
    assert (int(run[0]), int(run[-1])) == (0, 1016)
    assert crowd(offsets, 0, IntegerUses(), generator, rising=False) is offsets
    assert crowd(ids, 0, IntegerUses(places=frozenset((0,))), generator, rising=False) is ids


def test_a_reference_gets_of_each_kind_what_it_stands(tmp_path: Path) -> None:
    """An exponential overflows at 64 times its size, but not at 8 times."""
    init = "self.p0 = nn.Parameter(torch.ones(16, 16)); self.register_buffer('n', torch.zeros(4, dtype=torch.int64))"
    ask = asking(tmp_path, source("x @ self.p0 + (self.n > 50).sum() + 0 * (self.p0 * 4).exp().sum()", init=init))
    one = secret_inputs.draw(ask)
    secret_inputs.extend(ask, one, 2)
    others: list[secret_inputs.SecretInputs] = []
    other_parameters.redraw_far(ask, one, others)
    told = [note for note in one.notes if not note.startswith("inputs with rows")]  # a rare draw overflows
    assert told == [note for note in told if "had other values in two calls only" in note and note.endswith(": n")]
    found = {other.kind: unpack(other.state, "cpu") for other in others}
    assert set(found) == set(KINDS)
    assert math.isclose(float(found["large"][0].norm()), 128, rel_tol=0.2)
    assert int(found["loaded"][1].min()) >= 2**16


@pytest.mark.parametrize(("result", "pruned"), [("x @ self.p0", True), ("(x @ self.p0).topk(3).indices", False)])
def test_rows_become_equal_only_where_torch_says_which_is_named(tmp_path: Path, result: str, pruned: bool) -> None:
    ask = asking(tmp_path, source(result, init="self.p0 = nn.Parameter(torch.randn(16, 16))"))
    one = secret_inputs.draw(ask)
    secret_inputs.extend(ask, one, 2)
    others: list[secret_inputs.SecretInputs] = []
    other_parameters.redraw_far(ask, one, others)
    found = {other.kind: unpack(other.state, "cpu")[0] for other in others}
    assert ("pruned" in found) == pruned
    assert not pruned or float((found["pruned"] == 0).float().mean()) > 0.7
