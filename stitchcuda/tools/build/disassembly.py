"""Disassembles a binary into SASS instructions: finds NVIDIA's disassemblers and runs them in the sandbox.

Cubins, and those that `cuobjdump` takes out of an object or a library, go to `nvdisasm`, whose JSON names every part of an
instruction. It counts and judges nothing. Where to look next: `tools/build/sass.py`.
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
_BYTES = 16                                # of one instruction, from Volta on
_ELF = b"\x7fELF"
_KNOWN = (_ELF, b"\x50\xed\x55\xba", b"!<ar")   # and a fat binary, a static library
_CUDA_MACHINE = 190                        # EM_CUDA in an ELF header: a cubin, not a host's object or library
_EMPTY = ("does not contain device code", "No ELF file found to extract")  # the latter: PTX alone


class Instruction(NamedTuple):
    """One instruction. `operands` without blanks, as in `R9,desc[UR4][R8.64]`; branch targets are addresses in bytes."""

    address: int
    predicate: str
    opcode: str                            # with its modifiers: "LDG.E.128"
    operands: str


class SassFunction(NamedTuple):
    """One function's code, in the order of its addresses."""

    symbol: str
    code: list[Instruction]


def find(name: str) -> list[Path]:
    """Every `nvdisasm` or `cuobjdump` of this machine, best first: the toolkit's, the PATH's, those of Python's packages.

    Triton brings both along as well; they come last, for they may be older than the compiler.
    """
    kit = toolkit.find_toolkit()
    places = [kit.nvcc.parent, kit.nvcc.resolve().parent, kit.home / "bin"] if kit is not None else []
    found = [place / name for place in places]
    found += [Path(path)] if (path := shutil.which(name)) else []
    roots = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path) if folder]
    for pattern in ("nvidia/cu[0-9]*/bin", "triton/backends/nvidia/bin"):
        found += [folder / name for root in roots for folder in sorted(root.glob(pattern), reverse=True)]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def functions(binary: Path) -> list[SassFunction]:
    """Every GPU function in a cubin, an object or a shared library; none for a library without device code.

    Raises `BadInput` for a file that no disassembler reads, or whose sources include two of one name, `Unavailable` where there
    is no disassembler.
    """
    kind = _kind(binary)
    with tempfile.TemporaryDirectory(prefix="stitchcuda-sass-") as folder:
        scratch = Path(folder)
        files = [binary] if kind == "cubin" else _cubins(binary, scratch)
        return [function for file in files for function in _read(file, scratch)]


def _cubins(binary: Path, scratch: Path) -> list[Path]:
    """Those of an object or a library, taken out of it."""
    said = ""
    for tool in _tools("cuobjdump", binary):
        finished = _run(tool, ("-xelf", "all"), binary, scratch)
        if any(empty in finished.output for empty in _EMPTY):
            return []
        taken = sorted(scratch.glob("*.cubin"))
        number = finished.output.count("Extracting ELF file")
        if finished.code == 0 and 0 < len(taken) == number:
            return taken
        # Cubins of sources with one name get one name too, and all but the last are lost.
        shared = f"{number} cubins of sources with {len(taken)} names" if len(taken) < number else ""
        said = said or shared or f"{tool.name} says: {finished.output.strip()[-300:] or finished.code}"
    raise BadInput(f"the machine code in {binary} cannot be read; {said}")


def _read(cubin: Path, scratch: Path) -> list[SassFunction]:
    said = ""
    for tool in _tools("nvdisasm", cubin):
        finished = _run(tool, ("-json",), cubin, scratch)
        if finished.code == 0:
            try:
                return list(_from_json(finished.output))
            except BadInput as why:
                said = said or str(why)
        said = said or f"{tool.name} says: {finished.output.strip()[-300:] or finished.code}"
    raise BadInput(f"the machine code in {cubin} cannot be read; {said}")


def _tools(name: str, binary: Path) -> list[Path]:
    found = find(name)
    if not found:
        remedy = f"install one with: {remedies.install('nvidia-cuda-nvdisasm', 'nvidia-cuda-cuobjdump')}"
        raise Unavailable(f"no disassembler for {binary.name}: no {name} in toolkit, PATH or packages; {remedy}")
    return found


def _run(tool: Path, options: tuple[str, ...], binary: Path, scratch: Path) -> command.Finished:
    order = (str(tool), *options, str(binary.resolve()))
    return command.run(order, seconds=_SECONDS, cwd=scratch, read=(binary.resolve(),), write=(scratch,))


def _kind(binary: Path) -> Literal["cubin", "host"]:
    """What the file's first bytes say."""
    try:
        with open(binary, "rb") as file:
            head = file.read(20)
    except OSError as error:
        raise BadInput(f"cannot read {binary}: {error.strerror}") from error
    if head[:4] not in _KNOWN:
        raise BadInput(f"{binary} is no cubin, object or library, so it holds no machine code")
    return "cubin" if head[:4] == _ELF and int.from_bytes(head[18:20], "little") == _CUDA_MACHINE else "host"


def _from_json(text: str) -> Iterator[SassFunction]:
    """nvdisasm's list: facts about the file, then one list of functions. Instructions have no addresses, but one size."""
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
