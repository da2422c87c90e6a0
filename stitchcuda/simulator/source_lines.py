"""Finds the source line of a place in a library's code, as the runtime names one: "[library+0x1f]".

A library is built without a table of lines, which would make each build a fifth slower. It is built again with one, and the
same code (`build_simulated(lines=True)`), when a place is looked for. It runs addr2line of binutils in the sandbox, no program.
Where to look next: `simulator/runtime/access_check.cpp` (who names places), `verify/program/builder_worker.py` (who asks).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from stitchcuda.sandbox import command

_SECONDS = 30.0
_LINE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d*)(?: \(discriminator \d+\))?")


def find_line(library: Path, offset: int) -> tuple[str, int] | None:
    """Returns (file's name, line) of the code `offset` bytes behind the library's beginning; None where there is none, or no
    addr2line."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    done = command.run([tool, "-e", str(library), hex(offset)], seconds=_SECONDS, read=(library.parent,))
    found = _LINE.fullmatch(done.output.strip()) if done.code == 0 else None
    return (Path(found["file"]).name, int(found["line"])) if found else None
