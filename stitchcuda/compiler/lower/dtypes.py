"""Lists element types by torch's names: their size in bytes, and the type that a kernel computes them in.

Half types compute in float32 and all integers in int64. It never decides what an operator returns: the captured graph says so.

Where to look next: `compiler/lower/nest.py` (uses the compute types), `compiler/codegen/expressions.py` (their C++ types).
"""

from __future__ import annotations

import math
import struct
from typing import Literal

Kind = Literal["float32", "float64", "int64", "bool"]

SIZES: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1,
    "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip

KINDS: dict[str, Kind] = {
    "float64": "float64", "float32": "float32", "float16": "float32", "bfloat16": "float32", "bool": "bool",
    "int64": "int64", "int32": "int64", "int16": "int64", "int8": "int64", "uint8": "int64",
}  # fmt: skip

EPSILONS: dict[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def size_of(dtype: str) -> int:
    """Returns the bytes of one element; 8 for a type that is not in the table."""
    return SIZES.get(dtype, 8)


def round_to_dtype(number: float, dtype: str) -> float:
    """Returns `number` rounded as a tensor of `dtype` would hold it, as torch does with a Python scalar before it compares."""
    if not math.isfinite(number):
        return number
    if dtype == "float16":
        try:
            return float(struct.unpack("e", struct.pack("e", number))[0])
        except OverflowError:
            return math.copysign(math.inf, number)
    if dtype == "bfloat16":
        bits = struct.unpack("I", struct.pack("f", number))[0]
        bits += 0x7FFF + ((bits >> 16) & 1)  # round to nearest even
        return float(struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0])
    return number
