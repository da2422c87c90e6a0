"""Reads what compilers print: errors trimmed for a reader, and ptxas' resource report. Runs nothing.

Where to look next: `tools/build/nvcc.py`, which produces these logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from stitchcuda.counts import counted
from stitchcuda.state import KernelUsage
from stitchcuda.tools.build.kernel_names import demangled

_MOST_CHARACTERS = 6000
_MOST_BLOCKS = 12
_LINE = re.compile(r"^(?P<file>[^\s:()]+)[(:](?P<line>\d+)[):]", re.MULTILINE)
_NOTE = re.compile(r"\S.*?(?:\(\d+\)|:\d+(?::\d+)?): note\b")
_OF_PTX = re.compile(r"(?m)^ptxas [^\n]+, line (?P<line>\d+); (?:error|fatal) +: (?P<said>[^\n]*)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def trimmed(log: str, root: Path, elsewhere: tuple[Path, ...] = ()) -> str:
    """The errors of a log with their source lines; paths under `root` relative, those of `elsewhere` shortened.

    Warnings, summaries and what follows the first dozen errors are left out, and notes but for the first behind an error.
    Without any error line, the log's end.
    """
    for folder in (root, root.resolve()):
        log = log.replace(f"{folder}/", "")
    for folder in elsewhere:
        log = log.replace(f"{folder}/", f"<{folder.name}>/")
    blocks = _blocks(log)
    errors: list[str] = []
    for before, block in zip(["", *blocks], blocks, strict=False):
        if _NOTE.match(block):
            if errors and before == errors[-1]:
                errors[-1] = f"{_with_source(before, root)}\n{block}"
        elif re.search(r"\b(error|fatal)\b", block, re.IGNORECASE):
            errors.append(block)
    if not errors:
        return log[-_MOST_CHARACTERS:].strip()
    kept = [_with_source(block, root) for block in dict.fromkeys(errors[:_MOST_BLOCKS])]
    if len(errors) > _MOST_BLOCKS:
        kept.append(f"({counted(len(errors) - _MOST_BLOCKS, 'further error')})")
    return "\n".join(kept)[:_MOST_CHARACTERS].strip()


def placed(log: str, source: Path, ptx: Callable[[], str]) -> str:
    """The log of a source that failed, its errors at places that an author knows: ptxas names lines of PTX, or no file at all.

    `ptx` makes that PTX; it is asked only where a line of it is named.
    """
    log = re.sub(r"(?m)^At end of source: ", f"{source}: at its end: ", log)
    lines = ptx().splitlines() if _OF_PTX.search(log) else []

    def at_source(found: re.Match[str]) -> str:
        number = int(found["line"])
        place, refused = _location(lines, number)
        shown = f"\n    {refused}" if refused and not place else ""
        return f"{place or source}: error: ptxas: {found['said']}{shown}"

    log = _OF_PTX.sub(at_source, log)
    log = re.sub(r"(?m)^ptxas fatal +: Ptx assembly aborted due to errors\n?", "", log) if lines else log
    return re.sub(r"(?m)^ptxas (?:error|fatal) +: ", f"{source}: error: ptxas: ", log)


def _location(lines: Sequence[str], number: int) -> tuple[str, str]:
    """("FILE(LINE)" of the source, or "" where the PTX does not say, and the line of PTX itself)."""
    files = {found[1]: found[2] for line in lines if (found := re.match(r'\s*\.file\s+(\d+)\s+"([^"]+)"', line))}
    for line in reversed(lines[:number]):
        if re.match(r"\s*\.(?:visible |weak )*(?:entry|func)\b|}", line):
            break                          # of the function before it
        if (found := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)) is not None and found[1] in files:
            return f"{files[found[1]]}({found[2]})", ""
    return "", lines[number - 1].strip() if 0 < number <= len(lines) else ""


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
