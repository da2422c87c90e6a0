"""What a timed call is given: every turn is another content, in the same layout, the same wherever it is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stitchcuda.verify.inputs import secret_inputs, timed_contents
from stitchcuda.verify.inputs.reference_requests import FindMovable
from stitchcuda.verify.integrity import speed_of_light
from stitchcuda.verify.messages.tensor_block import pack, unpack
from tests.verify.references import asking, source
from tests.verify.test_timing import timed_result


def moved(tensors: list[torch.Tensor], turn: int, *, scaled: bool = True) -> list[torch.Tensor]:
    made = timed_contents.allocate_like(tensors)
    timed_contents.refresh(made, tensors, turn, timed_contents.find_movable(tensors), scaled=scaled)
    return made


@pytest.mark.parametrize("shape", [(4096,), (16, 64), (1, 300), (4, 8, 16, 2), (3, 1, 1, 50)])
def test_turns_differ_and_keep_the_layout(shape: tuple[int, ...]) -> None:
    source = [torch.randn(shape), torch.randint(0, 100, shape)]
    seen = {tuple(one.numpy().tobytes() for one in moved(source, turn)) for turn in range(200)}
    assert len(seen) == 200
    for one, was in zip(moved(source, 77, scaled=False), source, strict=True):
        assert one.stride() == was.stride()
        assert torch.equal(one.flatten().sort()[0], was.flatten().sort()[0])


def test_a_turn_is_torch_roll() -> None:
    source = torch.randn(5, 7)
    assert torch.equal(moved([source], 3 + 5 * 2, scaled=False)[0], source.roll((3, 2), (0, 1)))


def test_pairs_are_taken_apart() -> None:
    """Otherwise a loss over both would not change when both turn alike."""
    x = torch.randn(64, 32)
    one, other = moved([x, x.clone()], 12345, scaled=False)
    assert not torch.equal(one, other)


def test_strides_are_kept() -> None:
    source = torch.randn(6, 10, 4).permute(2, 0, 1)
    made = moved([source], 9, scaled=False)[0]
    assert made.stride() == source.stride()
    assert torch.equal(made, source.roll((9 % 4, 2), (0, 2)))


def test_zeros_of_a_triangular_matrix_stay(tmp_path: Path) -> None:
    ask = asking(tmp_path, source("torch.tril(x @ y)", "[torch.tril(torch.rand(24, 24)), torch.rand(24, 24)]", names="x, y"))
    made = secret_inputs.draw(ask)
    secret_inputs.extend(ask, made, 2)
    found = ask(FindMovable((made.sets[0].inputs,)))
    assert found.moving == found.floats == [[0], [1, 0, 1]]
    given = unpack(made.sets[0].inputs, "cpu")
    turned = timed_contents.allocate_like(given)
    timed_contents.refresh(turned, given, 1234, found.moving, scaled=False)
    assert torch.equal(turned[0] == 0, given[0] == 0)
    assert not torch.equal(turned[0], given[0])
    assert torch.equal(turned[0].flatten().sort()[0], given[0].flatten().sort()[0])


def test_what_means_something_by_place_stays() -> None:
    mask = torch.zeros(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), float("-inf"))
    base = torch.randn(100)
    given = [
        mask, torch.rand(8, 8).round(), torch.arange(50), torch.tensor(2.0), base[:50], base[25:75],
        torch.randn(4, 1).expand(4, 9), torch.rand(9) > 0.5, torch.randn(0, 3), torch.randn(9, 9),
    ]  # fmt: skip
    assert timed_contents.find_movable(given) == [[9, 0, 1]]
    made = moved(given, 12345)
    assert all(torch.equal(one, was) for one, was in zip(made[:9], given[:9], strict=True))
    made[4][-1] = 7.0                      # shared memory is shared again
    assert made[5][24] == 7.0


def test_what_is_in_order_stays_and_indices_stay_in_range() -> None:
    sizes = torch.tensor([1000, 10, 100_000])
    given = [
        torch.rand(64).cumsum(0), torch.rand(64).sort(descending=True).values, torch.rand(8, 64).sort(-1).values,
        torch.stack([torch.arange(500) // 5, torch.randint(90, (500,))]),             # edges, sorted by source
        torch.cat([torch.randint(int(size), (100,)) for size in sizes]),              # one feature after the other
        torch.stack([torch.randint(90, (500,)), torch.randint(60, (500,))]),          # edges
        torch.stack([torch.randint(int(size), (128,)) for size in sizes], 1),         # a table to each column
    ]  # fmt: skip
    assert [position for position, *_ in timed_contents.find_movable(given)] == [5, 6]
    for turn in range(1000, 1050):
        made = moved(given, turn)
        assert all(torch.equal(one, was) for one, was in zip(made[:5], given[:5], strict=True))
        assert int(made[5][1].max()) < 60
        assert bool((made[6].amax(0) < sizes).all())
        assert not torch.equal(made[6], given[6])


def test_short_integers_do_not_come_twice() -> None:
    tokens = [torch.randint(50_000, (1, 24))]
    assert len({tuple(moved(tokens, turn)[0][0].tolist()) for turn in range(500)}) == 500


def test_the_same_after_a_journey() -> None:
    source = [torch.randn(16, 8).bfloat16(), torch.randn(8, 3, dtype=torch.complex64), torch.randn(30).double()]
    there = unpack(pack(source, "cpu"), "cpu")
    assert timed_contents.find_movable(there) == timed_contents.find_movable(source) == [[0, 0, 1], [1, 0, 1], [2, 0]]
    assert all(torch.equal(one, other) for one, other in zip(moved(there, 99), moved(source, 99), strict=True))


def test_faster_than_memory_is_refused() -> None:
    """1000 bytes at 1 MB/s take 1 ms; 80 % of that is the floor."""
    def judged(ms: float, *, outputs: int = 0, l2: int = 0, matters: bool = True) -> tuple[str, ...]:
        return speed_of_light.apply_floor(
            timed_result(ms), lambda: [1000], lambda: outputs, at_most=2000, bandwidth=1e6, l2=l2, matters=lambda: [matters]
        ).refused  # fmt: skip

    assert judged(0.9) == ()
    assert "faster than memory" in judged(0.7)[0]
    assert judged(0.7, matters=False) == ()
    assert judged(0.9, outputs=1000, l2=1000) == ()
    assert len(judged(0.9, outputs=1000)) == 1
    unknown = speed_of_light.apply_floor(
        timed_result(0.1), lambda: [1000], lambda: 0, at_most=2000, bandwidth=0.0, l2=0, matters=lambda: [True]
    )
    assert unknown.refused == ()
    assert "no floor" in unknown.notes[0]


def test_inputs_matter_when_every_element_does() -> None:
    def run(args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x, y, _ = args
        return {"output": torch.relu(x).sum() + y[:, :2].max()}

    args = (torch.randn(32, 32), torch.randn(32, 32), torch.randn(9))
    before = [tensor.clone() for tensor in args]
    assert speed_of_light.find_mattering(run, args, {}, list(args)) == [True, False, False]
    assert all(torch.equal(one, was) for one, was in zip(args, before, strict=True))
