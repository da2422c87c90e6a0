"""Blocks of a GPU's memory: what arrives in another process, what is refused, and that nothing stays behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import torch

from stitchcuda.verify.messages import staged_copy
from stitchcuda.verify.messages.device_memory import DeviceMemoryError, device_memory
from stitchcuda.verify.messages.tensor_block import WireError, digest, fill, new_block, pack, unpack
from stitchcuda.verify.messages.wire import Channel

pytestmark = pytest.mark.gpu

CHILD = """
import socket, sys, torch
from stitchcuda.verify.messages.device_memory import bytes_of, device_memory
from stitchcuda.verify.messages.tensor_block import fill, unpack
from stitchcuda.verify.messages.wire import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])), takes=True)
message = channel.receive(60)
(given,) = unpack(message["given"], "cuda")
channel.send({"layout": fill(message["room"], [given + 1, torch.arange(5, device="cuda")])})
try:
    block = message["given"]
    memory = device_memory().map(block.descriptor, block.size, write=False)
    bytes_of(memory).fill_(7)
    torch.cuda.synchronize()
    channel.send({"written": True})
except RuntimeError:
    channel.send({"written": False})
"""


def test_tensors_keep_bits_and_layout() -> None:
    given = [
        torch.randn(1000, 1000, device="cuda").t(), torch.arange(7, device="cuda"), torch.tensor([True, False], device="cuda"),
        torch.randn(5, device="cuda").bfloat16(), torch.empty(0, 3, device="cuda"),
        torch.randn(1, 4, device="cuda").expand(3, 4),
    ]  # fmt: skip
    block = pack(given, "cuda")
    for device in ("cuda", "cpu"):
        for tensor, back in zip(given, unpack(block, device), strict=True):
            assert torch.equal(tensor.cpu(), back.cpu())
            assert tensor.stride() == back.stride()
            assert back.device.type == device or not back.numel()


def test_another_process_reads_and_answers() -> None:
    given, room = torch.randn(1 << 20, device="cuda"), new_block(2**23, "cuda")
    block, (ours, theirs) = pack([given], "cuda"), socket.socketpair()
    order = [sys.executable, "-c", CHILD, str(theirs.fileno())]
    child = subprocess.Popen(order, pass_fds=[theirs.fileno()])
    theirs.close()
    channel = Channel(ours)
    channel.send({"given": block, "room": room}, 10)
    layout: Any = channel.receive(120)["layout"]
    assert channel.receive(120) == {"written": False}, "what is mapped for reading can be written to"
    child.wait()
    first, second = unpack(room.with_layout(layout), "cuda")
    assert torch.equal(first, given + 1)
    assert second.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(unpack(block, "cuda")[0], given)


@pytest.mark.parametrize("room", ["cuda", "cpu"])
def test_an_answer_is_read_wherever_its_block_and_its_reader_are(room: str) -> None:
    given = [torch.randn(1 << 20, device="cuda"), torch.arange(9), torch.tensor([True, False], device="cuda")]
    block = new_block(2**23, room)
    layout = fill(block, given)
    for device in ("cuda", "cpu"):
        for tensor, back in zip(given, unpack(block.with_layout(layout), device, answer=True), strict=True):
            assert torch.equal(tensor.cpu(), back.cpu())
    fill(block, [torch.randn(1 << 20, device="cuda"), *given[1:]])
    with pytest.raises(WireError, match="changed after"):
        unpack(block.with_layout(layout), "cuda", answer=True)


def test_the_memory_of_a_block_is_read_without_a_copy() -> None:
    given = [torch.randn(1 << 24, device="cuda"), torch.tensor([True, False], device="cuda"), torch.empty(0, device="cuda")]
    block = pack(given, "cuda")
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    shared = unpack(block, "cuda", shared=True)
    assert torch.cuda.memory_allocated() == before
    assert free - torch.cuda.mem_get_info()[0] < 2**24
    assert all(torch.equal(tensor, back) for tensor, back in zip(given, shared, strict=True))
    assert torch.equal(unpack(pack(shared, "cpu"), "cuda", shared=True)[0], given[0])


def test_what_is_no_such_memory_is_refused() -> None:
    pair = socket.socketpair()
    for descriptor in (os.open(os.devnull, os.O_RDWR), os.memfd_create("x"), pair[0].fileno(), 987):
        with pytest.raises(DeviceMemoryError):
            device_memory().map(descriptor, 2**20, write=False)
    block = new_block(2**21, "cuda")
    with pytest.raises(DeviceMemoryError):
        device_memory().map(block.descriptor, 2**26, write=False)
    with pytest.raises(torch.OutOfMemoryError):
        new_block(2**50, "cuda")


def test_nothing_stays_behind() -> None:
    tensor = torch.randn(2**22, device="cuda")
    unpack(pack([tensor], "cuda"), "cuda")
    torch.cuda.empty_cache()
    before, files = torch.cuda.mem_get_info()[0], len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        unpack(pack([tensor], "cuda"), "cuda")
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == before
    assert len(os.listdir("/proc/self/fd")) == files


def test_an_answer_that_is_written_again_is_not_read() -> None:
    right, wrong = torch.randn(3, 1000, device="cuda"), torch.zeros(3, 1000, device="cuda")
    for device in ("cuda", "cpu"):         # a full GPU has its blocks on the host
        room = new_block(2**16, device)
        layout = fill(room, [right, right.t()])
        first, second = unpack(room.with_layout(layout), "cuda", answer=True)
        assert torch.equal(first, right)
        assert torch.equal(second, right.t())
        fill(room, [wrong, wrong.t()])
        with pytest.raises(WireError, match="were changed after"):
            unpack(room.with_layout(layout), "cuda", answer=True)


def test_blocks_on_the_host_go_by_way_of_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_copy, "_MUCH", 1)
    monkeypatch.setattr(staged_copy, "_PART", 1000)
    monkeypatch.setattr(staged_copy, "_pinned", None)
    right, few = torch.randn(3, 1000, device="cuda"), torch.ones(7, device="cuda")
    room = new_block(2**16, "cpu")
    given = room.with_layout(fill(room, [right, few]))
    for device in ("cuda", "cpu"):
        for found in (unpack(given, device, answer=True, digest_on="cuda"), unpack(pack([right, few], "cpu"), device)):
            assert [tensor.device.type for tensor in found] == [device, device]
            assert all(torch.equal(tensor.to("cuda"), wanted) for tensor, wanted in zip(found, (right, few), strict=True))


def test_a_digest_sees_each_bit_and_no_strides() -> None:
    tensor = torch.randn(999, 7, device="cuda")
    other = tensor.clone()
    other.view(torch.int32)[500, 3] ^= 1
    assert digest(tensor, "key") == digest(tensor.t().contiguous().t(), "key")
    assert len({digest(given, key) for given in (tensor, other, tensor.reshape(7, 999)) for key in ("key", "another")}) == 6
    assert digest(tensor[:0], "key") != digest(tensor[:1], "key")


def test_tensors_of_the_host_stay_there() -> None:
    on_host, on_gpu = unpack(pack([torch.ones(3), torch.ones(3, device="cuda")], "cuda"), "cuda")
    assert (on_host.device.type, on_gpu.device.type) == ("cpu", "cuda")
    assert on_host.tolist() == on_gpu.tolist() == [1, 1, 1]
    on_gpu, empty = unpack(pack([torch.ones(3, device="cuda"), torch.empty(0)], "cuda"), "cuda")
    assert (on_gpu.device.type, empty.device.type) == ("cuda", "cpu")
