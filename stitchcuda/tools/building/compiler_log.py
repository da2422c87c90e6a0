"""Reads what compilers print: errors trimmed for a reader, and ptxas' resource report. Runs nothing.

Where to look next: `nvcc.py`, which produces these logs.
"""

from __future__ import annotations

import re
from pathlib import Path

from stitchcuda.state import KernelUsage
from stitchcuda.tools.building.kernel_names import demangled

_MOST_CHARACTERS = 6000
_MOST_BLOCKS = 12
_LINE = re.compile(r"^(?P<file>[^\s:()]+)[(:](?P<line>\d+)[):]", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def trimmed(log: str, root: Path, elsewhere: tuple[Path, ...] = ()) -> str:
    """The errors of a log with their source lines; paths under `root` relative, those of `elsewhere` shortened.

    Warnings, summaries and notes after the first dozen errors are left out. Without any error line, the log's end.
    """
    for folder in (root, root.resolve()):
        log = log.replace(f"{folder}/", "")
    for folder in elsewhere:
        log = log.replace(f"{folder}/", f"<{folder.name}>/")
    blocks = _blocks(log)
    errors = [block for block in blocks if re.search(r"\b(error|fatal)\b", block, re.IGNORECASE)]
    if not errors:
        return log[-_MOST_CHARACTERS:].strip()
    kept = [_with_source(block, root) for block in dict.fromkeys(errors[:_MOST_BLOCKS])]
    if len(errors) > _MOST_BLOCKS:
        kept.append(f"({len(errors) - _MOST_BLOCKS} further errors)")
    return "\n".join(kept)[:_MOST_CHARACTERS].strip()


def usage(log: str) -> tuple[KernelUsage, ...]:
    """Registers, shared memory, spills and stack of each kernel, from `ptxas -v`, in the order of the log.

    "0 spills" can hide local memory, so the stack frame is reported as well.
    """
    kernels: list[KernelUsage] = []
    name = ""
    stack = spill = 0
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            name, stack, spill = found.group(1), 0, 0
        elif found := _STACK.search(line):
            stack = max(stack, int(found.group(1)))
            spill += int(found.group(2)) + int(found.group(3))
        elif name and (found := _USED.search(line)):
            shared = _SHARED.search(line)
            kernels.append(KernelUsage(
                name=demangled(name),
                registers=int(found.group(1)),
                shared_bytes=int(shared.group(1)) if shared else 0,
                spill_bytes=spill,
                stack_bytes=stack,
            ))  # fmt: skip
            name = ""
    return tuple(kernels)


def _blocks(log: str) -> list[str]:
    """A message with the lines that belong to it: nvcc separates by blank lines, g++ starts each with file:line."""
    blocks: list[list[str]] = []
    for line in log.splitlines():
        starts = bool(re.match(r"^\S.*?(\(\d+\)|:\d+(:\d+)?): (fatal )?(error|warning|note)", line)) or line.startswith("ptxas")
        if starts or not line.strip() or not blocks:
            blocks.append([])
        if line.strip() and not re.match(r"^\d+ errors? detected|^In file included|^\s+from ", line):
            blocks[-1].append(line.rstrip())
    return ["\n".join(block) for block in blocks if block]


def _with_source(block: str, root: Path) -> str:
    """Add the source line to a message that does not show it (ptxas, the linker, some of nvcc's)."""
    found = _LINE.search(block)
    if found is None or "\n" in block:
        return block
    path = root / found.group("file")
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return block
    number = int(found.group("line"))
    return f"{block}\n    {lines[number - 1].strip()}" if 0 < number <= len(lines) else block
