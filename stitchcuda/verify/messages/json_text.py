"""Reads and writes JSON by the interpreter's C functions, bound at import: replacing `json.*` later changes nothing here.

A program worker writes its answers and reads its questions in a process that runs generated code, which could replace any
Python function in between. Native code still can. Where to look next: `verify/messages/wire.py` (the messages).
"""

from __future__ import annotations

import builtins
from _json import encode_basestring_ascii, make_encoder, make_scanner
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

globals()["__builtins__"] = dict(vars(builtins))  # the functions below use this copy, whatever a program replaces later


def _refuse(value: object) -> Any:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_scan = make_scanner(
    SimpleNamespace(
        strict=True, object_hook=None, object_pairs_hook=None, parse_float=float, parse_int=int,
        parse_constant=_CONSTANTS.__getitem__,
    )  # type: ignore[arg-type]
)  # fmt: skip


def writer() -> Callable[[Any], bytes]:
    """Returns a `dump` that looks up no global and no builtin, since a program may have replaced them."""
    join = "".join
    encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)

    def dump(value: Any) -> bytes:
        """What `json.dumps` writes, as bytes. Raises TypeError for a value that is not JSON."""
        return join(encode(value, 0)).encode()

    return dump


dump = writer()


def reader() -> Callable[[bytearray], Any]:
    """Returns a function that reads the value at the start of a trusted line, and looks up no global and no builtin."""
    scan = _scan

    def read(data: bytearray) -> Any:
        return scan(data.decode(), 0)[0]

    return read


def load_first(text: str) -> tuple[Any, int]:
    """Returns (the value at the start of the text, where it ends). Raises ValueError or RecursionError."""
    try:
        return _scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None


def load(data: bytes) -> Any:
    """The only value in a line. Raises ValueError or RecursionError."""
    text = data.decode().strip()
    value, end = load_first(text)
    if end != len(text):
        raise ValueError("more than one value")
    return value
