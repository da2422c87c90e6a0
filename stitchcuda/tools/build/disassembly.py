"""Machine code as instructions: finds NVIDIA's disassemblers, runs them in the sandbox, reads what they print.

Cubins, and those that `cuobjdump` takes out of an object or a library, go to `nvdisasm`, whose JSON names every part of an
instruction. Where one of the two is missing or too old, the text of `cuobjdump -sass` or `nvdisasm -c` is read, which says
the same but for the names of subroutines. It counts and judges nothing. Where to look next: `tools/build/sass.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox import command
from stitchcuda.tools.device import toolkit

_SECONDS = 120.0                           # for one file; a library full of CUTLASS kernels takes a tenth of it
_BYTES = 16                                # of one instruction, from Volta on
_ELF = b"\x7fELF"
_KNOWN = (_ELF, b"\x50\xed\x55\xba", b"!<ar")   # and a fat binary, a static library
_CUDA_MACHINE = 190                        # EM_CUDA in an ELF header: a cubin, not a host's object or library
_EMPTY = "does not contain device code"
_REMEDY = "install one with: pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump"
_FUNCTION = re.compile(r"^\s*(?:Function : |\.section\s+\.text\.)(?P<name>[^\s,]+)")
_LABEL = re.compile(r"^(?P<label>\.L_x_\d+):")
_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:(?P<predicate>@!?\w+)\s+)?(?P<opcode>[A-Z][\w.]*)(?:\s+(?P<operands>[^;]*?))?\s*;"
)


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

    Raises `BadInput` for a file that no disassembler reads, `Unavailable` where there is none.
    """
    kind = _kind(binary)
    with tempfile.TemporaryDirectory(prefix="stitchcuda-sass-") as folder:
        scratch = Path(folder)
        if kind == "cubin":
            return _read([binary], _ways(), scratch)
        if find("nvdisasm"):
            for tool in find("cuobjdump"):
                finished = _run(tool, ("-xelf", "all"), binary, scratch)
                if _EMPTY in finished.output:
                    return []
                taken = sorted(scratch.glob("*.cubin"))
                # Cubins of sources with one name get one name too, and all but the last are lost.
                if finished.code == 0 and 0 < len(taken) == finished.output.count("Extracting ELF file"):
                    return _read(taken, _ways(), scratch)
        return _read([binary], [way for way in _ways() if way[1] == "-sass"], scratch)


def _ways() -> list[tuple[Path, str]]:
    """Tools with their options, best first."""
    readers, dumpers = find("nvdisasm"), find("cuobjdump")
    return [*((tool, "-json") for tool in readers), *((tool, "-sass") for tool in dumpers), *((tool, "-c") for tool in readers)]


def _read(files: Sequence[Path], ways: Sequence[tuple[Path, str]], scratch: Path) -> list[SassFunction]:
    if not ways:
        raise Unavailable(f"no disassembler for {files[0].name}: none in the toolkit, on the PATH or in a package; {_REMEDY}")
    said = ""
    for tool, option in ways:
        outputs = []
        for file in files:
            finished = _run(tool, (option,), file, scratch)
            if _EMPTY in finished.output and _kind(file) == "host":
                continue
            if finished.code != 0:
                said = said or f"{tool.name} says: {finished.output.strip()[-300:] or finished.code}"
                break
            outputs.append(finished.output)
        else:
            reader = _from_json if option == "-json" else _from_text
            try:
                return [function for output in outputs for function in reader(output)]
            except BadInput as why:
                said = said or str(why)
    raise BadInput(f"the machine code in {files[0]} cannot be read; {said}")


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
        for one in (function for part in lists for function in part):
            parts = one["sass-instructions"]
            code = [
                Instruction(place * _BYTES, str(part.get("predicate", "")), str(part["opcode"]), str(part.get("operands", "")))
                for place, part in enumerate(parts)
            ]
            yield SassFunction(str(one["function-name"]), code)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(f"nvdisasm printed what is no list of functions: {text[:200]!r}") from error


def _from_text(text: str) -> Iterator[SassFunction]:
    """What `cuobjdump -sass` and `nvdisasm -c` print; the latter writes branch targets as labels."""
    name, code, labels = "", list[Instruction](), dict[str, int]()
    waiting: list[str] = []

    def finished() -> Iterator[SassFunction]:
        if code:
            yield SassFunction(name, [one._replace(operands=_resolved(one.operands, labels)) for one in code])

    for line in text.splitlines():
        if (found := _INSTRUCTION.match(line)) is not None:
            address = int(found["address"], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting = []
            operands = re.sub(r"\s+", "", found["operands"] or "")
            code.append(Instruction(address, found["predicate"] or "", found["opcode"], operands))
        elif (label := _LABEL.match(line)) is not None:
            waiting.append(label["label"])
        elif (head := _FUNCTION.match(line)) is not None:
            yield from finished()
            name, code, labels, waiting = head["name"], [], {}, []
    yield from finished()


def _resolved(operands: str, labels: dict[str, int]) -> str:
    return re.sub(r"`\((\.L_x_\d+)\)", lambda found: hex(labels.get(found[1], 0)), operands)
