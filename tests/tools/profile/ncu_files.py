"""Small reports of Nsight Compute, written by hand: NVIDIA's own reader reads them, so tests need no GPU and no ncu.

The layout is that of `extras/FileFormat` in Nsight Compute: "NVR", a header, then blocks of a header and a payload, each of
them a protocol buffer behind its length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stitchcuda.tools.build import kernel_names

Value = float | int | str


@dataclass(frozen=True)
class Rule:
    """What a rule said. `kind`: 1 fine, 2 a warning, 4 a suggestion; `scope` of the estimate: 1 local, 2 the kernel's time."""

    name: str
    title: str
    message: str
    kind: int = 4
    speedup: float | None = None
    scope: int = 2


@dataclass(frozen=True)
class Launch:
    """One profiled launch. `sampled`: a metric's values by offset of the instruction."""

    mangled: str
    metrics: Mapping[str, Value]
    sampled: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    rules: Sequence[Rule] = ()


ADDRESS = 0x7F0000000000


def write(path: Path, launches: Sequence[Launch], cubin: bytes | None = None) -> Path:
    """A report of these launches; `cubin`: the code they ran, with its line information."""
    names = sorted({name for launch in launches for name in (*launch.metrics, *launch.sampled)})
    blocks = [_block(0, 0, session=_bytes(1, b"") + _int(2, 1_700_000_000))]
    if cubin is not None:
        spots = b"".join(
            _bytes(1, _text(1, name) + _int(2, ADDRESS) + _int(3, _symbol(cubin, name)))
            for name in dict.fromkeys(launch.mangled for launch in launches)
        )
        source = _int(1, 1) + _bytes(4, cubin) + _int(5, 9) + _int(6, 9 << 16) + _int(7, 0) + _bytes(9, spots)
        blocks.append(_block(1, 0, payload=_framed(source)))
    results = b"".join(_framed(_result(launch, names)) for launch in launches)
    strings = b"".join(_text(1, name) for name in names)
    blocks.append(_block(0, len(launches), strings=strings, payload=results))
    path.write_bytes(b"NVR\0" + _framed(_int(1, 7)) + b"".join(blocks))
    return path


def _symbol(cubin: bytes, kernel: str) -> int:
    """The index of the kernel's symbol in its cubin."""
    names = [name for name, _, _ in kernel_names._symbols(cubin, 0)]
    return names.index(kernel)


def _result(launch: Launch, names: Sequence[str]) -> bytes:
    plain = launch.mangled.removeprefix("_Z")
    digits = len(plain) - len(plain.lstrip("0123456789"))
    function = plain[digits : digits + int(plain[:digits])] if digits else plain
    said = b"".join(_int(number, 1) for number in (1, 2, 3, 4))
    said += _text(5, launch.mangled) + _text(6, function) + _text(7, f"{function}(...)") + _int(8, 3)
    for number, size in ((9, 0), (10, 1), (11, 1)):
        said += _bytes(number, _int(1, size) + _int(2, size) + _int(3, size))
    for name, value in launch.metrics.items():
        said += _bytes(13, _int(1, names.index(name)) + _bytes(2, _value(value)) + _int(4, 0))
    for name, values in launch.sampled.items():
        pairs = (
            _bytes(3, _bytes(1, _int(5, ADDRESS + pc)) + _bytes(2, _int(5, count))) for pc, count in values.items()
        )
        said += _bytes(13, _int(1, names.index(name)) + _bytes(2, _int(5, sum(values.values()))) + b"".join(pairs) + _int(4, 0))
    return said + _bytes(15, _int(1, 1)) + b"".join(_bytes(19, _rule(rule)) for rule in launch.rules)


def _rule(rule: Rule) -> bytes:
    message = _bytes(1, _text(1, rule.message) + _int(2, rule.kind) + _int(3, 1) + _text(4, rule.title))
    if rule.speedup is not None:
        message += _bytes(10, _int(1, rule.scope) + _key(2, 1) + struct.pack("<d", rule.speedup))
    return _text(1, rule.name) + _text(2, rule.name) + _bytes(3, _bytes(1, message)) + _text(4, "SpeedOfLight")


def _block(sources: int, results: int, *, session: bytes = b"", strings: bytes = b"", payload: bytes = b"") -> bytes:
    header = _int(1, sources) + _int(2, results) + (_bytes(3, session) if session else b"")
    return _framed(header + _bytes(4, strings) + _int(5, len(payload))) + payload


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return _text(1, value)
    return _int(5, value) if isinstance(value, int) else _key(3, 1) + struct.pack("<d", value)


def _framed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())


def _bytes(number: int, content: bytes) -> bytes:
    return _key(number, 2) + _varint(len(content)) + content


def _int(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value)


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    said = bytearray()
    while value > 0x7F:
        said.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*said, value))
