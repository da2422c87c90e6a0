"""Lists the kernels in a built library or in sources, and classifies the name of a kernel that a profiler saw by its origin.

`in_library` reads the symbol tables of the cubins within the file; where these are compressed, the host's stubs, one function
per kernel. Names are demangled, as CUPTI shows them. A kernel that is not the program's own is a vendor's if its name matches
`_VENDOR`, else the framework's. No library is loaded.
Where to look next: `verify/integrity/device_time.py`, `tools/profile/nsys_export.py` (which classify kernels).
"""

from __future__ import annotations

import ast
import ctypes
import ctypes.util
import re
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.tools.build import masks

_ELF = b"\x7fELF\x02\x01"
_CUDA = 190                                # e_machine of a cubin
_ENTRY = 0x10                              # the bit of st_other that marks a kernel
_FUNCTION = 2                              # STT_FUNC
_NEAR = 16                                 # characters in front of a parenthesis: all of a long name would be copied for each
_STUB = re.compile(r"_ZL?(\d+)__device_stub_")
_VENDOR = re.compile(
    r"cublas|cudnn|cutlass|nvjet|gemm|gemv|xmma|flash_fwd|flash_attn|fmha|implicit_convolve|winograd|cusparse|cufft|"
    r"splitKreduce|dot_kernel|sm\d\d_|ampere_|volta_|hopper_|convolve|nchwToNhwc|nhwcToNchw|RNN_|LSTM|GRU",
    re.IGNORECASE,
)
_CALLED = re.compile(r"(cublas|cublasLt|cudnn|cufft|cusparse|cusolver)[A-Z]")


def in_library(library: Path) -> tuple[str, ...]:
    """Returns the demangled names of the kernels in a shared library or object; () for a file without device code."""
    data = library.read_bytes()
    names: dict[str, None] = {}
    for at in _images(data):
        names |= dict.fromkeys(name for name, kind, other in _symbols(data, at) if kind == _FUNCTION and other & _ENTRY)
    if not names:
        names |= dict.fromkeys(stub for name, kind, _ in _symbols(data, 0) if kind == _FUNCTION for stub in _stubbed(name))
    return tuple(demangled(name) for name in names)


def calls_vendors(library: Path) -> bool:
    """Whether a shared library names a function of cuBLAS, cuDNN or the like, so that its code may call it."""
    return any(_CALLED.match(name) for name, *_ in _symbols(library.read_bytes(), 0))


def undefined_symbols(object_file: Path) -> frozenset[str]:
    """Returns the symbols that an object uses and does not define."""
    return frozenset(name for name, kind, _ in _symbols(object_file.read_bytes(), 0) if kind == 0 and name)


def in_sources(folder: Path) -> tuple[str, ...]:
    """Returns the names of the `__global__` functions in a program's sources, including CUDA in strings of its Python files."""
    names: list[str] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cu", ".cuh", ".py", ".h", ".hpp") and path.is_file():
            text = path.read_text(errors="replace")
            for part in _strings(text) if path.suffix == ".py" else [text]:
                names += [name.split("#")[0] for name, _ in masks.kernel_definitions(part)]
    return tuple(dict.fromkeys(names))


def _strings(text: str) -> list[str]:
    """Returns the string literals of a Python source, which may hold CUDA."""
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError):
        return []                          # such a program does not load either
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def base_name(kernel: str) -> str:
    """Returns "scale" for "void ns::scale<float>(float*)": no return type, namespaces, template arguments or parameters."""
    plain = re.sub(r"\(anonymous namespace\)|<unnamed>", "", kernel.removeprefix("void "))
    name, angles, parentheses = "", 0, 0
    for letter in plain:
        if letter in "()" and (angles or parentheses or name[-_NEAR:].rstrip().endswith("decltype")):
            parentheses += 1 if letter == "(" else -1
        elif parentheses:
            continue                       # here < may be a comparison
        elif letter == "(":
            break
        elif letter == "<":
            angles += 1
        elif letter == ">" and angles:
            angles -= 1
        elif not angles:
            name += letter
    if ("(" in plain or "<" in plain) and not name.endswith(" "):
        name = name.split(" ")[-1]         # behind the return type of a template; copies have blanks in their names
    return name.split("::")[-1].strip()


def classify(kernel: str, own: Iterable[str]) -> Literal["own", "vendor", "framework"]:
    """Returns "own", "vendor" or "framework" for a demangled kernel name. `own`: the program's kernels, full or base names."""
    if kernel in own or base_name(kernel) in own:
        return "own"
    return "vendor" if _VENDOR.search(kernel) else "framework"


@cache
def demangled(name: str) -> str:
    """Demangles a name by `abi::__cxa_demangle`; a name that is not mangled is returned as it is."""
    if not name.startswith("_Z"):
        return name
    try:
        library = _demangler()
    except OSError:
        return name                        # there is no C++ runtime
    status = ctypes.c_int()
    made = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not made:
        return name
    try:
        return ctypes.string_at(made).decode("utf-8", "replace")
    finally:
        _free(made)


@cache
def _demangler() -> ctypes.CDLL:
    library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library


def _free(pointer: int) -> None:
    ctypes.CDLL(None).free(ctypes.c_void_p(pointer))


def _images(data: bytes) -> Iterator[int]:
    at = data.find(_ELF, 1)
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] == _CUDA:
            yield at
        at = data.find(_ELF, at + 1)


def _symbols(data: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """Yields (name, type, st_other) of the symbols of the ELF file that begins at `at`."""
    if data[at : at + 6] != _ELF:
        return
    try:
        offset, = struct.unpack_from("<Q", data, at + 0x28)
        size, count = struct.unpack_from("<HH", data, at + 0x3A)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + offset + number * size) for number in range(count)]
        for section in sections:
            if section[1] not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
                continue
            strings = at + sections[section[6]][4]
            for position in range(at + section[4], at + section[4] + section[5], 24):
                name, info, other = struct.unpack_from("<IBB", data, position)
                end = data.index(b"\0", strings + name)
                yield data[strings + name : end].decode("utf-8", "replace"), info & 0xF, other
    except (struct.error, IndexError, ValueError):
        return                             # the file is cut short or damaged


def _stubbed(symbol: str) -> list[str]:
    match = _STUB.match(symbol)
    if match is None:
        return []
    start = match.end(1)
    return [symbol[match.end() : start + int(match.group(1))]]
