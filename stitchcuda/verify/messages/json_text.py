"""JSON by the interpreter's own C functions, bound when this is imported: replacing `json.*` later changes nothing here.

A worker forms its answers, and reads its questions, in a process that runs generated code; whatever Python-level function lay
in between could be replaced by it. Native code can still do so. Where to look next: `verify/messages/wire.py`.
"""

from __future__ import annotations

import builtins
from _json import encode_basestring_ascii, make_encoder, make_scanner
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

globals()["__builtins__"] = dict(vars(builtins))  # for the functions below, whatever becomes of those that all use


def _foreign(value: object) -> Any:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_scanned = make_scanner(
    SimpleNamespace(
        strict=True, object_hook=None, object_pairs_hook=None, parse_float=float, parse_int=int,
        parse_constant=_CONSTANTS.__getitem__,
    )  # type: ignore[arg-type]
)  # fmt: skip


def writer() -> Callable[[Any], bytes]:
    """A `dumped` that looks up no global and no builtin: they could be others by then."""
    joined = "".join
    encoded = make_encoder(None, _foreign, encode_basestring_ascii, None, ": ", ", ", False, False, True)

    def dump(value: Any) -> bytes:
        """What `json.dumps` makes of it. Raises TypeError for what is not JSON."""
        return joined(encoded(value, 0)).encode()

    return dump


dump = writer()


def reader() -> Callable[[bytearray], Any]:
    """The same for reading what can be trusted: the value that a line begins with."""
    scanned = _scanned

    def read(data: bytearray) -> Any:
        return scanned(data.decode(), 0)[0]

    return read


def load_first(text: str) -> tuple[Any, int]:
    """(the value that the text begins with, where it ends). Raises ValueError or RecursionError."""
    try:
        return _scanned(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None


def load(data: bytes) -> Any:
    """The one value that a line holds. Raises ValueError or RecursionError."""
    text = data.decode().strip()
    value, end = load_first(text)
    if end != len(text):
        raise ValueError("more than one value")
    return value
