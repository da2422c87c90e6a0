"""Reads what compilers print: trims errors for a reader, and parses ptxas' resource report.

At most `_MOST_BLOCKS` errors are shown. It runs nothing.
Where to look next: `tools/build/nvcc.py` (which runs the compilers).
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


def trim(log: str, root: Path, elsewhere: tuple[Path, ...] = ()) -> str:
    """Returns the errors of a log with their source lines; paths under `root` are relative, those of `elsewhere` shortened.

    Left out are warnings, summaries, all errors after the first dozen, and all notes but the first behind an error. A log
    without an error is cut to its end.
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


def locate(log: str, source: Path, ptx: Callable[[], str]) -> str:
    """Rewrites a failed source's log: ptxas' errors, which name lines of PTX or no file, name lines of the source instead.

    `ptx` returns that PTX; it is called only if the log names a line of it.
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
    """Returns ("FILE(LINE)", "") for a line of PTX; where the PTX does not name the source's line, ("", that line of PTX)."""
    files = {found[1]: found[2] for line in lines if (found := re.match(r'\s*\.file\s+(\d+)\s+"([^"]+)"', line))}
    for line in reversed(lines[:number]):
        if re.match(r"\s*\.(?:visible |weak )*(?:entry|func)\b|}", line):
            break                          # here the function before it ends
        if (found := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)) is not None and found[1] in files:
            return f"{files[found[1]]}({found[2]})", ""
    return "", lines[number - 1].strip() if 0 < number <= len(lines) else ""


def kernel_usage(log: str) -> tuple[KernelUsage, ...]:
    """Returns registers, shared memory, spills and stack of each kernel from `ptxas -v`, in the order of the log.

    The stack frame is reported as well, since a kernel with "0 spills" may still use local memory.
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
    """Splits a log into messages of one or more lines: nvcc separates them by blank lines, g++ starts each with file:line."""
    blocks: list[list[str]] = []
    for line in log.splitlines():
        starts = bool(re.match(r"^\S.*?(\(\d+\)|:\d+(:\d+)?): (fatal )?(error|warning|note)", line)) or line.startswith("ptxas")
        if starts or not line.strip() or not blocks:
            blocks.append([])
        if line.strip() and not re.match(r"^\d+ errors? detected|^In file included|^\s+from ", line):
            blocks[-1].append(line.rstrip())
    return ["\n".join(block) for block in blocks if block]


def _with_source(block: str, root: Path) -> str:
    """Adds the source line to a message that does not show it (ptxas, the linker, some of nvcc's)."""
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
