"""What travels between processes arrives as it was: values, dtypes, layouts; and nothing else gets in."""

from __future__ import annotations

import math
import socket
import threading
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from stitchcuda.tools import wire
from stitchcuda.tools.wire import Channel, Closed, Expired, WireError

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
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_tensors_keep_bits_and_layout(name: str, tmp_path: Path) -> None:
    tensor = LAYOUTS[name]
    wire.write_tensors(tmp_path / "t", [tensor])
    (back,) = wire.read_tensors(tmp_path / "t")
    assert back.shape == tensor.shape
    assert back.dtype == tensor.dtype
    assert back.stride() == tensor.stride()
    bits = [one.contiguous().reshape(-1).view(torch.uint8) for one in (tensor, back)]
    assert torch.equal(*bits)


def test_structures() -> None:
    Pair = namedtuple("Pair", "left right")
    tensor = torch.ones(2)
    value = ((1, True, None, "s", math.inf), [tensor, {"k": tensor, 2: torch.bfloat16}], Pair(1, 2.5), torch.Size([2]))
    tensors: list[torch.Tensor] = []
    back = wire.decode(wire.encode(value, tensors), tensors)
    assert back[0] == (1, True, None, "s", math.inf)
    assert back[1][1][2] is torch.bfloat16
    assert back[1][0] is tensor
    assert back[2] == (1, 2.5)
    assert back[3] == (2,)
    assert len(tensors) == 2


@pytest.mark.parametrize("value", [object(), {1, 2}, torch.eye(2).to_sparse(), lambda: 0])
def test_what_cannot_travel_is_named(value: object) -> None:
    with pytest.raises(WireError):
        wire.encode([value], [])


def test_a_lying_file_is_refused(tmp_path: Path) -> None:
    wire.write_tensors(tmp_path / "t", [torch.ones(1000)])
    with pytest.raises(WireError, match="bytes of tensors"):
        wire.read_tensors(tmp_path / "t", limit_bytes=100)
    (tmp_path / "t").write_bytes(b"\x08\0\0\0\0\0\0\0{}      nonsense")
    with pytest.raises(WireError, match="unreadable"):
        wire.read_tensors(tmp_path / "t")


def test_a_channel_survives_pieces_and_says_how_it_ends() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    threading.Timer(0.05, lambda: theirs.sendall(b': 1}\n{"b": 2}\n')).start()
    theirs.sendall(b'{"a"')
    assert channel.receive(5) == {"a": 1}
    assert channel.receive(5) == {"b": 2}
    with pytest.raises(Expired):
        channel.receive(0.05)
    theirs.sendall(b"[1]\n")
    with pytest.raises(WireError, match="not a JSON object"):
        channel.receive(5)
    theirs.close()
    with pytest.raises(Closed):
        channel.receive(5)
