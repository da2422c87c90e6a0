"""Disassembles a binary into SASS instructions: finds NVIDIA's disassemblers and runs them in the sandbox.

`cuobjdump` extracts cubins from an object or a library; `nvdisasm` turns each cubin into JSON. If one disassembler fails, the
next one of the machine is tried. It counts nothing.
Where to look next: `tools/build/sass.py` (which counts).
"""

from __future__ import annotations

import json
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from stitchcuda import remedies
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox import command
from stitchcuda.tools.device import toolkit

_SECONDS = 120.0                           # for one file; a library full of CUTLASS kernels takes a tenth of it
_BYTES = 16                                # the size of an instruction, since Volta
_ELF = b"\x7fELF"
_KNOWN = (_ELF, b"\x50\xed\x55\xba", b"!<ar")   # what ELF files, fat binaries and static libraries begin with
_CUDA_MACHINE = 190                        # EM_CUDA in an ELF header: a cubin, not a host's object or library
_EMPTY = ("does not contain device code", "No ELF file found to extract")  # the second for a file with PTX alone


class Instruction(NamedTuple):
    """One SASS instruction. `operands` have no blanks, as in `R9,desc[UR4][R8.64]`; branch targets are addresses in bytes."""

    address: int
    predicate: str
    opcode: str                            # with its modifiers: "LDG.E.128"
    operands: str


class SassFunction(NamedTuple):
    """A function's instructions, in the order of their addresses."""

    symbol: str
    code: list[Instruction]


def find_tools(name: str) -> list[Path]:
    """Returns every `nvdisasm` or `cuobjdump` of this machine, best first: the toolkit's, the PATH's, then Python packages'.

    Triton's come last, since they may be older than the compiler.
    """
    kit = toolkit.find_toolkit()
    places = [kit.nvcc.parent, kit.nvcc.resolve().parent, kit.home / "bin"] if kit is not None else []
    found = [place / name for place in places]
    found += [Path(path)] if (path := shutil.which(name)) else []
    roots = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path) if folder]
    for pattern in ("nvidia/cu[0-9]*/bin", "triton/backends/nvidia/bin"):
        found += [folder / name for root in roots for folder in sorted(root.glob(pattern), reverse=True)]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def disassemble(binary: Path) -> list[SassFunction]:
    """Returns every GPU function in a cubin, an object or a shared library; [] for a file without device code.

    Raises `BadInput` for a file that no disassembler reads, or that was built from two sources of one name; `Unavailable`
    without a disassembler.
    """
    kind = _kind(binary)
    with tempfile.TemporaryDirectory(prefix="stitchcuda-sass-") as folder:
        scratch = Path(folder)
        files = [binary] if kind == "cubin" else _cubins(binary, scratch)
        return [function for file in files for function in _read(file, scratch)]


def _cubins(binary: Path, scratch: Path) -> list[Path]:
    """Extracts the cubins of an object or a library into `scratch`."""
    why = ""
    for tool in _tools("cuobjdump", binary):
        finished = _run(tool, ("-xelf", "all"), binary, scratch)
        if any(empty in finished.output for empty in _EMPTY):
            return []
        taken = sorted(scratch.glob("*.cubin"))
        number = finished.output.count("Extracting ELF file")
        if finished.code == 0 and 0 < len(taken) == number:
            return taken
        # Cubins of two sources with one name get one name as well, so that all but the last are lost.
        shared = f"{number} cubins of sources with {len(taken)} names" if len(taken) < number else ""
        why = why or shared or f"{tool.name} says: {finished.output.strip()[-300:] or finished.code}"
    raise BadInput(f"the machine code in {binary} cannot be read; {why}")


def _read(cubin: Path, scratch: Path) -> list[SassFunction]:
    why = ""
    for tool in _tools("nvdisasm", cubin):
        finished = _run(tool, ("-json",), cubin, scratch)
        if finished.code == 0:
            try:
                return list(_from_json(finished.output))
            except BadInput as error:
                why = why or str(error)
        why = why or f"{tool.name} says: {finished.output.strip()[-300:] or finished.code}"
    raise BadInput(f"the machine code in {cubin} cannot be read; {why}")


def _tools(name: str, binary: Path) -> list[Path]:
    found = find_tools(name)
    if not found:
        remedy = f"install one with: {remedies.install('nvidia-cuda-nvdisasm', 'nvidia-cuda-cuobjdump')}"
        raise Unavailable(f"no disassembler for {binary.name}: no {name} in toolkit, PATH or packages; {remedy}")
    return found


def _run(tool: Path, options: tuple[str, ...], binary: Path, scratch: Path) -> command.Finished:
    order = (str(tool), *options, str(binary.resolve()))
    return command.run(order, seconds=_SECONDS, cwd=scratch, read=(binary.resolve(),), write=(scratch,))


def _kind(binary: Path) -> Literal["cubin", "host"]:
    """Tells a cubin from an object or library by the file's first bytes. Raises `BadInput` for any other file."""
    try:
        with open(binary, "rb") as file:
            head = file.read(20)
    except OSError as error:
        raise BadInput(f"cannot read {binary}: {error.strerror}") from error
    if head[:4] not in _KNOWN:
        raise BadInput(f"{binary} is no cubin, object or library, so it holds no machine code")
    return "cubin" if head[:4] == _ELF and int.from_bytes(head[18:20], "little") == _CUDA_MACHINE else "host"


def _from_json(text: str) -> Iterator[SassFunction]:
    """Parses nvdisasm's JSON: facts about the file, then lists of functions. Addresses follow from the instructions' size."""
    try:
        _, *lists = json.loads(text[text.index("[") :])
        for entry in (function for part in lists for function in part):
            parts = entry["sass-instructions"]
            code = [
                Instruction(place * _BYTES, str(part.get("predicate", "")), str(part["opcode"]), str(part.get("operands", "")))
                for place, part in enumerate(parts)
            ]
            yield SassFunction(str(entry["function-name"]), code)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(f"nvdisasm printed what is no list of functions: {text[:200]!r}") from error
