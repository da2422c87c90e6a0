"""Counts the instructions of a kernel's machine code: access widths, units used, local memory, innermost loops.

Counts are of instructions in the code, not of executions. It needs no GPU and says nothing about time: it may explain what a
profiler measures.
Where to look next: `tools/build/disassembly.py` (which reads machine code), `tools/build/compiler_log.py` (ptxas' own report).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox import digest_seal
from stitchcuda.state import KernelUsage, Record
from stitchcuda.tools.build.disassembly import Instruction, SassFunction, disassemble
from stitchcuda.tools.build.kernel_names import demangled

# Opcodes: NVIDIA's "CUDA Binary Utilities", instruction sets of Ampere, Hopper and Blackwell.
_ATOMICS = ("ATOMG", "ATOM", "RED", "REDG", "ATOMS")
_BULK = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED")
_TENSOR = re.compile(r"(?:UTC)?[A-Z]{1,2}MMA")        # HMMA, IMMA, DMMA; HGMMA is Hopper's wgmma; UTCHMMA is Blackwell's
_FP64 = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
_FP32 = ("FADD", "FMUL", "FFMA", "FADD2", "FMUL2", "FFMA2")
_PACKED = ("HADD2", "HMUL2", "HFMA2")
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
_TARGET = re.compile(r"(?:^|,)0x([0-9a-f]+)$")
_SLOW = re.compile(r"\$__internal_\d+_\$_*(?:cuda_)?(?:sm\w+?_)?(?P<name>\w+)")

Widths = dict[int, int]
"""Numbers of instructions, by the bits that each moves for one thread."""


class SassLoop(Record):
    """The body of an innermost loop. One memory access in a short body means that the compiler did not unroll the loop."""

    instructions: int
    global_loads: int
    shared_loads: int
    arithmetic: int                        # FP32, packed 16-bit, FP64 and tensor instructions


class SassFacts(Record):
    """Numbers of instructions in one kernel's machine code."""

    name: str                              # demangled, as in `KernelUsage`
    instructions: int = 0                  # without padding
    global_loads: Widths = Field(default={})  # LDG, and LD where the compiler did not know the address space
    global_stores: Widths = Field(default={})
    async_copies: Widths = Field(default={})  # cp.async: from global to shared memory past the registers
    bulk_copies: int = 0                   # TMA
    shared_loads: Widths = Field(default={})  # LDS, and LDSM (ldmatrix)
    shared_stores: Widths = Field(default={})
    local_loads: int = 0                   # spills, or arrays that are indexed by a variable
    local_stores: int = 0
    tensor: dict[str, int] = Field(default={})  # by opcode
    fp32: int = 0
    packed: int = 0                        # two 16-bit numbers at once
    fp64: int = 0                          # conversions to and from it included
    special: int = 0                       # MUFU: exp2, log2, sin, reciprocal, square root
    barriers: int = 0                      # of a block
    mbarriers: int = 0
    global_atomics: int = 0
    shared_atomics: int = 0
    subroutines: tuple[str, ...] = ()      # the compiler's own slow paths, such as exact division
    loops: tuple[SassLoop, ...] = ()           # innermost ones only


def facts(binary: Path) -> tuple[SassFacts, ...]:
    """Counts for every function in a cubin, an object or a library, in its order.

    Raises `Unavailable` without a disassembler (the sentence has the remedy), `BadInput` for any other file.
    """
    return tuple(facts_of(function) for function in disassemble(binary))


def facts_of(function: SassFunction) -> SassFacts:
    """Counts for one function that is disassembled already."""
    code = _without_padding(function.code)
    bases = Counter(instruction.opcode.partition(".")[0] for instruction in code)

    def count(*names: str) -> int:
        return sum(bases[name] for name in names)

    def widths(*names: str) -> Widths:
        found = Counter(_width(instruction.opcode) for instruction in code if instruction.opcode.partition(".")[0] in names)
        return dict(sorted(found.items(), reverse=True))

    return SassFacts(
        name=demangled(function.symbol),
        instructions=len(code),
        global_loads=widths("LDG", "LD"),
        global_stores=widths("STG", "ST"),
        async_copies=widths("LDGSTS"),
        bulk_copies=count(*_BULK),
        shared_loads=widths("LDS", "LDSM"),
        shared_stores=widths("STS", "STSM"),
        local_loads=count("LDL"),
        local_stores=count("STL"),
        tensor={name: number for name, number in sorted(bases.items()) if _TENSOR.fullmatch(name)},
        fp32=count(*_FP32),
        packed=sum(_is_packed(instruction) for instruction in code),
        fp64=sum(_is_double(instruction) for instruction in code),
        special=count("MUFU"),
        barriers=count("BAR"),
        mbarriers=count("SYNCS"),
        global_atomics=count(*_ATOMICS[:-1]),
        shared_atomics=count("ATOMS"),
        subroutines=_subroutines(code),
        loops=_innermost(code),
    )


def with_machine_code(
    kernels: Sequence[KernelUsage], binaries: Iterable[Path]
) -> tuple[tuple[KernelUsage, ...], tuple[str, ...]]:
    """Returns the kernels with their `machine` filled in by `summarize`, and notes on those for which that was not possible."""
    try:
        found = dict(line for binary in binaries for line in _lines(binary, digest_seal.sha256(binary)))
    except (Unavailable, BadInput) as why:
        return tuple(kernels), (f"machine code was not looked at: {why}",)
    lost = ", ".join(kernel.name for kernel in kernels if kernel.name not in found)
    notes = (f"machine code was not found in what was built, or not by the disassembler: {lost}",) if lost else ()
    return tuple(kernel.model_copy(update={"machine": found.get(kernel.name, "")}) for kernel in kernels), notes


@lru_cache(maxsize=512)
def _lines(binary: Path, digest: str) -> tuple[tuple[str, str], ...]:
    """Returns (name, line) of a binary's functions. Cached, since programs of a session share most of their kernels."""
    return tuple((fact.name, summarize(fact).partition(": ")[2]) for fact in facts(binary))


def summarize(facts: SassFacts) -> str:
    """Describes one kernel in a line for models and people. Left out is what it does not use, except for 128-bit accesses."""
    said = [f"{facts.instructions} instructions"]
    for what, widths in (("load", facts.global_loads), ("store", facts.global_stores)):
        if widths:
            narrow = "" if max(widths) >= 128 else f"no 128-bit {what}s: "
            said.append(f"{narrow}global {what}s {_widths(widths)}")
    if facts.async_copies:
        said.append(f"cp.async {_widths(facts.async_copies)}")
    if facts.bulk_copies:
        said.append(f"{facts.bulk_copies} TMA copies")
    for what, widths in (("loads", facts.shared_loads), ("stores", facts.shared_stores)):
        if widths:
            said.append(f"shared {what} {_widths(widths)}")
    if facts.local_loads or facts.local_stores:
        local = f"{facts.local_loads} loads, {facts.local_stores} stores"
        said.append(f"LOCAL MEMORY: {local} (spills, or an array indexed at run time)")
    if facts.tensor:
        said.append("tensor cores: " + ", ".join(f"{number} {name}" for name, number in facts.tensor.items()))
    units = (("FP32", facts.fp32), ("packed 16-bit", facts.packed), ("FP64", facts.fp64), ("MUFU", facts.special))
    said += [f"{number} {name}" for name, number in units if number]
    others = (
        ("block barrier", facts.barriers), ("mbarrier operation", facts.mbarriers),
        ("global atomic", facts.global_atomics), ("shared atomic", facts.shared_atomics),
    )  # fmt: skip
    said += [f"{number} {name}{'s' if number > 1 else ''}" for name, number in others if number]
    if facts.subroutines:
        said.append(f"calls {', '.join(facts.subroutines)}")
    if facts.loops:
        longest = max(facts.loops, key=lambda loop: (loop.arithmetic, loop.instructions))
        many = f"{len(facts.loops)} innermost loops, the heaviest: " if len(facts.loops) > 1 else "innermost loop: "
        said.append(
            f"{many}{longest.instructions} instructions, {longest.global_loads} global loads, "
            f"{longest.shared_loads} shared loads, {longest.arithmetic} arithmetic"
        )
    return f"{facts.name}: {'; '.join(said)}"


def _widths(widths: Widths) -> str:
    return ", ".join(f"{number} of {bits} bits" for bits, number in widths.items())


def _width(opcode: str) -> int:
    """Returns the bits that one thread moves; a matrix load or store moves 1, 2 or 4 words of 32 bits."""
    base, *modifiers = opcode.split(".")
    if base in ("LDSM", "STSM"):
        return 32 * next((int(part) for part in reversed(modifiers) if part in ("2", "4")), 1)
    return next((_WIDTHS[modifier] for modifier in modifiers if modifier in _WIDTHS), 32)


def _is_packed(instruction: Instruction) -> bool:
    """Whether it computes with packed 16-bit numbers; `HFMA2.MMA R2,-RZ,RZ,0,0` only loads a constant."""
    return instruction.opcode.partition(".")[0] in _PACKED and ",-RZ,RZ," not in instruction.operands


def _is_double(instruction: Instruction) -> bool:
    base, *modifiers = instruction.opcode.split(".")
    return base in _FP64 or "F64" in modifiers or any(modifier.endswith("64H") for modifier in modifiers)


def _without_padding(code: Sequence[Instruction]) -> list[Instruction]:
    """Leaves out NOPs, instructions that never run (`@!PT`), and the jump to itself that the compiler puts behind the end."""
    run = [instruction for instruction in code if instruction.opcode != "NOP" and instruction.predicate != "@!PT"]
    return [instruction for instruction in run if _target(instruction) != instruction.address]


def _subroutines(code: Sequence[Instruction]) -> tuple[str, ...]:
    called = (_SLOW.search(instruction.operands) for instruction in code if instruction.opcode.startswith("CALL"))
    return tuple(sorted({found["name"] for found in called if found is not None}))


def _target(instruction: Instruction) -> int | None:
    found = _TARGET.search(instruction.operands) if instruction.opcode.partition(".")[0] == "BRA" else None
    return int(found[1], 16) if found is not None else None


def _innermost(code: Sequence[Instruction]) -> tuple[SassLoop, ...]:
    """Finds loops that hold no other loop.

    A jump back belongs to a loop only if forward steps lead from its target to the jump: rarely needed code, which compilers
    put behind the function's end, jumps back as well.
    """
    place = {instruction.address: number for number, instruction in enumerate(code)}
    spans: dict[int, int] = {}
    for number, instruction in enumerate(code):
        head = place.get(target) if (target := _target(instruction)) is not None else None
        if head is not None and head <= number and _reaches(code, place, head, number):
            spans[head] = max(number, spans.get(head, number))
    inner = [
        (head, end) for head, end in spans.items()
        if not any(head <= other and last <= end and (other, last) != (head, end) for other, last in spans.items())
    ]  # fmt: skip
    return tuple(_loop(code[head : end + 1]) for head, end in inner)


def _reaches(code: Sequence[Instruction], place: dict[int, int], start: int, end: int) -> bool:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        at = waiting.pop()
        while at <= end and at not in seen:
            if at == end:
                return True
            seen.add(at)
            instruction = code[at]
            target = _target(instruction)
            to = place.get(target) if target is not None else None
            if to is not None and to > at:
                waiting.append(to)
            jumps = instruction.opcode == "BRA" and "," not in instruction.operands
            ends = jumps or instruction.opcode.partition(".")[0] in ("EXIT", "RET")
            if ends and instruction.predicate in ("", "@PT"):
                break
            at += 1
    return False


def _loop(body: Sequence[Instruction]) -> SassLoop:
    bases = [instruction.opcode.partition(".")[0] for instruction in body]
    return SassLoop(
        instructions=len(body),
        global_loads=sum(base in ("LDG", "LD", "LDGSTS") for base in bases),
        shared_loads=sum(base in ("LDS", "LDSM") for base in bases),
        arithmetic=sum(
            base in _FP32 or base in _FP64 or _TENSOR.fullmatch(base) is not None or _is_packed(instruction)
            for base, instruction in zip(bases, body, strict=True)
        ),
    )
