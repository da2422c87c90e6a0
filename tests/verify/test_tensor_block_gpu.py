"""Blocks of a GPU's memory: what arrives in another process, what is refused, and that nothing stays behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import torch

from stitchcuda.verify.messages.device_memory import DeviceMemoryError, device_memory
from stitchcuda.verify.messages.tensor_block import new_block, pack, unpack
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
