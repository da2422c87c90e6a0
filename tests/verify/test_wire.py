"""What travels between processes arrives as it was: values, dtypes, layouts; and nothing else gets in."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import traceback
import tracemalloc
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stitchcuda.verify.messages import json_text, wire
from stitchcuda.verify.messages.tensor_block import new_block, pack, unpack
from stitchcuda.verify.messages.wire import Channel, ChannelClosed, ChannelTimeout, ForgedMessage, WireError


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


@pytest.mark.parametrize("layout", [b"[" * 63 + b"]" * 63, "é".encode() * 900, b"1e15," * 300])
def test_what_a_program_says_can_be_passed_on(layout: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_LINE_LIMIT", 2000)
    monkeypatch.setattr(wire, "_TRUSTED_LINE_LIMIT", 16_000)
    program, its_end = socket.socketpair()
    said = b"[%s1]" % layout if layout.endswith(b",") else layout if layout.startswith(b"[") else b'"%s"' % layout
    program.sendall(b'{"outputs": %s}\n' % said)
    found = Channel(its_end).receive(5)["outputs"]
    ours, theirs = socket.socketpair()
    Channel(ours).send({"do": "Receive", "outputs": new_block(1, "cpu").with_layout(found)}, 5)
    assert Channel(theirs, takes=True).receive(5)["outputs"].layout == found


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


def alone(check: Callable[[], None]) -> None:
    """Runs `check` in a child without other threads, which would see what it replaces."""
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "see the traceback on stderr"


@pytest.mark.parametrize("name", REPLACED)
def test_who_replaces_a_function_of_python_changes_no_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is said and signed, nor what is read; and nothing in between sees it."""
    def check() -> None:
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

    alone(check)


@pytest.mark.parametrize("name", [*REPLACED, *(f"stitchcuda.verify.messages.{name}" for name in (
    "wire._dump", "wire._load", "wire._send_all", "wire._recv", "wire.compare_digest", "wire.Channel.send",
    "wire.Channel.receive", "wire.Channel._signature", "json_text.dump", "json_text.load", "json_text.load_first",
    "json_text._scan", "json_text._refuse", "wire._printable", "wire._SIGNATURE", "wire.json_text",
))])  # fmt: skip
def test_a_worker_talks_by_functions_that_look_nothing_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
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

    alone(check)


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


def test_blocks_go_with_a_message() -> None:
    ours, theirs = socket.socketpair()
    keys = b"1" * 32, b"2" * 32
    sender, receiver = Channel(ours, keys), Channel(theirs, keys[::-1], takes=True)
    before = open_files()
    block = pack([torch.arange(5)], "cpu")
    looks_alike = {**block.facts(0), "mark": None}
    given = {"like": looks_alike, "a": [block, {"b": block}], "long": "x" * 300_000}
    sending = threading.Thread(target=sender.send, args=(given, 5))
    sending.start()                        # more than the socket holds at once
    message = receiver.receive(5)
    sending.join()
    first, second = message["a"][0], message["a"][1]["b"]
    assert [unpack(one, "cpu")[0].tolist() for one in (first, second)] == [[0, 1, 2, 3, 4]] * 2
    assert first.key == second.key == block.key
    assert message["like"] == looks_alike, "what a program said is no block"
    assert first.descriptor != second.descriptor
    sender.send({"plain": 1}, 5)
    assert receiver.receive(5) == {"plain": 1}
    del message, first, second, block, sending, given
    assert open_files() == before


def test_blocks_reach_code_that_looks_nothing_up() -> None:
    ours, theirs = socket.socketpair()
    keys = b"1" * 32, b"2" * 32
    sender, receive = Channel(ours, keys), Channel(theirs, keys[::-1]).receiver()
    room = new_block(64, "cpu")
    for number in range(3):
        sender.send({"number": number, "room": room} if number != 1 else {"number": number}, 5)
    found = [wire.take_blocks(receive()) for _ in range(3)]
    assert [message["number"] for message in found] == [0, 1, 2]
    assert [message["room"].size for message in found[::2]] == [64, 64]
    assert len({message["room"].descriptor for message in found[::2]}) == 2


def test_a_program_hands_over_no_descriptor() -> None:
    """The judge listens to a program's worker so that the system closes what is sent along."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    before = open_files()
    block = b'{"block": 0, "key": "k", "size": 1, "device": "cpu", "layout": null}'
    socket.send_fds(theirs, [b'{"descriptors": 1, "a": ' + block + b"}\n"], [0] * 9)
    message = channel.receive(5)
    assert open_files() == before
    assert message["a"]["block"] == 0


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
