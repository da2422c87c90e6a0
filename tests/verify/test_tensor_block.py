"""Tensors keep bits, layout and shared memory in a block; a layout that lies is refused, and nobody changes what was sent."""

from __future__ import annotations

import copy
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.verify.messages import tensor_block
from stitchcuda.verify.messages.tensor_block import TensorBlock, WireError, digest, fill, new_block, pack, unpack

LAYOUTS = {
    "dense": torch.randn(3, 4),
    "transposed": torch.randn(3, 4).t(),
    "sliced": torch.randn(6, 8)[1::2, 3:7],
    "expanded": torch.randn(1, 4).expand(3, 4),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 5),
    "bfloat16": torch.randn(7).bfloat16(),
    "bool": torch.tensor([True, False]),
    "int64": torch.arange(5),
    "complex": torch.randn(3, dtype=torch.complex64),
    "float8": torch.randn(4).to(torch.float8_e4m3fn),
    "nan": torch.tensor([math.nan, math.inf, -0.0]),
    "float8_e5m2": torch.randn(4).to(torch.float8_e5m2),
    "complex32": torch.randn(3, dtype=torch.complex32),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "uint16": torch.arange(5).to(torch.uint16),
    "parameter": torch.nn.Parameter(torch.randn(3)),
    "within a storage": torch.arange(100.0)[13:29],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_tensors_keep_bits_and_layout(name: str) -> None:
    tensor = LAYOUTS[name]
    (back,) = unpack(pack([tensor], "cpu"), "cpu")
    assert back.shape == tensor.shape
    assert back.dtype == tensor.dtype
    assert back.stride() == tensor.stride()
    bits = [one.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for one in (tensor, back)]
    assert torch.equal(*bits)


def test_tensors_that_share_memory_share_it_again() -> None:
    base = torch.arange(100.0)
    given = [base[10:20], base[15:40:2], torch.arange(3), base[60:].view(torch.int32), base[70:]]
    block = pack(given, "cpu")
    assert block.size < 3000
    one, other, apart, bits, values = unpack(block, "cpu")
    one[5:] = -1
    assert other[0] == other[2] == -1 != other[4]
    assert apart.tolist() == [0, 1, 2]
    bits[10] = 0
    assert values[0] == 0
    assert one.untyped_storage().data_ptr() != bits.untyped_storage().data_ptr()


def test_a_packed_block_cannot_be_changed() -> None:
    block = pack([torch.ones(1000)], "cpu")
    for change in (
        lambda fd: os.pwrite(fd, b"x", 0), lambda fd: os.ftruncate(fd, 10), lambda fd: os.ftruncate(fd, 10**6),
        lambda fd: os.pwrite(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), b"x", 0),
    ):  # fmt: skip
        with pytest.raises(OSError, match="not permitted"):
            change(block.descriptor)
    assert bool((unpack(block, "cpu")[0] == 1).all())


def test_a_room_keeps_its_size_and_is_copied() -> None:
    room = new_block(8192, "cpu")
    layout = fill(room, [torch.ones(1000)])
    for size in (10, 10**6):
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(room.descriptor, size)
    written = room.with_layout(layout)
    copy_of_it, (back,) = tensor_block.snapshot(written), unpack(written, "cpu")
    os.pwrite(room.descriptor, bytes(8192), 0)
    assert bool((back == 1).all())
    assert bool((unpack(copy_of_it, "cpu")[0] == 1).all())
    assert not bool(unpack(written, "cpu")[0].any())


def test_what_does_not_fit_is_sent_dense_or_not_at_all() -> None:
    room = new_block(256, "cpu")
    sliced = torch.arange(1000)[::40]
    (back,) = unpack(room.with_layout(fill(room, [sliced])), "cpu")
    assert torch.equal(back, sliced)
    assert back.is_contiguous()
    with pytest.raises(WireError, match="260 bytes of tensors where at most 256 were expected"):
        fill(room, [torch.ones(65)])
    with pytest.raises(WireError, match="dtype"):
        fill(room, [torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)])


def layout_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {"spans": [64], "tensors": [entry]}


ENTRY: dict[str, Any] = {"dtype": "float32", "shape": [4], "strides": [1], "span": 0, "offset": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [17]}, {"shape": [2**62]}, {"shape": [2**40, 2**40], "strides": [0, 0]}, {"strides": [-1]},
        {"strides": [2**61]}, {"shape": [-4]}, {"shape": [4.0]}, {"shape": [True]}, {"shape": "4"}, {"strides": [1, 1]},
        {"shape": None}, {"offset": -4}, {"offset": 52}, {"offset": 2},
        {"offset": 2**70}, {"span": 1}, {"span": -1}, {"dtype": "qint8"}, {"dtype": "load"},
        {"dtype": ["float32"]}, {"shape": [1] * 65, "strides": [1] * 65}, {"shape": [0, 2**70], "strides": [1, 1]},
    ],
)  # fmt: skip
def test_a_layout_that_points_elsewhere_is_refused(change: dict[str, Any]) -> None:
    room = new_block(256, "cpu")
    assert len(unpack(room.with_layout(layout_of(ENTRY)), "cpu")) == 1
    with pytest.raises(WireError):
        unpack(room.with_layout(layout_of(ENTRY | change)), "cpu")


@pytest.mark.parametrize(
    "layout",
    [None, 3, "x", [], {}, {"spans": [64]}, {"spans": 64, "tensors": [ENTRY]}, {"spans": [64], "tensors": {"0": ENTRY}},
     {"spans": [512], "tensors": []}, {"spans": [64] * 5, "tensors": []}, {"spans": [-64, 64], "tensors": [ENTRY]},
     {"spans": [64.0], "tensors": [ENTRY]}, {"spans": [2**70], "tensors": [ENTRY]}, {"spans": [64], "tensors": [3]},
     {"spans": [64], "tensors": [{}]}, {"spans": [64], "tensors": [ENTRY] * 70_000}, {"spans": [0] * 70_000, "tensors": []}],
)  # fmt: skip
def test_a_layout_that_lies_is_refused(layout: Any) -> None:
    with pytest.raises(WireError):
        unpack(new_block(256, "cpu").with_layout(layout), "cpu")


def test_a_damaged_layout_gives_tensors_or_one_error() -> None:
    """Numbers changed at random: whatever is read lies inside the block's own bytes."""
    rng, block = random.Random(4), pack([torch.randn(5, 6).t(), torch.tensor([True]), torch.arange(7), torch.empty(0)], "cpu")
    refused = 0
    for _ in range(1500):
        layout = copy.deepcopy(block.layout)
        for _ in range(rng.choice((1, 2, 8))):
            place: Any = rng.choice([layout["spans"], *layout["tensors"]])
            key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], list) and place[key]:
                place, key = place[key], rng.randrange(len(place[key]))
            place[key] = rng.choice([-1, 0, 1, 7, 64, 2**40, 2**70, None, "int8", [3]])
        try:
            for tensor in unpack(block.with_layout(layout), "cpu"):
                assert tensor.untyped_storage().nbytes() <= block.size
                if tensor.numel() < 10_000:
                    tensor.clone()
        except WireError as error:
            refused += len(str(error).splitlines())  # each of one line
    assert refused > 500


def test_a_bool_is_true_or_false() -> None:
    odd = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)
    (back,) = unpack(pack([odd], "cpu"), "cpu")
    assert back.view(torch.uint8).tolist() == [0, 1, 1, 1]


def test_the_bools_of_an_answer_are_as_written() -> None:
    """They are not mended before they are judged."""
    odd = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)
    room = tensor_block.new_block(4096, "cpu")
    answer = room.with_layout(tensor_block.fill(room, [odd]))
    assert unpack(answer, "cpu", answer=True)[0].view(torch.uint8).tolist() == [0, 1, 2, 255]


@pytest.mark.parametrize("tensors", [[torch.arange(9), torch.randn(3)], [], [torch.empty(0, 2)]])
def test_a_block_in_a_file(tensors: list[torch.Tensor], tmp_path: Path) -> None:
    block = pack(tensors, "cpu")
    tensor_block.save(block, tmp_path / "t")
    saved = tensor_block.open_saved(tmp_path / "t", block.layout)
    assert all(map(torch.equal, unpack(saved, "cpu"), unpack(block, "cpu")))


def test_a_block_shorter_than_its_facts_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(bytes(10))
    short = TensorBlock(os.open(tmp_path / "t", os.O_RDONLY), 256, "cpu", layout_of(ENTRY))
    with pytest.raises(WireError, match="shorter than its layout"):
        unpack(short, "cpu")


@pytest.mark.parametrize("turned", [False, True])
def test_a_view_with_a_storage_of_its_own(turned: bool) -> None:
    whole = torch.randn(8, 4)
    tensors = [whole, torch.utils.dlpack.from_dlpack(whole[:2])][:: -1 if turned else 1]
    found = unpack(pack(tensors, "cpu"), "cpu")
    assert all(map(torch.equal, found, tensors))
    assert found[0].data_ptr() == found[1].data_ptr()


def test_a_digest_sees_each_bit_and_no_strides() -> None:
    tensor = torch.randn(99, 7)
    other = tensor.clone()
    other.view(torch.int32)[50, 3] ^= 1
    assert digest(tensor, "key") == digest(tensor.t().contiguous().t(), "key")
    assert len({digest(given, key) for given in (tensor, other, tensor.reshape(7, 99)) for key in ("key", "another")}) == 6
    assert digest(tensor[:0], "key") != digest(tensor[:1], "key")


def test_a_block_is_read_without_a_copy() -> None:
    given = [torch.arange(1000.0), torch.tensor([True, False]), torch.arange(12).view(3, 4).t(), torch.empty(0, 5)]
    shared = unpack(pack(given, "cpu"), "cpu", shared=True)  # which outlives the block
    for tensor, back in zip(given, shared, strict=True):
        assert torch.equal(tensor, back)
        assert tensor.stride() == back.stride()
    assert len({tensor.untyped_storage().data_ptr() for tensor in shared[:3]}) == 1
    block = pack(given, "cpu")
    unpack(block, "cpu", shared=True)[0].zero_()
    assert torch.equal(unpack(block, "cpu")[0], given[0])
