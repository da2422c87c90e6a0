"""What of a cubin decides what its kernels do, as digests: code, constants, resources, and what they refer to by name.

Line tables, notes, the compiler's version and the order of functions have no say, nor has a kernel's own name; a cubin names
what internal linkage hides after the compilation, and that is left out too. It reads files and loads nothing. Where to look
next: `tools/build/code_fingerprint.py` (for whom), `tools/build/kernel_names.py` (names alone), `tools/build/disassembly.py`
(instructions).

Layout: ELF64, sections and symbols as `readelf` shows them; `.nv.info` as cuobjdump prints it (EIATTR_…).
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stitchcuda.tools.build.kernel_names import base_name, demangled

_ELF = b"\x7fELF"
_CUBIN = 190                               # e_machine
_FAT = b"\x50\xed\x55\xba"                 # a fat binary's first bytes; its version 1 has a header of 16 bytes
_FAT_CODE, _FAT_TEXT = 2, 1                # kinds of what lies in one: a cubin, PTX
_KERNEL = 0x10                             # in st_other
_OBJECT, _FUNCTION, _SECTION = 1, 2, 3     # symbols
_EMPTY, _SYMBOLS, _STRINGS, _RELA, _NO_BITS, _REL = 0, 2, 3, 4, 8, 9      # sections
_INFO, _SIZED = ".nv.info", 4              # attributes of that form have their size before them
_SAYS_NOTHING = re.compile(r"\.(debug|nv_debug|note|nv\.note|nv\.compat|nv\.callgraph|nv\.prototype|rela?\.(debug|nv_debug))")
_OF_SYMBOLS = (0x0F,)                      # .nv.info: a list of symbols (EXTERNS)
_OF_ONE_SYMBOL = (0x0A, 0x11, 0x12, 0x23, 0x2F)  # a symbol, then a number (PARAM_CBANK, stack and frame sizes, REGCOUNT)
_UNIT = re.compile(r"\b_(INTERNAL|GLOBAL__N_)_[0-9a-f]{8}_\w+")    # names one compilation of a file


class Function(NamedTuple):
    """A kernel, or a device function that has a section of its own. `name` is a kernel's without types, namespaces or template
    arguments; "" for the others. `mangled`: that the full name says these, and is part of `digest`."""

    name: str
    mangled: bool
    digest: str


class Cubin(NamedTuple):
    """One translation unit's device code. `rest`: what belongs to no function, such as variables and the architecture."""

    functions: tuple[Function, ...]
    rest: str


def cubins(binary: Path) -> list[Cubin] | None:
    """All of a cubin, an object or a shared library, in the order in which they were linked; none for host code alone.

    None where device code cannot be read: it is compressed, PTX that some driver is to compile, or not laid out as expected.
    """
    data = binary.read_bytes()
    try:
        if data[:4] == _ELF and struct.unpack_from("<H", data, 18)[0] == _CUBIN:
            return [_cubin(data)]
        images = list(_images(data))
        return [_cubin(image) for image in images] if images or b".nv_fatbin" not in data else None
    except (struct.error, IndexError, ValueError):
        return None


def _images(data: bytes) -> Iterator[bytes]:
    """Cubins of all fat binaries. Raises `ValueError` for one without any, or with one that does not lie there plainly."""
    at = data.find(_FAT)
    while at >= 0:
        version, head, size = struct.unpack_from("<HHQ", data, at + 4)
        if (version, head) == (1, 16) and size <= len(data) - at:
            inside, end, found = at + head, at + head + size, False
            while inside < end:
                kind, _, before, length = struct.unpack_from("<HHIQ", data, inside)
                image = data[inside + before : inside + before + length]
                if kind not in (_FAT_CODE, _FAT_TEXT) or before + length == 0 or (kind == _FAT_CODE and image[:4] != _ELF):
                    raise ValueError("device code in a form that is not known")
                if kind == _FAT_CODE:
                    found = True
                    yield image
                inside += before + length
            if not found:
                raise ValueError("no machine code")
        at = data.find(_FAT, at + 4)


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    start: int
    size: int
    link: int
    info: int
    entry: int


class _Symbol(NamedTuple):
    name: str
    kind: int
    other: int
    section: int
    value: int
    size: int


def _cubin(image: bytes) -> Cubin:
    read = _Reading(image)
    lines: dict[str, list[str]] = defaultdict(list)        # by function
    for number, section in enumerate(read.sections):
        if section.kind in (_EMPTY, _SYMBOLS, _STRINGS) or _SAYS_NOTHING.match(section.name):
            continue
        kind, own = read.homes[number]
        if kind == _INFO:
            for whose, line in read.attributes(section, own):
                lines[own or whose].append(f"{kind} {line}")
        elif section.kind in (_REL, _RELA):
            lines[own] += [f"{kind} {line}" for line in read.relocations(section, own)]
        else:
            lines[own].append(f"{kind} {read.content(section, kind)}")
    for one in read.symbols:
        if one.kind == _OBJECT and one.section:
            lines[""].append(f"{_plain(one.name)} {read.home(one.section)} {one.value} {one.size} {one.other}")
    shared = lines.pop("", [])
    flags, = struct.unpack_from("<I", image, 0x30)         # the architecture
    found = (_function(name, content, read.kernels) for name, content in lines.items())
    return Cubin(tuple(sorted(found)), _digest([f"{flags:x} {image[7:9].hex()}", *shared]))


def _function(symbol: str, lines: list[str], kernels: frozenset[str]) -> Function:
    full = _plain(symbol)
    name = base_name(full) if symbol in kernels else ""
    own = re.search(rf"\b{re.escape(name)}(?=[<(]|$)", full) if name else None
    signature = f"{full[: own.start()]}@{full[own.end() :]}" if own else full
    return Function(name if own else "", full != symbol, _digest([signature, *lines]))


class _Reading:
    """The tables of one cubin."""

    def __init__(self, image: bytes) -> None:
        self._image = image
        self.sections = self._sections()
        self.symbols = self._symbols()
        functions = {one.name for one in self.symbols if one.kind == _FUNCTION}
        self.kernels = frozenset(one.name for one in self.symbols if one.kind == _FUNCTION and one.other & _KERNEL)
        self.homes = [_split(one.name, functions) for one in self.sections]

    def attributes(self, section: _Section, own: str) -> Iterator[tuple[str, str]]:
        """(the function that it is about, what it says) for each attribute."""
        at, end = section.start, section.start + section.size
        while at < end:
            form, what, value = struct.unpack_from("<BBH", self._image, at)
            at += 4
            if form != _SIZED:
                yield "", f"{what:x} {form} {value}"
                continue
            content = self._image[at : at + value]
            at += value
            count = value // 4 if what in _OF_SYMBOLS else 1 if what in _OF_ONE_SYMBOL else 0
            named = [self.symbols[number] for number in struct.unpack_from(f"<{count}I", content)]
            whose = self.homes[named[0].section][1] if what in _OF_ONE_SYMBOL and named[0].section else ""
            labels = [self._label(one, own or whose) for one in named]
            yield whose, f"{what:x} {labels} {content[4 * count :].hex()}"

    def relocations(self, section: _Section, own: str) -> Iterator[str]:
        for at in range(section.start, section.start + section.size, section.entry or 1):
            offset, info = struct.unpack_from("<QQ", self._image, at)
            addend = struct.unpack_from("<q", self._image, at + 16)[0] if section.kind == _RELA else 0
            yield f"{offset} {info & 0xFFFFFFFF} {self._label(self.symbols[info >> 32], own)} {addend}"

    def content(self, section: _Section, kind: str) -> str:
        # The upper byte of a code section's info is its number of registers, in cubins of older toolkits.
        registers = section.info >> 24 if kind == ".text" else 0
        stored = b"" if section.kind == _NO_BITS else self._image[section.start : section.start + section.size]
        said = f"{section.kind} {section.flags:x} {registers} {section.size}"
        return f"{said} {hashlib.sha256(stored).hexdigest()}"

    def home(self, number: int, own: str = "") -> str:
        """A section by what it is and whose, or by its number where that means something else."""
        kind, owner = self.homes[number] if number < len(self.homes) else (str(number), "")
        return f"{kind} @" if owner and owner == own else f"{kind} {_plain(owner)}"

    def _label(self, symbol: _Symbol, own: str) -> str:
        """A symbol by its name; the function's own by none, and parts of functions, which are numbered, by their place."""
        if symbol.name == own:
            return "@"
        if symbol.name.startswith("$") or not symbol.name or symbol.kind == _SECTION:
            return f"{self.home(symbol.section, own)} {symbol.value}"
        return _plain(symbol.name)

    def _sections(self) -> list[_Section]:
        offset, = struct.unpack_from("<Q", self._image, 0x28)
        size, count, names = struct.unpack_from("<HHH", self._image, 0x3A)
        rows = [struct.unpack_from("<IIQQQQIIQQ", self._image, offset + number * size) for number in range(count)]
        text = rows[names][4]
        return [_Section(self._text(text + row[0]), row[1], row[2], row[4], row[5], row[6], row[7], row[9]) for row in rows]

    def _symbols(self) -> list[_Symbol]:
        table = next((one for one in self.sections if one.kind == _SYMBOLS), None)
        if table is None:
            return []
        text, found = self.sections[table.link].start, []
        for at in range(table.start, table.start + table.size, 24):
            name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", self._image, at)
            found.append(_Symbol(self._text(text + name), info & 0xF, other, section, value, size))
        return found

    def _text(self, at: int) -> str:
        return self._image[at : self._image.index(b"\0", at)].decode("utf-8", "replace")


def _split(section: str, functions: set[str]) -> tuple[str, str]:
    """(".text", the function's symbol) of a section that is one function's; (its name, "") of another."""
    at = section.find(".", 1)
    while at > 0:
        if section[at + 1 :] in functions:
            return section[:at], section[at + 1 :]
        at = section.find(".", at + 1)
    return section, ""


def _plain(symbol: str) -> str:
    """A symbol's name for people, without what names the compilation; as it is where nothing can say it for people."""
    full = demangled(symbol)
    return full if full == symbol else _UNIT.sub(r"_\1", full)


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "replace")).hexdigest()
