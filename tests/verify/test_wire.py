"""What travels between processes arrives as it was: values, dtypes, layouts; and nothing else gets in."""

from __future__ import annotations

import json
import math
import os
import random
import socket
import threading
import tracemalloc
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.verify.messages import json_text, tensor_file, wire
from stitchcuda.verify.messages.wire import Channel, ChannelClosed, ChannelTimeout, ForgedMessage, WireError

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
def test_tensors_keep_bits_and_layout(name: str, tmp_path: Path) -> None:
    tensor = LAYOUTS[name]
    wire.write_tensors(tmp_path / "t", [tensor])
    (back,) = wire.read_tensors(tmp_path / "t")
    assert back.shape == tensor.shape
    assert back.dtype == tensor.dtype
    assert back.stride() == tensor.stride()
    bits = [one.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for one in (tensor, back)]
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
    assert back[2].right == 2.5
    assert back[3] == (2,)
    assert len(tensors) == 2


@pytest.mark.parametrize("value", [object(), {1, 2}, torch.eye(2).to_sparse(), lambda: 0])
def test_what_cannot_travel_is_named(value: object) -> None:
    with pytest.raises(WireError):
        wire.encode([value], [])


def test_tensors_that_share_memory_share_it_again(tmp_path: Path) -> None:
    base = torch.arange(100.0)
    given = [base[10:20], base[15:40:2], torch.arange(3), base[60:].view(torch.int32), base[70:]]
    wire.write_tensors(tmp_path / "t", given)
    assert (tmp_path / "t").stat().st_size < 3000
    one, other, apart, bits, values = wire.read_tensors(tmp_path / "t")
    one[5:] = -1
    assert other[0] == other[2] == -1 != other[4]
    assert apart.tolist() == [0, 1, 2]
    bits[10] = 0
    assert values[0] == 0
    assert one.untyped_storage().data_ptr() != bits.untyped_storage().data_ptr()


def test_a_lying_file_is_refused(tmp_path: Path) -> None:
    wire.write_tensors(tmp_path / "t", [torch.ones(1000)])
    with pytest.raises(WireError, match="bytes of tensors"):
        wire.read_tensors(tmp_path / "t", limit_bytes=100)
    (tmp_path / "t").write_bytes(b"\x08\0\0\0\0\0\0\0{}      nonsense")
    with pytest.raises(WireError, match="unreadable"):
        wire.read_tensors(tmp_path / "t")


def test_only_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    expected, given = tmp_path / "expected", tmp_path / "given"
    wire.write_tensors(expected, [torch.ones(3)])
    given.symlink_to(expected)
    with pytest.raises(WireError, match="unreadable"):
        wire.read_tensors(given, limit_bytes=10_000)
    given.unlink()
    os.link(expected, given)
    with pytest.raises(WireError, match="another name"):
        wire.read_tensors(given, limit_bytes=10_000)
    given.unlink()
    os.mkfifo(given)
    with pytest.raises(WireError, match="not a regular file"):
        wire.read_tensors(given, limit_bytes=10_000)
    given.unlink()
    with pytest.raises(WireError, match="No such file"):
        wire.read_tensors(given, limit_bytes=10_000)
    given.mkdir()
    with pytest.raises(WireError, match="not a regular file"):
        wire.read_tensors(given, limit_bytes=10_000)


def forged(path: Path, header: bytes, data: bytes = bytes(64)) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


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
def test_a_layout_that_points_elsewhere_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    def header(entry: dict[str, Any]) -> bytes:
        spans = {"00000": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}
        return json.dumps({"__metadata__": {"layout": json.dumps([entry])}, **spans}).encode()

    forged(tmp_path / "t", header(ENTRY))
    assert len(wire.read_tensors(tmp_path / "t")) == 1
    forged(tmp_path / "t", header(ENTRY | change))
    with pytest.raises(WireError):
        wire.read_tensors(tmp_path / "t")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000, b"[]", b"{}", b"null", b"1" * 10_000, b'{"__metadata__": 3}', b'{"__metadata__": {"layout": "[[[["}}',
        b'{"__metadata__": {"layout": "' + b"[" * 100_000 + b'"}}', b'{"__metadata__": {"layout": "{}"}}', b"\xff\xfe",
        b'{"__metadata__": {"layout": "[]"}, "00000": {"dtype": "U8", "data_offsets": [0, 1e99]}}',
        b'{"__metadata__": {"layout": "[]"}, "00000": {"dtype": "U8", "data_offsets": [0, 18446744073709551616]}}',
        b'{"__metadata__": {"layout": "[]"}, "00000": {"dtype": "U8", "data_offsets": [0, 32]}}',
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused(header: bytes, tmp_path: Path) -> None:
    forged(tmp_path / "t", header)
    with pytest.raises(WireError):
        wire.read_tensors(tmp_path / "t", limit_bytes=2**20)
    (tmp_path / "t").write_bytes(b"\xff" * 8 + header)
    with pytest.raises(WireError):
        wire.read_tensors(tmp_path / "t", limit_bytes=2**20)


def test_a_damaged_file_gives_tensors_or_one_error(tmp_path: Path) -> None:
    """Bit flips and truncation: whatever is read lies inside the file's own bytes."""
    path, rng = tmp_path / "t", random.Random(4)
    wire.write_tensors(path, [torch.randn(5, 6).t(), torch.tensor([True]), torch.arange(7), torch.empty(0)])
    whole = path.read_bytes()
    text = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 2, 8))):
            data[rng.randrange(rng.choice((8, text, len(data))))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            for tensor in wire.read_tensors(path, limit_bytes=len(whole)):
                assert tensor.untyped_storage().nbytes() <= len(whole)
                if tensor.numel() < 10_000:
                    tensor.clone()
        except WireError as error:
            refused += len(str(error).splitlines())  # each of one line
    assert refused > 500


def test_a_file_cut_short_while_it_is_read_is_an_error_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    wire.write_tensors(path, [torch.ones(1000)])
    checked_size = tensor_file._checked_size

    def cut(fd: int, limit_bytes: int | None) -> int:
        size = checked_size(fd, limit_bytes)
        os.truncate(path, size - 1000)
        return size

    monkeypatch.setattr(tensor_file, "_checked_size", cut)
    with pytest.raises(WireError, match="cut short"):
        wire.read_tensors(path, limit_bytes=10_000)


def test_what_was_read_does_not_change_with_the_file(tmp_path: Path) -> None:
    wire.write_tensors(tmp_path / "t", [torch.ones(1000)])
    (back,) = wire.read_tensors(tmp_path / "t")
    (tmp_path / "t").write_bytes(bytes(8192))
    assert bool((back == 1).all())


def test_a_bool_is_true_or_false(tmp_path: Path) -> None:
    odd = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)
    wire.write_tensors(tmp_path / "t", [odd])
    (back,) = wire.read_tensors(tmp_path / "t")
    assert back.view(torch.uint8).tolist() == [0, 1, 1, 1]


def test_named_tensors_of_an_answer() -> None:
    tensors = [torch.zeros(1), torch.ones(1)]
    sent: list[torch.Tensor] = []
    structure = wire.encode({"a": tensors[1], "b": (tensors[0], None)}, sent)
    named = wire.named_tensors(structure, sent)
    assert list(named) == ["output.a", "output.b.0"]
    answers: tuple[Any, ...] = (
        {"tensor": -1}, {"tensor": 2}, {"tensor": True}, {"tensor": "0"}, {"tuple": 3}, {"dict": {"a": 1}}, 3, "x", [], {},
        {"float": "0x1p0"}, {"list": [[{"tensor": 0}]]},
    )  # fmt: skip
    for wrong in answers:
        with pytest.raises(WireError):
            wire.named_tensors(wrong, sent)


@pytest.mark.parametrize("structure", [
    {"dict": [["A" * 10_000_000, {"list": [{"tensor": 0}] * 2000}]]},
    {"dict": [["A" * 201, {"tensor": 0}]]},
    {"dict": [["A" * 200, {"dict": [["B" * 200, {"list": [{"tensor": 0}] * 20_000}]]}]]},
    {"dict": [["A" * 200, {"list": [None] * 50_000}]]},
], ids=["long key", "key", "many", "empty"])  # fmt: skip
def test_names_are_bounded(structure: dict[str, Any]) -> None:
    """A key stands in the name of every tensor below it."""
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="characters") as caught:
            wire.named_tensors(structure, [torch.zeros(1)])
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000
    assert len(wire.named_tensors({"dict": [["A" * 200, {"list": [{"tensor": 0}] * 1000}]]}, [torch.zeros(1)])) == 1000


def test_a_message_is_bounded_in_depth_and_can_be_printed() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    for hostile in (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", b"[" * 50_000, b'{"a": ' + b"1" * 5000 + b"}"):
        theirs.sendall(hostile + b"\n")
        with pytest.raises(WireError):
            channel.receive(5)
    theirs.sendall(b'{"error": "\\ud800 caf\xc3\xa9"}\n')
    assert channel.receive(5) == {"error": "? café"}


def test_a_signed_message_is_taken_once_in_its_place_and_as_it_was_sent() -> None:
    keys = (b"a" * 32, b"b" * 32)
    for change in (
        lambda lines: lines[::-1],
        lambda lines: [lines[0], lines[0]],
        lambda lines: [lines[0].replace(b"0.5", b"1.0"), lines[1]],
        lambda lines: [lines[0][:-33] + b"\n", lines[1]],
        lambda lines: [b'{"own": 1.0}\n'],
    ):
        ours, between = socket.socketpair()
        sender, receiver = Channel(ours, keys), Channel(between, keys[::-1])
        for share in (0.5, 0.7):
            sender.send({"own": share})
        lines = between.recv(1000).splitlines(keepends=True)
        ours.sendall(b"".join(change(lines)))
        with pytest.raises(ForgedMessage):
            receiver.receive(5), receiver.receive(5)
    ours, theirs = socket.socketpair()
    one, other = Channel(ours, keys), Channel(theirs, keys[::-1])
    for _ in range(2):
        one.send({"do": "call"})
        assert other.receive(5) == {"do": "call"}
        other.send({"own": 0.5})
        assert one.receive(5) == {"own": 0.5}
    one.send({"do": "call"})
    theirs.sendall(theirs.recv(1000))      # a question is not its own answer
    with pytest.raises(ForgedMessage):
        one.receive(5)


def test_a_channel_survives_pieces_and_says_how_it_ends() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    threading.Timer(0.05, lambda: theirs.sendall(b': 1}\n{"b": 2}\n')).start()
    theirs.sendall(b'{"a"')
    assert channel.receive(5) == {"a": 1}
    assert channel.receive(5) == {"b": 2}
    with pytest.raises(ChannelTimeout):
        channel.receive(0.05)
    theirs.sendall(b"[1]\n")
    with pytest.raises(WireError, match="not a JSON object"):
        channel.receive(5)
    theirs.close()
    with pytest.raises(ChannelClosed):
        channel.receive(5)


REPLACED = (
    "json.dumps", "json.loads", "json.JSONDecoder", "json.encoder.JSONEncoder.encode",
    "json.encoder.JSONEncoder.iterencode", "json.encoder.c_make_encoder", "json.encoder.encode_basestring_ascii",
    "json.decoder.JSONDecoder.decode", "json.decoder.JSONDecoder.raw_decode", "json.scanner.c_make_scanner",
    "_json.make_encoder", "_json.make_scanner", "hmac.new", "hmac.digest", "hmac.compare_digest",
    "_operator._compare_digest", "hashlib.blake2b", "hashlib.new", "_blake2.blake2b", "os.write", "os.read",
    "struct.pack", "select.select", "time.monotonic", "socket.socket.sendall", "socket.socket.recv",
    "socket.socket.settimeout", "socket.socket.send", "builtins.isinstance", "builtins.len", "builtins.bytes",
    "builtins.dict", "builtins.str", "builtins.type",
)  # fmt: skip


@pytest.mark.parametrize("name", REPLACED)
def test_who_replaces_a_function_of_python_changes_no_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is said and signed, nor what is read; and nothing in between sees it."""
    seen = []

    def replacement(*given: Any, **named: Any) -> Any:
        seen.append(given)
        raise RuntimeError("replaced")

    ours, theirs = socket.socketpair()
    one, other = Channel(ours, (b"1" * 32, b"2" * 32)), Channel(theirs, (b"2" * 32, b"1" * 32))
    message = {"tampered": ["json.dumps was replaced"], "share": 0.25, "many": [1, None, {"é": "\ud800"}], "nan": math.inf}
    with monkeypatch.context() as changed:
        changed.setattr(name, replacement)
        one.send(message, 5)
        found = other.receive(5)
        seen = [given for given in seen if message in given]
    assert found == message | {"many": [1, None, {"é": "?"}]}
    assert seen == []


@pytest.mark.parametrize("name", [*REPLACED, *(f"stitchcuda.verify.messages.{name}" for name in (
    "wire._dump", "wire._load", "wire._send_all", "wire._recv", "wire.compare_digest", "wire.Channel.send",
    "wire.Channel.receive", "wire.Channel._signature", "json_text.dump", "json_text.load", "json_text.load_first",
    "json_text._scan", "json_text._refuse", "wire._printable", "wire._SIGNATURE", "wire.json_text",
))])  # fmt: skip
def test_a_worker_talks_by_functions_that_look_nothing_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    one, other = Channel(ours, (b"1" * 32, b"2" * 32)), Channel(theirs, (b"2" * 32, b"1" * 32))
    send, receive = one.sender(), one.receiver()
    other.send({"do": "load", "é": [1.5, None]}, 5)
    with monkeypatch.context() as changed:
        changed.setattr(name, None)
        heard = receive()
        send({"tampered": ["x"], "share": 0.25})
    assert heard == {"do": "load", "é": [1.5, None]}
    assert other.receive(5) == {"tampered": ["x"], "share": 0.25}
    other.send({"long": "x" * 20_000}, 5)
    other.send({"more": 1}, 5)
    one.send({"mixed": 2}, 5)
    assert (receive(), receive(), other.receive(5)) == ({"long": "x" * 20_000}, {"more": 1}, {"mixed": 2})
    theirs.sendall(b'{"forged": 1}' + b"0" * 32 + b"\n")
    with pytest.raises(ForgedMessage):
        receive()
    theirs.close()
    with pytest.raises(ChannelClosed):
        receive()


def test_json_is_what_it_was() -> None:
    values: tuple[Any, ...] = (
        {}, {"a": [1, 2.5, -0.0, 1e300, None, True, "é\n\"\\\u2028"]}, [], "x", 3, {"1": {"2": [[]]}}, 10**30,
    )  # fmt: skip
    for value in values:
        assert json_text.dump(value) == json.dumps(value).encode()
        assert json_text.load(json.dumps(value).encode()) == value
    with pytest.raises(TypeError):
        json_text.dump({"a": object()})
    for wrong in (b"", b"{", b"{} {}", b"\xff", b"nothing", b"[1,]"):
        with pytest.raises(ValueError):  # noqa: PT011
            json_text.load(wrong)
