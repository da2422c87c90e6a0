"""Compiles a source with a light header in place of tvm-ffi's, which nvcc reads three times and which take it two seconds.

The light header (`front/stitchcuda_tvm_front.h`) has views of tensors, numbers, errors and the macro that exports a function. A
source that uses more does not compile with it, and the caller compiles it with tvm-ffi's own headers, whose errors count. A
source whose `#if` depends on a macro of tvm-ffi gets no light header: it could mean something else. No compiler runs here.
Where to look next: `tools/build/nvcc.py` (which compiles with it), `tools/build/torch_front.py` (the same for torch's headers).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "front"
VERSION = "front 1"                        # part of the key of a cached object
_HEAVY = re.compile(r"#\s*include\s*<tvm/ffi/")
_ASKS = re.compile(r"(?m)^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b.*(?:TVM|DLPACK|__has_include)")


def light_order(order: Sequence[str], texts: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the order (compiler, flags, `-c`, source) with the light header before tvm-ffi's; None if the source, whose text
    is `texts` with that of its own headers, includes none of them or might notice."""
    if not any(map(_HEAVY.search, texts)) or any(map(_ASKS.search, texts)):
        return None
    return (order[0], f"-I{FOLDER}", *order[1:])
